"""A sample of what a new job will read, read and discarded before its sink has a row.

The snapshot if it is small (otherwise its beginning), and the oldest and newest pending changes or both ends of a
topic's partitions are processed as an epoch's rows are: what would stop the job hours later, after reading a
snapshot in vain, stops it before it is created.

What workers would produce is produced in this process, if they would be processes of this machine, too: that takes
no Spark, so that a plan takes a second. Spark stages what only it can read, and what a transform makes.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_cli.cdc.net import compared
from backfill_cli.config import JobConfig
from backfill_cli.config.sections import Table
from backfill_cli.contracts import ArrowTasks, Capabilities, SinkTable, Source
from backfill_cli.contracts.refusals import as_json, duplicate_keys
from backfill_cli.engine.staging import quarantine, workers
from backfill_cli.engine.staging.counts import require_rows
from backfill_cli.engine.staging.failures import explaining
from backfill_cli.engine.staging.files import nothing_left
from backfill_cli.engine.staging.stage import SparkStager, read_of
from backfill_cli.engine.staging.transform import evolved, require_apart
from backfill_cli.engine.staging.values import (
    refuse_null_keys_of_log,
    refuse_null_keys_of_snapshot,
    require_storable,
)
from backfill_cli.errors import BadData, ColumnAdded, Transient
from backfill_cli.formats.row_groups import rebasing
from backfill_cli.model.plan import ChangeWindow, EpochPlan, SnapshotRead, StagedFile
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin, UpstreamEpoch, UpstreamView
from backfill_cli.spark.api import Session
from backfill_cli.spark.failures import raising_in_worker

if TYPE_CHECKING:
    import pyarrow as pa


_BYTES = 64 << 20
"""A snapshot of this size is read whole: it takes seconds. No larger one is read whole for a sample."""

_BEGINNING_BYTES = 4 << 20
"""About this much is read of each table of a larger snapshot."""

_BEGINNING_ROWS = 100_000
"""No more rows are read of such a table: they can be much larger than their file."""

_BEGINNING_LINES = 40_000  # about as many bytes

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
    session: Session,
    upstream: Source,
    config: JobConfig,
    pin: Pin,
    tables: Sequence[SinkTable],
) -> "Sampled":
    """A sample of what a new job will read can be read and transformed, and its keys are unique.

    Returns what this process read of a snapshot. Raises what staging raises: BadData naming file and line, or
    partition and offset; and what the sink would raise for a duplicate key. A log that can only be consumed is not
    sampled, since its system provides the types and an index keeps its keys unique; nor is a log that is
    unavailable now, for which the job waits.
    """
    if upstream.capabilities.log is not None:
        return Sampled()
    try:
        view = upstream.observe(pin.position, snapshot_open=True)
    except Transient:
        return Sampled()
    tried = _Tried(session, upstream, config, pin)
    with nothing_left(Path(config.job.staging, config.job.name)):
        if upstream.capabilities.partitions is not None:
            for plan in _of_partitions(pin, view):
                tried.ranges(plan)
            return Sampled()
        tried.snapshot({table.name: table for table in tables})
        for plan, schemas in _of_changes(pin, view):
            tried.window(plan, schemas)
    return Sampled(sum(one.rows for one in tried.read), sum(one.seconds for one in tried.read))


@dataclass(frozen=True, slots=True)
class Sampled:
    """Rows of a snapshot that this process has read, and how long that took."""

    rows: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Tried:
    """Processes a part of what the job will read, and leaves nothing. read: what this process read of tables."""

    session: Session
    upstream: Source
    config: JobConfig
    pin: Pin
    read: list[Sampled] = field(default_factory=list)

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
        text = {
            split.table
            for split in self.pin.splits
            if split.bytes_read(None) is not None or (split.rows is None and not split.cuttable)
        }
        left = _STAGED_TABLES
        for name, reads, whole in _of_snapshot(self.pin):
            plain = self.config.transform_of(name).is_empty
            closed = self.upstream.closed(name, reads)
            made = self._made(name, closed)
            good = made is not None and self._good_here(tables[name], made, closed, whole, plain)
            beginning = name not in text and any(read.limit_rows is not None for read in reads)
            if (good and plain) or beginning:
                continue
            needed = name in text or (made is not None and not good)
            if needed or left:
                self.stage(EpochPlan(reads=tuple(reads)), self.pin.schema, tables[name], whole)
                left -= not needed

    def _made(self, table: str, reads: Sequence[SnapshotRead]) -> ArrowTasks | None:
        """What workers would produce of these reads."""
        if self._reads_here:
            return self.upstream.batches(table, reads, cores=1)
        return workers.made_in_workers(self.upstream, self.session(), table, reads)

    def _good_here(
        self, table: SinkTable, made: ArrowTasks, reads: Sequence[SnapshotRead], whole: bool, plain: bool
    ) -> bool:
        """Whether the rows can be read here, all of them, with unique keys. plain: if not, raises the error."""
        count, began_s = [0], time.monotonic()
        try:
            with explaining(self.upstream, self.config), raising_in_worker():
                found = _few(self._readable(table.name, made, count), self.config.table(table.name).key)
            passed = sum(count)
            if found.whole:
                passed = self._require_all(table.name, reads, passed)
            self.read.append(Sampled(passed, time.monotonic() - began_s))
            _require_unique(table, found, whole)
        except BadData:
            if plain:
                raise
            return False
        return True

    def ranges(self, plan: EpochPlan) -> None:
        """Records of a partitioned log are read, and decoded, here or in Spark; with columns that are added."""
        now, done = self.pin.schema, False
        while not done:
            try:
                self._ranges(plan, now)
                done = True
            except ColumnAdded as error:
                wider = self.upstream.widened(now, plan.reads, read_of(error, plan.reads))
                if wider is None:
                    raise
                now = wider

    def _ranges(self, plan: EpochPlan, schemas: Mapping[str, str]) -> None:
        here = all(map(self._is_plain, _moved(self.config, plan)))
        tasks = self.upstream.ranges(plan.reads, schemas, 1) if here else None
        if tasks is None or not {read.table for read in plan.reads} <= tasks.schemas.keys():
            self.stage(plan, schemas)
            return
        found = _Readable(self.upstream.capabilities)
        with explaining(self.upstream, self.config), raising_in_worker():
            for read, batch in (one for part in tasks.parts for one in tasks.make(part)):
                require_storable(batch, plan.reads[read], 0)
                found.of(plan.reads[read].table, batch)
        found.require_all()

    def _require_all(self, table: str, reads: Sequence[SnapshotRead], found: int) -> int:
        """How many rows were passed. found: how many were read: all, unless the source leaves some out."""
        stated = [self.upstream.row_count(read) for read in reads]
        if not self.upstream.leaves_rows_out(table):
            require_rows(reads, stated, found)
        known = [rows for rows in stated if rows is not None]
        return sum(known) if len(known) == len(stated) else found

    def window(self, plan: EpochPlan, schemas: Mapping[str, str]) -> None:
        """The changes of a window are read and netted, here or in Spark."""
        found = self._changes(plan, schemas)
        if found is None:
            self.stage(plan, schemas)
            return
        for table, made in found:
            nulls = dict.fromkeys(range(len(table.key)), 0)
            rows = _counted(map(workers.of_rows, self._readable(table.name, made, [])), table.key, nulls)
            with explaining(self.upstream, self.config), raising_in_worker():
                for _ in workers.last_of(rows, table.key):
                    pass
            named = {f"null_{at}": count for at, count in nulls.items()}
            refuse_null_keys_of_log(self.upstream, table.name, table.key, named)

    def _changes(self, plan: EpochPlan, schemas: Mapping[str, str]) -> "list[tuple[Table, ArrowTasks]] | None":
        """What workers would produce of the window's changes, by table; None if that takes Spark."""
        window, moved = plan.window, _moved(self.config, plan)
        assert window is not None
        if not all(map(self._is_plain, moved)):
            return None
        now, found = evolved(schemas, dict(window.schema)), []
        for table in moved:
            require_apart(table.name, now[table.name])
            made = self.upstream.change_batches(table.name, window.after, window.up_to, now[table.name], 1)
            if made is None or not workers.nets(made, table.key):
                return None
            found.append((table, made))
        return found

    def _is_plain(self, table: Table) -> bool:
        """Whether its rows are those that workers produce, in processes of this machine."""
        return self._reads_here and self.config.transform_of(table.name).is_empty

    @property
    def _reads_here(self) -> bool:
        """Whether workers are processes of this machine; where Spark changes or refuses old dates, none read."""
        spark = self.config.spark
        return spark.is_local and rebasing(spark.conf.get) is None

    def _readable(self, table: str, made: ArrowTasks, count: list[int]) -> "Iterator[pa.RecordBatch]":
        """The rows that workers would produce. Raises what staging would of one that cannot be read.

        count: receives how many rows each batch has, with those that cannot be read.
        """
        found = _Readable(self.upstream.capabilities)
        for piece in (piece for part in made.parts for piece in part):
            for batch in workers.storable(made.make, piece):
                count.append(batch.num_rows)
                yield found.of(table, batch)
        found.require_all()


@dataclass(frozen=True, slots=True)
class _Readable:
    """Rows without those that cannot be read. bad: by table, how many these are, and the first of them."""

    capabilities: Capabilities
    bad: dict[str, tuple[int, tuple[Any, ...]]] = field(default_factory=dict)

    def of(self, table: str, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        place = self.capabilities.place
        readable, unreadable = workers.divided(batch, place)
        if unreadable.num_rows and not self.capabilities.quarantines:
            found = tuple(unreadable.column(name)[0].as_py() for name in (*place, "reason"))
            count, first = self.bad.get(table, (0, found))
            self.bad[table] = count + unreadable.num_rows, min(first, found)
        return readable

    def require_all(self) -> None:
        """Raises BadData naming the first row that cannot be read, and how many there are."""
        for table, (count, first) in self.bad.items():
            raise quarantine.unreadable(table, count, first)


def _counted(
    batches: "Iterator[pa.RecordBatch]", key: Sequence[str], nulls: dict[int, int]
) -> "Iterator[pa.RecordBatch]":
    """The batches that have rows; meanwhile the NULLs in each column of the key are counted."""
    for batch in batches:
        for at, name in enumerate(key):
            nulls[at] += batch.column(name).null_count
        if batch.num_rows:
            yield batch


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
    """A part of the first split that allows it; of one that is read whole, if it is not too large."""
    for split in splits:
        small = split.size_bytes <= (_BEGINNING_BYTES if split.cuttable else _BYTES)
        if small and (split.rows or 0) <= _BEGINNING_ROWS:
            yield SnapshotRead(split.table, split.id)
            return
        if split.bytes_read(None) is not None:
            yield SnapshotRead(split.table, split.id, limit_rows=_BEGINNING_LINES)
            return
        if split.cuttable and split.rows:
            share = split.rows * _BEGINNING_BYTES // max(1, split.size_bytes)
            yield SnapshotRead(split.table, split.id, limit_rows=max(1, min(_BEGINNING_ROWS, share)))
            return


def _of_partitions(pin: Pin, view: UpstreamView) -> Iterator[EpochPlan]:
    held = [(split, *_held(split, view)) for split in pin.splits]
    sized = sorted((one for one in held if one[2] > one[1]), key=lambda one: one[1] - one[2])
    of_tables = {split.id for split, _, _ in {one[0].table: one for one in reversed(sized)}.values()}
    others = [one for one in sized if one[0].id not in of_tables]
    fullest = [one for one in sized if one[0].id in of_tables] + others[: max(0, _PARTITIONS - len(of_tables))]
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
    yield from _window(pin, view.pending, {log: pin.position.get(log) for log in first}, first, pin.schema, 0)
    last = {log: epochs[-1:] for log, epochs in of_log.items() if len(epochs) > 1}
    before = {log: dict(of_log[log][-2].cursors)[log] for log in last}
    schemas = dict(pin.schema)
    for epoch in view.pending[:-1]:
        schemas = evolved(schemas, dict(epoch.schema))
    yield from _window(pin, view.pending, before, last, schemas, len(view.pending) - 1)


def _window(
    pin: Pin,
    pending: Sequence[UpstreamEpoch],
    after: Mapping[str, Cursor | None],
    sampled: Mapping[str, Sequence[UpstreamEpoch]],
    schemas: Mapping[str, str],
    known: int,
) -> Iterator[tuple[EpochPlan, Mapping[str, str]]]:
    """The window of these epochs, each after `after` in its log; nothing if the epochs are too large.

    known: how many of the pending ones `schemas` has.
    """
    wanted = {id(one) for found in sampled.values() for one in found}
    epochs = [one for one in pending if id(one) in wanted]
    if not epochs or sum(one.size_bytes for one in epochs) > _BYTES:
        return
    begin = {**dict(pin.position), **{log: cursor for log, cursor in after.items() if cursor is not None}}
    end = begin | {log: dict(found[-1].cursors)[log] for log, found in sampled.items()}
    schema = tuple(one for epoch in pending[known:] if id(epoch) in wanted for one in epoch.schema)
    window = ChangeWindow(Position.of(begin), Position.of(end), epochs[0].ms, epochs[-1].ms, len(epochs), schema)
    yield EpochPlan(window=window), schemas


@dataclass(frozen=True, slots=True)
class Keys:
    """The key columns of some rows, in the key's order. whole: there are no more rows."""

    rows: "pa.Table"
    whole: bool = True


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
    rows = size = 0
    while rows <= ROWS and size <= BYTES and (batch := next(batches, None)) is not None:
        held.append(batch.select(list(key)))
        rows, size = rows + batch.num_rows, size + held[-1].nbytes
    whole = rows <= ROWS and size <= BYTES
    return Keys(pa.Table.from_batches(held) if held else pa.table({name: [] for name in key}), whole)


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
