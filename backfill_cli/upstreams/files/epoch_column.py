"""One log for all tables, by a column that every change file has: an upstream epoch is a value of it.

A file holds whole epochs of its table, and the names' order is the epochs' order. With several tables the newest
epoch seen is complete once a later one was seen in any table, or once every table has it.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_cli.errors import BadData
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.upstream import UpstreamEpoch
from backfill_cli.upstreams.files import epoch_values
from backfill_cli.upstreams.files.epoch_values import Values
from backfill_cli.upstreams.files.options import ChangesOptions
from backfill_cli.upstreams.files.pin import THREADS
from backfill_cli.upstreams.files.rows import file_kind
from backfill_cli.upstreams.files.table_log import TableLog, ms_of
from backfill_cli.upstreams.formats.listing import File
from backfill_cli.upstreams.formats.schemas import Columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG = "epoch"


@dataclass(slots=True)
class _Epoch:
    """What the tables' files say of one epoch, added up."""

    ms: int
    rows: int
    size_bytes: int
    schema: dict[str, str]
    tables: set[str]


class EpochLog:
    """See epochs.Log."""

    def __init__(self, logs: Mapping[str, TableLog], options: ChangesOptions) -> None:
        assert options.epoch is not None
        self._logs, self._options, self._column = logs, options, options.epoch
        self._values: dict[str, dict[str, tuple[File, Values]]] = {table: {} for table in logs}

    def begin(self, columns: Mapping[str, Columns], position: Position, fresh: bool) -> None:
        for table, log in self._logs.items():
            log.begin(columns[table], self._consumed(table, position.get(LOG)), fresh)

    def position_at(self, name: str) -> Position:
        found = [
            values.highest
            for table, log in self._logs.items()
            if (last := max((n for n in log.files() if n <= name), default=None)) is not None
            and (values := self._of(table, log.files()[last])).rows
        ]
        return Position.of({LOG: max(found)}) if found else Position()

    def ms_at(self, position: Position) -> int | None:
        found = []
        for table, log in self._logs.items():
            name = self._consumed(table, position.get(LOG))
            if name is not None:
                found.append(ms_of(log.inspect(log.files()[name])))
        return max(found, default=None)

    def pending(self, position: Position) -> list[UpstreamEpoch]:
        cursor = position.get(LOG)
        epochs: dict[Cursor, _Epoch] = {}
        for table in self._logs:
            self._collect(table, cursor, epochs)
        ordered = sorted(epochs)
        if ordered and len(self._logs) > 1 and epochs[ordered[-1]].tables != set(self._logs):
            ordered.pop()
        found, ms = list[UpstreamEpoch](), 0
        for value in ordered:
            one = epochs[value]
            ms = max(ms, one.ms)
            schema = tuple(sorted(one.schema.items()))
            found.append(UpstreamEpoch(((LOG, value),), ms, one.rows, one.size_bytes, schema))
        return found

    def changes(
        self, spark: "SparkSession", table: str, after: Position, up_to: Position, columns: Columns
    ) -> "DataFrame | None":
        from pyspark.sql import functions as F

        low, high = after.get(LOG), up_to.get(LOG)
        if high is None:
            return None
        log = self._logs[table]
        begin = self._consumed(table, low)
        files = [
            file
            for name, file in log.files().items()
            if (begin is None or name > begin)
            and (values := self._of(table, file)).rows
            and not _after(values.lowest, high)
        ]
        if not files:
            return None
        epoch = F.col("_backfill_epoch").cast("bigint" if isinstance(high, int) else "string")
        wanted = epoch <= F.lit(high) if low is None else (epoch > F.lit(low)) & (epoch <= F.lit(high))
        return log.form.frame(spark, log.where, files, columns).where(wanted).drop("_backfill_epoch")

    def _collect(self, table: str, cursor: Cursor | None, epochs: dict[Cursor, _Epoch]) -> None:
        """Add one table's pending epochs. Raises BadData where a file does not begin after the one before."""
        log = self._logs[table]
        found = log.pending(self._consumed(table, cursor))
        with ThreadPoolExecutor(THREADS) as pool:
            held = list(pool.map(lambda one: self._of(table, one.file), found))
        changed, before = log.schemas(found), None
        for one, values in zip(found, held, strict=True):
            if not values.rows:
                continue
            if before is not None and not _after(values.lowest, before[1]):
                raise BadData(
                    f"table '{table}': {one.file.path} begins at epoch {values.lowest!r}, and {before[0].path} "
                    f"ended at {before[1]!r}",
                    "a change file holds whole epochs, and the names' order is theirs",
                )
            before = (one.file, values.highest)
            total = sum(rows for _, rows in values.rows)
            for value, rows in values.rows:
                if cursor is not None and not _after(value, cursor):
                    continue
                part = epochs.setdefault(value, _Epoch(0, 0, 0, {}, set()))
                part.ms = max(part.ms, ms_of(one))
                part.rows += rows
                part.size_bytes += one.file.size * rows // total
                part.tables.add(table)
                if one.file.name in changed:
                    part.schema[table] = changed.pop(one.file.name)

    def _consumed(self, table: str, cursor: Cursor | None) -> str | None:
        """The last file of a table whose epochs are all at or before a cursor."""
        if cursor is None:
            return None
        for name, file in reversed(list(self._logs[table].files().items())):
            values = self._of(table, file)
            if values.rows and not _after(values.highest, cursor):
                return name
        return None

    def _of(self, table: str, file: File) -> Values:
        """A file's epochs, read once while it stays as it is."""
        held = self._values[table].get(file.name)
        if held is not None and held[0] == file:
            return held[1]
        log = self._logs[table]
        kind = file_kind(self._options, file)
        values = epoch_values.read(log.where, file, kind, self._column, self._options.csv)
        self._values[table][file.name] = (file, values)
        return values


def _after(a: Cursor, b: Cursor) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a > b
    if isinstance(a, str) and isinstance(b, str):
        return a > b
    raise BadData(f"epochs are integers in some files and strings in others: {a!r}, {b!r}")
