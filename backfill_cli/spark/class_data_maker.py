"""Creates the driver's class archive: `python -m backfill_cli.spark.class_data_maker`, run by spark.class_data.

Runs in small what a job runs, so that the classes a job needs are loaded when Java exits and archives them.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from backfill_cli.spark import class_data, driver
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.java import find_java
from backfill_cli.spark.session import open_session

KEPT = 3
"""How many archives are kept, including those for other Javas and environments: 160 MB each."""

EXIT_TIMEOUT_S = 600.0
"""Writing the archive took 5 s on an idle machine, but it runs at the lowest priority."""


def make(file: Path) -> bool:
    """The archive exists if this returns True; False if another process is creating it.

    If Java cannot archive (a class path that contains a folder), an empty file records that, so that it is not
    tried again after every run.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with FileLock(f"{file}.lock", blocking=False):
            if not file.exists():
                with tempfile.TemporaryDirectory(prefix="backfill-archive-") as scratch:
                    _make(file, Path(scratch))
                _forget_old(file.parent)
    except Timeout:
        return False
    return True


def _make(file: Path, scratch: Path) -> None:
    os.environ[class_data.SWITCH] = "off"
    os.environ.pop("PYSPARK_GATEWAY_PORT", None)  # a Java that others started has its flags already, and its Spark
    fresh = file.with_suffix(".making")
    fresh.unlink(missing_ok=True)
    flags = f'"-XX:ArchiveClassesAtExit={fresh}" -Xlog:disable -Xlog:all=off'
    spark = open_session("local[2]", {"spark.driver.extraJavaOptions": flags, "spark.driver.memory": "1g"})
    try:
        _exercise(spark, scratch)
    finally:
        spark.stop()
        driver.end(EXIT_TIMEOUT_S)
    if not fresh.exists():
        fresh.touch()
    fresh.replace(file)


def _exercise(spark: SparkSession, scratch: Path) -> None:
    """Runs a snapshot slice, a fold of changes and a comparison, as the engine does."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    orders, changes, staged, sliced_by_python = (str(scratch / name) for name in ("o", "c", "s", "p"))
    spark.range(1000, numPartitions=2).select(
        "id",
        f.expr("CAST(id AS DECIMAL(10,2)) AS amount"),
        f.expr("concat('s', id) AS status"),
        f.expr("timestamp_seconds(id) AS at"),
    ).write.parquet(orders)
    rows = spark.read.parquet(orders)
    counted = Observation("counted")
    sliced = rows.select("*", "_metadata.row_index", "_metadata.file_name").where("row_index >= 10 AND id % 7 > 0")
    sliced.select("id", f.upper("status").alias("status"), "amount", "at").observe(
        counted, f.count(f.lit(1)).alias("rows"), f.max("id").alias("last"), f.max("at").alias("at")
    ).write.option("compression", "lz4_raw").parquet(staged)
    assert counted.get
    rows.select(
        f.to_json(f.struct(f.struct("id", "status").alias("after"), f.lit("u").alias("op"))).alias("value")
    ).write.text(changes)
    shape = "after STRUCT<id: BIGINT, status: STRING>, op STRING"
    log = (
        spark.read.schema(shape)
        .json(changes)
        .select("after.*", "op", "_metadata.file_name", f.monotonically_increasing_id().alias("seq"))
    )
    last = log.groupBy("id").agg(f.max_by(f.struct("status", "op"), f.struct("file_name", "seq")).alias("row"))
    last.select("id", "row.*").join(rows.select("id", "amount"), "id", "left").write.mode("append").parquet(staged)
    rows.groupBy(f.expr("id % 10")).agg(f.count(f.lit(1)), f.bit_xor(f.xxhash64("id", "status"))).toArrow()
    _read_from_python(spark).write.parquet(sliced_by_python)


def _read_from_python(spark: SparkSession) -> DataFrame:
    """Two rows `(id BIGINT)` from an Arrow table function, the way small slices of Parquet are read."""
    from pyspark.sql.functions import arrow_udtf

    class Twice:
        def eval(self, numbers: Any) -> Iterator[Any]:
            yield numbers
            yield numbers

    read: Any = arrow_udtf(Twice, returnType="id BIGINT")
    rows: DataFrame = read(spark.range(0, 1, 1, 1).asTable())
    return rows


def _forget_old(folder: Path) -> None:
    """Only the newest archives are kept, each with its lock file."""
    kept = sorted(folder.glob("*.jsa"), key=lambda file: file.stat().st_mtime, reverse=True)
    for old in kept[KEPT:]:
        old.unlink(missing_ok=True)
        Path(f"{old}.lock").unlink(missing_ok=True)


if __name__ == "__main__":
    os.nice(19)
    wanted = class_data.archive_file(find_java(os.environ), {})
    sys.exit(0 if wanted is None or make(wanted) else 1)
