"""Files as a snapshot side: a pinned folder of files for each table."""

from collections.abc import Mapping, Sequence

from backfill_cli.contracts import ArrowTasks, Extras, SnapshotSide, TableSpec
from backfill_cli.errors import BackfillError
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.schema import columns_of, schema_text
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin, SnapshotPin
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.failures import BadRow, from_spark, spark_reading
from backfill_cli.upstreams.files.options import SnapshotFiles
from backfill_cli.upstreams.files.snapshot import pin as pins
from backfill_cli.upstreams.files.snapshot.by_duckdb import rows_sql
from backfill_cli.upstreams.files.snapshot.table import TableSnapshot


class FilesSnapshot(SnapshotSide):
    """See contracts.SnapshotSide. Nothing is read before `pin` or `restore`."""

    keeps = "the snapshot's files until they are read"

    def __init__(self, options: SnapshotFiles, tables: Sequence[TableSpec], quarantines: bool = False) -> None:
        self._options = options
        self.extras = Extras(places=self._places, duckdb_sql=self._duckdb_sql)
        self._tables = {table.name: TableSnapshot(table, options, quarantines) for table in tables}
        self._splits: Sequence[Split] = ()

    def pin(self) -> SnapshotPin:
        found = {name: table.pin() for name, table in self._tables.items()}
        splits = tuple(split for part, _ in found.values() for split in part)
        schema = {name: schema_text(columns) for name, (_, columns) in found.items()}
        folders = {name: table.where.uri for name, table in self._tables.items()}
        return SnapshotPin(splits, schema, {"snapshot_folders": folders, "snapshot": pins.digests(splits)})

    def restore(self, pin: Pin) -> None:
        self._splits = pin.splits
        for name, table in self._tables.items():
            table.take(pin.splits, columns_of(pin.schema[name]))

    def check(self) -> None:
        for table in self._tables.values():
            table.check()

    def closed(self, table: str, reads: Sequence[SnapshotRead]) -> Sequence[SnapshotRead]:
        return self._tables[table].closed(reads)

    def row_count(self, read: SnapshotRead) -> int | None:
        return self._tables[read.table].row_count(read)

    def scan(self, spark: SparkSession, table: str, reads: Sequence[SnapshotRead]) -> DataFrame:
        with spark_reading():
            return self._tables[table].scan(spark, reads)

    def batches(self, spark: SparkSession, table: str, reads: Sequence[SnapshotRead]) -> ArrowTasks | None:
        return self._tables[table].batches(spark, reads)

    def _duckdb_sql(self, table: str, types: Mapping[str, str]) -> str:
        files = [pins.pinned_file(split) for split in self._splits if split.table == table]
        return rows_sql(self._options, self._tables[table].where, files, types)

    def _places(self) -> Mapping[str, frozenset[str]]:
        """The files of each table; nothing for one table alone, which shares none."""
        if len(self._tables) < 2:
            return {}
        return {
            name: pins.resolved([s for s in self._splits if s.table == name], table.where)
            for name, table in self._tables.items()
        }

    def failure(self, exc: Exception) -> BackfillError | None:
        error = from_spark(exc)
        return None if isinstance(error, BadRow) else error  # a row of text is of the changes
