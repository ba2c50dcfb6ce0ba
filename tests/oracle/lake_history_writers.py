"""What writes partitioned tables with a history: deltalake, pyiceberg, and Spark's own SQL; nothing of ours."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Field, Schema, write_deltalake
from one_task import plan_once
from pyiceberg.expressions import In

from oracle.lake_writers import FEED, PARTS, DeltaWriter, Folder, IcebergWriter

BEGIN: dict[tuple[str, str], int | str] = {
    ("delta", "its library"): PARTS - 1, ("delta", "Spark"): PARTS,
    ("iceberg", "its library"): "begin", ("iceberg", "Spark"): "begin",
}  # fmt: skip
"""The version with which the history begins."""
SQL = {"int64": "BIGINT", "int32": "INT", "string": "STRING", "date32[day]": "DATE", "double": "DOUBLE"}


def sql_type(kind: pa.DataType) -> str:
    return SQL.get(str(kind), "DECIMAL(9,2)")


class DeltaHistory(DeltaWriter):
    def __init__(self, path: Path, schema: pa.Schema, partitions: Sequence[str]) -> None:
        super().__init__(path, schema)
        self._partitions = list(partitions)

    def append(self, rows: pa.Table) -> None:
        write_deltalake(self._path, rows, mode="append", configuration=FEED, partition_by=self._partitions)

    def add(self, field: pa.Field) -> None:
        made = Schema.from_arrow(pa.schema([field])).fields
        DeltaTable(self._path).alter.add_columns(list[Field](made))

    def compact(self) -> None:
        DeltaTable(self._path).optimize.compact()


class IcebergHistory(IcebergWriter):
    def __init__(self, path: Path, schema: pa.Schema, partitions: Sequence[str]) -> None:
        self._table = Folder(path).created(schema, partitions)

    def add(self, field: pa.Field) -> None:
        from pyiceberg.types import LongType, StringType

        with self._table.update_schema() as update:
            update.add_column(field.name, LongType() if field.type == pa.int64() else StringType())

    def compact(self) -> None:
        """Every file is written again: the same rows go and come."""
        rows = self._table.scan().to_arrow()
        with self._table.transaction() as both:
            both.delete(In("id", rows.column("id").to_pylist()))
            both.append(rows)


class SparkHistory:
    """Each change is one MERGE, whatever it does: keys that exchange places, deletes, updates, inserts."""

    def __init__(self, form: str, path: Path, schema: pa.Schema, partitions: Sequence[str]) -> None:
        from pyspark.sql import SparkSession

        active = SparkSession.getActiveSession()
        assert active is not None
        self._spark, self._form, self._folder = active.newSession(), form, path.parent
        plan_once(self._spark)
        self._name = f"delta.`{path}`"
        columns = ", ".join(f"{field.name} {sql_type(field.type)}" for field in schema)
        told = "'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true', "
        told += "'delta.feature.allowColumnDefaults' = 'supported'"
        if form == "iceberg":
            at = f"spark.sql.catalog.h{abs(hash(str(path))):x}"
            implementation = "org.apache.iceberg.spark.SparkCatalog"
            for key, value in {"": implementation, ".type": "hadoop", ".warehouse": str(path.parent)}.items():
                self._spark.conf.set(at + key, value)
            self._spark.conf.set(f"{at}.cache-enabled", "false")
            self._catalog = at.rpartition(".")[2]
            self._name, told = f"{self._catalog}.t", "'format-version' = '2'"
        self._sql(
            f"CREATE TABLE {self._name} ({columns}) USING {form} PARTITIONED BY ({', '.join(partitions)}) "
            f"TBLPROPERTIES ({told})"
        )
        self._number = 0

    def _sql(self, text: str) -> None:
        self._spark.sql(text)

    def _view(self, rows: pa.Table) -> None:
        self._number += 1
        path = self._folder / f"source_{self._number}.parquet"
        pq.write_table(rows, path)
        self._spark.read.parquet(str(path)).coalesce(1).createOrReplaceTempView("s")

    def append(self, rows: pa.Table) -> None:
        self._view(rows)
        self._sql(f"INSERT INTO {self._name} SELECT * FROM s")

    def begins(self) -> None:
        if self._form == "iceberg":
            self._sql(f"ALTER TABLE {self._name} CREATE TAG begin")

    def add(self, field: pa.Field) -> None:
        self._sql(f"ALTER TABLE {self._name} ADD COLUMN {field.name} {sql_type(field.type)}")
        if self._form == "delta":
            default = "7" if field.type == pa.int64() else "'later'"
            self._sql(f"ALTER TABLE {self._name} ALTER COLUMN {field.name} SET DEFAULT {default}")

    def compact(self) -> None:
        if self._form == "delta":
            self._sql(f"OPTIMIZE {self._name}")
        else:
            self._sql(
                f"CALL {self._catalog}.system.rewrite_data_files(table => 't', "
                "options => map('rewrite-all', 'true'))"
            )

    def change(self, moved: Mapping[int, int], landed: pa.Table, put: pa.Table, gone: Sequence[int]) -> None:
        nothing = [pa.nulls(len(gone), field.type) for field in put.schema][1:]
        deleted = pa.Table.from_arrays([pa.array(gone, pa.int64()), *nothing], schema=put.schema)
        keys = [*moved, *put.column("id").to_pylist(), *gone]
        ops = ["U"] * (len(moved) + put.num_rows) + ["D"] * len(gone)
        source = pa.concat_tables([landed, put, deleted]).append_column("key_", pa.array(keys, pa.int64()))
        self._view(source.append_column("op_", pa.array(ops, pa.string())))
        names = put.column_names
        self._sql(
            f"MERGE INTO {self._name} t USING s ON t.id = s.key_ WHEN MATCHED AND s.op_ = 'D' THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in names)} "
            f"WHEN NOT MATCHED AND s.op_ = 'U' THEN INSERT ({', '.join(names)}) "
            f"VALUES ({', '.join(f's.{name}' for name in names)})"
        )


def _by_spark(form: str) -> Any:
    return lambda path, schema, partitions: SparkHistory(form, path, schema, partitions)


WRITERS: dict[tuple[str, str], Any] = {
    ("delta", "its library"): DeltaHistory, ("delta", "Spark"): _by_spark("delta"),
    ("iceberg", "its library"): IcebergHistory, ("iceberg", "Spark"): _by_spark("iceberg"),
}  # fmt: skip


def empty(form: str, path: Path, schema: pa.Schema, partitions: Sequence[str]) -> None:
    """A table of a sink that somebody made with partitions."""
    if form == "delta":
        DeltaTable.create(str(path), Schema.from_arrow(schema), partition_by=list(partitions))
    else:
        Folder(path).created(schema, partitions)
