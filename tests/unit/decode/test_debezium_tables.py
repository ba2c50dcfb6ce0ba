"""Which tables' envelopes are read, by the names in `source`."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hint_typed import typed
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.contracts.decoder import Asked
from backfill_cli.decode import arrow_json
from backfill_cli.decode.debezium import OneByOne
from backfill_cli.decode.documents import Document
from backfill_cli.decode.source_table import Known, known_of, remembered
from backfill_cli.errors import ConfigError
from backfill_cli.formats.schemas import of_ddl
from backfill_cli.registry import decoder


@pytest.mark.parametrize(
    ("pattern", "reads", "skips"),
    [
        ("public.order_items", ("app.public.order_items", "public.order_items"), ("app.public.orderXitems",)),
        ("public.order%", ("app.public.order%",), ("app.public.orders",)),
        ("public.order?", ("app.public.order?",), ("app.public.orders", "app.public.order")),
        (
            "public.order_*",
            ("app.public.order_1", "app.public.order_"),
            ("app.public.orders", "app.public.order_1.x"),
        ),
    ],
)
def test_case_63_no_character_but_the_star_stands_for_others(
    pattern: str, reads: tuple[str, ...], skips: tuple[str, ...]
) -> None:
    known = Known(tables=(pattern,))
    assert [known.reads(name) for name in (*reads, *skips)] == [True] * len(reads) + [False] * len(skips)


def test_case_64_tables_of_one_name_in_two_schemas_are_two() -> None:
    named = Known(tables=("public.orders",))
    assert named.reads("app.public.orders")
    assert not named.reads("app.archive.orders")
    assert not named.reads("app.notpublic.orders")
    begun = Known(source="app.public.orders", named=("orders", "orders"))
    assert not begun.is_other("app.public.orders")
    assert begun.is_other("app.archive.orders")


SHARED = Asked("topic 'shop'", "shop", "people", ("id",), None, {"tables": ("people",)}, "value", shared=True)


def test_of_tables_that_share_a_topic_a_table_is_the_one_that_was_seen_and_no_other_of_its_name() -> None:
    known = known_of(SHARED, remembered(SHARED, ["shop.public.people", "shop.public.orders"]))
    assert known.source == "shop.public.people"
    assert known.reads("shop.public.people")
    for of in ("other.public.people", "x.shop.public.people", "people", "shop.public.orders"):
        assert not known.reads(of)


def test_a_record_that_names_no_table_is_of_none_of_those_that_share_a_topic() -> None:
    for named in (["shop.people"], ["shop.orders"]):
        known = known_of(SHARED, remembered(SHARED, named))
        assert known.is_other("")
        assert known.fault("") == "its source names no table, in a topic of several tables"


@pytest.mark.parametrize(
    ("table", "seen", "expected"),
    [
        ("people", ["shop.public.orders", "shop.public.lines"], "shop.public.people"),
        ("public.people", ["shop.public.orders"], "shop.public.people"),
        ("people", ["orders"], "people"),
        ("audit.people", ["shop.public.orders"], "shop.audit.people"),
        ("audit.people", ["shop.public.orders", "shop.audit.orders"], "shop.audit.people"),
        ("shop.audit.people", ["shop.public.orders", "other.audit.orders"], "shop.audit.people"),
        ("shop.people", [], "shop.people"),
    ],
)
def test_a_table_that_no_record_has_shown_is_expected_beside_the_others_and_no_other_one_is_guessed(
    table: str, seen: list[str], expected: str
) -> None:
    asked = replace(SHARED, table=table, options={"tables": (table,)})
    known = known_of(asked, remembered(asked, seen))
    assert known.reads(expected)
    assert not known.is_other(expected)
    another = f"elsewhere.{table}"
    assert known.reads(another), "it may be the one that is meant: not skipped"
    assert known.is_other(another)
    assert f'start over with name = "{another}" in [[tables]]' in known.fault(another)
    assert not known.reads("shop.public.orders")


@pytest.mark.parametrize(
    ("table", "seen", "full"),
    [
        ("people", [], "DATABASE.people"),
        ("people", ["shop.audit.orders", "shop.public.orders"], "shop.audit.people"),
        ("people", ["shop.orders", "shop.public.orders"], "DATABASE.people"),
        ("people", ["a.b.c.orders", "shop.public.orders"], "DATABASE.SCHEMA.people"),
        ("audit.people", ["other.audit.orders", "shop.audit.orders"], "other.audit.people"),
        ("x.people", ["other.audit.orders", "shop.audit.orders"], "other.x.people"),
        ("a.b.people", ["shop.orders"], "b.people"),
        ("shop.people", ["orders"], "people"),
        ("shop.public.people", ["lines", "orders"], "people"),
        ("shop.public.people", ["my.t", "orders"], "people"),
    ],
)
def test_a_table_of_which_nothing_shows_the_full_name_is_refused_before_the_job_begins(
    table: str, seen: list[str], full: str
) -> None:
    asked = replace(SHARED, table=table, options={"tables": (table,)})
    with pytest.raises(ConfigError, match=f"nothing shows the full name of '{table}' in topic 'shop'") as refused:
        remembered(asked, seen)
    with typed(refused.value) as hint:
        hint.says(f'name = "{full}", target = "people"')
        named = replace(asked, table=full, options={"tables": (full,)})
        known = known_of(named, remembered(named, seen))
        assert (known.source, known.unseen) == (full, True)
    began = remembered(replace(asked, begun=True), seen)
    assert began["unseen"], "a job that has begun reads on"


OURS = of_ddl("id BIGINT, name STRING")


def decoded(asked: Asked, records: Sequence[bytes | None], one_by_one: bool = False) -> list[Any]:
    """(record, op, row or error) of each row."""
    debezium = decoder("debezium")
    facts = {"source": "shop.people"}
    decode = debezium.open(replace(asked, declared=OURS), OURS, facts).decode(list)
    decode = replace(decode, images=None)
    if one_by_one:
        groups, faults = decode.documents.groups(records)
        documents = {i: Document(fault) for i, fault in faults.items()}
        documents |= {i: Document(group, n) for group in groups for n, i in enumerate(group.at)}
        found = OneByOne(decode).decoded(documents)
    else:
        found = decode(records)
    error = found.error.to_pylist() if found.error is not None else [None] * len(found.record)
    rows = zip(*(column.to_pylist() for column in found.columns.values()), strict=True)
    return list(zip(found.record.to_pylist(), found.op.to_pylist(), rows, error, strict=True))


def enveloped(source: object, after: object, block: bool = False) -> bytes:
    told = {"op": "c", "before": None, "after": after, "source": source, "ts_ms": 1}
    if not block:
        return json.dumps(told).encode()
    kinds = {int: "int64", str: "string"}
    fields = [
        {"field": name, "type": kinds.get(type(one), "string"), "optional": True}
        for name, one in (after if isinstance(after, dict) else {}).items()
    ]
    parts = [{"type": "struct", "fields": fields, "field": part} for part in ("before", "after")]
    return json.dumps({"schema": {"type": "struct", "fields": parts}, "payload": told}).encode()


SOURCES = st.sampled_from(
    [
        *[{"db": "shop", "table": "people", "ts_ms": 5}] * 3,
        {"db": "shop", "table": "orders", "ts_ms": 5},
        {"db": "other", "table": "people"},
        {"db": "shop", "table": "orders", "ts_ms": "now"},
        {"ts_ms": 5},
        None,
        "shop.people",
    ]
)
ROWS = st.sampled_from(
    [{"id": 1, "name": "a"}, {"id": "x", "total": 1}, {"id": 2, "name": [1]}, {"id": None}, 5, None]
)
RECORDS = st.one_of(
    st.builds(enveloped, SOURCES, ROWS, st.booleans()),
    st.sampled_from([None, b"{", b'{"ts_ms":1}', b'{"op":"c","op":"c"}', b"[]", b"null"]),
)


@given(st.lists(RECORDS, max_size=40))
def test_records_of_other_tables_change_nothing_of_how_those_of_a_table_are_read(
    records: list[bytes | None],
) -> None:
    assert decoded(SHARED, records) == decoded(SHARED, records, one_by_one=True)


OTHERS = {"shop.orders", "shop.lines"}
COUNTED: dict[str, Any] = {
    "heartbeats": b'{"ts_ms":1}',
    "transaction_marks": b'{"status":"BEGIN","id":"7:8","ts_ms":5,"event_count":null,"data_collections":null}',
    "tombstones": None,
    "log_messages": b'{"op":"m","source":{"db":"shop","table":"","ts_ms":5},"message":{"prefix":"p"}}',
}
CHANGES = st.builds(
    lambda table, block: enveloped({"db": "shop", "table": table, "ts_ms": 5}, {"id": 1, "name": "a"}, block),
    st.sampled_from(["people", *sorted(one.partition(".")[2] for one in OTHERS), "parts"]),
    st.booleans(),
)


@given(
    st.lists(st.one_of(CHANGES, st.sampled_from([*COUNTED.values()])), max_size=40),
    st.frozensets(st.sampled_from(sorted(OTHERS))),
    st.data(),
)
def test_what_changes_no_row_of_the_jobs_tables_is_counted_once_however_records_are_read_together(
    records: list[bytes | None], theirs: frozenset[str], data: st.DataObject
) -> None:
    facts = {"source": "shop.people"}
    asked = replace(SHARED, declared=OURS, theirs=theirs)
    decode = decoder("debezium").open(asked, OURS, facts).decode(list)
    expected = Counter({kind: records.count(raw) for kind, raw in COUNTED.items()})
    for raw in records:
        told = {} if raw is None else json.loads(raw)
        told = told.get("payload", told)
        if told.get("op") == "c" and told["source"]["table"] != "people":
            expected["records_of_other_tables"] += f"shop.{told['source']['table']}" not in theirs
    found: Counter[str] = Counter()
    at = sorted({0, len(records), *data.draw(st.lists(st.integers(0, len(records)), max_size=3))})
    for begin, end in pairwise(at):
        found.update(decode(records[begin:end]).skipped)
    assert +found == +expected


@pytest.mark.parametrize("block", [False, True])
def test_tables_whose_columns_have_other_types_are_skipped_by_their_sources_alone(
    monkeypatch: pytest.MonkeyPatch, block: bool
) -> None:
    """Else one of two records was parsed by itself: a twentieth of the speed."""

    def one_by_one(*_: object) -> None:
        pytest.fail("records were read one by one")

    ours, others = ({"db": "shop", "table": name, "ts_ms": 5} for name in ("people", "orders"))
    records: list[bytes | None] = []
    for n in range(200):
        records.append(enveloped(ours, {"id": n, "name": "a"}, block))
        records.append(enveloped(others, {"id": f"x{n}", "total": n}, block))
    monkeypatch.setattr(OneByOne, "decoded", one_by_one)
    read = []
    monkeypatch.setattr(arrow_json, "_fitting", lambda values, *_: read.append(len(values)) or [])
    assert [row for _, _, row, _ in decoded(SHARED, records)] == [(n, "a") for n in range(200)]
    assert all(few <= 20 for few in read), "more than a few were looked at one by one"


def test_a_job_that_an_older_version_began_with_no_record_of_a_table_reads_what_it_read() -> None:
    known = known_of(SHARED, {"source": None})
    assert known.reads("a.people")
    assert known.reads("b.people")
    assert not known.is_other("b.people")
