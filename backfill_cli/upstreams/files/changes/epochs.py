"""The change logs of all tables as one sequence of upstream epochs: files, or values of an epoch column."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from backfill_cli.contracts import ArrowTasks, own
from backfill_cli.errors import START_OVER, BadData, Fatal, HistoryGone, of_table
from backfill_cli.formats.listing import File
from backfill_cli.formats.skip_counts import place
from backfill_cli.model.balanced import balanced
from backfill_cli.model.names import by_numbers
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.schema import Columns
from backfill_cli.model.upstream import Incomplete, UpstreamEpoch
from backfill_cli.spark.api import DataFrame, F, SparkSession
from backfill_cli.upstreams.files.changes import epoch_values
from backfill_cli.upstreams.files.changes.change_folder import ChangeFolder
from backfill_cli.upstreams.files.changes.change_format import Inspected, Run, nothing
from backfill_cli.upstreams.files.changes.epoch_values import Values
from backfill_cli.upstreams.files.changes.marked_rows import file_kind
from backfill_cli.upstreams.files.changes.table_log import TableLog, ms_of
from backfill_cli.upstreams.files.options import ChangesOptions
from backfill_cli.upstreams.files.reading.footers import THREADS


class Log(ABC):
    """What the upstream asks of its change files. folders: by table."""

    def __init__(self, folders: Mapping[str, ChangeFolder]) -> None:
        self._folders = folders

    def begin(self, columns: Mapping[str, Columns], position: Position, fresh: bool) -> None:
        """Begin after a pin. columns: of each table. position: S. fresh: whether this process made the pin."""
        for table, folder in self._folders.items():
            folder.begin(columns[table], partial(self.cursor, position), fresh)

    def ms_at(self, position: Position) -> int | None:
        """The upstream's time at a position, None if nothing precedes it."""
        found = []
        for folder in self._folders.values():
            for name, log in folder.logs().items():
                file = log.files().get(self.cursor(position, name) or "")
                if file is not None:
                    found.append(ms_of(log.inspect(file, applied=True)))
        return max(found, default=None)

    @abstractmethod
    def position_at(self, name: str) -> Position:
        """The position once every file up to this name is applied."""

    @abstractmethod
    def end(self) -> Position:
        """The position once every file that is there is applied."""

    @abstractmethod
    def pending(self, position: Position) -> tuple[list[UpstreamEpoch], Incomplete | None]:
        """The epochs after a position, ordered by time, each log in its own order; and one that is not whole."""

    def cursor(self, position: Position, name: str) -> str | None:
        """The last file, of a folder's log of this name, that a position has begun to apply."""
        cursor = position.get(self.log_of(name))
        return None if cursor is None else str(cursor)

    @abstractmethod
    def log_of(self, name: str) -> str:
        """The name, in a position, of the log whose cursor is the last file of a folder's log."""

    @abstractmethod
    def changes(
        self, spark: SparkSession, table: str, after: Position, up_to: Position, columns: Columns
    ) -> DataFrame | None:
        """The changes of `(after, up_to]`, None if no file holds any."""

    def change_batches(
        self, table: str, after: Position, up_to: Position, columns: Columns, cores: int
    ) -> ArrowTasks | None:
        """See contracts.Source."""
        return None


class FileLog(Log):
    """One log per table, named like the table, or one per partition of its topic: see ChangeFolder.

    Each file is an epoch, and its name is the cursor.
    """

    def log_of(self, name: str) -> str:
        return name

    def position_at(self, name: str) -> Position:
        last = {one: log.last_up_to(name) for one, log in self._logs()}
        return Position.of({log: cursor for log, cursor in last.items() if cursor is not None})

    def end(self) -> Position:
        return Position.of({name: log.names()[-1] for name, log in self._logs() if log.names()})

    def _logs(self) -> list[tuple[str, TableLog]]:
        return [one for folder in self._folders.values() for one in folder.logs().items()]

    def pending(self, position: Position) -> tuple[list[UpstreamEpoch], Incomplete | None]:
        ordered: list[tuple[int, str, int, UpstreamEpoch]] = []
        for folder in self._folders.values():
            with of_table(folder.table, Fatal, HistoryGone):
                ordered += self._pending_of(folder, position)
        return [epoch for *_, epoch in sorted(ordered, key=lambda entry: entry[:3])], None

    def _pending_of(
        self, folder: ChangeFolder, position: Position
    ) -> Iterator[tuple[int, str, int, UpstreamEpoch]]:
        """One table's epochs, each after what they are ordered by."""
        found = list[tuple[int, str, int, Inspected]]()
        for name, waiting in folder.pending(partial(self.cursor, position)):
            ms = 0
            for index, one in enumerate(waiting):
                ms = max(ms, ms_of(one))
                found.append((ms, name, index, one))
        found.sort(key=lambda entry: entry[:3])
        found = found[: folder.alike([one for *_, one in found])]
        changed = folder.schemas([(name, one) for _, name, _, one in found])
        for (ms, name, index, one), schema in zip(found, changed, strict=False):
            told = () if schema is None else ((folder.table, schema),)
            epoch = UpstreamEpoch(((name, one.file.name),), ms, one.rows, one.file.size, told)
            yield ms, name, index, epoch

    def changes(
        self, spark: SparkSession, table: str, after: Position, up_to: Position, columns: Columns
    ) -> DataFrame | None:
        parts, skips = list[DataFrame](), place(table)
        for log, run in self._runs(table, after, up_to):
            found = log.form.frame(spark, log.where, run.files, columns, run.known, run.before, skips)
            parts += [] if found is None else [found]
        return balanced(lambda a, b: a.unionByName(b), parts) if parts else None

    def change_batches(
        self, table: str, after: Position, up_to: Position, columns: Columns, cores: int
    ) -> ArrowTasks | None:
        folder, runs = self._folders[table], [run for _, run in self._runs(table, after, up_to)]
        return folder.form.tasks(folder.where, runs, columns, cores, place(table)) if runs else nothing(columns)

    def _runs(self, table: str, after: Position, up_to: Position) -> list[tuple[TableLog, Run]]:
        """The files of a window, by log; a log without any is left out."""
        found = []
        for name, log in self._folders[table].logs().items():
            files = log.window(self.cursor(after, name), self.cursor(up_to, name))
            if files:
                found.append((log, Run(files, log.columns_before(files[0]), log.preceding(files[0]))))
        return found


LOG = "epoch"


@dataclass(slots=True)
class _Epoch:
    """One epoch, summed over the tables' files."""

    ms: int
    rows: int
    size_bytes: int
    schema: dict[str, str]
    files: dict[str, str]


class EpochLog(Log):
    """One log for all tables, ordered by a column that every change file has: each of its values is an epoch.

    A file holds whole epochs of its table, and files are in epoch order by name. With several tables, the newest
    epoch seen is complete once any table has a later one, or once every table has it. A position holds the epoch
    and, for each table, the last file with a part of it: a later file with an epoch already applied is an error.
    """

    def __init__(self, folders: Mapping[str, ChangeFolder], options: ChangesOptions) -> None:
        assert options.epoch is not None
        super().__init__(folders)
        self._logs = {table: folder.whole for table, folder in folders.items()}
        self._options, self._column = options, options.epoch
        self._values: dict[str, dict[str, tuple[File, Values]]] = {table: {} for table in folders}

    def log_of(self, name: str) -> str:
        return f"file of {name}"

    def end(self) -> Position:
        ends = (name for log in self._logs.values() for name in log.names()[-1:])
        newest = max(ends, key=by_numbers, default=None)
        return Position() if newest is None else self.position_at(newest)

    def position_at(self, name: str) -> Position:
        found = [
            values.highest
            for table, log in self._logs.items()
            if (last := log.last_up_to(name)) is not None and (values := self._of(table, log.files()[last])).rows
        ]
        if not found:
            return Position()
        epoch = max(found)
        begun = {self.log_of(table): self._begun(table, epoch) for table in self._logs}
        return Position.of({LOG: epoch} | {log: last for log, last in begun.items() if last is not None})

    def pending(self, position: Position) -> tuple[list[UpstreamEpoch], Incomplete | None]:
        epochs: dict[Cursor, _Epoch] = {}
        for table in self._logs:
            self._collect(table, position, epochs)
        ordered = sorted(epochs)
        for two in pairwise(ordered):
            _after(*two)
        found, ms = list[UpstreamEpoch](), 0
        for value in ordered:
            one = epochs[value]
            ms = max(ms, one.ms)
            schema = tuple(sorted(one.schema.items()))
            files = ((self.log_of(table), name) for table, name in sorted(one.files.items()))
            found.append(UpstreamEpoch(((LOG, value), *files), ms, one.rows, one.size_bytes, schema))
        lacking = tuple(table for table in self._logs if ordered and table not in epochs[ordered[-1]].files)
        if not lacking:
            return found, None
        return found[:-1], Incomplete(self._column, ordered[-1], lacking, found[-1].ms)

    def changes(
        self, spark: SparkSession, table: str, after: Position, up_to: Position, columns: Columns
    ) -> DataFrame | None:
        low, high = after.get(LOG), up_to.get(LOG)
        if high is None:
            return None
        log = self._logs[table]
        last = self.cursor(up_to, table)
        begun = self.cursor(after, table)
        # the last file that was begun can also hold later epochs
        held = [log.files()[begun]] if begun is not None and begun in log.files() else []
        files = [
            file
            for file in (*held, *log.window(begun, last))
            if (values := self._of(table, file)).rows
            and not _after(values.lowest, high)
            and (low is None or _after(values.highest, low))
        ]
        if not files:
            return None
        epoch = F.col(own.EPOCH).cast("bigint" if isinstance(high, int) else "string")
        wanted = epoch <= F.lit(high) if low is None else (epoch > F.lit(low)) & (epoch <= F.lit(high))
        frame = log.form.frame(spark, log.where, files, columns, log.columns_before(files[0]))
        return None if frame is None else frame.where(wanted).drop(own.EPOCH)

    def _collect(self, table: str, position: Position, epochs: dict[Cursor, _Epoch]) -> None:
        """Add one table's pending epochs. Raises BadData if a file does not begin after the one before it ends."""
        log, cursor, begun = self._logs[table], position.get(LOG), self.cursor(position, table)
        found = log.pending(begun)
        self._folders[table].logs()
        last = log.files().get(begun or "")
        if last is not None and cursor is not None and _after(self._of(table, last).highest, cursor):
            found = [log.inspect(last), *found]
        found = found[: self._folders[table].alike(found)]
        with ThreadPoolExecutor(THREADS) as pool:
            held = list(pool.map(lambda one: self._of(table, one.file), found))
        changed, before = log.schemas(found), None
        for one, values in zip(found, held, strict=True):
            if not values.rows:
                continue
            name = one.file.name
            if cursor is not None and name != begun and not _after(values.lowest, cursor):
                raise BadData(
                    f"table '{table}': {one.file.path} holds epoch {values.lowest!r}, but the job has already "
                    f"applied everything up to epoch {cursor!r}",
                    "all files of an epoch must land before any file of a later one: give these changes a later "
                    "epoch, or " + START_OVER,
                )
            if before is not None and not _after(values.lowest, before[1]):
                raise BadData(
                    f"table '{table}': {one.file.path} begins at epoch {values.lowest!r}, but {before[0].path} "
                    f"ended at {before[1]!r}",
                    "a change file must hold whole epochs, and names must be in the order of their epochs",
                )
            before = (one.file, values.highest)
            total = sum(rows for _, rows in values.rows)
            for value, rows in values.rows:
                if cursor is not None and not _after(value, cursor):
                    continue
                part = epochs.setdefault(value, _Epoch(0, 0, 0, {}, {}))
                part.ms = max(part.ms, ms_of(one))
                part.rows += rows
                part.size_bytes += one.file.size * rows // total
                part.files[table] = name
                if name in changed:
                    part.schema[table] = changed.pop(name)

    def _begun(self, table: str, epoch: Cursor) -> str | None:
        """The last file of a table with an epoch at or before this one."""
        log = self._logs[table]
        for name in reversed(log.names()):
            values = self._of(table, log.files()[name])
            if values.rows and not _after(values.lowest, epoch):
                return name
        return None

    def _of(self, table: str, file: File) -> Values:
        """A file's epochs, read once as long as the file does not change."""
        held = self._values[table].get(file.name)
        if held is not None and held[0] == file:
            return held[1]
        log = self._logs[table]
        kind = file_kind(self._options, file)
        values = epoch_values.read(log.where, file, kind, self._column, self._options.csv)
        self._values[table][file.name] = (file, values)
        return values


def _after(a: Cursor, b: Cursor) -> bool:
    """Whether an epoch comes after another one. Raises BadData if nobody can tell."""
    if isinstance(a, int) and isinstance(b, int):
        return a > b
    if not isinstance(a, str) or not isinstance(b, str):
        raise BadData(
            f"epochs are integers in some files and strings in others: {a!r}, {b!r}", epoch_values.ONE_TYPE
        )
    if (a > b) != (by_numbers(a) > by_numbers(b)):
        one, other = sorted((a, b))
        raise BadData(
            f"epoch {one!r} comes before {other!r} as text, and after it by the numbers in them",
            "write epochs as integers, or with the same number of digits, like '09' and '10': those not yet "
            "applied may be replaced",
        )
    return a > b
