"""Results do not depend on what a machine's spark-defaults.conf says."""

import datetime as dt
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOSTILE = {
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96TimestampConversion": "true",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.variant.allowDuplicateKeys": "true",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
}

IN_A_PROCESS = """
import gc, json, sys
sys.path.insert(0, sys.argv[1])
gc.set_threshold(150_000)  # as the command does while it is loaded
from pathlib import Path
import psutil
from test_spark_defaults import found
from backfill_cli.spark.session import open_session

spark = open_session("local[1]", {"spark.driver.memory": "600m"})
told = found(spark, Path(sys.argv[2]))
for _ in range(500):
    spark.range(1).filter("id > 0")
from py4j.java_gateway import JavaObject
told["kept in Java"] = sum(isinstance(one, JavaObject) for one in gc.get_objects())
spark.stop()
(before,) = psutil.Process().children()
open_session("local[1]", {"spark.driver.memory": "601m"})
(after,) = psutil.Process().children()
told["own Java"] = before.pid != after.pid and "-Xmx601m" in after.cmdline()
print("FOUND", json.dumps(told))
"""
"""Then another session, which has a Java of its own: the first one's has not what it asks for."""


def found(spark: "SparkSession", folder: Path) -> dict[str, object]:
    """What the session says of HOSTILE's settings, and what it reads."""
    from backfill_cli.contracts import TableSpec
    from backfill_cli.model.plan import SnapshotRead
    from backfill_cli.upstreams.files import connector

    def tried(kind: str, wanted: list[str], **more: str) -> object:
        told = {"snapshot": {"path": f"{folder}/{kind}", "format": kind.split("_")[0], **more}}
        upstream = connector.open(connector.options.model_validate(told), [TableSpec("t", ("id",))])
        try:
            frame = upstream.scan(spark, "t", [SnapshotRead("t", s.id, 0, None) for s in upstream.pin().splits])
            return frame.selectExpr(*wanted).toArrow().to_pylist()
        except Exception as exc:
            return "refused" if "backfill" in str(exc) or "CAST_INVALID_INPUT" in str(exc) else repr(exc)

    shown = ["CAST(day AS STRING) AS day", "CAST(wall AS STRING) AS wall", "hex(raw) AS raw"]
    return {
        **{name: spark.conf.get(name) for name in HOSTILE},
        "parquet": tried("parquet", shown),
        "ansi": tried("parquet", ["CAST('x' AS INT) AS n"]),
        "at": tried("json", ["CAST(at AS STRING) AS at"], schema="id BIGINT, at TIMESTAMP"),
        "twice": tried("json_twice", ["id"], schema="id BIGINT"),
    }


def found_with(tmp_path: Path, defaults: dict[str, str]) -> dict[str, object]:
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in defaults.items()))
    told = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS, str(Path(__file__).parent), str(tmp_path)],
        env={**os.environ, "SPARK_CONF_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    (line,) = [line for line in told.stdout.splitlines() if line.startswith("FOUND ")] or [told.stderr]
    said: dict[str, object] = json.loads(line.removeprefix("FOUND "))
    return said


@pytest.mark.timeout(500)
@pytest.mark.in_turn("a process and its Spark")
def test_hostile_defaults_change_no_result(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "parquet").mkdir()
    columns = {
        "id": pa.array([1]),
        "day": pa.array([dt.date(1500, 1, 1)]),
        "wall": pa.array([dt.datetime(1500, 1, 1, 2)], pa.timestamp("us")),
        "raw": pa.array([b"\xff"]),
    }
    pq.write_table(pa.table(columns), tmp_path / "parquet" / "a.parquet")
    for name, line in {
        "json": '{"id": 1, "at": "2026-01-01T00:00:00"}',
        "json_twice": '{"id": 1, "id": 2}',
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.json").write_text(line + "\n")
    hostile = found_with(tmp_path, HOSTILE)
    assert hostile.pop("own Java")
    assert hostile.pop("kept in Java") < 1000, "of more than a thousand, let go by chance"
    assert hostile["parquet"] == [{"day": "1500-01-01", "wall": "1500-01-01 02:00:00", "raw": "FF"}]
    assert hostile["at"] == [{"at": "2026-01-01 00:00:00"}]
    assert (hostile["ansi"], hostile["twice"]) == ("refused", "refused")
    assert hostile == found(spark, tmp_path), "as without them"
