"""A table may have columns of any name, also those by which formats know their messages: no row is skipped."""

import json
import random
from typing import Any

import pytest

from backfill_cli.contracts.decoder import Asked, Decoded, Decoder
from backfill_cli.decode import canal, debezium, json_rows, maxwell
from backfill_cli.formats.schemas import of_ddl
from backfill_cli.upstreams.files.changes.debezium import other_than_change

DEBEZIUM = (
    *("op", "before", "after", "source", "ts_ms", "ts_us", "ts_ns", "transaction", "message"),
    *(
        "status",
        "event_count",
        "data_collections",
        "databaseName",
        "schemaName",
        "ddl",
        "tableChanges",
        "position",
    ),
    *("schema", "payload", "__op", "__deleted", "__table", "__lsn", "__source_ts_ms", "updateDescription"),
)
OTHERS = (
    "type",
    "database",
    "table",
    "data",
    "old",
    "isDdl",
    "sql",
    "es",
    "ts",
    "mysqlType",
    "_tidb",
    "def",
    "xid",
)
VALUES = (
    *("BEGIN", "END", "m", "c", "d", "t", "r", "true", "5", "heartbeat", "table-drop", "database-drop", "DELETE"),
    *("TIDB_WATERMARK", "TRUNCATE", "bootstrap-start", "571:1", "", None),
)
TYPES = ("table-drop", "table-alter", "heartbeat", "bootstrap-start", "TIDB_WATERMARK", "XACOMMIT", "DELETE")
WORDS = {"status": ("BEGIN", "END"), "op": ("m", "t", "d"), "type": TYPES}
Row = dict[str, str | None]


def table(chance: random.Random) -> tuple[str, list[Row]]:
    """(the key, rows) of a table with columns of such names; its key is often one of them, too."""
    names = [*dict.fromkeys(chance.sample([*DEBEZIUM, *OTHERS], chance.randrange(1, 9))), "id"]
    key = chance.choice(names)
    rows = []
    for number in range(4):
        row: Row = {name: chance.choice(WORDS.get(name, VALUES)) for name in names}
        rows.append({**row, key: f"{chance.choice(['BEGIN', 'm', 'd'])}{number}"})
    return key, rows


def decoded(
    decoder: Decoder, columns: list[str], key: tuple[str, ...], records: list[Any], **more: Any
) -> Decoded:
    ddl = of_ddl(", ".join(f"`{name}` STRING" for name in columns))
    raws = [json.dumps(one).encode() for one in records]
    asked = Asked("topic 't'", "t", "t", key, ddl, {}, "upstream.value", **more)
    return decoder.open(asked, ddl, {"source": "shop.t"}).decode(lambda: raws)(raws)


def rows_of(found: Decoded) -> list[tuple[str, Row, str | None]]:
    count = len(next(iter(found.columns.values())))
    ops, errors = ([None] * count if one is None else one.to_pylist() for one in (found.op, found.error))
    rows = [{name: column[n].as_py() for name, column in found.columns.items()} for n in range(count)]
    return [(op or "U", row, error) for op, row, error in zip(ops, rows, errors, strict=True)]


def enveloped(row: Row) -> Any:
    source = {"connector": "mysql", "db": "shop", "table": "t", "ts_ms": 5}
    return {"before": None, "after": row, "source": source, "op": "c", "ts_ms": 6, "transaction": None}


def of_maxwell(row: Row) -> Any:
    return {"database": "shop", "table": "t", "type": "insert", "ts": 5, "data": row}


def of_canal(row: Row) -> Any:
    told = {"database": "shop", "table": "t", "type": "INSERT", "isDdl": False, "es": 5, "old": None}
    return {**told, "mysqlType": dict.fromkeys(row, "text"), "data": [row]}


FORMATS: dict[str, tuple[Decoder, Any]] = {
    "rows": (json_rows.decoder, dict),
    "debezium": (debezium.decoder, enveloped),
    "maxwell": (maxwell.decoder, of_maxwell),
    "canal": (canal.decoder, of_canal),
}


@pytest.mark.parametrize("form", FORMATS)
def test_every_row_of_a_table_with_such_columns_is_read(form: str) -> None:
    decoder, write = FORMATS[form]
    for seed in range(120):
        key, rows = table(random.Random(seed))
        found = rows_of(decoded(decoder, [*rows[0]], (key,), [write(row) for row in rows]))
        assert found == [("U", row, None) for row in rows], f"seed {seed}"


def test_events_of_such_a_table_are_read_and_so_are_its_keys() -> None:
    for seed in range(60):
        key, rows = table(random.Random(seed))
        assert rows_of(decoded(json_rows.decoder, [*rows[0]], (), rows)) == [("U", row, None) for row in rows]
        keys = [{key: row[key]} for row in rows]
        told = rows_of(decoded(json_rows.decoder, [key], (key,), keys, of_keys=True))
        assert told == [("U", one, None) for one in keys], f"seed {seed}"


@pytest.mark.parametrize("form", ["debezium", "maxwell", "canal"])
def test_rows_where_a_format_has_changes_are_refused_and_not_skipped(form: str) -> None:
    """Such a row looks like a message in part: only the whole of one is a message."""
    for seed in range(200):
        key, rows = table(random.Random(seed))
        found = rows_of(decoded(FORMATS[form][0], [*rows[0]], (key,), rows))
        assert len(found) == len(rows), f"seed {seed}: {rows}"
        assert None not in [error for *_, error in found], f"seed {seed}: {rows}"


@pytest.mark.parametrize(
    "row",
    [
        {"id": "1", "status": "BEGIN"},
        {"id": 1, "status": "END", "amount": 5, "ts_ms": 5},
        {"id": 1, "status": "BEGIN", "event_count": None, "data_collections": None},
        {"id": "1", "status": "END", "event_count": 1, "data_collections": "x"},
        {"id": "1", "op": "m"},
        {"ts_ms": "2026-01-01"},
        {"source": "web", "databaseName": "shop", "ddl": "CREATE TABLE t (id int)"},
    ],
    ids=str,
)
def test_a_flat_row_is_no_message_of_debezium(row: dict[str, Any]) -> None:
    ((_, _, error),) = rows_of(decoded(debezium.decoder, ["id"], ("id",), [row]))
    assert error is not None
    assert "op" in row or other_than_change(row) is not None
