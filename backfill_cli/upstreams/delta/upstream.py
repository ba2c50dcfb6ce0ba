"""A Delta table's two sides as one upstream."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from backfill_cli.contracts import TableSpec
from backfill_cli.contracts.pair import Pair
from backfill_cli.formats.delta.edge import delta_place
from backfill_cli.upstreams.delta.changes import DeltaChanges
from backfill_cli.upstreams.delta.options import DeltaOptions
from backfill_cli.upstreams.delta.snapshot import DeltaSnapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class DeltaUpstream(Pair):
    """See contracts.Upstream; and it says where its tables are."""

    def __init__(self, options: DeltaOptions, tables: Sequence[TableSpec]) -> None:
        snapshot = DeltaSnapshot(options, tables, lambda: self._session())
        super().__init__(snapshot, DeltaChanges(tables, snapshot))
        self._tables = snapshot.tables

    def use(self, session: "Callable[[], SparkSession]") -> None:
        self._session = session

    def places(self) -> Mapping[str, frozenset[str]]:
        return {name: frozenset({delta_place(one.where)}) for name, one in self._tables.items()}
