"""Spark's Python workers start with what they need already loaded."""

from typing import TYPE_CHECKING, Any

from backfill_cli.spark import arrow_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_workers_are_forked_from_a_process_that_has_loaded_what_they_need(spark: "SparkSession") -> None:
    def seen(part: int) -> Any:
        """Runs in a worker. zips: archives whose directory Python would read again before each task."""
        import sys
        import zipimport

        import pyarrow as pa

        loaded = "pyarrow.parquet" in sys.modules
        zips = sum(isinstance(one, zipimport.zipimporter) for one in sys.path_importer_cache.values())
        main = str(sys.modules["__main__"].__file__)
        yield pa.RecordBatch.from_pydict({"main": [main], "loaded": [loaded], "zips": [zips]})

    (worker,) = (
        arrow_tasks.frame(spark, seen, (0,), "main STRING, loaded BOOLEAN, zips BIGINT").toArrow().to_pylist()
    )
    assert worker["main"].endswith("backfill_cli/spark/daemon.py")
    assert worker["loaded"]
    assert worker["zips"] == 0
