"""Rows that Debezium's ExtractNewRecordState took out of their envelopes: what they do to a table."""

import json
import random
from typing import Any

import pytest
from registered_avro import Topic
from toy_registry import running

from backfill_cli.contracts import own
from backfill_cli.contracts.decoder import Asked, Decode, Decoded, Fault
from backfill_cli.decode.json_rows import decoder
from backfill_cli.formats.schemas import of_ddl

TEXT = "__debezium_unavailable_value"
Row = dict[str, Any]
PLAIN = "id BIGINT, note STRING, n INT"
NESTED = f"{PLAIN}, tags ARRAY<STRING>"
"""Arrow's parser reads the first, records of the second are read one by one."""


def opened(ddl: str, key: tuple[str, ...] = ("id",), **more: Any) -> Decode:
    asked = Asked("topic 't'", "t", "t", key, of_ddl(ddl), {}, "upstream.value", **more)
    return decoder.open(asked, of_ddl(ddl), {}).decode(list)


def decoded(rows: list[Row], ddl: str = PLAIN, **more: Any) -> Decoded:
    return opened(ddl, **more)([json.dumps(row).encode() for row in rows])


def told(found: Decoded) -> list[tuple[str, Row, Any, str | None]]:
    """(op, row, what it lacks, fault) of each."""
    count = len(found.columns["id"])
    ops, lacks, faults = (
        [None] * count if one is None else one.to_pylist()
        for one in (found.op, found.beside.get(own.UNSENT), found.fault)
    )
    rows = [{name: column[n].as_py() for name, column in found.columns.items()} for n in range(count)]
    return [(op or "U", *rest) for op, *rest in zip(ops, rows, lacks, faults, strict=True)]


def history(chance: random.Random) -> tuple[list[Row], dict[int, Row]]:
    """Rows as the transform writes them, and the table at the end."""
    table: dict[int, Row] = {}
    done: list[Row] = []
    fields = chance.choice([["__deleted"], ["__op"], ["__op", "__deleted", "__source_ts_ms", "__lsn"]])
    for _ in range(40):
        key = chance.randrange(5)
        row = {
            "id": key,
            "note": chance.choice(["", "ü", None, "x" * 99]),
            "n": chance.choice([None, -1, 2**31 - 1]),
        }
        op = chance.choice("uud") if key in table else "c"
        if op == "d":
            row |= chance.choice([{}, {"note": None, "n": 0}])
            del table[key]
        elif op == "u" and chance.random() < 0.4:
            table[key] = {**row, "note": table[key]["note"]}
            row["note"] = TEXT
        else:
            table[key] = row
        added = {"__op": op, "__deleted": "true" if op == "d" else "false", "__source_ts_ms": 5, "__lsn": 7}
        done.append(row | {name: added[name] for name in fields})
    return done, table


@pytest.mark.parametrize("ddl", [PLAIN, NESTED], ids=["by columns", "one by one"])
def test_a_table_is_what_its_unwrapped_rows_say(ddl: str) -> None:
    more = {} if ddl == PLAIN else {"tags": None}
    for seed in range(60):
        rows, expected = history(random.Random(seed))
        found = [one for row in rows for one in told(decoded([row], ddl))]
        assert found == told(decoded(rows, ddl)), f"seed {seed}: singly, and all at once"
        table: dict[int, Row] = {}
        for op, row, lacks, fault in found:
            assert fault is None
            before = table.pop(row["id"], {})
            if op == "U":
                table[row["id"]] = {**row, **{name: before[name] for name in lacks or ()}}
        assert table == {key: {**row, **more} for key, row in expected.items()}, f"seed {seed}"


@pytest.mark.parametrize("ddl", [PLAIN, NESTED], ids=["by columns", "one by one"])
def test_what_a_row_cannot_say_is_a_fault(ddl: str) -> None:
    cases = [
        {"id": 1, "note": TEXT, "n": 1, "__op": "c"},
        {"id": 1, "note": TEXT, "n": 1, "__op": "r"},
        {"id": None, "__op": "t"},
    ]
    assert [fault for *_, fault in told(decoded(cases, ddl))] == [Fault.NOT_SENT, Fault.NOT_SENT, Fault.TRUNCATED]


ODD: list[tuple[Row, str]] = [
    ({"__deleted": "nope"}, "unknown __deleted nope"),
    ({"__deleted": "True", "__op": "u"}, "unknown __deleted True"),
    ({"__deleted": ""}, "unknown __deleted "),
    ({"__deleted": 1}, "unknown __deleted 1"),
    ({"__deleted": ["true"]}, 'unknown __deleted ["true"]'),
    ({"__deleted": "false", "__op": "zz"}, "unknown __op zz"),
    ({"__deleted": "true", "__op": "delete"}, "unknown __op delete"),
    ({"__op": True}, "unknown __op true"),
    ({"__op": {"d": 1}}, 'unknown __op {"d":1}'),
]
"""Marks that the transform does not write, and what is wrong with the row."""

KNOWN: list[tuple[Row, str]] = [
    ({"__deleted": None}, "U"),
    ({"__op": None, "__deleted": None}, "U"),
    ({"__op": None, "__deleted": "true"}, "D"),
    ({"__deleted": False, "__op": "r"}, "U"),
    ({"__deleted": True}, "D"),
]


@pytest.mark.parametrize("ddl", [PLAIN, NESTED], ids=["by columns", "one by one"])
def test_a_mark_that_the_transform_does_not_write_is_a_fault_and_null_is_none(ddl: str) -> None:
    row: Row = {"id": 1, "note": "a", "n": 1}
    found = decoded([row | marks for marks, _ in (*ODD, *KNOWN)], ddl)
    assert found.error is not None
    assert found.op is not None
    assert found.error.to_pylist() == [*(fault for _, fault in ODD), *(None for _ in KNOWN)]
    assert found.op.to_pylist()[len(ODD) :] == [op for _, op in KNOWN]


@pytest.mark.parametrize(
    ("kind", "values", "ops"),
    [
        (["null", "string"], ["true", "false", None, "nope"], ["D", "U", "U", None]),
        (["null", "boolean"], [True, False, None], ["D", "U", "U"]),
        ({"type": "enum", "name": "E", "symbols": ["true", "no"]}, ["true", "no"], ["D", None]),
        ("int", [1, 0], [None, None]),
    ],
)
def test_a_mark_in_avro_is_known_or_a_fault(kind: Any, values: list[Any], ops: list[str | None]) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "__deleted", "type": kind}]
    schema = {"type": "record", "name": "Value", "fields": fields}
    with running() as registry:
        topic = Topic(registry)
        records = [topic.record(schema, {"id": 1, "__deleted": one}) for one in values]
        _, found = topic.read("rows", records, ["id"])
    assert found.op is not None
    errors = [None] * len(ops) if found.error is None else found.error.to_pylist()
    assert [op if error is None else None for op, error in zip(found.op.to_pylist(), errors, strict=True)] == ops


def test_a_key_that_was_not_sent_is_a_fault() -> None:
    for ddl in ("id STRING, n INT", "id STRING, tags ARRAY<STRING>"):
        assert [fault for *_, fault in told(decoded([{"id": TEXT, "n": 1}], ddl))] == [Fault.NOT_SENT]


def test_marks_that_are_columns_are_values() -> None:
    (one,) = told(decoded([{"id": 1, "__deleted": "true"}], "id BIGINT, __deleted STRING"))
    assert one == ("U", {"id": 1, "__deleted": "true"}, None, None)
    (event,) = told(decoded([{"id": 1, "note": TEXT, "__deleted": "true", "__op": "d"}], key=()))
    assert event == ("U", {"id": 1, "note": TEXT, "n": None}, None, None)


def test_fields_that_the_transform_added_are_no_new_columns_of_a_snapshot() -> None:
    whole = frozenset[str](), frozenset(("id", "note", "n"))
    row = {"id": 1, "note": "a", "n": 1}
    rows = [
        {**row, "__op": "u", "__table": "t"},
        {**row, "__x": 1},
        {**row, "__op": "u", "x": 1},
        {"id": 1, "__op": "d"},
    ]
    assert [(op, fault) for op, _, _, fault in told(decoded(rows, whole=whole))] == [
        ("U", None), ("U", Fault.COLUMNS), ("U", Fault.COLUMNS), ("D", None),
    ]  # fmt: skip
