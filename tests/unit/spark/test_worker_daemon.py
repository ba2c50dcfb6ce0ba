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


def test_nobody_looks_for_modules_in_the_jars_of_lake_tables(spark: "SparkSession") -> None:
    """Each process that imported one read a directory of 30,000 files, and a worker again for each task."""
    import sys

    def seen(batch: Any) -> Any:
        """Runs in a worker."""
        import importlib.util
        import sys
        import zipimport

        import pyarrow as pa

        zips = sum(isinstance(one, zipimport.zipimporter) for one in sys.path_importer_cache.values())
        importlib.util.find_spec("no_such_module")
        yield pa.RecordBatch.from_pydict({"path": [sys.path], "zips": [zips]})

    def in_jars(path: list[str]) -> list[str]:
        return [one for one in path if one.endswith(".jar") and "/userFiles-" in one]

    assert "io.delta_delta-spark" in str(spark.conf.get("spark.jars"))
    assert not in_jars(sys.path)
    for _ in range(3):  # workers are used again: the tasks before looked into zips
        (worker,) = (
            arrow_tasks.mapped(spark.range(1), seen, "path ARRAY<STRING>, zips BIGINT").toArrow().to_pylist()
        )
        assert not in_jars(worker["path"])
        assert worker["zips"] == 0
