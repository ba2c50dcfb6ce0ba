"""An Iceberg table's two sides as one upstream, and the tag that keeps the pinned snapshot while it is read."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from backfill_cli.contracts import Lease, Pair, TableSpec
from backfill_cli.errors import START_OVER, StateConflict
from backfill_cli.lake.iceberg.edge import failing
from backfill_cli.lake.iceberg.places import settings_of
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import Pin
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.beside import session_beside
from backfill_cli.upstreams.iceberg import IcebergOptions
from backfill_cli.upstreams.iceberg.changes import IcebergChanges
from backfill_cli.upstreams.iceberg.snapshot import IcebergSnapshot, SnapshotTable, rows_at
from backfill_cli.upstreams.iceberg.table import NOTHING, Table, snapshot_of


class IcebergUpstream(Pair, Lease):
    """See contracts.Source and Lease."""

    def __init__(self, options: IcebergOptions, tables: Sequence[TableSpec]) -> None:
        self._tagged = options.tag
        settings = settings_of(lambda: self._session())
        self._side = IcebergSnapshot([Table(one, options.table, settings) for one in tables], options.version)
        super().__init__(self._side, IcebergChanges(self._side))
        self.lease = self
        self.extras = replace(self.extras, places=self._places, rows_at=self._rows_at)

    def use(self, session: Callable[[], SparkSession]) -> None:
        self._session = session

    def _places(self) -> Mapping[str, frozenset[str]]:
        return {name: frozenset({one.table.now().identity}) for name, one in self._side.tables.items()}

    def _rows_at(self, spark: SparkSession, table: str, position: Position) -> DataFrame:
        one = self._side.tables[table]
        cursor = position.get(table)
        return rows_at(spark, one.table, one.snapshot if cursor is None else snapshot_of(str(cursor)))

    # The tag that keeps the snapshot

    def preview(self) -> Sequence[str]:
        return [
            f"a tag on {one.table.place} keeps snapshot {one.held.snapshot} from expiring until it is read"
            for one in self._side.tables.values()
            if self._tagged and one.held is not None and one.held.snapshot != NOTHING
        ]

    def create(self, mark: str) -> None:
        for one in self._side.tables.values():
            if self._tagged and one.held is not None and one.held.snapshot != NOTHING and one.tag is None:
                if _tag(mark) not in one.table.now().refs:  # unless a try whose answer was lost created it
                    self._alter(one, f"CREATE TAG {_tag(mark)} AS OF VERSION {one.held.snapshot}")
                one.tag = _tag(mark)

    def clean_up(self, mark: str, pin: Pin) -> None:
        for one in self._side.tables.values():
            self._drop(one, _tag(mark))

    def leftovers(self, mark: str) -> Sequence[str]:
        tables = [one.table for one in self._side.tables.values()]
        return [f"tag {_tag(mark)} on {table.place}" for table in tables if _tag(mark) in table.now().refs]

    def enforce_limit(self, position: Position, snapshot_open: bool) -> None:
        """The tag of a table whose changes are being applied is dropped: its snapshot has been read.

        Changes that are only taken meanwhile, into a spool, leave the tag where it is.
        """
        if snapshot_open:
            return
        pin = self._taken()
        for name, tag in _tags(pin).items():
            if tag is not None and position.get(name) != pin.position.get(name):
                self._drop(self._side.tables[name], tag)

    def release(self, pin: Pin) -> None:
        for one, tag in self._held_by(pin):
            self._drop(one, tag)

    def require_releasable(self, pin: Pin) -> None:
        for _ in self._held_by(pin):
            pass

    def _held_by(self, pin: Pin) -> Iterator[tuple[SnapshotTable, str]]:
        """The tables with the tag that the job has on each; one that is gone has none. Raises StateConflict."""
        for name, told in json.loads(pin.identity).get("iceberg", {}).items():
            one = self._side.tables[name]
            held = one.table.if_there()
            if held is None or told["tag"] is None:
                continue
            if str(held.told.table_uuid) != told["id"]:
                raise StateConflict(
                    f"{one.table.place}: the table was replaced: its id is {held.told.table_uuid}", START_OVER
                )
            yield one, told["tag"]

    def removal(self, pin: Pin, mark: str | None) -> Sequence[str]:
        tags = _tags(pin) if mark is None else dict.fromkeys(self._side.tables, _tag(mark))
        places = {name: self._side.tables[name].table.place for name in tags}
        return [
            str(places[name].in_spark(places[name].alter(f"DROP TAG IF EXISTS {tag}")))
            for name, tag in tags.items()
            if tag is not None
        ]

    def _drop(self, one: SnapshotTable, tag: str) -> None:
        """The tag does not exist. Whether it did is read from metadata, without Spark."""
        if tag in one.table.now().refs:
            self._alter(one, f"DROP TAG IF EXISTS {tag}")

    def _alter(self, one: SnapshotTable, what: str) -> None:
        with failing(one.table.place):
            spark = session_beside(self._session())
            one.table.place.register(spark)
            spark.sql(f"ALTER TABLE {one.table.place.sql} {what}")


def _tag(mark: str) -> str:
    return f"backfill_pin_{mark}"


def _tags(pin: Pin) -> Mapping[str, str | None]:
    return {name: told["tag"] for name, told in json.loads(pin.identity)["iceberg"].items()}
