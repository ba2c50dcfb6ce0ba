"""A Delta table's two sides as one upstream."""

from collections.abc import Mapping, Sequence

from backfill_cli.contracts import TableSpec
from backfill_cli.contracts.pair import Pair
from backfill_cli.formats.delta.edge import delta_place
from backfill_cli.upstreams.delta.changes import DeltaChanges
from backfill_cli.upstreams.delta.options import DeltaOptions
from backfill_cli.upstreams.delta.snapshot import DeltaSnapshot


class DeltaUpstream(Pair):
    """See contracts.Upstream; and it says where its tables are."""

    def __init__(self, options: DeltaOptions, tables: Sequence[TableSpec]) -> None:
        snapshot = DeltaSnapshot(options, tables)
        super().__init__(snapshot, DeltaChanges(tables, snapshot))
        self._tables = snapshot.tables

    def places(self) -> Mapping[str, frozenset[str]]:
        return {name: frozenset({delta_place(one.where)}) for name, one in self._tables.items()}
