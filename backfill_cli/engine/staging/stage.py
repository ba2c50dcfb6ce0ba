"""Turns an epoch plan into durable Parquet files: one Spark job per table, counting rows as it writes.

The files are in `<staging>/<job>/<epoch>-<attempt>/<table>/`, in separate folders by what wrote them; only those
that `StagedTable` names count. An attempt's files are written once; another attempt of the same epoch has another
folder, so a JVM that outlives its runner writes where nobody reads.
"""

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from backfill_cli.config import JobConfig
from backfill_cli.config.sections import Table
from backfill_cli.contracts import ArrowTasks, ChangeFrame, LogRequest, Source, StagedEpoch, own
from backfill_cli.engine.staging import workers
from backfill_cli.engine.staging.changes import FOLDER, Lacking, netted, over, reached, staged
from backfill_cli.engine.staging.counts import require_rows
from backfill_cli.engine.staging.failures import explaining
from backfill_cli.engine.staging.files import (
    column_names,
    copy_renamed,
    folder_made,
    is_whole,
    observed,
    older_names,
    sync,
)
from backfill_cli.engine.staging.quarantine import Rows, judged, side_name, unreadable, write_rows
from backfill_cli.engine.staging.ranges import target
from backfill_cli.engine.staging.ranges import write as write_ranges
from backfill_cli.engine.staging.scratch import sweep as sweep_copies
from backfill_cli.engine.staging.transform import evolved, require_apart, require_same_meaning, sink_schema
from backfill_cli.engine.staging.values import refuse_null_keys_of_snapshot
from backfill_cli.errors import BackfillError, ColumnAdded, of_table
from backfill_cli.failpoint import hit
from backfill_cli.formats.skip_counts import skipped_in, told_in
from backfill_cli.model.plan import EpochPlan, SnapshotRead, Staged, StagedFile, StagedTable
from backfill_cli.model.position import Position
from backfill_cli.model.skipped import added
from backfill_cli.model.split import partition_number, partition_table
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import DataFrame, F, Session, SparkSession
from backfill_cli.spark.interruption import interruptible
from backfill_cli.spark.row_counts import counted_in, rows_in

ROWS, CHANGES, SKIPPED = "rows", "changes", "skipped"
RENAMED = "renamed"
"""In an attempt's folder: copies of files that an older version staged, whose columns have the names of now."""


class SparkStager:
    """Stages epochs of one job with one Spark session, which `stage` and `awaited` open: a recovery needs none.

    opening: opens the session, too, without waiting for it: see `Stager.awaited`.
    """

    def __init__(
        self,
        session: Session,
        upstream: Source,
        config: JobConfig,
        opening: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._session = session
        self._upstream = upstream
        self._config = config
        self.awaited = opening
        self._root = Path(config.job.staging) / config.job.name
        self._counts: Path | None = None  # of what is being staged, see `so_far`
        self._left: list[Path] = []
        self._lacking: Lacking = {}
        self._shapes: dict[str, tuple[str, str]] = {}  # by table: its newest source schema, and the sink's for it

    @property
    def _spark(self) -> SparkSession:
        return self._session()

    def _sink_schema(self, table: str, source: str, before: str) -> str:
        """Of one table. Spark is called once per schema: a call takes 20 ms, at 1,000 tables 20 s per epoch.

        before: the source's schema so far.
        """
        known, shape = self._shapes.get(table, ("", ""))
        if known != source:
            transform = self._config.transform_of(table)
            with self._of(table):
                shape = sink_schema(self._session, source, transform)
                require_apart(table, shape)
                require_same_meaning(self._session, table, before, source, transform)
            self._shapes[table] = source, shape
        return shape

    def folder(self, epoch: int, attempt: str) -> str:
        return str(self._root / f"{epoch}-{attempt}")

    def stage(
        self,
        plan: EpochPlan,
        epoch: int,
        schemas: Mapping[str, str],
        unwanted: Callable[[], bool] | None = None,
    ) -> StagedEpoch:
        """Writes the plan's rows; after a failure nothing of the attempt is left."""
        self._remove_left()
        attempt = uuid.uuid4().hex[:12]
        folder = Path(self.folder(epoch, attempt))
        wanted: AbstractContextManager[None] = nullcontext()
        if unwanted is not None:
            wanted = interruptible(self._spark, unwanted)
        try:
            with wanted, explaining(self._upstream, self._config), self._counting(folder):
                done = self._stage(plan, attempt, folder, schemas)
                skipped = added(done.staged.skipped, skipped_in(_counts(folder) / SKIPPED))
                return replace(done, staged=replace(done.staged, skipped=skipped))
        except Exception:
            shutil.rmtree(folder, ignore_errors=True)
            self._left.append(folder)  # a task that was killed can go on for seconds, and write there
            raise

    def _remove_left(self) -> None:
        while self._left:
            shutil.rmtree(self._left.pop(), ignore_errors=True)

    def so_far(self) -> tuple[int, int]:
        counts = self._counts
        return (0, 0) if counts is None else (rows_in(counts / ROWS), rows_in(counts / CHANGES))

    @contextmanager
    def _counting(self, folder: Path) -> Iterator[None]:
        """Workers count what they read inside the block, for `so_far`, and what they skip."""
        counts = self._counts = _counts(folder)
        for what in (ROWS, CHANGES, SKIPPED):
            folder_made(counts / what)
        try:
            with counted_in(counts / ROWS), told_in(counts / SKIPPED):
                yield
        finally:
            self._counts = None
            shutil.rmtree(counts, ignore_errors=True)

    def _stage(self, plan: EpochPlan, attempt: str, folder: Path, schemas: Mapping[str, str]) -> StagedEpoch:
        """All tables' rows first, then the log past them: the changes prevail over rows with the same key."""
        capabilities = self._upstream.capabilities
        if capabilities.partitions is not None:
            return self._stage_partitions(plan, attempt, folder, schemas)
        window, before = plan.window, {table.name: schemas[table.name] for table in self._config.tables}
        # A log that can be read again has the columns that were observed; another tells them once it was taken.
        known = window is not None and capabilities.log is None
        now = evolved(schemas, dict(window.schema)) if window is not None and known else dict(schemas)
        sinks = self._sink_schemas(now, before)
        tables, reads = self._rows(plan, folder)
        changes_read = images = 0
        skipped: Mapping[str, int] = {}
        if window is not None:
            within, taken = reached(plan, reads), folder / FOLDER
            if capabilities.log is not None:
                folder_made(taken)
            in_force = {name: now[name] for name in before}
            asked = LogRequest(window, within, in_force, str(taken))
            with counted_in(_counts(folder) / CHANGES):
                batch = self._upstream.read_log(self._spark, asked)
                skipped = batch.skipped
                window, now = batch.window, evolved(schemas, batch.schemas)
                sinks = self._sink_schemas(now, before)
                found = netted(self._spark, self._upstream, self._config.tables, batch, folder)
            for table in self._config.tables:
                shape = self._config.transform_of(table.name)
                change = found[table.name]
                with self._of(table.name):
                    done = staged(self._spark, self._upstream, table, change, shape, folder, self._lacking)
                tables |= {table.name: over(tables.get(table.name, StagedTable()), done.table)}
                for name, side in done.side.items():
                    tables[name] = _together(tables.get(name, StagedTable()), side)
                changes_read, images = changes_read + done.changes, images + done.images
                hit("table-staged")
        sync(folder)
        made = Staged(attempt, tables, tuple(reads), changes_read, window, images, skipped)
        return StagedEpoch(made, now, sinks)

    @contextmanager
    def _of(self, table: str, *more: type[BackfillError]) -> Iterator[None]:
        """A failure in the block, where rows of this table alone are read, is raised as ours, and as its own."""
        with of_table(table, *more), explaining(self._upstream, self._config):
            yield

    def _sink_schemas(self, now: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
        return {name: self._sink_schema(name, now[name], source) for name, source in before.items()}

    def _stage_partitions(
        self, plan: EpochPlan, attempt: str, folder: Path, schemas: Mapping[str, str]
    ) -> StagedEpoch:
        """Ranges of a partitioned log, history and live ones together, read again when a column is added."""
        ranges, now = (*plan.reads, *_live(self._config.tables[0].name, plan)), dict(schemas)
        while True:
            self._upstream.read_by(now)
            try:
                with explaining(self._upstream, self._config):
                    made = self._stage_ranges(plan, ranges, attempt, folder, now)
            except ColumnAdded as error:
                wider = self._upstream.widened(now, ranges, read_of(error, ranges))
                if wider is None:
                    raise
                now = evolved(now, wider)
                for path in folder.glob("*"):
                    shutil.rmtree(path)
                continue
            sinks = self._sink_schemas(now, {table.name: schemas[table.name] for table in self._config.tables})
            return StagedEpoch(made, now, sinks)

    def _stage_ranges(
        self,
        plan: EpochPlan,
        ranges: Sequence[SnapshotRead],
        attempt: str,
        folder: Path,
        schemas: Mapping[str, str],
    ) -> Staged:
        """Events (`appends`) are inserts; keyed rows are changes, netted by key, including those of history."""
        tables, rows = self._by_ranges(ranges, schemas, folder)
        for table in self._config.tables:
            mine = {at: read for at, read in enumerate(ranges) if read.table == table.name}
            if not mine or table.name in tables:
                continue
            there = tuple(mine.values())
            if table.name in self._appends:
                with self._of(table.name):
                    done, counts = self._rows_of(table.name, there, folder / table.name / "inserts", folder)
            else:
                history = sum(at < len(plan.reads) for at in mine)
                with self._of(table.name):
                    done, counts = self._latest_of(table, there, history, schemas[table.name], folder)
            tables |= done
            rows |= dict(zip(mine, counts, strict=False))
        hit("table-staged")
        if tables:
            sync(folder)
        history = len(plan.reads)
        reads = tuple((read, rows.get(at, 0)) for at, read in enumerate(plan.reads))
        live = sum(count for at, count in rows.items() if at >= history)
        return Staged(attempt, tables, reads, live, plan.window)

    @property
    def _appends(self) -> frozenset[str]:
        """The tables whose rows are events."""
        partitions = self._upstream.capabilities.partitions
        return frozenset() if partitions is None else partitions.appends

    def _by_ranges(
        self, reads: Sequence[SnapshotRead], schemas: Mapping[str, str], folder: Path
    ) -> tuple[dict[str, StagedTable], dict[int, int]]:
        """The ranges of the tables that workers can produce, written; and how many rows each range had."""
        plain = [
            table
            for table in self._config.tables
            if self._config.transform_of(table.name).is_empty
            and table.name not in self._lacking
            and (table.name in self._appends or workers.nets_by(schemas[table.name], table.key))
        ]
        names = {table.name for table in plain}
        at = [index for index, read in enumerate(reads) if read.table in names]
        if not at or not workers.write_here(self._spark):
            return {}, {}
        mine, cores = [reads[index] for index in at], arrow_tasks.cores(self._spark)
        tasks = self._upstream.ranges(mine, schemas, cores)
        if tasks is None:
            return {}, {}
        targets = {
            table.name: target(
                () if table.name in self._appends else table.key, folder, tasks.edges.get(table.name)
            )
            for table in plain
            if table.name in tasks.schemas
        }
        capabilities = self._upstream.capabilities
        of = [read.table for read in mine]
        done = write_ranges(self._spark, tasks, targets, of, capabilities.place, capabilities.quarantines, folder)
        tables = dict(done.tables)
        for table in plain:
            if table.name in done.changes:
                shape, found = self._config.transform_of(table.name), done.changes[table.name]
                with self._of(table.name):
                    tables[table.name] = staged(self._spark, self._upstream, table, found, shape, folder).table
        return tables, {at[read]: count for read, count in done.rows.items()}

    def _latest_of(
        self, table: Table, ranges: Sequence[SnapshotRead], history: int, schema: str, folder: Path
    ) -> tuple[dict[str, StagedTable], list[int]]:
        """The last row of each key of these ranges, the first `history` of which are history.

        Also returns how many rows each of those held, and then all the others.
        """
        after = {r.split: min(int(o.after or 0) for o in ranges if o.split == r.split) for r in ranges}
        up_to = {r.split: max(int(o.up_to or 0) for o in ranges if o.split == r.split) for r in ranges}
        frame = self._upstream.changes(self._spark, table.name, Position.of(after), Position.of(up_to), schema)
        partition, offset = (F.col(name) for name in self._upstream.capabilities.place)
        within = {}
        for i, r in enumerate(ranges[:history]):
            there = (offset >= F.lit(r.after)) & (offset < F.lit(r.up_to))
            within[f"read_{i}"] = F.when((partition == partition_number(r.split)) & there, 1)
        frame, seen = observed(frame, within)
        shape = self._config.transform_of(table.name)
        found = ChangeFrame(frame, changes=0)  # counted here, and none has a NULL key
        done = staged(self._spark, self._upstream, table, found, shape, folder, self._lacking)
        counted = seen()
        read = [counted[name] for name in within]
        return {table.name: done.table, **done.side}, [*read, counted["rows"] - sum(read)]

    def _rows(
        self, plan: EpochPlan, folder: Path
    ) -> tuple[dict[str, StagedTable], list[tuple[SnapshotRead, int]]]:
        """Writes the plan's reads, table by table; also returns them closed, with how many rows each held."""
        tables: dict[str, StagedTable] = {}
        reads: list[tuple[SnapshotRead, int]] = []
        for name in [table.name for table in self._config.tables]:
            wanted = [read for read in plan.reads if read.table == name]
            if wanted:
                with self._of(name):
                    closed = self._upstream.closed(name, wanted)
                    found, counts = self._rows_of(name, closed, folder / name / "inserts", folder)
                tables |= found
                reads += zip(closed, counts, strict=True)
                hit("table-staged")
        return tables, reads

    def _rows_of(
        self, name: str, reads: Sequence[SnapshotRead], path: Path, folder: Path
    ) -> tuple[dict[str, StagedTable], list[int]]:
        """Writes one table's closed reads; also returns how many rows each held.

        Raises Fatal if these are not as many as its metadata says.
        """
        known = [self._upstream.row_count(read) for read in reads]
        worth = [read for read, rows in zip(reads, known, strict=True) if rows != 0]
        if not worth:
            return {name: StagedTable()}, [0 for _ in reads]
        shape, key = self._config.transform_of(name), self._config.sink_key(name)
        stated = [rows for rows in known if rows != 0]
        made = workers.made_in_workers(self._upstream, self._spark, name, worth) if shape.is_empty else None
        if made is not None:
            rows, counts = self._by_workers(name, made, len(worth), path, folder)
            for read, said, count in zip(worth, stated, counts, strict=True):
                require_rows([read], [said], count)
        else:
            rows, counts = self._by_spark(name, worth, stated, path, folder)
            if shape.where is None and stated.count(None) < len(stated):
                require_rows(worth, counts, rows.found.rows + sum(one.rows for one in rows.side.values()))
        refuse_null_keys_of_snapshot(name, key, [rows.found.nulls[column] for column in key])
        held = iter(counts)
        table = StagedTable(inserts=rows.files, rows=rows.found.rows)
        return {name: table, **rows.side}, [0 if one == 0 else next(held) for one in known]

    def _by_workers(
        self, name: str, made: ArrowTasks, reads: int, path: Path, folder: Path
    ) -> tuple[Rows, list[int]]:
        """Some reads, as many as `reads`, written by workers; also returns how many rows each of them had."""
        capabilities, apart = self._upstream.capabilities, folder / side_name(name) / path.name
        key = self._config.sink_key(name)
        done = workers.write(self._spark, made, path, folder, key, apart, capabilities.place)
        if done.first is not None and not capabilities.quarantines:
            raise unreadable(name, done.bad, done.first)
        side = {side_name(name): StagedTable(inserts=done.apart, rows=done.bad)} if done.bad else {}
        return Rows(done.files, done.found, side), [done.rows.get(i, 0) for i in range(reads)]

    def _by_spark(
        self, name: str, reads: Sequence[SnapshotRead], known: Sequence[int | None], path: Path, folder: Path
    ) -> tuple[Rows, list[int]]:
        """Some reads, in the sink's form; also returns how many rows each of them had. known: by metadata."""
        source, counted = self._counted(self._upstream.scan(self._spark, name, reads), known)
        source, check = judged(source.drop(own.READ), self._upstream, name)
        shape, key = self._config.transform_of(name), self._config.sink_key(name)
        rows = write_rows(self._spark, source, shape, name, path, folder, key)
        check()
        return rows, counted()

    def _counted(
        self, source: DataFrame, known: Sequence[int | None]
    ) -> tuple[DataFrame, Callable[[], list[int]]]:
        """The rows of some reads, and a function for each read's row count. known: row counts from metadata."""
        unknown = [i for i, rows in enumerate(known) if rows is None]
        if not unknown:
            return source, lambda: [rows for rows in known if rows is not None]
        source, seen = observed(source, {f"read_{i}": F.when(F.col(own.READ) == i, 1) for i in unknown})

        def counted() -> list[int]:
            told = seen()
            return [told[f"read_{i}"] if rows is None else rows for i, rows in enumerate(known)]

        return source, counted

    def intact(self, epoch: int, staged: Staged) -> bool:
        folder = Path(self.folder(epoch, staged.attempt))
        return all(is_whole(folder / f.path, f.size_bytes) for f in _files(staged))

    def current_folder(self, epoch: int, staged: Staged) -> str:
        folder = Path(self.folder(epoch, staged.attempt))
        changes = [file.path for table in staged.tables.values() for file in table.changes]
        older = {path: older_names(column_names(folder / path)) for path in changes}
        if not any(older.values()):
            return str(folder)
        for file in _files(staged):
            copy_renamed(folder / file.path, folder / RENAMED / file.path, older.get(file.path, {}))
        return str(folder / RENAMED)

    def discard(self, epoch: int, attempt: str) -> None:
        self._remove_left()
        shutil.rmtree(self.folder(epoch, attempt), ignore_errors=True)

    def sweep(self, keep: Sequence[tuple[int, str]]) -> None:
        """Removes what dead attempts left, except `keep`: each (epoch, attempt) that may still be applied.

        Also removes what a killed `verify` left.
        """
        sweep_copies(self._root)
        kept = {f"{epoch}-{attempt}" for epoch, attempt in keep}
        for folder in self._root.glob("*-*"):
            if folder.name not in kept and folder.name.split("-")[0].isdigit():
                shutil.rmtree(folder, ignore_errors=True)


def _counts(folder: Path) -> Path:
    """Where workers count what they read for this attempt: not in its folder, all of which is synced."""
    return folder.with_name(f"{folder.name}.counts")


def read_of(added: ColumnAdded, reads: Sequence[SnapshotRead]) -> SnapshotRead:
    """The record that has a new column, one of these reads. Raises the error where it names none."""
    table, partition, offset = added.at or ("", 0, 0)
    for one in reads:
        mine = one.table == table and partition_number(one.split) == partition
        if mine and int(one.after or 0) <= offset < int(one.up_to or 0):
            return replace(one, after=offset, up_to=offset + 1)
    raise added


def _live(alone: str, plan: EpochPlan) -> tuple[SnapshotRead, ...]:
    """The plan's window as ranges. alone: the table of a job that has only one."""
    if plan.window is None:
        return ()
    begun = dict(plan.window.after)
    return tuple(
        SnapshotRead(partition_table(p) or alone, p, int(begun[p]), int(end)) for p, end in plan.window.up_to
    )


def _together(some: StagedTable, more: StagedTable) -> StagedTable:
    """Rows that only are inserted: of reads, and of the changes past them."""
    return replace(some, inserts=some.inserts + more.inserts, rows=some.rows + more.rows)


def _files(staged: Staged) -> list[StagedFile]:
    return [file for table in staged.tables.values() for file in (*table.inserts, *table.changes)]
