"""Debezium's envelopes in container files of Avro, as Connect's sink for S3 writes them: by fastavro here."""

import datetime as dt
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from files_values import FAILURES, changes_of, event, failure, opened, read
from hint_typed import typed

from backfill_cli.contracts import Named, TableSpec
from backfill_cli.errors import BadData
from backfill_cli.spark.failures import from_spark
from backfill_cli.upstreams.files import connector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {
    "id": pa.int64(),
    "v": pa.string(),
    "price": pa.decimal128(9, 2),
    "at": pa.timestamp("us"),
    "day": pa.date32(),
}


def optional(kind: Any) -> dict[str, Any]:
    return {"type": ["null", kind], "default": None}


def micros(value: dt.datetime) -> int:
    return (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)


ROW: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "v", **optional("string")},
    {
        "name": "price",
        **optional(
            {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": 9,
                "scale": 2,
                "connect.name": "org.apache.kafka.connect.data.Decimal",
                "connect.parameters": {"scale": "2", "connect.decimal.precision": "9"},
            }
        ),
    },
    {"name": "at", **optional({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"})},
    {"name": "day", **optional({"type": "int", "connect.name": "io.debezium.time.Date"})},
]


def envelope(row: Sequence[dict[str, Any]]) -> dict[str, Any]:
    value = {"type": "record", "name": "Value", "fields": list(row)}
    source = {
        "type": "record",
        "name": "Source",
        "fields": [{"name": "ts_ms", "type": "long"}, {"name": "table", "type": "string"}],
    }
    fields = [
        {"name": "before", **optional(value)},
        {"name": "after", **optional("Value")},
        {"name": "source", "type": source},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", **optional("long")},
    ]
    return {"type": "record", "name": "Envelope", "namespace": "shop", "fields": fields}


def wrote(
    folder: Path,
    name: str,
    changes: Sequence[tuple[str, Any, Any]],
    row: Sequence[dict[str, Any]] = ROW,
    tombstones: str = "",
    **more: Any,
) -> Path:
    """A file of these changes: (op, before, after). tombstones: null's place in a union; one after each change."""
    told: list[Any] = [
        {"op": op, "before": before, "after": after, "source": {"ts_ms": 5, "table": "t"}, "ts_ms": 6}
        for op, before, after in changes
    ]
    path = folder / "changes" / name
    schema: Any = envelope(row)
    if tombstones:
        schema = ["null", schema] if tombstones == "first" else [schema, "null"]
        told = [one for change in told for one in (change, None)]
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as into:
        fastavro.writer(into, fastavro.parse_schema(schema), told, **more)
    return path


def of(key: int, **values: Any) -> dict[str, Any]:
    return {"id": key, "v": None, "price": None, "at": None, "day": None, **values}


WALL = dt.datetime(1500, 2, 28, 1, 2, 3, 4)
CHANGES = [
    ("c", None, of(1, v="漢", price=Decimal("-0.01"), at=micros(WALL), day=-1)),
    ("u", of(1), of(1, price=Decimal("1234567.89"))),
    ("r", None, of(2)),
    ("d", of(2), None),
    ("u", of(3), of(4, v="moved")),
]
EXPECTED = [
    ("U", 1, "漢", Decimal("-0.01"), WALL, dt.date(1969, 12, 31)),
    ("U", 1, None, Decimal("1234567.89"), None, None),
    ("U", 2, None, None, None, None),
    ("D", 2, None, None, None, None),
    ("D", 3, None, None, None, None),
    ("U", 4, "moved", None, None, None),
]


@pytest.mark.parametrize("null", ["first", "last"])
def test_records_that_are_null_are_tombstones(tmp_path: Path, null: str) -> None:
    upstream = opened(tmp_path, COLUMNS, {"format": "debezium"})
    wrote(tmp_path, "t+0+9.avro", CHANGES, tombstones=null)
    pin = upstream.pin()
    latest = upstream.observe(pin.position, False).latest
    tasks = upstream.change_batches("t", pin.position, latest, pin.schema["t"], 4)
    assert tasks is not None
    made = [row for task in tasks.parts for p in task for b in tasks.make(p.what) for row in b.to_pylist()]
    assert [tuple(row[name] for name in ("_backfill_op", *COLUMNS)) for row in made] == EXPECTED


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_changes_in_avro_are_exact_and_in_order(tmp_path: Path, spark: "SparkSession", codec: str) -> None:
    upstream = opened(tmp_path, COLUMNS, {"format": "debezium"})
    wrote(tmp_path, "t+0+9.avro", CHANGES[:2], codec=codec)
    wrote(tmp_path, "t+0+10.avro", CHANGES[2:], codec=codec, sync_interval=1)
    rows = read(upstream, spark, "_backfill_op", "_backfill_ms", *COLUMNS)
    assert {row.pop("_backfill_ms") for row in rows} == {5}
    assert [tuple(row.values()) for row in rows] == EXPECTED
    pin = upstream.pin()
    latest = upstream.observe(pin.position, False).latest
    tasks = upstream.change_batches("t", pin.position, latest, pin.schema["t"], 4)
    assert tasks is not None
    made = [row for task in tasks.parts for p in task for b in tasks.make(p.what) for row in b.to_pylist()]
    assert [tuple(row[name] for name in ("_backfill_op", *COLUMNS)) for row in made] == EXPECTED


def test_a_column_that_is_added_is_followed_and_json_may_follow(tmp_path: Path, spark: "SparkSession") -> None:
    columns = {"id": pa.int64(), "v": pa.string()}
    upstream = opened(tmp_path, columns, {"format": "debezium", "columns": "n INT"})
    row = ROW[:2]
    wrote(tmp_path, "1.avro", [("c", None, {"id": 1, "v": "a"})], row)
    more = [*row, {"name": "n", **optional("int")}]
    wrote(tmp_path, "2.avro", [("c", None, {"id": 2, "v": "b", "n": 7})], more)
    line = json.loads(event("u", None, {"id": 2, "v": "c", "n": 8}))
    line["source"]["table"] = "t"
    (tmp_path / "changes" / "3.json").write_text(json.dumps(line) + "\n")
    found = [(r["id"], r["v"], r["n"]) for r in read(upstream, spark, "id", "v", "n")]
    assert found == [(1, "a", None), (2, "b", 7), (2, "c", 8)]


def test_what_cannot_be_read_is_named(tmp_path: Path, spark: "SparkSession") -> None:
    upstream = opened(tmp_path, COLUMNS, {"format": "debezium"})
    path = wrote(tmp_path, "1.avro", [*CHANGES[:1], ("x", None, of(1)), *CHANGES[1:2]])
    error = failure(upstream, spark)
    assert "1.avro: row 2 (of id 1): unknown op x" in error.message
    wrote(tmp_path, "1.avro", CHANGES[:2])
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(FAILURES) as caught:
        changes_of(opened(tmp_path, COLUMNS, {"format": "debezium"}), spark).collect()
    known = caught.value if isinstance(caught.value, BadData) else from_spark(caught.value)
    assert "1.avro: not a complete avro file" in str(known)


def test_rows_that_are_no_envelopes_are_named(tmp_path: Path) -> None:
    upstream = opened(tmp_path, COLUMNS, {"format": "debezium"})
    path = tmp_path / "changes" / "1.avro"
    with path.open("wb") as into:
        schema = {"type": "record", "name": "r", "fields": ROW[:2]}
        fastavro.writer(into, fastavro.parse_schema(schema), [{"id": 1, "v": "x"}])
    with pytest.raises(BadData, match=r"1\.avro: a record: .* is not a Debezium envelope") as caught:
        upstream.observe(upstream.pin().position, False)
    with typed(caught.value) as hint:
        assert hint.settings()["upstream.on_error"] == "quarantine"
        told = {"snapshot": {"path": str(tmp_path / "snapshot"), "format": "parquet"}, "on_error": "quarantine"}
        told["changes"] = {"path": str(tmp_path / "changes"), "format": "debezium"}
        again = connector.open(connector.options.model_validate(told), [TableSpec("t", ("id",))])
        assert len(again.observe(again.pin().position, False).pending) == 1


def test_init_sees_envelopes(tmp_path: Path) -> None:
    opened(tmp_path, COLUMNS, {"format": "debezium"})
    wrote(tmp_path, "1.avro", CHANGES)
    snapshot, changes = (str(tmp_path / name) for name in ("snapshot", "changes"))
    looked = connector.look(Named(snapshot, snapshot, changes=Named(changes, changes)))
    assert looked.options["changes.format"].value == "debezium"
    assert "changes.file_format" not in looked.options


def test_an_epoch_column_is_not_read_from_avro(tmp_path: Path) -> None:
    told = {"format": "debezium", "epoch": "source.ts_ms"}
    upstream = opened(tmp_path, COLUMNS, told)
    pin = upstream.pin()
    wrote(tmp_path, "1.avro", CHANGES)
    with pytest.raises(BadData, match="not read from Debezium's files of Avro") as caught:
        upstream.observe(pin.position, False)
    with typed(caught.value) as hint:
        hint.says("remove upstream.changes.epoch")
        again = opened(tmp_path, COLUMNS, {"format": "debezium"})
        assert len(again.observe(again.pin().position, False).pending) == 1


def test_a_file_whose_columns_are_not_those_of_the_table_is_named(tmp_path: Path) -> None:
    upstream = opened(tmp_path, {"id": pa.int64(), "v": pa.string()}, {"format": "debezium"})
    wrote(tmp_path, "1.avro", [("c", None, {"id": 1})], ROW[:1])
    pin = upstream.pin()
    with pytest.raises(BadData, match=r"1\.avro.*column 'v' is gone"):
        upstream.observe(pin.position, False)
    wrote(tmp_path, "1.avro", [("c", None, {"id": 1, "v": 7})], [ROW[0], {"name": "v", "type": "long"}])
    with pytest.raises(BadData, match=r"1\.avro.*column 'v' was string, and is bigint"):
        upstream.observe(pin.position, False)
