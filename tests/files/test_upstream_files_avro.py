"""Snapshots in container files of Avro: each value exact, or its file and row refused by name."""

import builtins
import datetime as dt
import io
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from files_values import FAILURES
from hint_typed import typed

from backfill_cli.contracts import Source, TableSpec, own
from backfill_cli.errors import BadData, UsageError
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.schema import columns_of
from backfill_cli.spark.failures import from_spark
from backfill_cli.upstreams.files import connector
from backfill_cli.upstreams.files.inference.infer import snapshot_of
from backfill_cli.upstreams.files.inference.sample import folder, opened
from backfill_cli.upstreams.files.reading import avro_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID"]}},
    ],
}
FIRST = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)


def rows(begin: int, end: int) -> list[dict[str, Any]]:
    return [
        {
            "id": i,
            "note": None if i % 3 else f"ä{i}",
            "amount": Decimal(i * 7 - 500).scaleb(-2),
            "at": FIRST + dt.timedelta(microseconds=i),
            "tags": ["x"] * (i % 3),
            "status": ("NEW", "PAID")[i % 2],
        }
        for i in range(begin, end)
    ]


def written(found: list[dict[str, Any]], schema: Any = ORDER, **more: Any) -> bytes:
    into = io.BytesIO()
    fastavro.writer(into, fastavro.parse_schema(schema), found, **more)
    return into.getvalue()


def of_files(root: Path, files: dict[str, bytes], **more: Any) -> Source:
    for name, content in files.items():
        (root / name).write_bytes(content)
    options = {"snapshot": {"path": str(root), "format": "avro"}, **more}
    return connector.open(connector.options.model_validate(options), [TableSpec("t", ("id",))])


def test_rows_of_all_files_are_those_that_were_written(tmp_path: Path, spark: "SparkSession") -> None:
    files = {
        "a.avro": written(rows(0, 900), codec="deflate", sync_interval=2000),
        "b.avro": written(rows(900, 1000)),
        "c.avro": written([]),
    }
    upstream = of_files(tmp_path, files)
    pin = upstream.pin()
    assert {name: c["type"] for name, c in columns_of(pin.schema["t"]).items()} == {
        "id": "long",
        "note": "string",
        "amount": "decimal(9,2)",
        "at": "timestamp",
        "tags": {"type": "array", "elementType": "string", "containsNull": True},
        "status": "string",
    }
    reads = [SnapshotRead("t", name, 0, None) for name in files]
    found = upstream.scan(spark, "t", reads).drop(own.READ).toArrow().sort_by("id")
    assert found.to_pylist() == rows(0, 1000)


def test_a_row_that_no_column_holds_is_named_or_kept_apart(tmp_path: Path, spark: "SparkSession") -> None:
    told = rows(0, 60_000)
    raw = written(told, sync_interval=100_000).replace(b"\x0a\xc3\xa4777", b"\x0a\xff\xff777")
    upstream = of_files(tmp_path, {"a.avro": raw})
    upstream.pin()
    read = [SnapshotRead("t", "a.avro", 0, None)]
    with pytest.raises(FAILURES) as refused:
        upstream.scan(spark, "t", read).toArrow()
    assert from_spark(refused.value).message.endswith(
        "a.avro: row 778: not Avro of its schema: not UTF-8 text in 'note' at byte 2"
    )
    apart = of_files(tmp_path, {}, on_error="quarantine")
    apart.pin()
    found = apart.scan(spark, "t", read).toArrow()
    assert found.num_rows == 60_000
    (bad,) = [row for row in found.column(own.QUARANTINED).to_pylist() if row is not None]
    assert (bad["line"], bad["reason"]) == (778, "not Avro of its schema: not UTF-8 text in 'note' at byte 2")


def test_a_damaged_file_and_one_of_other_columns_are_named(tmp_path: Path, spark: "SparkSession") -> None:
    whole = written(rows(0, 90), sync_interval=500)
    upstream = of_files(tmp_path, {"a.avro": whole[:-20]})
    upstream.pin()
    with pytest.raises(FAILURES) as refused:
        upstream.scan(spark, "t", [SnapshotRead("t", "a.avro", 0, None)]).toArrow()
    assert "a.avro: not a complete avro file: block " in from_spark(refused.value).message
    other = {**ORDER, "fields": [*ORDER["fields"][:-1], {"name": "status", "type": "int"}]}
    with pytest.raises(BadData, match=r"b\.avro: column 'status' is int, but is string in .*/a\.avro"):
        of_files(tmp_path, {"a.avro": whole, "b.avro": written([], other)}).pin()
    with pytest.raises(BadData, match=r"b\.avro: not a complete avro file: not an object container file of Avro"):
        of_files(tmp_path, {"b.avro": b"PAR1"}).pin()
    wide = {**ORDER, "fields": [{"name": "x", "type": ["null", "shop.Order"]}]}
    with pytest.raises(BadData, match=r"b\.avro: column 'x': shop\.Order contains itself"):
        of_files(tmp_path, {"b.avro": written([], wide)}).pin()


def test_init_reads_types_and_a_key_from_the_files(tmp_path: Path) -> None:
    (tmp_path / "part-0").write_bytes(written(rows(0, 500)))
    with opened(str(tmp_path)) as db:
        found = snapshot_of(db, str(tmp_path), folder(str(tmp_path)))
    assert found.options["format"].value == "avro"
    assert found.typed["amount"]["type"] == "decimal(9,2)"
    assert (found.columns["id"].rows, found.columns["id"].distinct) == (500, 500)


def test_the_package_that_reads_them_comes_with_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *told: Any) -> ModuleType:
        if name == "numpy":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *told)

    with monkeypatch.context() as lacking:
        lacking.setattr(builtins, "__import__", without)
        with pytest.raises(UsageError, match="need the package numpy, which is not installed") as refused:
            avro_files.require_package()
    with typed(refused.value) as hint:
        assert hint.packages() >= {"numpy"}
        avro_files.require_package()


def test_a_file_of_values_that_are_no_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="its rows are of type string, not records") as refused:
        of_files(tmp_path, {"a.avro": written(["x"], "string")}).pin()  # type: ignore[list-item]
    with typed(refused.value) as hint:
        hint.says("write the column with a type that holds all its values")
        assert of_files(tmp_path, {"a.avro": written(rows(0, 2))}).pin().splits
