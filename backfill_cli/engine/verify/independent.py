"""f(upstream at a checkpoint) without our readers: DuckDB reads the files, for `verify --independent`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.contracts import DirectUpstream, Pair, SinkTable, Upstream
from backfill_cli.errors import UsageError
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.split import SplitStatus
from backfill_cli.model.upstream import Pin
from backfill_cli.sinks.duckdb.query import PLAIN, write_query
from backfill_cli.sinks.duckdb.types import exported_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from backfill_cli.config import JobConfig


@dataclass(frozen=True)
class IndependentRows:
    """Called like `Expected`. folder: where DuckDB writes what it read, for Spark to compare."""

    spark: "SparkSession"
    upstream: Upstream
    config: "JobConfig"
    pin: Pin
    folder: Path

    def __call__(self, table: SinkTable, at: Checkpoint) -> "DataFrame":
        """The table's rows. Raises UsageError if they are not simply the rows of the snapshot's files."""
        from pyspark.sql.types import StructType

        self._refuse(table, at)
        direct = self._direct()
        assert direct is not None
        types = {column.name: column.type for column in exported_columns(table.name, table.schema)}
        target = self.folder / f"{table.name}-independent"
        target.mkdir(exist_ok=True)
        write_query(direct.duckdb_sql(table.name, types), target / "0.parquet", table.name)
        return self.spark.read.schema(StructType.fromJson(json.loads(table.schema))).parquet(str(target))

    def _direct(self) -> DirectUpstream | None:
        """What DuckDB can read by itself; of two sides, the snapshot's."""
        side = self.upstream.snapshot if isinstance(self.upstream, Pair) else self.upstream
        return side if isinstance(side, DirectUpstream) else None

    def _refuse(self, table: SinkTable, at: Checkpoint) -> None:
        why = None
        splits = {split: progress.status for (of, split), progress in at.splits.items() if of == table.name}
        unread = {split.id for split in self.pin.splits if split.table == table.name} - splits.keys()
        if self._direct() is None:
            why = "its upstream is not files"
        elif not self.config.transform_of(table.name).is_empty:
            why = "it has a transform, which is Spark SQL"
        elif at.position != self.pin.position:
            why = "changes have been applied since its snapshot, which only backfill's readers can read"
        elif unread or any(status != SplitStatus.CONSUMED for status in splits.values()):
            why = "its snapshot is not finished"
        if why is not None:
            raise UsageError(f"table {table.name!r} cannot be verified independently: {why}", PLAIN)
