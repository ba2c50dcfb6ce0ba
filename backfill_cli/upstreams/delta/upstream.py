"""A Delta table's two sides as one upstream."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from backfill_cli.contracts import Pair, TableSpec
from backfill_cli.lake.damage import FROM_COPY
from backfill_cli.lake.delta.edge import delta_place
from backfill_cli.model.position import Position
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.failures import spark_reading
from backfill_cli.upstreams.delta import DeltaOptions
from backfill_cli.upstreams.delta.changes import DeltaChanges
from backfill_cli.upstreams.delta.snapshot import DeltaSnapshot


class DeltaUpstream(Pair):
    """See contracts.Source."""

    def __init__(self, options: DeltaOptions, tables: Sequence[TableSpec]) -> None:
        snapshot = DeltaSnapshot(options, tables, lambda: self._session())
        self._changes = DeltaChanges(tables, snapshot)
        super().__init__(snapshot, self._changes)
        self._tables = snapshot.tables
        self.extras = replace(self.extras, places=self._places, rows_at=self._rows_at)

    def use(self, session: Callable[[], SparkSession]) -> None:
        self._session = session

    def _places(self) -> Mapping[str, frozenset[str]]:
        return {name: frozenset({delta_place(one.where)}) for name, one in self._tables.items()}

    def _rows_at(self, spark: SparkSession, table: str, position: Position) -> DataFrame:
        version = position.get(table)
        self._changes.require_read(table, position)
        with spark_reading(FROM_COPY):
            return spark.read.format("delta").option("versionAsOf", version).load(self._tables[table].where.uri)
