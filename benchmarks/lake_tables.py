"""The tables of benchmarks/lake.py: created, changed, copied and merged without `backfill`, a class per format."""

import json
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEED = {"delta.enableChangeDataFeed": "true"}
FILES = 20
BATCH_FILES = 5
"""Files of a stream's micro-batch: one that is to be watched, stopped and gone on with is cut into some."""

ROWS = pa.schema(
    [("id", pa.int64()), ("customer", pa.int64()), ("amount", pa.decimal128(12, 2)), ("note", pa.string())]
)
WIDE = pa.schema([("id", pa.int64()), ("note", pa.string())])


def rows(low: int, high: int, seed: int = 0) -> pa.Table:
    ids = range(low, high)
    amounts = pa.array([(n * 37 + seed) % 1_000_000 for n in ids], pa.int64()).cast(pa.decimal128(19, 0))
    notes = pa.array([f"order {n * 7919 % 1_000_003} of nobody in particular {seed}" for n in ids])
    columns = [
        pa.array(ids, pa.int64()),
        pa.array([n % 10_007 for n in ids]),
        amounts.cast(ROWS.field(2).type),
        notes,
    ]
    return pa.table(columns, schema=ROWS)


def change_rows(count: int, changes: int, seed: int) -> Iterator[tuple[str, pa.Table]]:
    """8 of 10 are updates, one a delete, one an insert; each seed changes other rows while there are any."""
    low = (seed * 7_919_000) % max(1, count - changes)
    updated, deleted = low + changes * 8 // 10, low + changes * 9 // 10
    yield "update_preimage", rows(low, updated)
    yield "update_postimage", rows(low, updated, seed)
    yield "delete", rows(updated, deleted)
    yield "insert", rows(count + seed * changes, count + seed * changes + changes // 10, seed)


class Lake(Protocol):
    """One format. Tables are named by their folders."""

    name: str
    settings: dict[str, str]

    def load(self, table: Path, count: int) -> None: ...
    def version(self, table: Path) -> int: ...
    def commits(self, table: Path) -> int: ...
    def change(self, spark: "SparkSession", table: Path, count: int, changes: int, seed: int) -> None: ...
    def plain(self, spark: "SparkSession", source: Path, version: int, target: Path) -> None: ...
    def streamed(self, spark: "SparkSession", source: Path, folder: Path, batch_files: int | None) -> None: ...
    def followed(self, spark: "SparkSession", source: Path, version: int, target: Path) -> None: ...
    def has(self, table: Path, key: int) -> bool: ...
    def wide(self, table: Path, files: int) -> None: ...


def read(spark: "SparkSession", lake: Lake, table: Path) -> "DataFrame":
    return spark.read.format(lake.name).load(str(table))


def total(spark: "SparkSession", lake: Lake, table: Path) -> Any:
    """Rows and a sum over all columns."""
    return read(spark, lake, table).selectExpr("count(*)", "sum(xxhash64(*) % 1000003)", "sum(id)").toArrow()


def merge_sql(target: str) -> str:
    """MERGE of the view `batch`, `(ROWS…, _change_type)` net by key."""
    columns = ", ".join(ROWS.names)
    return (
        f"MERGE INTO {target} t USING batch s ON t.id = s.id "
        "WHEN MATCHED AND lower(s._change_type) = 'delete' THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{n} = s.{n}' for n in ROWS.names)} "
        f"WHEN NOT MATCHED AND lower(s._change_type) != 'delete' THEN INSERT ({columns}) "
        f"VALUES ({', '.join(f's.{n}' for n in ROWS.names)})"
    )


class Delta:
    name = "delta"

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def load(self, table: Path, count: int) -> None:
        from deltalake import write_deltalake

        per = -(-count // FILES)
        for low in range(0, count, per):
            part = rows(low, min(low + per, count))
            write_deltalake(str(table), part, mode="append", configuration=FEED)

    def version(self, table: Path) -> int:
        from deltalake import DeltaTable

        return DeltaTable(str(table)).version()

    commits = version

    def change(self, _spark: "SparkSession", table: Path, count: int, changes: int, seed: int) -> None:
        """The commit is written by hand: its rows are only in a file of the feed, which is all that is read."""
        version = self.version(table) + 1
        told = [
            part.append_column("_change_type", pa.array([kind] * len(part)))
            for kind, part in change_rows(count, changes, seed)
        ]
        (table / "_change_data").mkdir(exist_ok=True)
        name = f"_change_data/{uuid.uuid4().hex}.parquet"
        pq.write_table(pa.concat_tables(told), table / name)
        cdc = {"path": name, "partitionValues": {}, "size": (table / name).stat().st_size, "dataChange": False}
        info = {"timestamp": int(time.time() * 1000), "operation": "MERGE", "operationParameters": {}}
        text = "".join(json.dumps(one) + "\n" for one in ({"commitInfo": info}, {"cdc": cdc}))
        (table / "_delta_log" / f"{version:020d}.json").write_text(text)

    def plain(self, spark: "SparkSession", source: Path, version: int, target: Path) -> None:
        frame = spark.read.format("delta").option("versionAsOf", version).load(str(source))
        frame.write.format("delta").save(str(target))

    def streamed(self, spark: "SparkSession", source: Path, folder: Path, batch_files: int | None) -> None:
        reading = spark.readStream.format("delta")
        if batch_files is not None:
            reading = reading.option("maxFilesPerTrigger", batch_files)
        stream = reading.load(str(source)).writeStream.format("delta").trigger(availableNow=True)
        stream.option("checkpointLocation", str(folder / "checkpoint")).start(
            str(folder / "table")
        ).awaitTermination()

    def followed(self, spark: "SparkSession", source: Path, version: int, target: Path) -> None:
        from pyspark.sql import functions as F

        def merged(batch: "DataFrame", _number: int) -> None:
            order = F.struct("_commit_version", F.col("_change_type") != "delete")
            last = batch.where("_change_type != 'update_preimage'").groupBy("id")
            net = last.agg(F.max_by(F.struct("*"), order).alias("r")).select("r.*")
            net.createOrReplaceTempView("batch")
            batch.sparkSession.sql(merge_sql(f"delta.`{target}`"))

        feed = spark.readStream.format("delta").option("readChangeFeed", "true")
        stream = feed.option("startingVersion", version + 1).load(str(source)).writeStream.foreachBatch(merged)
        checkpoint = str(target.with_name(f"{target.name}-checkpoint"))
        stream.trigger(availableNow=True).option("checkpointLocation", checkpoint).start().awaitTermination()

    def has(self, table: Path, key: int) -> bool:
        import pyarrow.compute as pc
        from deltalake import DeltaTable

        seen = DeltaTable(str(table)).to_pyarrow_dataset().to_table(columns=["id"], filter=pc.field("id") == key)
        return len(seen) > 0

    def wide(self, table: Path, files: int) -> None:
        """A table of many files, which are only in its log."""
        from deltalake import DeltaTable

        DeltaTable.create(str(table), WIDE, configuration=FEED)
        with (table / "_delta_log" / f"{1:020d}.json").open("w") as log:
            info = {"timestamp": int(time.time() * 1000), "operation": "WRITE"}
            log.write(json.dumps({"commitInfo": info}) + "\n")
            for n in range(files):
                low, high = n * 1_000_000, n * 1_000_000 + 999_999
                bounds = {"minValues": {"id": low}, "maxValues": {"id": high}, "nullCount": {"id": 0}}
                stats = json.dumps({"numRecords": 1_000_000, **bounds})
                add = {"path": f"{uuid.uuid4()}.parquet", "partitionValues": {}, "size": 10**8, "dataChange": True}
                log.write(json.dumps({"add": {**add, "modificationTime": 0, "stats": stats}}) + "\n")


class Iceberg:
    """Tables of Hadoop's catalog, whose names are folders. Changes rewrite files (copy-on-write, the default)."""

    name = "iceberg"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.settings = {
            "spark.sql.catalog.bench": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.bench.type": "hadoop",
            "spark.sql.catalog.bench.warehouse": str(folder),
            "spark.sql.catalog.bench.cache-enabled": "false",
        }

    def _named(self, table: Path) -> str:
        return ".".join(("bench", *(f"`{part}`" for part in table.relative_to(self._folder).parts)))

    def load(self, table: Path, count: int) -> None:
        from pyspark.sql import SparkSession

        spark = SparkSession.active()
        per = -(-count // FILES)
        for low in range(0, count, per):
            part = spark.createDataFrame(rows(low, min(low + per, count))).coalesce(1)
            writer = part.writeTo(self._named(table))
            writer.append() if low else writer.using("iceberg").create()

    def _opened(self, table: Path) -> Any:
        from pyiceberg.table import StaticTable

        hint = (table / "metadata" / "version-hint.text").read_text().strip()
        return StaticTable.from_metadata(str(table / "metadata" / f"v{hint}.metadata.json"))

    def version(self, table: Path) -> int:
        return int(self._opened(table).current_snapshot().snapshot_id)

    def commits(self, table: Path) -> int:
        return len(self._opened(table).snapshots())

    def change(self, spark: "SparkSession", table: Path, count: int, changes: int, seed: int) -> None:
        parts = [
            part.append_column("_change_type", pa.array([kind] * len(part)))
            for kind, part in change_rows(count, changes, seed)
            if kind != "update_preimage"
        ]
        spark.createDataFrame(pa.concat_tables(parts)).createOrReplaceTempView("batch")
        spark.sql(merge_sql(self._named(table)))

    def plain(self, spark: "SparkSession", source: Path, version: int, target: Path) -> None:
        frame = spark.read.format("iceberg").option("versionAsOf", version).load(str(source))
        frame.writeTo(self._named(target)).using("iceberg").create()

    def streamed(self, spark: "SparkSession", source: Path, folder: Path, batch_files: int | None) -> None:
        target = self._named(folder / "table")
        spark.sql(
            f"CREATE TABLE {target} (id BIGINT, customer BIGINT, amount DECIMAL(12, 2), note STRING) USING iceberg"
        )
        reading = spark.readStream.format("iceberg")
        if batch_files is not None:
            reading = reading.option("streaming-max-files-per-micro-batch", batch_files)
        stream = reading.load(str(source)).writeStream.format("iceberg").trigger(availableNow=True)
        stream.option("checkpointLocation", str(folder / "checkpoint")).toTable(target).awaitTermination()

    def followed(self, spark: "SparkSession", source: Path, version: int, target: Path) -> None:
        """Its stream reads no changes: one changelog of all of them, net by key, and one MERGE.

        The net rows are kept first: a MERGE reads its rows twice, and Spark 4.1 cannot plan it over the changelog.
        """
        from pyspark.sql import functions as F

        name = self._named(source).removeprefix("bench.")
        spark.sql(
            f"CALL bench.system.create_changelog_view(table => '{name}', changelog_view => 'changed', "
            f"options => map('start-snapshot-id', '{version}'), identifier_columns => array('id'))"
        )
        last = spark.table("changed").where("_change_type != 'UPDATE_BEFORE'").groupBy("id")
        order = F.struct("_change_ordinal", F.col("_change_type") != "DELETE")
        net = last.agg(F.max_by(F.struct("*"), order).alias("r")).select("r.*")
        net.localCheckpoint().createOrReplaceTempView("batch")
        spark.sql(merge_sql(self._named(target)))

    def has(self, table: Path, key: int) -> bool:
        return len(self._opened(table).scan(f"id == {key}", selected_fields=("id",)).to_arrow()) > 0

    def wide(self, table: Path, files: int) -> None:
        """A table of many files of one row, which are added to it as they are."""
        from pyspark.sql import SparkSession

        loose, spark = table.with_name("loose"), SparkSession.active()
        removed(loose)
        loose.mkdir(parents=True)
        for n in range(files):
            rows = pa.table({"id": [n * 1_000_000], "note": [""]}, schema=WIDE)
            pq.write_table(rows, loose / f"{n}.parquet")
        spark.sql(f"CREATE TABLE {self._named(table)} (id BIGINT, note STRING) USING iceberg")
        named, source = self._named(table).removeprefix("bench."), f"`parquet`.`{loose}`"
        spark.sql(f"CALL bench.system.add_files(table => '{named}', source_table => '{source}')")


def removed(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
