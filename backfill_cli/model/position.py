"""Where a job is in one or several change logs: one cursor per log, ordered, JSON in the catalog."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from backfill_cli.model.names import by_numbers

Cursor = int | str
"""A place in a log or a split: an offset, a row's index, a file's name, a key in its database's notation.

Texts of a log are in the order of the numbers in them: see names.py.
"""


def cursor_text(cursor: Cursor | None) -> str | None:
    """A cursor as JSON, for a text column; None stays None."""
    return None if cursor is None else json.dumps(cursor, ensure_ascii=False)


def cursor_of(text: str | None) -> Cursor | None:
    """The cursor that `cursor_text` wrote."""
    if text is None:
        return None
    found: Cursor = json.loads(text)
    return found


@dataclass(frozen=True, slots=True)
class Position:
    """One cursor for each log of the upstream: a file name, an LSN, a table version, an offset.

    A log that is absent has not been read at all. Positions are partially ordered: `a <= b` holds when no
    log of `a` is further than the same log of `b`.
    """

    cursors: tuple[tuple[str, Cursor], ...] = ()

    @classmethod
    def of(cls, cursors: Mapping[str, Cursor]) -> "Position":
        return cls(tuple(sorted(cursors.items())))

    def __iter__(self) -> Iterator[tuple[str, Cursor]]:
        return iter(self.cursors)

    def __str__(self) -> str:
        """For display."""
        return ", ".join(f"{log}: {cursor}" for log, cursor in self.cursors)

    def get(self, log: str) -> Cursor | None:
        for name, cursor in self.cursors:
            if name == log:
                return cursor
        return None

    def join(self, other: "Position") -> "Position":
        """The least position that is at or after both."""
        merged = dict(self.cursors)
        for log, cursor in other:
            mine = merged.get(log)
            if mine is None or _before(mine, cursor):
                merged[log] = cursor
        return Position.of(merged)

    def without(self, table: str, tables: Iterable[str]) -> "Position":
        """Without the logs of a table. tables: all that have logs here, this one too."""
        return Position(tuple((log, at) for log, at in self if table_of(log, tables) != table))

    def __le__(self, other: "Position") -> bool:
        return all((theirs := other.get(log)) is not None and not _before(theirs, mine) for log, mine in self)

    def covers(self, log: str, cursor: Cursor) -> bool:
        """Whether `cursor` of `log` is at or before this position."""
        mine = self.get(log)
        return mine is not None and not _before(mine, cursor)


START = Position()


def table_of(log: str, tables: Iterable[str]) -> str | None:
    """The table whose log it is: named like the table, or like a part of it, `orders/3`; None if all share it."""
    return max((one for one in tables if log == one or log.startswith(f"{one}/")), key=len, default=None)


def _before(a: Cursor, b: Cursor) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    if isinstance(a, str) and isinstance(b, str):
        return by_numbers(a) < by_numbers(b)
    raise TypeError(f"cursors of one log must have the same type, not {a!r} and {b!r}")
