"""A table's net changes by its columns, and as Parquet files: as fast to write and to load as staging's own."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from backfill_cli.cdc.net import UNSENT, Entry, Gap, Key, NeedsAll, NetChanges, Row
from backfill_cli.contracts import TakenTable, own
from backfill_cli.errors import START_OVER, BadData, Hint
from backfill_cli.formats.parquet_writer import encoding, writing
from backfill_cli.model.plan import StagedFile
from backfill_cli.model.pushdown import Wanted

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_ROWS = 100_000
"""Rows converted to Arrow at a time."""

_WHOLE = object()
_SIZED = bytes | str


class Column(Protocol):
    """A column of a database; only its own room knows more of it than the name."""

    @property
    def name(self) -> str: ...


C = TypeVar("C", bound=Column)


@dataclass(frozen=True, slots=True)
class LogTable(Generic[C]):
    """A table whose changes are taken.

    name: as in the config. id: by which the log names it. columns: in force, in the table's order. key: names of
    its columns. wanted: the columns of which the job needs the values; of others, files may have NULLs.
    """

    name: str
    id: int
    columns: tuple[C, ...]
    key: tuple[str, ...]
    wanted: Wanted = Wanted()  # noqa: RUF009


class ValueLost(BadData):
    """The window lacks a value that only later log may have.

    with_all: how a job that starts over gets such values, the end of a sentence.
    """

    def __init__(self, message: str, hint: Hint | str = "", with_all: str = "") -> None:
        super().__init__(message, hint)
        self.with_all = with_all


class NetTable(NetChanges, ABC, Generic[C]):
    """A table's net changes; values are as in the log until they are written.

    columns: those of the rows. changes: so far. unsure: see TakenWindow.
    """

    def __init__(self, table: LogTable[C]) -> None:
        self.table, self.columns = table, table.columns
        names = [one.name for one in table.columns]
        key_at = tuple(names.index(name) for name in table.key)
        super().__init__(key_at, self.key_reader(key_at))
        self.unsure = False
        self.changes = 0

    # -- what a database writes

    @abstractmethod
    def types(self) -> "list[pa.DataType]":
        """Arrow's types of the columns."""

    @abstractmethod
    def arrays(self, values: Sequence[Sequence[Any]], key: Callable[[int], str]) -> "list[pa.Array]":
        """Each column's values as Arrow. key: of the row at this place, for people. Raises BadData naming it."""

    def key_reader(self, at: tuple[int, ...]) -> Callable[[Row], Key]:
        """Reads a row's key: equal for keys that are one in the database."""
        return itemgetter(*at)

    def may_lack(self) -> set[str]:
        """The columns that the log can leave out of a row that did not change them."""
        return set()

    def lost(self, rows: dict[Key, Row]) -> ValueLost:
        """The error for rows with a LOST value, by key."""
        raise NotImplementedError("only for a log that leaves columns out")

    def whole_keys(self) -> Hint | str:
        """What makes the log have whole keys."""
        return START_OVER

    # -- what all share

    def _fill(self, row: Row, old_key: Key, moved: bool) -> None:
        """A value that the job does not need is not looked for: NULL stands in its place."""
        for at, value in enumerate(row):
            if value is UNSENT and not self.table.wanted.needs(self.columns[at].name):
                row[at] = None
        if UNSENT in row:
            super()._fill(row, old_key, moved)

    def widen(self, columns: tuple[C, ...]) -> None:
        """Columns were added at the end, NULL in the rows so far."""
        self.add_columns(len(columns) - len(self.columns))
        self.columns = columns

    def truncate(self) -> None:
        super().truncate()
        self.unsure = False

    def left_out(self) -> tuple[str, ...]:
        """The columns that some row leaves unchanged. Raises ValueLost for a row with a lost value."""
        found, lost = self.lacking()
        if lost:
            raise self.lost(lost)
        return tuple(self.columns[at].name for at in sorted(found))

    def shown_key(self, key: Key) -> str:
        """A key for people."""
        return ", ".join(
            f"{name} = {spelled(v)}" for name, v in zip(self.table.key, self.values(key), strict=True)
        )

    def held_bytes(self, of_row: int) -> int:
        """Roughly the memory of its rows. of_row: what one costs beside its values."""
        rows = (row or () for _, _, row in self.entries.values())
        values = sum(len(value) for row in rows for value in row if isinstance(value, _SIZED))
        return values + of_row * len(self.entries)

    def require_keys(self) -> None:
        """Raises BadData for a key that lacks the value of a column."""
        if len(self.key_at) > 1:
            found = next((key for key in self.entries if None in key or UNSENT in key), _WHOLE)
        else:
            found = next((key for key in (None, UNSENT) if key in self.entries), _WHOLE)
        if found is not _WHOLE:
            raise BadData(
                f"table {self.table.name!r}: a change with an incomplete key: {self.shown_key(found)}",
                self.whole_keys(),
            )


def spelled(value: Any) -> str:
    """A value of the log for people."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return "not sent" if isinstance(value, Gap) else "NULL" if value is None else str(value)


class TableFiles:
    """A table's files in a folder. begin: of their names. changed, deleted: how many rows they have, by op.
    partial: the columns that some row omits.
    """

    def __init__(self, folder: str, begin: str) -> None:
        self._folder, self._begin = Path(folder), begin
        self.files: list[StagedFile] = []
        self.changed = self.deleted = 0
        self.partial: set[str] = set()

    def add(self, net: NetTable[Any], is_last: bool) -> None:
        """The rows that the table holds are in one more file, and no longer in memory."""
        try:
            missing = set(net.left_out())
        except BadData:
            if is_last:
                raise
            raise NeedsAll from None  # the row may still be deleted
        may_miss = net.may_lack()
        if not is_last or self.files:  # other files may omit other columns
            if not missing <= may_miss:
                raise NeedsAll
            missing = may_miss
        self.partial |= missing
        path = self._folder / f"{self._begin}-{len(self.files)}.parquet"
        self.files.append(StagedFile(path.name, 0))  # for `discard`, if writing fails
        changed = _write(net, path, bool(missing))
        self.files[-1] = StagedFile(path.name, path.stat().st_size)
        self.changed, self.deleted = self.changed + changed, self.deleted + len(net.entries) - changed
        net.entries, net.gaps, net.written = {}, False, True

    def taken(self, net: NetTable[Any]) -> TakenTable:
        """What the files and the table hold, for the engine."""
        partial = tuple(column.name for column in net.columns if column.name in self.partial)
        netted = len(self.files) <= 1
        return TakenTable(
            tuple(self.files), netted, net.changes, self.changed, self.deleted, net.truncated, partial
        )

    def discard(self) -> None:
        for one in self.files:
            (self._folder / one.path).unlink(missing_ok=True)
        self.files.clear()
        self.partial.clear()
        self.changed = self.deleted = 0


def _write(net: NetTable[Any], path: Path, unsent: bool) -> int:
    """The table's changes are one file. Returns how many rows are no deletes. unsent: whether it has `own.UNSENT`.

    Raises BadData for values that Arrow cannot hold, Transient if the file cannot be written.
    """
    import pyarrow.parquet as pq

    schema = _schema(net, unsent)
    updated = 0
    with writing(path):
        writer = pq.ParquetWriter(path, schema, **encoding(schema))
    entries = iter(net.entries.items())
    while group := list(islice(entries, GROUP_ROWS)):
        updated += sum(row is not None for _, (_, _, row) in group)
        table = _table(net, group, schema)
        with writing(path):
            writer.write_table(table)
    with writing(path):
        writer.close()
    return updated


def _schema(net: NetTable[Any], unsent: bool) -> "pa.Schema":
    import pyarrow as pa

    marks = [(own.OP, pa.string()), (own.SEQ, pa.int64()), (own.MS, pa.int64())]
    more = [(own.UNSENT, pa.list_(pa.string()))] if unsent else []
    columns = zip((column.name for column in net.columns), net.types(), strict=True)
    return pa.schema([*marks, *more, *columns])


def _table(net: NetTable[Any], entries: list[tuple[Key, Entry]], schema: "pa.Schema") -> "pa.Table":
    import pyarrow as pa

    keys, found = zip(*entries, strict=True)
    numbers, times, given = zip(*found, strict=True)
    marks: list[Sequence[Any]] = [["D" if row is None else "U" for row in given], numbers, times]
    rows = [row if row is not None else _key_alone(net, key) for key, row in zip(keys, given, strict=True)]
    left = _unsent(net, rows) if net.gaps else [None] * len(rows)
    if len(schema) > len(marks) + len(net.columns):
        marks.append(left)
    arrays = [pa.array(values, kind.type) for values, kind in zip(marks, schema, strict=False)]
    arrays += net.arrays(list(zip(*rows, strict=True)), lambda at: net.shown_key(keys[at]))
    return pa.Table.from_arrays(arrays, schema=schema)


def _key_alone(net: NetTable[Any], key: Key) -> Row:
    row: Row = [None] * len(net.columns)
    for at, value in zip(net.key_at, net.values(key), strict=True):
        row[at] = value
    return row


def _unsent(net: NetTable[Any], rows: list[Row]) -> list[list[str] | None]:
    """The names of each row's unsent columns; the row has NULL in their place."""
    left: list[list[str] | None] = []
    for at, row in enumerate(rows):
        missing = [column.name for column, value in zip(net.columns, row, strict=True) if value is UNSENT]
        left.append(missing or None)
        if missing:
            rows[at] = [None if value is UNSENT else value for value in row]
    return left
