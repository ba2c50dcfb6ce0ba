"""f(upstream at a checkpoint): what a sink must hold there, as `verify` compares it."""

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backfill_cli.contracts import ArrowTasks, PastUpstream, SinkTable, Upstream, own
from backfill_cli.engine.loop.epoch import recall
from backfill_cli.engine.staging import transform
from backfill_cli.engine.staging.partitions import events, quarantined
from backfill_cli.engine.staging.workers import made_in_workers
from backfill_cli.lake.unique import refuse_duplicates
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Position
from backfill_cli.model.schema import names_of
from backfill_cli.model.upstream import Pin
from backfill_cli.spark.names import backticked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from backfill_cli.config import JobConfig


@dataclass
class Expected:
    """The upstream's side of `verify`: called with a table and a checkpoint, it returns that table's rows there.

    made: what workers were asked to produce from plain rows.
    """

    spark: "SparkSession"
    upstream: Upstream
    config: "JobConfig"
    pin: Pin
    made: list[ArrowTasks] = field(default_factory=list)

    def again_checked(self, exc: Exception) -> bool:
        """Whether a failure only means that some rows are not plain: repeated, they take the checked path."""
        return any(made.not_plain(exc) for made in self.made[-1:])

    def __call__(self, table: SinkTable, at: Checkpoint) -> "DataFrame":
        """f(upstream at the checkpoint) of one table: the sink's columns, unique by key."""
        recall(self.upstream, at)
        partitioned = self.upstream.capabilities.partitioned
        held = self._log(table, at) if partitioned else self._snapshot_and_log(table, at)
        return held.select(*_columns(table))

    def _snapshot_and_log(self, table: SinkTable, at: Checkpoint) -> "DataFrame":
        """The consumed part of each split, with the keys that the log changed replaced by their changed rows."""
        name = table.name
        shape = self.config.transform_of(name)
        if isinstance(self.upstream, PastUpstream) and at.phase != Phase.SNAPSHOT:
            # The rows themselves, independent of how we read their changes.
            return self._as_of(self.upstream, table, at)
        reads = [
            SnapshotRead(name, split, up_to=progress.cursor)
            for (of, split), progress in at.splits.items()
            if of == name and progress.rows > 0
        ]
        base = _empty(self.spark, table)
        if reads:
            base = transform.rows(self.upstream.scan(self.spark, name, reads).drop(own.READ), shape)
        if at.position == self.pin.position:
            return base
        changes = self.upstream.changes(self.spark, name, self.pin.position, at.position, at.schemas[name])
        last = transform.net(changes, self.config.table(name).key, shape)
        untouched = base.join(last.select(*table.key), list(table.key), "left_anti")
        changed = last.where(f"{own.OP} = 'U'").select(*_columns(table))
        return untouched.unionByName(changed, allowMissingColumns=True)

    def _as_of(self, upstream: PastUpstream, table: SinkTable, at: Checkpoint) -> "DataFrame":
        """The table at the checkpoint's position; a column that was added later is NULL.

        Raises BadData if its key is not unique: changes are applied by key, so the sink has one row per key.
        """
        from pyspark.sql import functions as F

        held = upstream.rows_at(self.spark, table.name, at.position)
        for name in set(names_of(at.schemas[table.name])) - set(held.columns):
            held = held.withColumn(name, F.lit(None))
        rows = transform.rows(held, self.config.transform_of(table.name))
        refuse_duplicates(table, rows, "the upstream at this checkpoint")
        return rows

    def _log(self, table: SinkTable, at: Checkpoint) -> "DataFrame":
        """Every partition from where the job began it up to the checkpoint's offset."""
        (source,) = self.config.tables
        appends = self.upstream.capabilities.appends
        reads = self._ranges(source.name, at)
        if not reads:
            return _empty(self.spark, table)
        if appends:
            made = made_in_workers(self.upstream, self.spark, source.name, reads)
            self.made += [] if made is None else [made]
            frame = events(self.upstream, self.spark, source.name, reads, made)
        else:
            after = Position.of({read.split: read.after for read in reads if read.after is not None})
            up_to = Position.of({read.split: read.up_to for read in reads if read.up_to is not None})
            frame = self.upstream.changes(self.spark, source.name, after, up_to, at.schemas[source.name])
        if table.side:
            return quarantined(frame, self.upstream)
        shape = self.config.transform_of(source.name)
        good = frame.where(f"{own.ERROR} IS NULL").drop(own.ERROR, own.RAW)
        return (
            transform.rows(good, shape)
            if appends
            else transform.net(good, source.key, shape).where(f"{own.OP} = 'U'")
        )

    def _ranges(self, table: str, at: Checkpoint) -> list[SnapshotRead]:
        begun = dict(self.pin.position)
        reads = [
            SnapshotRead(table, split, begun.get(split, progress.target or 0), progress.cursor)
            for (_, split), progress in at.splits.items()
        ]
        return [read for read in reads if read.up_to != read.after]


def _columns(table: SinkTable) -> list[str]:
    return [backticked(name) for name in names_of(table.schema)]


def _empty(spark: "SparkSession", table: SinkTable) -> "DataFrame":
    from pyspark.sql.types import StructType

    return spark.createDataFrame([], StructType.fromJson(json.loads(table.schema)))
