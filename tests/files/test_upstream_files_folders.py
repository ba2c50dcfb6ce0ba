"""Snapshots as Spark itself writes them with `partitionBy`: the columns in the names of folders come back."""

import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from files_values import FAILURES
from hint_typed import typed

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import Fatal
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.spark.failures import from_spark
from backfill_cli.upstreams.files import connector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = [
    "eu",
    "a/b",
    "x=y",
    "50%",
    "%41",
    "a b+c",
    "it's",
    "漢 😀",
    "a:b",
    "",
    None,
    "null",
    "09",
    "{1}[2]*?",
    'q"\\',
]
DAYS = [dt.date(2024, 1, 2), dt.date(1, 1, 1), None]
ROWS = [{"id": i, "note": f"n{i}", "day": DAYS[i % 3], "r": text} for i, text in enumerate(TEXTS)]
EXPECTED = [{**row, "r": row["r"] or None} for row in ROWS]


def scanned(folder: Path, spark: "SparkSession", kind: str, **more: Any) -> list[dict[str, Any]]:
    options = {"path": str(folder), "format": kind, "folders": "day DATE, r STRING", **more}
    upstream = connector.open(connector.options.model_validate({"snapshot": options}), [TableSpec("t", ("id",))])
    pin = upstream.pin()
    upstream.restore(pin)
    reads = [SnapshotRead("t", split.id, 0, split.rows) for split in pin.splits]
    found = upstream.scan(spark, "t", reads).select("id", "note", "day", "r").orderBy("id")
    rows: list[dict[str, Any]] = found.toArrow().to_pylist()
    return rows


@pytest.mark.parametrize("kind", ["parquet", "json", "csv"])
def test_case_72_what_spark_writes_into_folders_is_read_back(
    tmp_path: Path, spark: "SparkSession", kind: str
) -> None:
    schema = pa.schema([("id", pa.int64()), ("note", pa.string()), ("day", pa.date32()), ("r", pa.string())])
    frame = spark.createDataFrame(pa.Table.from_pylist(ROWS, schema)).coalesce(1)
    writer = frame.write.partitionBy("day", "r").option("header", kind == "csv")
    writer.format(kind).save(str(tmp_path / "t"))
    more = {} if kind == "parquet" else {"schema": "id BIGINT, note STRING"}
    assert scanned(tmp_path / "t", spark, kind, **more) == EXPECTED


def test_old_dates_beside_columns_of_folders_are_refused(tmp_path: Path, spark: "SparkSession") -> None:
    """Spark's own reader, which knows them, reads folders in its own way."""
    select = "SELECT id, 'n' AS note, date'1500-02-28' AS old, date'2024-01-02' AS day, 'eu' AS r FROM range(1)"

    def write(rebase: str) -> None:
        spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", rebase)
        try:
            frame = spark.sql(select).write.mode("overwrite")
            frame.partitionBy("day", "r").parquet(str(tmp_path / "t"))
        finally:
            spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInWrite")

    write("LEGACY")
    with pytest.raises(Fatal, match=r"its dates are those of Spark before 3.0") as refused:
        scanned(tmp_path / "t", spark, "parquet")
    with typed(refused.value) as hint:
        hint.says("write the files with a newer Spark")
        write("CORRECTED")
        assert [row["day"] for row in scanned(tmp_path / "t", spark, "parquet")] == [dt.date(2024, 1, 2)]


def avro(path: Path, rows: Sequence[dict[str, Any]], *names: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = [{"name": name, "type": "long" if name == "id" else ["null", "string"]} for name in names]
    with path.open("wb") as into:
        fastavro.writer(into, fastavro.parse_schema({"type": "record", "name": "r", "fields": fields}), rows)


def test_files_of_avro_have_columns_of_folders_that_may_be_in_them_too(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    avro(tmp_path / "a" / "day=2024-01-02" / "r=eu" / "0.avro", [{"id": 1, "note": "x"}], "id", "note")
    assert scanned(tmp_path / "a", spark, "avro") == [
        {"id": 1, "note": "x", "day": dt.date(2024, 1, 2), "r": "eu"}
    ]
    rows = [{"id": 1, "note": "x", "r": "eu"}, {"id": 2, "note": "y", "r": "us"}]
    avro(tmp_path / "b" / "day=2024-01-02" / "r=eu" / "0.avro", rows, "id", "note", "r")
    with pytest.raises(FAILURES) as caught:
        scanned(tmp_path / "b", spark, "avro")
    assert "column 'r' is not eu, as the file's folder says" in str(from_spark(caught.value) or caught.value)


def test_lines_that_have_the_column_too_must_be_equal(tmp_path: Path, spark: "SparkSession") -> None:
    path = tmp_path / "day=2024-01-02" / "r=eu" / "0.json"
    path.parent.mkdir(parents=True)
    ddl = {"schema": "id BIGINT, note STRING, r STRING"}
    path.write_text(json.dumps({"id": 1, "note": "x", "r": "eu"}) + "\n")
    assert [row["r"] for row in scanned(tmp_path, spark, "json", **ddl)] == ["eu"]
    path.write_text(json.dumps({"id": 1, "note": "x", "r": "us"}) + "\n")
    with pytest.raises(FAILURES) as caught:
        scanned(tmp_path, spark, "json", **ddl)
    assert "column 'r' is not eu" in str(from_spark(caught.value) or caught.value)
