"""Turns an epoch of a partitioned log into files: history and live ranges of its partitions, read together.

Events (`appends`) are inserts; keyed rows are changes, netted by key, including those of history. A row that
cannot be read stops the job, or is put into a side table of the sink.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backfill_cli.config import JobConfig
from backfill_cli.contracts import ArrowTasks, ChangeFrame, Source, own
from backfill_cli.engine.staging import changes, quarantine, workers
from backfill_cli.engine.staging.quarantine import write_rows
from backfill_cli.errors import BadData, in_config
from backfill_cli.model.plan import EpochPlan, SnapshotRead, StagedTable
from backfill_cli.model.position import Position
from backfill_cli.spark.api import DataFrame, F, SparkSession


@dataclass(frozen=True, slots=True)
class PartitionsStaged:
    """tables: including the side table. reads: history, with row counts. live: rows that are not history."""

    tables: Mapping[str, StagedTable]
    reads: tuple[tuple[SnapshotRead, int], ...]
    live: int


@dataclass(frozen=True, slots=True)
class _Counted:
    """What was seen while a frame was written. history: rows of each range. first: (partition, offset, reason)."""

    history: tuple[int, ...]
    live: int
    bad: int = 0
    first: Mapping[str, Any] | None = None


class PartitionStager:
    """Stages the single table of a job over a partitioned log."""

    def __init__(self, spark: SparkSession, upstream: Source, config: JobConfig) -> None:
        self._spark = spark
        self._upstream = upstream
        assert upstream.capabilities.partitions is not None
        self._partitions = upstream.capabilities.partitions
        (self._table,) = config.tables
        self._shape = config.transform_of(self._table.name)

    def stage(self, plan: EpochPlan, schema: str, attempt: Path) -> PartitionsStaged:
        """Writes the plan's ranges under the attempt's folder. Raises BadData for a row that cannot be read."""
        ranges = (*plan.reads, *_live(self._table.name, plan))
        if not ranges:
            return PartitionsStaged({}, (), 0)
        staged = self._events if self._partitions.appends else self._changes
        tables, counted = staged(plan.reads, ranges, schema, attempt)
        reads = tuple(zip(plan.reads, counted.history, strict=True))
        return PartitionsStaged(tables, reads, counted.live)

    def _events(
        self, history: Sequence[SnapshotRead], ranges: Sequence[SnapshotRead], schema: str, attempt: Path
    ) -> tuple[dict[str, StagedTable], _Counted]:
        made = workers.made_in_workers(self._upstream, self._spark, self._table.name, ranges)
        if made is not None:
            try:
                return self._staged_events(history, ranges, made, attempt / self._table.name / "plain", attempt)
            except Exception as exc:
                if not made.not_plain(exc):
                    raise
        # A separate folder: tasks of a failed job may continue to write for a while.
        return self._staged_events(history, ranges, None, attempt / self._table.name / "inserts", attempt)

    def _staged_events(
        self,
        history: Sequence[SnapshotRead],
        ranges: Sequence[SnapshotRead],
        made: ArrowTasks | None,
        path: Path,
        attempt: Path,
    ) -> tuple[dict[str, StagedTable], _Counted]:
        """made: what workers produce from the ranges, None for the checked path."""
        if made is not None and self._shape.is_empty:
            return self._written(workers.write(self._spark, made, path, attempt), len(history))
        frame = events(self._upstream, self._spark, self._table.name, ranges, made)
        frame, seen = self._observed(frame, history)
        rows = write_rows(self._spark, self._marked(frame), self._shape, self._table.name, path, attempt)
        table = StagedTable(inserts=rows.files, rows=rows.found.rows)
        return {self._table.name: table, **rows.side}, self._checked(seen)

    def _written(self, done: workers.Written, history: int) -> tuple[dict[str, StagedTable], _Counted]:
        """What workers wrote: the first `history` reads are history, the others live."""
        rows = tuple(done.rows.get(read, 0) for read in range(history))
        live = sum(done.rows.values()) - sum(rows)
        return {self._table.name: StagedTable(inserts=done.files, rows=sum(rows) + live)}, _Counted(rows, live)

    def _changes(
        self, history: Sequence[SnapshotRead], ranges: Sequence[SnapshotRead], schema: str, attempt: Path
    ) -> tuple[dict[str, StagedTable], _Counted]:
        after = Position.of(
            {r.split: min(int(o.after or 0) for o in ranges if o.split == r.split) for r in ranges}
        )
        up_to = Position.of(
            {r.split: max(int(o.up_to or 0) for o in ranges if o.split == r.split) for r in ranges}
        )
        frame = self._upstream.changes(self._spark, self._table.name, after, up_to, schema)
        frame, seen = self._observed(frame, history)
        found = ChangeFrame(self._marked(frame), changes=0)  # counted as they are observed
        done = changes.staged(self._spark, self._upstream, self._table, found, self._shape, attempt)
        return {self._table.name: done.table, **done.side}, self._checked(seen)

    def _marked(self, frame: DataFrame) -> DataFrame:
        """The frame with its bad rows marked for the side table, if the job has one."""
        capabilities = self._upstream.capabilities
        if capabilities.quarantines:
            return quarantine.marked(frame, capabilities.place)
        return frame.drop(own.ERROR, own.RAW)

    def _observed(
        self, frame: DataFrame, history: Sequence[SnapshotRead]
    ) -> tuple[DataFrame, Callable[[], _Counted]]:
        """The frame, and a function that returns what was seen once it has been written."""
        from pyspark.sql import Observation

        partition, offset = self._partitions.place
        seen = Observation()
        within = [
            (F.col(partition) == int(r.split))
            & (F.col(offset) >= F.lit(r.after))
            & (F.col(offset) < F.lit(r.up_to))
            for r in history
        ]
        place = F.struct(F.col(partition).alias("partition"), F.col(offset).alias("offset"), own.ERROR)
        frame = frame.observe(
            seen,
            F.count(F.lit(1)).alias("rows"),
            F.count(own.ERROR).alias("bad"),
            F.min(F.when(F.col(own.ERROR).isNotNull(), place)).alias("first"),
            *(F.sum(F.when(hit, 1).otherwise(0)).alias(f"read_{i}") for i, hit in enumerate(within)),
        )

        def counted() -> _Counted:
            found = seen.get
            rows = tuple(int(found.get(f"read_{i}") or 0) for i in range(len(history)))
            live = int(found.get("rows") or 0) - sum(rows)
            first = found.get("first")
            return _Counted(rows, live, int(found.get("bad") or 0), None if first is None else first.asDict())

        return frame, counted

    def _checked(self, seen: Callable[[], _Counted]) -> _Counted:
        """What was counted. Raises BadData for a row that cannot be read, unless such rows are quarantined."""
        counted = seen()
        if counted.first is None or self._upstream.capabilities.quarantines:
            return counted
        first, more = counted.first, counted.bad - 1
        raise BadData(
            f"table {self._table.name!r}: the record at partition {first['partition']}, offset {first['offset']} "
            f"cannot be read: {first[own.ERROR]}{f' (and {more} more)' if more else ''}",
            in_config(
                "put it, and all others that cannot be read, into a side table of the sink: "
                'upstream.on_error = "quarantine"; to fix the program that writes them helps later records only'
            ),
        )


def events(
    upstream: Source,
    spark: SparkSession,
    table: str,
    ranges: Sequence[SnapshotRead],
    made: ArrowTasks | None,
) -> DataFrame:
    """The rows of these ranges with `own.ERROR` and `own.RAW`. made: what workers produce of them, if they can."""
    if made is None:
        return upstream.scan(spark, table, ranges).drop(own.READ)
    marks = {own.ERROR: F.lit(None).cast("string"), own.RAW: F.lit(None).cast("binary")}
    return workers.frame(spark, made).withColumns(marks)


def _live(table: str, plan: EpochPlan) -> tuple[SnapshotRead, ...]:
    """The plan's window as ranges."""
    if plan.window is None:
        return ()
    begun = dict(plan.window.after)
    return tuple(SnapshotRead(table, p, int(begun[p]), int(end)) for p, end in plan.window.up_to)
