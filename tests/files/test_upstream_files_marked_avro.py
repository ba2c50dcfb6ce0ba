"""Rows with marks (AWS DMS's, and change feeds) in container files of Avro, written by fastavro."""

import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from files_values import failure, opened, read

from backfill_cli.contracts import Named, TableSpec
from backfill_cli.model.position import Position
from backfill_cli.upstreams.files import connector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {"id": pa.int64(), "v": pa.string(), "at": pa.timestamp("us", "UTC")}
AT = dt.datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=dt.UTC)
ROW: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "v", "type": ["null", "string"]},
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
]
MARKS: dict[str, list[dict[str, Any]]] = {
    "dms": [{"name": "Op", "type": {"type": "enum", "name": "Op", "symbols": ["I", "U", "D", "X"]}}],
    "change-feed": [{"name": "_change_type", "type": "string"}, {"name": "_commit_version", "type": "long"}],
}
OPS = {"dms": ("I", "U", "D"), "change-feed": ("insert", "update_postimage", "delete")}


def put(root: Path, name: str, form: str, rows: Sequence[tuple[str, int, Any]], more: Sequence[Any] = ()) -> None:
    """A file of (op, key, v); the version of a feed is the number in the name."""
    told = [
        {"Op": op, "_change_type": op, "_commit_version": int(name[0]), "id": key, "v": v, "at": AT, "n": 7}
        for op, key, v in rows
    ]
    fields = [*MARKS[form], *ROW, *more]
    names = {one["name"] for one in fields}
    (root / "changes").mkdir(exist_ok=True)
    with (root / "changes" / name).open("wb") as into:
        schema = fastavro.parse_schema({"type": "record", "name": "Row", "fields": fields})
        fastavro.writer(into, schema, [{n: value for n, value in one.items() if n in names} for one in told])


@pytest.mark.parametrize("form", ["dms", "change-feed"])
def test_rows_with_marks_in_avro_are_exact_and_in_order(tmp_path: Path, spark: "SparkSession", form: str) -> None:
    create, update, delete = OPS[form]
    upstream = opened(tmp_path, COLUMNS, {"format": form})
    put(tmp_path, "1.avro", form, [(create, 1, "漢"), (create, 2, None)])
    put(tmp_path, "2.avro", form, [(update, 1, "b"), (delete, 2, None)], [{"name": "n", "type": "int"}])
    put(tmp_path, "3.avro", form, [])
    told = read(upstream, spark, "_backfill_op", "id", "v", "at", "n")
    assert sorted(tuple(row.values()) for row in told[:2]) == sorted(
        [("U", 1, "漢", AT, None), ("U", 2, None, AT, None)], key=str
    )
    assert sorted((tuple(row.values()) for row in told[2:]), key=str) == sorted(
        [("U", 1, "b", AT, 7), ("D", 2, None, AT, 7)], key=str
    )


def test_a_row_whose_op_is_none_is_named(tmp_path: Path, spark: "SparkSession") -> None:
    upstream = opened(tmp_path, COLUMNS, {"format": "dms"})
    put(tmp_path, "1.avro", "dms", [("I", 1, "a"), ("X", 2, "b")])
    assert "1.avro: row 2: unknown Op: X" in str(failure(upstream, spark))


def test_epochs_are_read_from_a_column_of_theirs(tmp_path: Path, spark: "SparkSession") -> None:
    upstream = opened(tmp_path, COLUMNS, {"format": "change-feed", "epoch": "_commit_version"})
    for number in (1, 2, 3):
        put(tmp_path, f"{number}.avro", "change-feed", [("insert", number, str(number))])
    pin = upstream.pin()
    pending = upstream.observe(pin.position, False).pending
    assert [dict(one.cursors)["epoch"] for one in pending] == [1, 2, 3]
    up_to = Position.of(dict(pending[1].cursors))
    rows = upstream.changes(spark, "t", pin.position, up_to, dict(pin.schema)["t"]).toArrow().to_pylist()
    assert sorted(row["id"] for row in rows) == [1, 2]


def test_a_row_that_cannot_be_applied_is_quarantined_with_its_number(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    opened(tmp_path, COLUMNS, {"format": "dms"})
    told = {
        "on_error": "quarantine",
        "snapshot": {"path": str(tmp_path / "snapshot"), "format": "parquet"},
        "changes": {"path": str(tmp_path / "changes"), "format": "dms"},
    }
    upstream = connector.open(connector.options.model_validate(told), [TableSpec("t", ("id",))])
    put(tmp_path, "1.avro", "dms", [("I", 1, "a"), ("X", 2, "b")])
    good, bad = read(upstream, spark, "_backfill_op", "id", "_backfill_quarantined")
    assert (good["_backfill_op"], good["id"], good["_backfill_quarantined"]) == ("U", 1, None)
    kept = bad["_backfill_quarantined"]
    assert (kept["line"], kept["reason"]) == (2, "unknown Op: X")
    assert json.loads(kept["value"])["id"] == 2


@pytest.mark.parametrize("form", ["dms", "change-feed"])
def test_init_knows_them_by_their_columns(tmp_path: Path, form: str) -> None:
    opened(tmp_path, COLUMNS, {"format": form})
    put(tmp_path, "1.avro", form, [(OPS[form][0], 1, "a")])
    found = connector.look(
        Named(
            str(tmp_path / "snapshot"), str(tmp_path / "snapshot"), changes=Named(*[str(tmp_path / "changes")] * 2)
        )
    )
    assert found.options["changes.format"].value == form
