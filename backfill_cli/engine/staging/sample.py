"""A sample of what a new job will read, read and discarded before its sink has a row.

The snapshot if it is small (otherwise its beginning), and the oldest and newest pending changes or both ends of a
topic's partitions are processed as an epoch's rows are: what would stop the job hours later, after reading a
snapshot in vain, stops it before it is created.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_cli.cdc.net import compared
from backfill_cli.config import JobConfig
from backfill_cli.config.sections import Table
from backfill_cli.contracts import ArrowTasks, SinkTable, Source
from backfill_cli.contracts.refusals import as_json, duplicate_keys
from backfill_cli.engine.staging import workers
from backfill_cli.engine.staging.counts import require_rows
from backfill_cli.engine.staging.failures import explaining
from backfill_cli.engine.staging.files import nothing_left
from backfill_cli.engine.staging.stage import SparkStager
from backfill_cli.engine.staging.transform import evolved
from backfill_cli.engine.staging.values import refuse_null_keys_of_snapshot
from backfill_cli.errors import BadData, Transient
from backfill_cli.model.plan import ChangeWindow, EpochPlan, SnapshotRead, StagedFile
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin, UpstreamEpoch, UpstreamView
from backfill_cli.spark.api import SparkSession
from backfill_cli.spark.failures import raising_in_worker

if TYPE_CHECKING:
    import pyarrow as pa


_BYTES = 64 << 20
"""A snapshot of this size is read whole: it takes seconds. No larger file is read for a sample."""

_BEGINNING_BYTES = 4 << 20
"""About this much is read of each table of a larger snapshot."""

_BEGINNING_ROWS = 100_000
"""No more rows are read of such a table: they can be much larger than their file."""

_STAGED_TABLES = 4
"""Spark stages this many tables although metadata has their types: each costs a job of 0.3 s."""

_OFFSETS, _PARTITIONS = 100, 16
"""This many offsets at each end of this many partitions, the fullest ones."""

NAMED = 5
"""This many keys are named, as by the sinks."""

ROWS, BYTES = 500_000, 32 << 20
"""About the keys of this many rows, of this size, are compared: it takes less than a second, and 100 MB."""

PART = "the rows at its beginning"
"""What was looked at of a large snapshot, for messages."""

_EPOCH = 0
"""Belongs to no job: jobs begin later."""


def require_readable(
    session: Callable[[], SparkSession],
    upstream: Source,
    config: JobConfig,
    pin: Pin,
    tables: Sequence[SinkTable],
) -> None:
    """A sample of what a new job will read can be read and transformed, and its keys are unique.

    Raises what staging raises: BadData naming file and line, or partition and offset; and what the sink would
    raise for a duplicate key. A log that can only be consumed is not sampled, since its system provides the types
    and an index keeps its keys unique; nor is a log that is unavailable now, for which the job waits.
    """
    if upstream.capabilities.log is not None:
        return
    try:
        view = upstream.observe(pin.position, snapshot_open=True)
    except Transient:
        return
    tried = _Tried(session, upstream, config, pin)
    with nothing_left(Path(config.job.staging, config.job.name)):
        if upstream.capabilities.partitions is not None:
            for plan in _of_partitions(pin, view):
                tried.stage(plan, pin.schema)
            return
        tried.snapshot({table.name: table for table in tables})
        for plan, schemas in _of_changes(pin, view):
            tried.stage(plan, schemas)


@dataclass(frozen=True, slots=True)
class _Tried:
    """Processes a part of what the job will read, and leaves nothing."""

    session: Callable[[], SparkSession]
    upstream: Source
    config: JobConfig
    pin: Pin

    def stage(
        self, plan: EpochPlan, schemas: Mapping[str, str], table: SinkTable | None = None, whole: bool = False
    ) -> None:
        """Stages the plan. table: whose keys, all of the snapshot's if `whole`, must be unique in it."""
        stager = SparkStager(self.session, self.upstream, replace(self.config, tables=_moved(self.config, plan)))
        staged = stager.stage(plan, _EPOCH, schemas).staged
        try:
            if table is not None:
                folder, files = Path(stager.folder(_EPOCH, staged.attempt)), staged.tables[table.name].inserts
                _require_unique(table, staged_here(folder, files, table.key), whole)
        finally:
            stager.discard(_EPOCH, staged.attempt)

    def snapshot(self, tables: Mapping[str, SinkTable]) -> None:
        """Each table's rows are produced in this process, without a Spark job, if workers would do without Spark.

        They are the rows before a transform, which excludes keys and makes none: what is wrong with them, Spark
        decides. It stages other tables, too, for what their transforms compute: text, as only reading it tells
        whether it has its types, and a few of the rest. The beginning of a file is read in no other way: Spark
        would read all of the file for it.
        """
        text = {split.table for split in self.pin.splits if split.rows is None and not split.cuttable}
        left = _STAGED_TABLES
        for name, reads, whole in _of_snapshot(self.pin):
            plain = self.config.transform_of(name).is_empty
            closed = self.upstream.closed(name, reads)
            made = workers.made_in_workers(self.upstream, self.session(), name, closed)
            good = made is not None and self._good_here(tables[name], made, closed, whole, plain)
            if (good and plain) or any(read.limit_rows is not None for read in reads):
                continue
            needed = name in text or (made is not None and not good)
            if needed or left:
                self.stage(EpochPlan(reads=tuple(reads)), self.pin.schema, tables[name], whole)
                left -= not needed

    def _good_here(
        self, table: SinkTable, made: ArrowTasks, reads: Sequence[SnapshotRead], whole: bool, plain: bool
    ) -> bool:
        """Whether the rows can be read here, all of them, with unique keys. plain: if not, raises the error."""
        try:
            with explaining(self.upstream, self.config):
                found = made_here(made, self.config.table(table.name).key)
            if found.whole:
                stated = [self.upstream.row_count(read) for read in reads]
                require_rows(reads, stated, found.rows.num_rows + found.apart)
            _require_unique(table, found, whole)
        except BadData:
            if plain:
                raise
            return False
        return True


def _moved(config: JobConfig, plan: EpochPlan) -> tuple[Table, ...]:
    """The tables that the plan can have rows of: if each table has its own log, those whose log advances."""
    names = {table.name for table in config.tables}
    read = {read.table for read in plan.reads}
    if read:
        return tuple(table for table in config.tables if table.name in read)
    window = plan.window
    if window is None or not {log for log, _ in window.up_to} <= names:
        return config.tables
    moved = {log for log, cursor in window.up_to if window.after.get(log) != cursor}
    return tuple(table for table in config.tables if table.name in moved)


def _of_snapshot(pin: Pin) -> Iterator[tuple[str, tuple[SnapshotRead, ...], bool]]:
    """By table: what to read of it, and whether that is all. Small tables first, so that most are read whole."""
    of_table = {table: [s for s in pin.splits if s.table == table and s.rows != 0] for table in pin.schema}
    left, left_rows = _BYTES, ROWS
    for table, splits in sorted(of_table.items(), key=lambda one: sum(s.size_bytes for s in one[1])):
        size, rows = sum(split.size_bytes for split in splits), sum(split.rows or 0 for split in splits)
        whole = size <= left and rows <= left_rows
        if whole:
            left, left_rows = left - size, left_rows - rows
        reads = tuple(SnapshotRead(table, s.id) for s in splits) if whole else tuple(_beginning(splits))
        if reads:
            yield table, reads, whole


def _beginning(splits: Sequence[Split]) -> Iterator[SnapshotRead]:
    """A part of the first split that allows it; of a text file, which is read whole, if it is not too large."""
    for split in splits:
        small = split.size_bytes <= (_BEGINNING_BYTES if split.cuttable else _BYTES)
        if small and (split.rows or 0) <= _BEGINNING_ROWS:
            yield SnapshotRead(split.table, split.id)
            return
        if split.cuttable and split.rows:
            share = split.rows * _BEGINNING_BYTES // max(1, split.size_bytes)
            yield SnapshotRead(split.table, split.id, limit_rows=max(1, min(_BEGINNING_ROWS, share)))
            return


def _of_partitions(pin: Pin, view: UpstreamView) -> Iterator[EpochPlan]:
    held = [(split, *_held(split, view)) for split in pin.splits]
    fullest = sorted((one for one in held if one[2] > one[1]), key=lambda one: one[1] - one[2])[:_PARTITIONS]
    oldest = tuple(_range(s, begin, min(end, begin + _OFFSETS)) for s, begin, end in fullest)
    newest = tuple(
        _range(s, max(begin + _OFFSETS, end - _OFFSETS), end)
        for s, begin, end in fullest
        if end > begin + _OFFSETS
    )
    for reads in (oldest, newest):
        if reads:
            yield EpochPlan(reads=reads)


def _held(split: Split, view: UpstreamView) -> tuple[int, int]:
    """The range of offsets that the log holds of a partition, within the partition's history."""
    oldest = int(view.oldest.get(split.id) or 0) if view.oldest is not None else 0
    return max(split.first or 0, oldest), int(view.latest.get(split.id) or 0)


def _range(split: Split, begin: int, end: int) -> SnapshotRead:
    return SnapshotRead(split.table, split.id, begin, end)


def _of_changes(pin: Pin, view: UpstreamView) -> Iterator[tuple[EpochPlan, Mapping[str, str]]]:
    """The first upstream epoch of each log that has one, and the last of those that have several."""
    of_log: dict[str, list[UpstreamEpoch]] = {}
    for epoch in view.pending:
        for log, _ in epoch.cursors:
            of_log.setdefault(log, []).append(epoch)
    first = {log: epochs[:1] for log, epochs in of_log.items()}
    yield from _window(pin, {log: pin.position.get(log) for log in first}, first, pin.schema)
    last = {log: epochs[-1:] for log, epochs in of_log.items() if len(epochs) > 1}
    before = {log: dict(of_log[log][-2].cursors)[log] for log in last}
    schemas = dict(pin.schema)
    for epoch in view.pending[:-1]:
        schemas = evolved(schemas, dict(epoch.schema))
    yield from _window(pin, before, last, schemas)


def _window(
    pin: Pin,
    after: Mapping[str, Cursor | None],
    sampled: Mapping[str, Sequence[UpstreamEpoch]],
    schemas: Mapping[str, str],
) -> Iterator[tuple[EpochPlan, Mapping[str, str]]]:
    """The window of these epochs, each after `after` in its log; nothing if the epochs are too large."""
    epochs = list({id(one): one for found in sampled.values() for one in found}.values())
    if not epochs or sum(one.size_bytes for one in epochs) > _BYTES:
        return
    begin = {**dict(pin.position), **{log: cursor for log, cursor in after.items() if cursor is not None}}
    end = begin | {log: dict(found[-1].cursors)[log] for log, found in sampled.items()}
    schema = tuple(one for epoch in epochs for one in epoch.schema)
    window = ChangeWindow(Position.of(begin), Position.of(end), epochs[0].ms, epochs[-1].ms, len(epochs), schema)
    yield EpochPlan(window=window), schemas


@dataclass(frozen=True, slots=True)
class Keys:
    """The key columns of some rows, in the key's order. whole: there are no more rows.

    apart: how many there are besides that cannot be read.
    """

    rows: "pa.Table"
    whole: bool = True
    apart: int = 0


def made_here(tasks: ArrowTasks, key: Sequence[str]) -> Keys:
    """Of rows that workers would produce, produced in this process: they are few.

    Raises BadData for a value that no sink takes; our own errors are raised as a worker raises them.
    """
    pieces = (piece for part in tasks.parts for piece in part)
    with raising_in_worker():
        return _few((batch for piece in pieces for batch in workers.storable(tasks.make, piece)), key)


def staged_here(folder: Path, files: Sequence[StagedFile], key: Sequence[str]) -> Keys:
    """Of staged files."""
    import pyarrow.parquet as pq

    def staged() -> "Iterator[pa.RecordBatch]":
        for file in files:
            with pq.ParquetFile(folder / file.path) as parquet:
                yield from parquet.iter_batches(columns=list(key))

    return _few(staged(), key)


def _few(batches: "Iterator[pa.RecordBatch]", key: Sequence[str]) -> Keys:
    """No further batch is read once there are more rows than are compared."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    rows = size = apart = 0
    while rows <= ROWS and size <= BYTES and (batch := next(batches, None)) is not None:
        readable, bad = workers.divided(batch, ())
        held.append(readable.select(list(key)))
        rows, size, apart = rows + batch.num_rows, size + held[-1].nbytes, apart + bad.num_rows
    whole = rows <= ROWS and size <= BYTES
    return Keys(pa.Table.from_batches(held) if held else pa.table({name: [] for name in key}), whole, apart)


def require_unique(table: SinkTable, keys: Keys) -> None:
    """No key occurs twice, and none is NULL.

    Raises BadData as staging and the sink would. A key of a nested type passes: only the sink compares it.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = keys.rows.columns
    refuse_null_keys_of_snapshot(table.name, table.key, [column.null_count for column in columns])
    if not keys.rows.num_rows:
        return
    names = [str(index) for index in range(len(columns))]
    try:
        grouped = pa.table([compared(column) for column in columns], names).group_by(names)
        counted = grouped.aggregate([([], "count_all")])
    except pa.ArrowNotImplementedError:
        return
    twice = counted.filter(pc.greater(counted["count_all"], 1)).slice(0, NAMED).to_pylist()
    if twice:
        shown = sorted((", ".join(_shown(row[name]) for name in names), row["count_all"]) for row in twice)
        raise duplicate_keys(table, shown, "the snapshot" if keys.whole else PART)


def _shown(value: Any) -> str:
    return as_json(value) if isinstance(value, bytes) else str(value)


def _require_unique(table: SinkTable, found: Keys, whole: bool) -> None:
    """whole: all rows of the snapshot were to be read."""
    require_unique(table, replace(found, whole=found.whole and whole))
