"""Statements on a database that each end within a time: they read as many rows as fit, by what a row has taken.

A statement that its server ended for its time is asked again for half of its rows; at one row it is an error.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

from backfill_cli.cdc.ranges import KeyRange
from backfill_cli.model.pace import Sizer
from backfill_cli.model.position import Cursor

FIRST_ROWS = 5_000
"""Of a chunk's first statement: its time tells how many the next one has."""

AIM = 0.5
"""Of the time that a statement may take: rows are of different sizes, and a server is busy now and then."""

T = TypeVar("T")


class TimedOut(Exception):
    """The server ended a statement that had taken as long as it may.

    after: the key before that of the one row which was asked for last; None for the first row of all.
    """

    def __init__(self, after: Cursor | None = None) -> None:
        super().__init__()
        self.after = after


Read = Callable[[KeyRange, int], tuple[Cursor | None, T]]


def pieces(keys: KeyRange, limit_ms: int, read: Read[T], steady_ms: Callable[[], int]) -> Iterator[T]:
    """What `read` returns of each piece of a range, in order, with the statements' sizes following the limit.

    read: is given the rest of the range and a number of rows. Returns the key of that row, and what it read up to
    it; or None, and what it read of all the rest, which has fewer rows. Raises TimedOut, as this does for one row.
    """
    size = Sizer(FIRST_ROWS)
    aim_ms = max(1, int(limit_ms * AIM))
    while True:
        began_ms = steady_ms()
        try:
            end, found = read(keys, size.rows)
        except TimedOut as exc:
            if size.rows == 1:
                raise TimedOut(keys.after) from exc
            size = Sizer(size.rows // 2)
            continue
        took_ms = steady_ms() - began_ms
        yield found
        if end is None:
            return
        size = size.after(size.rows, took_ms, aim_ms)
        keys = keys._replace(after=end)


def rows_in(
    keys: KeyRange,
    most: int,
    count: Callable[[KeyRange, int], int],
    after: Callable[[KeyRange, int], Cursor | None],
) -> int:
    """How many rows a range has, at most this many. count: does so, or raises TimedOut. after: see `key_after`."""
    try:
        return count(keys, most)
    except TimedOut as exc:
        if most == 1:
            raise TimedOut(keys.after) from exc
    half = most // 2
    middle = after(keys, half)
    if middle is None:
        return rows_in(keys, half, count, after)
    return half + rows_in(keys._replace(after=middle), most - half, count, after)


def key_after(keys: KeyRange, rows: int, ask: Callable[[KeyRange, int], Cursor | None]) -> Cursor | None:
    """The key of a range's row with this number, from 1; None if it has fewer. ask: may raise TimedOut."""
    try:
        return ask(keys, rows)
    except TimedOut as exc:
        if rows == 1:
            raise TimedOut(keys.after) from exc
    half = rows // 2
    middle = key_after(keys, half, ask)
    return None if middle is None else key_after(keys._replace(after=middle), rows - half, ask)
