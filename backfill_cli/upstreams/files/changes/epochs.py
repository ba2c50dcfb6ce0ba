"""The change logs of all tables as one sequence of upstream epochs: files, or values of an epoch column."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from backfill_cli.model.position import Position
from backfill_cli.model.schema import Columns
from backfill_cli.model.upstream import UpstreamEpoch
from backfill_cli.upstreams.files.changes.table_log import TableLog, ms_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Log(Protocol):
    """What the upstream asks of its change files."""

    def begin(self, columns: Mapping[str, Columns], position: Position, fresh: bool) -> None:
        """Begin after a pin. columns: of each table. position: S. fresh: whether this process made the pin."""
        ...

    def position_at(self, name: str) -> Position:
        """The position once every file up to this name is applied."""
        ...

    def ms_at(self, position: Position) -> int | None:
        """The upstream's time at a position, None if nothing precedes it."""
        ...

    def pending(self, position: Position) -> list[UpstreamEpoch]:
        """The epochs after a position, ordered by time, each log in its own order."""
        ...

    def cursor(self, position: Position, table: str) -> str | None:
        """The last file of a table that a position has begun to apply."""
        ...

    def changes(
        self, spark: "SparkSession", table: str, after: Position, up_to: Position, columns: Columns
    ) -> "DataFrame | None":
        """The changes of `(after, up_to]`, None if no file holds any."""
        ...


class FileLog:
    """One log per table, named like the table; each file is an epoch, and its name is the cursor."""

    def __init__(self, logs: Mapping[str, TableLog]) -> None:
        self._logs = logs

    def begin(self, columns: Mapping[str, Columns], position: Position, fresh: bool) -> None:
        for table, log in self._logs.items():
            log.begin(columns[table], _name(position, table), fresh)

    def position_at(self, name: str) -> Position:
        last = {
            table: max((n for n in log.files() if n <= name), default=None) for table, log in self._logs.items()
        }
        return Position.of({table: cursor for table, cursor in last.items() if cursor is not None})

    def ms_at(self, position: Position) -> int | None:
        found = []
        for table, log in self._logs.items():
            file = log.files().get(_name(position, table) or "")
            if file is not None:
                found.append(ms_of(log.inspect(file)))
        return max(found, default=None)

    def pending(self, position: Position) -> list[UpstreamEpoch]:
        ordered: list[tuple[int, str, int, UpstreamEpoch]] = []
        for table, log in self._logs.items():
            found = log.pending(_name(position, table))
            changed = log.schemas(found)
            ms = 0
            for index, one in enumerate(found):
                ms = max(ms, ms_of(one))
                name = one.file.name
                schema = ((table, changed[name]),) if name in changed else ()
                epoch = UpstreamEpoch(((table, name),), ms, one.rows, one.file.size, schema)
                ordered.append((ms, table, index, epoch))
        return [epoch for *_, epoch in sorted(ordered, key=lambda entry: entry[:3])]

    def cursor(self, position: Position, table: str) -> str | None:
        return _name(position, table)

    def changes(
        self, spark: "SparkSession", table: str, after: Position, up_to: Position, columns: Columns
    ) -> "DataFrame | None":
        log = self._logs.get(table)
        files = log.window(_name(after, table), _name(up_to, table)) if log else []
        if log is None or not files:
            return None
        return log.form.frame(spark, log.where, files, columns, log.preceding(files[0]))


def _name(position: Position, table: str) -> str | None:
    cursor = position.get(table)
    return None if cursor is None else str(cursor)
