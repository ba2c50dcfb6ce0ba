"""Maxwell's, Canal's and TiCDC's records: those that their makers publish, and tables that change at random."""

import base64
import datetime as dt
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hint_typed import typed

from backfill_cli.contracts import own
from backfill_cli.contracts.decoder import Asked, Decode, Fault
from backfill_cli.decode import canal, keyed, maxwell, open_protocol
from backfill_cli.errors import ConfigError
from backfill_cli.formats.schemas import of_ddl
from backfill_cli.model.schema import schema_text
from backfill_cli.upstreams.kafka.log import samples
from backfill_cli.upstreams.kafka.reading import Reading

DDL = (
    "id BIGINT, part STRING, n INT, d DECIMAL(12,3), x DOUBLE, day DATE, at TIMESTAMP_NTZ, raw BINARY, note STRING"
)
KEY = ("id", "part")
Row = dict[str, Any]


def opened(decoder: Any, ddl: str, key: tuple[str, ...], samples: list[bytes], **options: Any) -> Decode:
    asked = Asked("topic 't'", "t", "e", key, of_ddl(ddl), options, "upstream.value")
    found = decoder.columns(asked, lambda: samples)
    made: Decode = decoder.open(asked, found.columns, found.facts).decode(lambda: samples)
    return made


def changes(decode: Decode, records: list[Any]) -> list[tuple[int, str, int | None, Row, str | None]]:
    found = decode([one if one is None or isinstance(one, bytes) else json.dumps(one).encode() for one in records])
    assert found.record is not None
    parts = [found.record, found.op, found.ms, found.error]
    rows = [{name: column[n].as_py() for name, column in found.columns.items()} for n in range(len(found.record))]
    told = zip(*(one.to_pylist() for one in parts if one is not None), strict=True)
    return [(i, op, ms, row, error) for (i, op, ms, error), row in zip(told, rows, strict=True)]


# As maxwells-daemon.io/dataformat and /bootstrapping show them

_MAXWELL = {"database": "test", "table": "e", "xid": 23396, "commit": True, "position": "master.000006:800911"}
INSERT = {
    **_MAXWELL,
    "type": "insert",
    "ts": 1477053217,
    "data": {"id": 1, "m": 4.2341, "c": "2016-10-21 05:33:37.523000", "comment": "I am a creature of light."},
}
UPDATE = {
    **_MAXWELL,
    "type": "update",
    "ts": 1477053234,
    "data": {"id": 1, "m": 5.444, "c": "2016-10-21 05:33:54.631000", "comment": "I am a creature of light."},
    "old": {"m": 4.2341, "c": "2016-10-21 05:33:37.523000"},
}
DELETE = {**UPDATE, "type": "delete"}
ALTER = {
    "type": "table-alter",
    "database": "test",
    "table": "e",
    "ts": 1477053308000,
    "old": {"columns": []},
    "def": {"columns": []},
    "sql": "alter table test.e add column torvalds bigint",
}
OF_E = "id INT, m DOUBLE, c TIMESTAMP, comment STRING"


def maxwells(records: list[Any], **options: Any) -> list[tuple[int, str, int | None, Row, str | None]]:
    return changes(opened(maxwell.decoder, OF_E, ("id",), [json.dumps(INSERT).encode()], **options), records)


def test_maxwells_own_samples() -> None:
    found = maxwells([INSERT, UPDATE, DELETE, ALTER, None])
    at = dt.datetime(2016, 10, 21, 5, 33, 37, 523000, dt.UTC)
    row = {"id": 1, "m": 4.2341, "c": at, "comment": "I am a creature of light."}
    now = {**row, "m": 5.444, "c": dt.datetime(2016, 10, 21, 5, 33, 54, 631000, dt.UTC)}
    assert found == [
        (0, "U", 1477053217000, row, None),
        (1, "U", 1477053234000, now, None),
        (2, "D", 1477053234000, {"id": 1, "m": None, "c": None, "comment": None}, None),
    ]


def test_a_bootstrap_of_maxwell_is_rows_between_messages() -> None:
    around = {"database": "test", "table": "e", "ts": 1450557598, "data": {}}
    begin, end = ({**around, "type": f"bootstrap-{word}"} for word in ("start", "complete"))
    found = maxwells([begin, {**INSERT, "type": "bootstrap-insert"}, end])
    assert [(i, op) for i, op, *_ in found] == [(1, "U")]


@pytest.mark.parametrize("kind", ["truncate", "row-replace", None, 5])
def test_an_unknown_type_of_maxwell_is_a_fault(kind: Any) -> None:
    ((_, _, _, _, error),) = maxwells([{**INSERT, "type": kind}])
    assert error is not None
    assert (f"unknown type {kind}" if kind else "no 'type'") in error


def test_records_of_another_table_are_faults_or_left_out() -> None:
    other = {**INSERT, "table": "f"}
    ((_, _, _, _, error),) = maxwells([other])
    assert error == "a record of another table than 'test.e': test.f"
    assert maxwells([other], tables=["test.e"]) == []


# As Flink's documentation of canal-json shows Canal's, and PingCAP's shows TiCDC's

PRODUCT = {
    "data": [{"id": "111", "name": "scooter", "description": "Big 2-wheel scooter", "weight": "5.18"}],
    "database": "inventory",
    "es": 1589373560000,
    "id": 9,
    "isDdl": False,
    "pkNames": ["id"],
    "sql": "",
    "mysqlType": {"id": "INTEGER", "name": "VARCHAR(255)", "description": "VARCHAR(512)", "weight": "FLOAT"},
    "old": [{"weight": "5.15"}],
    "sqlType": {"id": 4, "name": 12, "description": 12, "weight": 7},
    "table": "e",
    "ts": 1589373560798,
    "type": "UPDATE",
}
WATERMARK = {
    "id": 0,
    "database": "",
    "table": "",
    "pkNames": None,
    "isDdl": False,
    "type": "TIDB_WATERMARK",
    "es": 1640007049196,
    "ts": 1640007050284,
    "sql": "",
    "sqlType": None,
    "mysqlType": None,
    "data": None,
    "old": None,
    "_tidb": {"watermarkTs": 429918007904436226},
}
STATEMENT = {**WATERMARK, "isDdl": True, "type": "QUERY", "sql": "CREATE DATABASE IF NOT EXISTS test"}
OF_PRODUCTS = "id INT, name STRING, description STRING, weight FLOAT"


def canals(records: list[Any], **options: Any) -> list[tuple[int, str, int | None, Row, str | None]]:
    samples = [json.dumps(PRODUCT).encode()]
    return changes(opened(canal.decoder, OF_PRODUCTS, ("id",), samples, **options), records)


def test_canals_own_sample() -> None:
    found = canals([PRODUCT, {**PRODUCT, "type": "DELETE"}, WATERMARK, STATEMENT])
    (_, _, _, row, _), *_ = found
    assert [(i, op, ms, error) for i, op, ms, _, error in found] == [
        (0, "U", 1589373560000, None),
        (1, "D", 1589373560000, None),
    ]
    assert row == {
        "id": 111,
        "name": "scooter",
        "description": "Big 2-wheel scooter",
        "weight": pytest.approx(5.18),
    }


@pytest.mark.parametrize("told", [{"onlyHandleKey": True}, {"claimCheckLocation": "s3://bucket/1.json"}])
def test_a_row_of_which_ticdc_sent_the_key_only_is_a_fault(told: Mapping[str, Any]) -> None:
    """Read as a row, its other columns would be NULL."""
    part = {**PRODUCT, "data": [{"id": "111"}], "mysqlType": {"id": "int"}, "_tidb": told}
    assert [error is not None for *_, error in canals([part, {**part, "type": "DELETE"}])] == [True, False]


@pytest.mark.parametrize(
    "more",
    [
        {"data": None},
        {"data": [{"id": "1"}, {"id": "2"}]},
        {"data": [{"id": "1", "name": "x"}]},
        {"mysqlType": None},
        {"type": "QUERY"},
    ],
    ids=["no rows", "other old rows", "a row without a column of its own", "no types", "a statement"],
)
def test_what_canal_did_not_send_is_a_fault(more: Mapping[str, Any]) -> None:
    assert {error is not None for *_, error in canals([{**PRODUCT, **more}])} == {True}


@pytest.mark.parametrize("kind", ["TRUNCATE", "ERASE"])
def test_a_table_that_was_emptied_has_no_rows_where_that_has_an_order(kind: str) -> None:
    for ordered, faults, ops in ((False, [Fault.TRUNCATED], ["U"]), (True, [None], ["T"])):
        asked = Asked("topic 't'", "t", "e", ("id",), of_ddl(OF_PRODUCTS), {}, "upstream.value", ordered=ordered)
        decode = canal.decoder.open(asked, of_ddl(OF_PRODUCTS), {}).decode(list)
        found = decode([json.dumps({**STATEMENT, "table": "e", "type": kind}).encode()])
        assert found.fault is not None
        assert found.op is not None
        assert (found.fault.to_pylist(), found.op.to_pylist()) == (faults, ops)
        assert {column.null_count for column in found.columns.values()} == {1}


def done(decoder: Any, record: Any, tables: tuple[str, ...] = (), source: str | None = "shop.e") -> list[str]:
    """What a record does to table `e`, read in order: its ops, or its faults."""
    asked = Asked(
        "topic 't'", "t", "e", ("id",), of_ddl("id INT"), {"tables": tables}, "upstream.value", ordered=True
    )
    decode = decoder.open(asked, of_ddl("id INT"), {"source": source}).decode(list)
    found = decode([record if isinstance(record, bytes) else json.dumps(record).encode()])
    assert found.op is not None
    assert found.fault is not None
    return [fault or op for op, fault in zip(found.op.to_pylist(), found.fault.to_pylist(), strict=True)]


def of_maxwell(kind: str, sql: str, table: str | None = "e", **more: Any) -> Any:
    told = {} if table is None else {"table": table}
    return {"type": kind, "database": "shop", **told, "ts": 1477053308000, "sql": sql, **more}


def renamed(old: str, new: str) -> Any:
    images = {name: {"database": "shop", "table": table} for name, table in (("old", old), ("def", new))}
    return of_maxwell("table-alter", f"RENAME TABLE {old} TO {new}", old, **images)


SAME = {"old": {"database": "shop", "table": "e"}, "def": {"database": "shop", "table": "e"}}
STOPS = [Fault.TRUNCATED]


@pytest.mark.parametrize(
    ("record", "does"),
    [
        (of_maxwell("table-drop", "DROP TABLE e"), ["T"]),
        (of_maxwell("table-drop", "DROP TABLE f", "f"), []),
        (of_maxwell("database-drop", "DROP DATABASE shop", None), ["T"]),
        ({**of_maxwell("database-drop", "DROP DATABASE x", None), "database": "x"}, []),
        (renamed("e", "e_old"), STOPS),
        (renamed("e_new", "e"), STOPS),
        (renamed("f", "g"), []),
        (of_maxwell("table-alter", "ALTER TABLE e ADD n INT COMMENT 'rename table'", **SAME), []),
        (of_maxwell("table-alter", "ALTER TABLE e RENAME COLUMN a TO b", **SAME), []),
        (of_maxwell("table-alter", "ALTER TABLE `e` DROP /* x */ PARTITION p0", **SAME), STOPS),
        (of_maxwell("table-create", "CREATE TABLE e (id INT)"), []),
        (of_maxwell("table-create", "CREATE OR REPLACE TABLE e (id INT)"), STOPS),
        (of_maxwell("database-create", "CREATE DATABASE shop", None), []),
    ],
    ids=lambda one: one["sql"] if isinstance(one, dict) else "",
)
def test_what_maxwells_statements_do_to_the_table(record: Any, does: list[str]) -> None:
    assert done(maxwell.decoder, record) == does


def of_canal(kind: str, sql: str, table: str = "e") -> Any:
    return {**STATEMENT, "database": "shop", "table": table, "type": kind, "sql": sql}


@pytest.mark.parametrize(
    ("record", "does"),
    [
        (of_canal("TRUNCATE", "truncate table e"), ["T"]),
        (of_canal("TRUNCATE", "truncate f", "f"), []),
        (of_canal("ERASE", "DROP TABLE `e` /* generated by server */"), ["T"]),
        (of_canal("ERASE", "DROP TABLE `f`,`e` /* generated by server */", "f"), STOPS),
        (of_canal("ERASE", "DROP TEMPORARY TABLE IF EXISTS `e`"), []),
        (of_canal("RENAME", "RENAME TABLE f TO g, shop.`e` TO e_old", "g"), STOPS),
        (of_canal("RENAME", "RENAME TABLE e_new TO e", "e"), STOPS),
        (of_canal("RENAME", "RENAME TABLE f TO g", "g"), []),
        (of_canal("CINDEX", "ALTER TABLE f ADD INDEX i (n), RENAME TO e", "f"), STOPS),
        (of_canal("ALTER", "ALTER TABLE e TRUNCATE PARTITION p0"), STOPS),
        (of_canal("ALTER", "ALTER TABLE f TRUNCATE PARTITION p0", "f"), []),
        (of_canal("ALTER", "ALTER TABLE e ADD e INT"), []),
        (of_canal("CREATE", "CREATE OR REPLACE TABLE e (id INT)"), STOPS),
        (of_canal("QUERY", "CREATE DEFINER=`a`@`%` PROCEDURE p() BEGIN TRUNCATE TABLE e; END", ""), []),
        (of_canal("QUERY", "CREATE TRIGGER t AFTER INSERT ON f FOR EACH ROW DROP TABLE e", ""), []),
        (of_canal("CREATE", "CREATE TABLE f (event INT, `view` INT)", "f"), []),
        (of_canal("DINDEX", "ALTER TABLE e DROP INDEX i"), []),
        (of_canal("QUERY", "RECOVER TABLE e"), STOPS),
        (of_canal("QUERY", "/* x */ flashback table f to shop.e", "f"), STOPS),
        (of_canal("QUERY", "FLASHBACK TABLE f", "f"), []),
        (of_canal("ALTER", "ALTER TABLE e ADD recover INT, ADD flashback INT"), []),
        (of_canal("CREATE", "CREATE TABLE e (recover INT, `flashback` INT)"), []),
        (of_canal("QUERY", "DROP DATABASE /*!32312 IF EXISTS*/ `shop`", ""), ["T"]),
        (of_canal("QUERY", "drop schema x", ""), []),
    ],
    ids=lambda one: one["sql"] if isinstance(one, dict) else "",
)
def test_what_canals_statements_do_to_the_table(record: Any, does: list[str]) -> None:
    assert done(canal.decoder, record) == does


def test_a_table_that_is_emptied_takes_no_rows_of_others_with_it() -> None:
    """Rows of several tables are read as one: which of them are gone, the sink does not know."""
    drop, emptied = of_maxwell("table-drop", "DROP TABLE e"), of_canal("TRUNCATE", "truncate e")
    of_all = of_maxwell("database-drop", "DROP DATABASE shop", None)
    for tables, does in (
        (("shop.e",), ["T"]),
        (("shop.*",), STOPS),
        (("e",), STOPS),
        (("shop.e", "shop.f"), STOPS),
    ):
        for decoder, record in ((maxwell.decoder, drop), (canal.decoder, emptied)):
            assert done(decoder, record, tables, None) == does
    assert done(maxwell.decoder, of_all, ("shop.e",), None) == ["T"]
    assert done(maxwell.decoder, of_all, ("e",), None) == STOPS
    assert done(maxwell.decoder, of_all, ("x.e",), None) == []


def test_an_update_of_maxwell_without_old_values_changed_none_that_it_writes() -> None:
    told = {name: value for name, value in UPDATE.items() if name != "old"}
    ((_, op, _, row, error),) = maxwells([told])
    assert (op, row["m"], error) == ("U", 5.444, None)


def test_an_xa_transaction_that_is_rolled_back_stops_the_job() -> None:
    """MySQL has its rows in the log once it is prepared."""
    xa = {**STATEMENT, "isDdl": False, "type": "XACOMMIT", "sql": "XA COMMIT 'a'"}
    assert canals([xa]) == []
    ((*_, error),) = canals([{**xa, "type": "XAROLLBACK"}])
    assert error is not None
    assert "rolled back" in error


# TiCDC's open protocol, as PingCAP's documentation shows it: written here by its words alone


def framed(*events: Any) -> bytes:
    """Events, each after its length."""
    texts = [one if isinstance(one, bytes) else json.dumps(one, ensure_ascii=False).encode() for one in events]
    return b"".join(len(text).to_bytes(8, "big") + text for text in texts)


def open_record(*events: tuple[Any, Any], version: int = 1) -> bytes:
    """A record of (key, value) of each event, as a decoder that reads keys is given it."""
    key = version.to_bytes(8, "big") + framed(*(key for key, _ in events))
    return len(key).to_bytes(8, "big") + key + framed(*(value for _, value in events))


TSO = 415508878783938562
OF_TI = {"ts": TSO, "scm": "shop", "tbl": "e", "t": 1}
TI_ROW = {"id": {"t": 3, "h": True, "f": 11, "v": 1}, "name": {"t": 15, "f": 64, "v": "x"}}
TI_DDL = "id INT, name STRING"


def tis(
    records: list[Any], ddl: str = TI_DDL, **options: Any
) -> list[tuple[int, str, int | None, Row, str | None]]:
    samples = [open_record((OF_TI, {"u": dict.fromkeys(of_ddl(ddl), TI_ROW["name"])}))]
    return changes(opened(open_protocol.decoder, ddl, ("id",), samples, **options), records)


def test_ticdcs_open_protocol_has_several_changes_in_a_record() -> None:
    other = {"id": {**TI_ROW["id"], "v": 2}, "name": {**TI_ROW["name"], "v": None}}
    found = tis(
        [
            open_record((OF_TI, {"u": TI_ROW}), (OF_TI, {"u": other, "p": TI_ROW})),
            open_record((OF_TI, {"d": {"id": other["id"]}})),
            open_record(({"ts": TSO, "t": 3}, b"")),
            open_record(({**OF_TI, "t": 2}, {"q": "ALTER TABLE e ADD n INT", "t": 5})),
        ]
    )
    ms = TSO // 262_144
    assert dt.datetime.fromtimestamp(ms / 1000, dt.UTC).date() == dt.date(2020, 3, 24), "as it is in the example"
    assert [(i, op, at, row["id"], row["name"], error) for i, op, at, row, error in found] == [
        (0, "U", ms, 1, "x", None),
        (0, "D", ms, 1, None, None),
        (0, "U", ms, 2, None, None),
        (1, "D", ms, 2, None, None),
    ]


def test_a_row_of_the_open_protocol_that_is_all_key_is_whole_if_it_has_all_columns() -> None:
    """A row that lacks a column, and has another than its key's, was written before the column was added."""
    both = {"id": TI_ROW["id"], "name": {**TI_ROW["name"], "f": 2}}
    more = {"id": TI_ROW["id"], "other": TI_ROW["name"]}
    records = [open_record((OF_TI, event)) for event in ({"u": both}, {"u": more}, {"d": {"id": TI_ROW["id"]}})]
    assert [(op, row["id"], row["name"], error) for _, op, _, row, error in tis(records)] == [
        ("U", 1, "x", None),
        ("U", 1, None, None),
        ("D", 1, None, None),
    ]


@pytest.mark.parametrize("decoder", [canal.decoder, maxwell.decoder])
def test_ticdcs_open_protocol_is_named_where_another_format_is_set(decoder: Any) -> None:
    raws = [framed({"u": TI_ROW}), framed({"u": TI_ROW}, {"d": TI_ROW}, {"u": TI_ROW})]
    with pytest.raises(ConfigError, match="holds rows as TiCDC's open protocol has them") as refused:
        opened(decoder, OF_PRODUCTS, ("id",), raws)
    with typed(refused.value) as hint:
        assert hint.settings() == {"upstream.value.format": "open-protocol"}
        assert len(tis([open_record((OF_TI, {"u": TI_ROW}))])) == 1
    for raw in raws:
        ((*_, error),) = canals([raw])
        assert error is not None
        assert 'value.format = "open-protocol" reads them' in error


def with_cell(**cell: Any) -> bytes:
    return open_record((OF_TI, {"u": {**TI_ROW, "name": {**TI_ROW["name"], **cell}}}))


@pytest.mark.parametrize(
    ("record", "kind", "said"),
    [
        (open_record((OF_TI, {"u": TI_ROW}), version=2), "STRING", "version 2"),
        (open_record((OF_TI, {"u": TI_ROW}))[:-1], "STRING", "does not end where an event does"),
        (open_record((OF_TI, {"u": TI_ROW}), (OF_TI, b"")), "STRING", "2 events in the record's key, but 1"),
        (open_record((OF_TI, b"[]")), "STRING", "is not a JSON object"),
        (open_record((OF_TI, {"u": TI_ROW, "d": TI_ROW})), "STRING", "in both"),
        (open_record((OF_TI, {"q": "x"})), "STRING", "no row in 'u' or 'd'"),
        (open_record(({**OF_TI, "t": 4}, {"u": TI_ROW})), "STRING", "the type 4"),
        (open_record(({**OF_TI, "ohk": True}, {"u": TI_ROW})), "STRING", "the key only"),
        (open_record(({**OF_TI, "ccl": "s3://b/1"}, {"u": TI_ROW})), "STRING", "where the row is"),
        (open_record(({**OF_TI, "corrupted": True}, {"u": TI_ROW})), "STRING", "checksum is wrong"),
        (open_record(({**OF_TI, "new": 1}, {"u": TI_ROW})), "STRING", "'new' in the record's key"),
        (open_record(({**OF_TI, "ts": "x"}, {"u": TI_ROW})), "STRING", "'ts' in the record's key"),
        (b"\0" * 8 + framed({"u": TI_ROW}), "STRING", "no version in the record's key"),
        (with_cell(t=247, v=2), "STRING", "an ENUM, of which TiCDC's open protocol has the number"),
        (with_cell(t=248, v=3), "STRING", "a SET, of which"),
        (with_cell(t=255, v="x"), "STRING", "MySQL's type 255"),
        (with_cell(t=15, f=65), "STRING", "bytes: declare BINARY"),
        (with_cell(t=252, f=65, v="eA=="), "STRING", "bytes: declare BINARY"),
        (with_cell(t=15), "BINARY", "no bytes: declare STRING"),
        (with_cell(t=252, v="eA=="), "BINARY", "no bytes: declare STRING"),
        (with_cell(t=15, f=1, v='"'), "BINARY", "not bytes as TiCDC's open protocol escapes them"),
        (with_cell(t=15, f=1, v="\\ud800"), "BINARY", "not bytes as TiCDC's open protocol escapes them"),
        (with_cell(t=15, f=1, v="\\101"), "BINARY", "not bytes as TiCDC's open protocol escapes them"),
        (with_cell(t=8, v=2**63), "BIGINT", "out of range"),
        (with_cell(t=8, v="1"), "BIGINT", "not a column as"),
        (with_cell(t=252, v="/w=="), "STRING", "not UTF-8 text"),
        (with_cell(f=None), "STRING", "not a column as TiCDC's open protocol writes it"),
        (open_record((OF_TI, {"u": {**TI_ROW, "name": None}})), "STRING", "column 'name' in 'u': not a column as"),
        (open_record((OF_TI, {"u": {**TI_ROW, "more": None}})), "STRING", "column 'more' in 'u': not a column as"),
        (open_record((OF_TI, {"u": TI_ROW, "p": {"id": 7}})), "STRING", "column 'id' in 'p': not a column as"),
        (with_cell(t=3, f=139, v=-1), "BIGINT", "not a column as"),
        (open_record((OF_TI, {"u": {"id": TI_ROW["id"]}})), "STRING", "all columns of which are of its key"),
    ],
)
def test_what_the_open_protocol_does_not_have_is_a_fault(record: bytes, kind: str, said: str) -> None:
    ((_, _, _, row, error),) = tis([record], f"id INT, name {kind}")
    assert error is not None
    assert said in error
    assert set(row.values()) == {None}


@pytest.mark.parametrize(
    ("cell", "kind", "value"),
    [
        ({"t": 15, "f": 1, "v": "\\x89PNG\\r\\n\\x1a\\n"}, "BINARY", b"\x89PNG\r\n\x1a\n"),
        ({"t": 254, "f": 1, "v": 'ü\\u2028\\U0001f6ff\\\\\\"\\a'}, "BINARY", 'ü\u2028\U0001f6ff\\"\a'.encode()),
        ({"t": 15, "f": 64, "v": 'a\\x41"'}, "STRING", 'a\\x41"'),
        ({"t": 252, "f": 64, "v": "5rWL6K+VdGV4dA=="}, "STRING", "测试text"),
        ({"t": 1, "f": 65, "v": 1}, "BOOLEAN", True),
        ({"t": 8, "f": 193, "v": 2**64 - 1}, "DECIMAL(20,0)", Decimal(2**64 - 1)),
        ({"t": 16, "f": 97, "v": 81}, "BIGINT", 81),
        ({"t": 4, "f": 65, "v": 153.123}, "DOUBLE", 153.123),
        ({"t": 246, "f": 65, "v": "129012.1230000"}, "DECIMAL(20,7)", Decimal("129012.1230000")),
        ({"t": 247, "f": 64, "v": 2}, "INT", 2),
        ({"t": 245, "f": 65, "v": '{"a": "b"}'}, "STRING", '{"a": "b"}'),
        (
            {"t": 7, "f": 65, "v": "1973-12-30 15:30:00"},
            "TIMESTAMP",
            dt.datetime(1973, 12, 30, 15, 30, tzinfo=dt.UTC),
        ),
        ({"t": 6, "f": 64, "v": None}, "DATE", None),
    ],
)
def test_values_of_the_open_protocol_are_exact(cell: Any, kind: str, value: Any) -> None:
    record = open_record((OF_TI, {"u": {**TI_ROW, "name": cell}}))
    ((_, _, _, row, error),) = tis([record], f"id INT, name {kind}")
    assert (row["name"], error) == (value, None)


def test_a_format_that_reads_keys_is_given_them(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = opened(open_protocol.decoder, TI_DDL, ("id",), [])
    key = (1).to_bytes(8, "big") + framed(OF_TI)
    reading = Reading(schema_text(of_ddl(TI_DDL)), decode, ("id",), keyed=open_protocol.decoder.keyed)
    found = reading._decoded([key, None, key], [framed({"u": TI_ROW}), None, framed({"d": TI_ROW})])
    assert found.op is not None
    assert found.op.to_pylist() == ["U", "D"]
    assert dict(found.skipped) == {"tombstones": 1}

    at = pa.array([0, 0, 0], pa.int32())
    times = pa.nulls(3, pa.timestamp("us", "UTC"))
    place = {"kafka_partition": at, "kafka_offset": at.cast(pa.int64()), "kafka_timestamp": times}
    bad = framed({"u": {**TI_ROW, "id": {"t": 3, "v": "x"}}})
    rows = reading.rows(at, place, [key, key, key], [framed({"u": TI_ROW}), bad, None], Counter())
    assert rows.column(own.RAW).to_pylist() == [None, keyed.joined(key, bad), keyed.joined(key, None)]

    class Message:
        key, value = staticmethod(lambda one: one[0]), staticmethod(lambda one: one[1])

    monkeypatch.setattr(samples, "client", lambda: SimpleNamespace(Message=Message))
    both = samples._values([(key, framed({"u": TI_ROW})), (None, None)], keyed=True)
    assert [one for one in both if one] == [open_record((OF_TI, {"u": TI_ROW}))]


def test_a_key_of_which_the_row_was_too_large_is_enough_for_a_delete() -> None:
    ((_, op, _, row, error),) = tis([open_record(({**OF_TI, "ohk": True}, {"d": {"id": TI_ROW["id"]}}))])
    assert (op, row["id"], error) == ("D", 1, None)


@pytest.mark.parametrize(
    ("statement", "table", "does"),
    [
        ({"q": "TRUNCATE TABLE `shop`.`e`", "t": 11}, "e", ["T"]),
        ({"q": "DROP TABLE `shop`.`e`", "t": 4}, "e", ["T"]),
        ({"q": "DROP TABLE `shop`.`f`", "t": 4}, "f", []),
        ({"q": "RENAME TABLE `shop`.`e` TO `shop`.`g`", "t": 14}, "g", [Fault.TRUNCATED]),
        ({"q": "ALTER TABLE `e` TRUNCATE PARTITION `p0`", "t": 23}, "e", [Fault.TRUNCATED]),
        ({"q": "DROP DATABASE `shop`", "t": 2}, "", ["T"]),
        ({"q": "RECOVER TABLE `e`", "t": 25}, "e", [Fault.TRUNCATED]),
        ({"q": "FLASHBACK TABLE `e` TO `e_old`", "t": 25}, "e_old", [Fault.TRUNCATED]),
        ({"q": "RECOVER TABLE BY JOB 53", "t": 25}, "e", [Fault.TRUNCATED]),
        ({"q": "RECOVER TABLE `f`", "t": 25}, "f", []),
        ({"q": "ALTER TABLE `e` ADD COLUMN `n` INT", "t": 5}, "e", []),
    ],
)
def test_what_statements_of_the_open_protocol_do_to_the_table(statement: Any, table: str, does: list[str]) -> None:
    record = open_record(({"ts": TSO, "scm": "shop", "tbl": table, "t": 2}, statement))
    assert done(open_protocol.decoder, record) == does


def of_products(ddl: str | None, tables: Any = (), samples: tuple[Any, ...] = (PRODUCT,)) -> set[str]:
    """The columns that a config has, if it is not refused."""
    asked = Asked("topic 't'", "t", "e", ("id",), ddl and of_ddl(ddl), {"tables": tables}, "upstream.value")
    return set(canal.decoder.columns(asked, lambda: [json.dumps(one).encode() for one in samples]).columns)


def test_columns_are_declared() -> None:
    with pytest.raises(ConfigError, match=r"upstream\.value\.schema: missing") as refused:
        of_products(None)
    with typed(refused.value) as hint:
        assert of_products(str(hint.settings()["upstream.value.schema"]).replace("note", "name")) == {"id", "name"}
    with pytest.raises(ConfigError, match="declare STRING, not array"):
        of_products("id INT, name ARRAY<STRING>")


def test_a_column_that_no_record_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="no record of topic 't' has a column 'nmae'") as refused:
        of_products("id INT, nmae STRING")
    with typed(refused.value) as hint:
        hint.says("its columns are: name")
        assert of_products("id INT, name STRING") == {"id", "name"}


def test_the_table_that_is_meant_is_named_where_there_are_several() -> None:
    both = (PRODUCT, {**PRODUCT, "table": "f"})
    with pytest.raises(ConfigError, match=r"several tables: inventory\.e, inventory\.f") as refused:
        of_products("id INT", samples=both)
    with typed(refused.value) as hint:
        assert of_products("id INT", hint.settings()["upstream.value.tables"], both) == {"id"}
    with pytest.raises(ConfigError, match="no record of topic 't' is of these") as refused:
        of_products("id INT", ["other.e"], both)
    with typed(refused.value) as hint:
        hint.says("inventory.e, inventory.f")
        assert of_products("id INT", ["inventory.f"], both) == {"id"}


# Tables that change at random


def _row(chance: random.Random) -> Row:
    texts = ["", "ü", "null", "0", 'a"b\\', "x" * 200, "\u2028"]
    row: Row = {
        "id": chance.choice([-(2**63), 2**63 - 1, *range(6)]),
        "part": chance.choice(["a", "b"]),
        "n": chance.choice([-(2**31), 0, 7]),
        "d": Decimal(chance.randrange(-(10**12), 10**12)).scaleb(-3),
        "x": chance.choice([0.1, -1e300, 5e-324, 2.0]),
        "day": dt.date(1, 1, 1) + dt.timedelta(chance.randrange(3_652_058)),
        "at": dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=chance.randrange(-(10**16), 10**17)),
        "raw": chance.randbytes(chance.randrange(5)),
        "note": chance.choice(texts),
    }
    return {name: None if name not in KEY and chance.random() < 0.15 else value for name, value in row.items()}


def _of_maxwell(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value if value is None or isinstance(value, int | float | str | Decimal) else str(value)


def _of_canal(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, float):
        return repr(value)
    return None if value is None else f"{value:f}" if isinstance(value, Decimal) else str(value)


def _json(told: Any) -> bytes:
    """As JSON, decimals with all their digits."""
    marks: dict[str, str] = {}

    def mark(value: Any) -> str:
        marks[f'"\ufdd0{len(marks)}"'] = f"{value:f}"
        return f"\ufdd0{len(marks) - 1}"

    text = json.dumps(told, default=mark, ensure_ascii=False)
    for name, number in marks.items():
        text = text.replace(name, number)
    return text.encode()


def _as(row: Row, write: Callable[[Any], Any]) -> Row:
    return {name: write(value) for name, value in row.items()}


def _history(chance: random.Random) -> tuple[list[tuple[str, Row, Row]], dict[Any, Row]]:
    """(type, row, old values) of each change, and the table at the end."""
    table: dict[Any, Row] = {}
    done = []
    for _ in range(60):
        row = _row(chance)
        at = tuple(row[name] for name in KEY)
        if table and chance.random() < 0.6:
            was = chance.choice(list(table.values()))
            before = tuple(was[name] for name in KEY)
            if chance.random() < 0.3:
                done.append(("delete", was, {}))
                del table[before]
                continue
            new = was | {name: row[name] for name in row if chance.random() < 0.4}
            at = tuple(new[name] for name in KEY)
            if at != before and at in table:
                continue
            del table[before]
            table[at] = new
            done.append(("update", new, {name: was[name] for name in was if was[name] != new[name]}))
        elif at not in table:
            table[at] = row
            done.append(("insert", row, {}))
    return done, table


def _maxwell_records(history: list[tuple[str, Row, Row]], chance: random.Random) -> list[bytes]:
    records = []
    for kind, row, old in history:
        told = {"database": "shop", "table": "e", "type": kind, "ts": 5, "data": _as(row, _of_maxwell)}
        records.append(_json(told | ({"old": _as(old, _of_maxwell)} if kind == "update" else {})))
        records += [_json(ALTER)] if chance.random() < 0.1 else []
    return records


def _canal_records(history: list[tuple[str, Row, Row]], chance: random.Random) -> list[bytes]:
    """Neighbours of one kind are often rows of one statement."""
    records, begin = [], 0
    while begin < len(history):
        end = begin + 1
        while end < len(history) and history[end][0] == history[begin][0] and chance.random() < 0.7:
            end += 1
        rows, kind = history[begin:end], history[begin][0].upper()
        old = [_as(was, _of_canal) for _, _, was in rows] if kind == "UPDATE" else None
        told = {"database": "shop", "table": "e", "type": kind, "isDdl": False, "es": 5, "old": old}
        types = dict.fromkeys(of_ddl(DDL), "?")
        records.append(_json({**told, "mysqlType": types, "data": [_as(row, _of_canal) for _, row, _ in rows]}))
        records += [_json(WATERMARK)] if chance.random() < 0.1 else []
        begin = end
    return records


def _quoted(raw: bytes) -> str:
    """Bytes as Go writes them in its source code, without quotation marks; what is not in ASCII by its number."""
    short = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}
    return "".join(
        f"\\{short[one]}" if one in short else chr(one) if 32 <= one < 127 else f"\\x{one:02x}" for one in raw
    )


def _ti_cell(name: str, value: Any, chance: random.Random) -> Any:
    kinds = {"id": 8, "n": 3, "d": 246, "x": 5, "day": 10, "at": 12, "part": 254}
    told = {"f": 10 if name in KEY else 65, "v": value} | ({"h": True} if name in KEY else {})
    if name in ("raw", "note"):
        is_long, raw = chance.random() < 0.5, value if name == "raw" or value is None else value.encode()
        told |= {"t": 252 if is_long else 15, "f": 65 if name == "raw" else 64}
        if value is not None and (is_long or name == "raw"):
            told["v"] = base64.b64encode(raw).decode() if is_long else _quoted(raw)
        return told
    return told | {"t": kinds[name], "v": value if isinstance(value, int | float | None) else str(value)}


def _ti_records(history: list[tuple[str, Row, Row]], chance: random.Random) -> list[bytes]:
    """Up to five events a record, some of another table. An update of the key can be a delete and an insert."""
    events = list[tuple[Any, Any]]()
    for kind, row, old in history:
        told = {name: _ti_cell(name, value, chance) for name, value in row.items()}
        was = {name: _ti_cell(name, value, chance) for name, value in old.items()}
        if kind == "delete":
            only = set(KEY) if chance.random() < 0.5 else row.keys()
            events.append((OF_TI, {"d": {name: told[name] for name in only}}))
        elif set(KEY) & old.keys() and chance.random() < 0.5:
            events += [(OF_TI, {"d": told | was}), (OF_TI, {"u": told})]
        else:
            before = was if chance.random() < 0.5 else told | was
            events.append((OF_TI, {"u": told} | ({"p": before} if kind == "update" else {})))
        if chance.random() < 0.1:
            events.append(({**OF_TI, "tbl": "f"}, {"u": {"k": {"t": 3, "f": 0, "v": 1}}}))
    records = []
    while events:
        taken = chance.randrange(1, 6)
        records.append(open_record(*events[:taken]))
        del events[:taken]
        records += [open_record(({"ts": TSO, "t": 3}, b""))] if chance.random() < 0.2 else []
    return records


@pytest.mark.parametrize(
    ("decoder", "records"),
    [
        (maxwell.decoder, _maxwell_records),
        (canal.decoder, _canal_records),
        (open_protocol.decoder, _ti_records),
    ],
    ids=["maxwell", "canal", "open protocol"],
)
def test_a_table_that_changes_at_random_is_what_its_records_say(decoder: Any, records: Any) -> None:
    for seed in range(40):
        chance = random.Random(seed)
        history, expected = _history(chance)
        raw = records(history, chance)
        table: dict[Any, Row] = {}
        for _, op, _, row, error in changes(opened(decoder, DDL, KEY, raw, tables=("shop.e",)), raw):
            assert error is None
            at = tuple(row[name] for name in KEY)
            table.pop(at, None)
            if op == "U":
                table[at] = row
        assert table == expected, f"seed {seed}"


def test_records_that_change_no_row_are_counted_by_what_they_are() -> None:
    around = {**_MAXWELL, "ts": 1450557598, "type": "bootstrap-start", "data": {}}
    other = {**INSERT, "table": "f"}
    told: list[Any] = [INSERT, ALTER, around, None, None, other, {**other, "table": "g"}, b"{"]
    asked = Asked("topic 't'", "t", "e", ("id",), of_ddl(OF_E), {"tables": ("e",)}, "upstream.value", shared=True)
    records = [one if one is None or isinstance(one, bytes) else json.dumps(one).encode() for one in told]
    for theirs, others in ((frozenset[str](), 2), (frozenset({"test.g"}), 1)):
        opened = maxwell.decoder.open(replace(asked, theirs=theirs), of_ddl(OF_E), {"source": "test.e"})
        found = opened.decode(list)(records)
        expected = {"statements": 1, "marks": 1, "tombstones": 2, "records_of_other_tables": others}
        assert dict(found.skipped) == expected
        assert found.record is not None
        assert found.record.to_pylist() == [0, 7], "a change, and a record that cannot be read"
