"""One source made of two sides, of one system or two: a pinned snapshot and the change log that follows it."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from backfill_cli.contracts.source import (
    ArrowTasks,
    Capabilities,
    ChangeLog,
    Extras,
    Pinned,
    SnapshotSide,
    Source,
)
from backfill_cli.errors import BackfillError
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import Pin, UpstreamView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Pair(Source):
    """See contracts.Source: reads go to one side, the log to the other. follows, quarantines: see Capabilities."""

    def __init__(
        self, snapshot: SnapshotSide, log: ChangeLog, follows: bool = True, quarantines: bool = False
    ) -> None:
        self.snapshot, self.log = snapshot, log
        self.capabilities = Capabilities(
            Pinned(),
            before_images=log.before_images,
            one_log=log.one_log,
            apart=log.apart,
            correctable_log=log.correctable,
            keeps=f"{snapshot.keeps}, {log.keeps}" if follows else snapshot.keeps,
            follows=follows,
            quarantines=quarantines,
        )
        # Of the snapshot, only what concerns its pin: a position is the log's, whose cursors it does not know.
        self.extras = Extras(
            warnings=lambda: (*snapshot.extras.warnings(), *log.extras.warnings()),
            fields=log.extras.fields,
            format_position=log.extras.format_position,
            places=self._places,
            duckdb_sql=snapshot.extras.duckdb_sql,
            headroom=log.extras.headroom,
            beside={**snapshot.extras.beside, **log.extras.beside},
        )
        self._pin: Pin | None = None

    def pin(self) -> Pin:
        held = self.snapshot.pin()
        start = self.log.begin(held.schema)
        made = Pin(
            position=start.position,
            position_ms=start.position_ms,
            complete_at=start.complete_at,
            splits=held.splits,
            schema=start.schema,
            identity=json.dumps({**held.identity, **start.identity}, sort_keys=True),
        )
        self._pin = made
        self.snapshot.restore(made)
        return made

    def restore(self, pin: Pin) -> None:
        self._pin = pin
        self.snapshot.restore(pin)
        self.log.restore(pin)

    def read_on(self, tables: Collection[str]) -> None:
        self.snapshot.read_on(tables)

    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        pin = self._taken()
        if snapshot_open:
            self.snapshot.check()
        return replace(self.log.observe(position), identity=pin.identity)

    def closed(self, table: str, reads: Sequence[SnapshotRead]) -> Sequence[SnapshotRead]:
        return self.snapshot.closed(table, reads)

    def row_count(self, read: SnapshotRead) -> int | None:
        return self.snapshot.row_count(read)

    def leaves_rows_out(self, table: str) -> bool:
        return self.snapshot.leaves_rows_out(table)

    def scan(self, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]) -> "DataFrame":
        self._taken()
        return self.snapshot.scan(spark, table, reads)

    def batches(self, table: str, reads: Sequence[SnapshotRead], cores: int) -> ArrowTasks | None:
        self._taken()
        return self.snapshot.batches(table, reads, cores)

    def changes(
        self, spark: "SparkSession", table: str, after: Position, up_to: Position, schema: str
    ) -> "DataFrame":
        self._taken()
        return self.log.changes(spark, table, after, up_to, schema)

    def change_batches(
        self, table: str, after: Position, up_to: Position, schema: str, cores: int
    ) -> ArrowTasks | None:
        self._taken()
        return self.log.change_batches(table, after, up_to, schema, cores)

    def acknowledge(self, position: Position) -> None:
        self.log.acknowledge(position)

    def remembered(self, position: Position) -> str:
        return self.log.remembered(position)

    def recall(self, memory: str) -> None:
        self.log.recall(memory)

    def rejoined(self, memory: str, tables: Collection[str], before: str = "") -> str:
        return self.log.rejoined(memory, tables, before)

    def _places(self) -> Mapping[str, frozenset[str]]:
        sides = [self.snapshot.extras.places(), self.log.extras.places()]
        tables = dict.fromkeys(name for side in sides for name in side)
        return {name: frozenset().union(*(side.get(name, ()) for side in sides)) for name in tables}

    def failure(self, exc: Exception) -> BackfillError | None:
        """The error behind a Spark failure while a frame of either side was computed; None if neither knows it."""
        return self.snapshot.failure(exc) or self.log.failure(exc)

    def close(self) -> None:
        try:
            self.snapshot.close()
        finally:
            self.log.close()

    def _taken(self) -> Pin:
        if self._pin is None:
            raise RuntimeError("pin() or restore() comes first")
        return self._pin
