"""f(upstream at a checkpoint): what a sink must hold there, as `verify` compares it; three ways to read it."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from backfill_cli.cdc.net import net, over
from backfill_cli.config import JobConfig
from backfill_cli.config.sections import Table, Transform
from backfill_cli.config.transforms import kept
from backfill_cli.contracts import LogRequest, SinkCopy, SinkTable, Source, TakenTable, own
from backfill_cli.engine.staging import transform
from backfill_cli.engine.staging.changes import of_rows, seen_in
from backfill_cli.engine.staging.counts import require_rows
from backfill_cli.engine.staging.failures import explaining
from backfill_cli.engine.staging.files import folder_made, write
from backfill_cli.engine.staging.quarantine import marked, quarantined, side_name, sound
from backfill_cli.engine.verify.pacing import Pacing, Slices
from backfill_cli.errors import LogFirst, UsageError, command
from backfill_cli.lake.merge import refuse_duplicates
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import ChangeWindow, SnapshotRead
from backfill_cli.model.position import Position
from backfill_cli.model.schema import names_of
from backfill_cli.model.split import SplitProgress, SplitStatus
from backfill_cli.model.upstream import Pin
from backfill_cli.sinks.duckdb.dialect import exported_columns
from backfill_cli.sinks.duckdb.file import PLAIN, write_query
from backfill_cli.spark.names import backticked, quoted


@dataclass
class Expected:
    """The upstream's side of `verify`: called with a table and a checkpoint, it returns its rows there.

    copy: of the sink, which alone has the values that no change of a row sent. pace: of what is read. only: the
    rows of the snapshot that are needed; None: all.
    """

    spark: SparkSession
    upstream: Source
    config: JobConfig
    pin: Pin
    copy: SinkCopy | None = None
    pace: Pacing | None = None
    only: Column | None = None

    def beside(self, copy: SinkCopy) -> "Expected":
        return replace(self, copy=copy)

    def __call__(self, table: SinkTable, at: Checkpoint) -> DataFrame:
        """f(upstream at the checkpoint) of one table: the sink's columns, unique by key."""
        if at.memory:
            self.upstream.recall(at.memory)
        partitions = self.upstream.capabilities.partitions
        held = (
            self._snapshot_and_log(table, at) if partitions is None else self._log(table, at, partitions.appends)
        )
        return held.select(*_columns(table))

    def _snapshot_and_log(self, table: SinkTable, at: Checkpoint) -> DataFrame:
        """The consumed part of each split, with the keys that the log changed replaced by their changed rows."""
        source = self._source_of(table)
        name, shape = source.name, self.config.transform_of(source.name)
        rows_at = self.upstream.extras.rows_at
        if rows_at is not None and self._is_read(name, at):
            # The rows themselves, independent of how we read their changes.
            return self._as_of(self._needed(rows_at(self.spark, name, at.position)), table, at)
        reads = [
            SnapshotRead(name, split, up_to=progress.cursor)
            for (of, split), progress in at.splits.items()
            if of == name and progress.status != SplitStatus.NOT_STARTED
        ]
        rows = self._scanned(name, reads) if reads else None
        changes = None
        if at.position != self.pin.position:
            found = self.upstream.changes(self.spark, name, self.pin.position, at.position, at.schemas[name])
            changes = self._paced(found)
        if table.side:
            return self._side(table, rows, changes)
        base = _empty(self.spark, table) if rows is None else transform.rows(sound(rows), shape)
        if changes is None:
            return base
        last, lacking, truncated = _net(sound(changes), source.key, shape)
        base = base.limit(0) if truncated else base
        if lacking:
            both = over(_with(base, last.columns), last, table.key, lacking)
            return self._filled(table, both, lacking).select(*_columns(table))
        untouched = base.join(last.select(*table.key), list(table.key), "left_anti")
        changed = last.where(f"{own.OP} = 'U'").select(*_columns(table))
        return untouched.unionByName(changed, allowMissingColumns=True)

    def _is_read(self, name: str, at: Checkpoint) -> bool:
        """Whether the snapshot of a table is: its pin need not be readable any more."""
        splits = [(name, split.id) for split in self.pin.splits if split.table == name]
        read = (at.splits.get(split, SplitProgress()).status == SplitStatus.CONSUMED for split in splits)
        return at.phase != Phase.SNAPSHOT or all(read)

    def _source_of(self, table: SinkTable) -> Table:
        (source,) = [
            one for one in self.config.tables if table.name == (side_name(one.name) if table.side else one.name)
        ]
        return source

    def _scanned(self, table: str, reads: Sequence[SnapshotRead]) -> DataFrame:
        """The rows of these reads. Raises Fatal if metadata says that there are more, or fewer.

        What the source loses would be taken for rows that the sink must not have. They are counted by themselves:
        a file of Parquet is not read for that.
        """
        rows = self.upstream.scan(self.spark, table, reads).drop(own.READ)
        stated = [self.upstream.row_count(read) for read in reads]
        if None not in stated and not self.upstream.leaves_rows_out(table):
            require_rows(reads, stated, rows.count())
        return self._needed(rows)

    def _needed(self, rows: DataFrame) -> DataFrame:
        """What is needed of the snapshot. The filter comes first: Spark has its reader leave files out by it."""
        return self._paced(rows if self.only is None else rows.where(self.only))

    def _paced(self, rows: DataFrame) -> DataFrame:
        return rows if self.pace is None else self.pace.frame(rows)

    def _side(self, table: SinkTable, *frames: DataFrame | None) -> DataFrame:
        """Of these frames, the rows that cannot be read."""
        held = [quarantined(one) for one in frames if one is not None and own.QUARANTINED in one.columns]
        return reduce(DataFrame.unionByName, held, _empty(self.spark, table))

    def _as_of(self, held: DataFrame, table: SinkTable, at: Checkpoint) -> DataFrame:
        """held: the table at the checkpoint's position; a column that was added later is NULL.

        Raises BadData if its key is not unique: changes are applied by key, so the sink has one row per key.
        """
        for name in set(names_of(at.schemas[table.name])) - set(held.columns):
            held = held.withColumn(name, F.lit(None))
        rows = transform.rows(held, self.config.transform_of(table.name))
        refuse_duplicates(table, rows, "the upstream at this checkpoint")
        return rows

    def _log(self, table: SinkTable, at: Checkpoint, events: frozenset[str]) -> DataFrame:
        """Every partition of the table from where the job began it up to the checkpoint's offset."""
        source = self._source_of(table)
        appends = source.name in events
        reads = self._ranges(source.name, at)
        if not reads:
            return _empty(self.spark, table)
        if appends:
            self.upstream.read_by(at.schemas)  # with the columns that were added since
            frame = self._scanned(source.name, reads)
        else:
            after = Position.of({read.split: read.after for read in reads if read.after is not None})
            up_to = Position.of({read.split: read.up_to for read in reads if read.up_to is not None})
            schema = at.schemas[source.name]
            frame = self._paced(self.upstream.changes(self.spark, source.name, after, up_to, schema))
        if table.side:
            return quarantined(marked(frame, self.upstream.capabilities.place))
        shape = self.config.transform_of(source.name)
        good = frame.where(f"{own.ERROR} IS NULL").drop(own.ERROR, own.RAW)
        if appends:
            return transform.rows(good, shape)
        last, lacking, _ = _net(good, source.key, shape)
        return self._filled(table, last, lacking) if lacking else last.where(f"{own.OP} = 'U'")

    def _filled(self, table: SinkTable, last: DataFrame, lacking: Sequence[str]) -> DataFrame:
        """The rows of net changes. A row that the upstream tells in part has the sink's values in the rest.

        Somebody wrote it into the sink as the error told that stopped the job there (`refusals.no_row_to_fill`):
        to a log that tells less of it than a row, it would be one too many, which `--fix` deletes.
        """
        rows = last.where(f"{own.OP} = 'U'")
        whole, parts = (rows.where(f"{own.UNSENT} IS {known}") for known in ("NULL", "NOT NULL"))
        if self.copy is None or not parts.limit(1).toArrow().num_rows:
            return whole
        held = self.copy.frame(self.spark, table, names_of(table.schema), None)
        theirs = held.join(parts.select(*map(quoted, table.key)), list(table.key), "left_semi")
        filled = over(_with(theirs, last.columns), parts, table.key, lacking)
        return whole.unionByName(filled.where(f"{own.UNSENT} IS NULL"))

    def _ranges(self, table: str, at: Checkpoint) -> list[SnapshotRead]:
        begun = dict(self.pin.position)
        reads = [
            SnapshotRead(table, split, begun.get(split, progress.target or 0), progress.cursor)
            for (of, split), progress in at.splits.items()
            if of == table
        ]
        return [read for read in reads if read.up_to != read.after]


def _net(changes: DataFrame, key: Sequence[str], shape: Transform) -> tuple[DataFrame, tuple[str, ...], bool]:
    """(net changes in the sink's form, the sink's columns that some lack, whether older rows are gone)."""
    lacking, last = seen_in(changes)
    names = kept(shape, lacking)
    left = of_rows(changes if last is None else changes.where(F.col(own.SEQ) > last))
    return transform.shaped(net(left, key, lacking), shape, names), tuple(names.values()), last is not None


def _with(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The rows with these columns but ours; those that were added later are NULL."""
    for name in columns:
        if name not in rows.columns and not own.is_own(name):
            rows = rows.withColumn(name, F.lit(None))
    return rows


def _columns(table: SinkTable) -> list[str]:
    return [backticked(name) for name in names_of(table.schema)]


def _empty(spark: SparkSession, table: SinkTable) -> DataFrame:
    return spark.createDataFrame([], StructType.fromJson(json.loads(table.schema)))


@dataclass
class CurrentRows:
    """f(upstream at a checkpoint) for an upstream that shows only its current state: `contracts.Current`.

    Its current rows are read, and then its log from the checkpoint to past those reads: a key that the log does
    not contain has not changed in between. The state at the checkpoint of a key that it does contain is no longer
    known: such keys are not compared, but counted.

    folder: for what is read, shared with Spark. live: a runner has the job. only: tables, empty for all.
    not_compared: see VerifyReport. as_read: such keys are not as the sink has them if some change of one left a
    column out: they are as they were read, which is right once the log is applied up to `up_to`. slices: by which
    a table is read at a rate; None: at once.
    """

    spark: SparkSession
    upstream: Source
    config: JobConfig
    folder: Path
    live: bool
    only: tuple[str, ...] = ()
    as_read: bool = False
    up_to: Position | None = None
    slices: Slices | None = None
    not_compared: dict[str, int] = field(default_factory=dict)
    _taken: Mapping[str, TakenTable] | None = None

    def beside(self, copy: SinkCopy) -> Callable[[SinkTable, Checkpoint], DataFrame]:
        """As `Expected`: a table's rows at the checkpoint of the copy."""
        return partial(self._rows, copy)

    def _rows(self, copy: SinkCopy, table: SinkTable, at: Checkpoint) -> DataFrame:
        if self._taken is None:
            with self._log_first():
                self._taken = self._read(at)
        now = self.spark.read.parquet(str(self.folder / table.name)).select(*_columns(table))
        taken = self._taken.get(table.name, TakenTable())
        if taken.truncated:
            raise self._applied_first(f"table {table.name!r} was truncated since the checkpoint")
        if not taken.files or (self.as_read and taken.partial):
            return now
        source, key = self.config.table(table.name).key, list(table.key)
        changes = self.spark.read.parquet(*(str(self.folder / "taken" / file.path) for file in taken.files))
        renamed = [quoted(theirs).alias(ours) for theirs, ours in zip(source, key, strict=True)]
        changed = changes.select(*renamed).distinct()
        self.not_compared[table.name] = taken.changed + taken.deleted if taken.netted else changed.count()
        held = copy.frame(self.spark, table, names_of(table.schema), None)
        return now.join(changed, key, "left_anti").unionByName(held.join(changed, key, "left_semi"))

    def _read(self, at: Checkpoint) -> Mapping[str, TakenTable]:
        """Writes all rows that the job had read to files, and takes the log from the checkpoint on."""
        if at.memory:
            self.upstream.recall(at.memory)
        # What has ended the job, or would, is named as a run names it.
        self.upstream.observe(at.position, snapshot_open=False)
        for table in self.config.tables:
            if table.name not in (self.only or (table.name,)):
                continue
            shape, folder = self.config.transform_of(table.name), self.folder / table.name
            if self.slices is not None:
                self.slices.write(self.spark, self.upstream, shape, folder)
                continue
            frame = self.upstream.scan(self.spark, table.name, _reads(table.name, at)).drop(own.READ)
            write(transform.rows(frame, shape), folder)
        within = {
            key: None if one.status == SplitStatus.CONSUMED else one.cursor
            for key, one in at.splits.items()
            if one.status != SplitStatus.NOT_STARTED
        }
        folder = self.folder / "taken"
        folder_made(folder)
        window = ChangeWindow(at.position, at.position, 0, 0, 0, open=True)
        log = self.upstream.capabilities.log
        assert log is not None
        taken = log.take(self.spark, LogRequest(window, within, at.schemas, str(folder)))
        self.upstream.observe(at.position, snapshot_open=False)  # the log still had everything that was taken
        self.up_to = taken.window.up_to
        return taken.tables

    @contextmanager
    def _log_first(self) -> Iterator[None]:
        """Rows that can be read only once the log is applied."""
        try:
            with explaining(self.upstream, self.config):
                yield
        except LogFirst as exc:
            raise self._applied_first(exc.message) from exc

    def _applied_first(self, said: str) -> LogFirst:
        """Nobody applies the log while no runner has the job, or while it is paused."""
        name = self.config.job.name
        resume = f"resume {name}{'' if self.live else ' --detach'}"
        return LogFirst(said, command(resume, f"wait {name} --for caught-up", f"verify {name}"))


def _reads(table: str, at: Checkpoint) -> Sequence[SnapshotRead]:
    """The consumed part of each split."""
    return [
        SnapshotRead(table, split, up_to=progress.cursor)
        for (of, split), progress in at.splits.items()
        if of == table and progress.status != SplitStatus.NOT_STARTED
    ]


@dataclass(frozen=True)
class IndependentRows:
    """f(upstream at a checkpoint) without our readers: DuckDB reads the files, for `verify --independent`.

    Called like `Expected`. folder: where DuckDB writes what it read, for Spark to compare.
    """

    spark: SparkSession
    upstream: Source
    config: JobConfig
    pin: Pin
    folder: Path

    def __call__(self, table: SinkTable, at: Checkpoint) -> DataFrame:
        """The table's rows. Raises UsageError if they are not simply the rows of the snapshot's files."""
        if table.side and not any(at.quarantined.values()):
            return _empty(self.spark, table)
        self._refuse(table, at)
        sql = self.upstream.extras.duckdb_sql
        assert sql is not None
        types = {column.name: column.type for column in exported_columns(table.name, table.schema)}
        target = self.folder / f"{table.name}-independent"
        target.mkdir(exist_ok=True)
        write_query(sql(table.name, types), target / "0.parquet", table.name)
        return self.spark.read.schema(StructType.fromJson(json.loads(table.schema))).parquet(str(target))

    def _refuse(self, table: SinkTable, at: Checkpoint) -> None:
        why = None
        splits = {split: progress.status for (of, split), progress in at.splits.items() if of == table.name}
        unread = {split.id for split in self.pin.splits if split.table == table.name} - splits.keys()
        if self.upstream.extras.duckdb_sql is None:
            why = "its upstream is not files"
        elif any(at.quarantined.values()):
            why = "rows are quarantined, which only backfill's readers can tell"
        elif not self.config.transform_of(table.name).is_empty:
            why = "it has a transform, which is Spark SQL"
        elif at.position != self.pin.position:
            why = "changes have been applied since its snapshot, which only backfill's readers can read"
        elif unread or any(status != SplitStatus.CONSUMED for status in splits.values()):
            why = "its snapshot is not finished"
        if why is not None:
            raise UsageError(f"table {table.name!r} cannot be verified independently: {why}", PLAIN)
