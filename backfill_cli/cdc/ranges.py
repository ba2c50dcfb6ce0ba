"""Ranges of keys: how a table is split by them, where a read ends, where it is cut into chunks, which were read.

No key is compared here: a cursor is a key in its database's notation, and only the database orders them.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Cursor
from backfill_cli.model.split import Split, SplitKey

SPLIT_ROWS = 250_000
"""A split is a task: small enough to run several side by side per epoch, large enough to outweigh its start."""

CHUNK_ROWS = 400_000
CHUNK_BYTES = 128 << 20
"""The most that one transaction reads: it takes a second or two. Its connection costs as much as 60,000 rows."""

LEAST_ROWS = 5_000
"""A chunk has at least this many, however wide its rows seem: sizes are estimates."""


class KeyRange(NamedTuple):
    """The keys after `after` up to and including `up_to`; None: open."""

    after: Cursor | None
    up_to: Cursor | None


def splits(table: str, rows: int, size_bytes: int, cuts: Callable[[int], Sequence[Cursor]]) -> Iterator[Split]:
    """Ranges of a table's keys; the outer ones are open. rows, size_bytes: estimates.

    cuts: at most as many keys as it is given, in order, which divide the table into about equal parts.
    """
    many = min(100, max(1, round(rows / SPLIT_ROWS)))
    ends = [None, *(cuts(many - 1) if many > 1 else ()), None]
    share = len(ends) - 1
    for number, (low, high) in enumerate(itertools.pairwise(ends)):
        detail = {name: end for name, end in (("after", low), ("up_to", high)) if end is not None}
        yield Split(table, f"{number:03d}", max(1, rows // share), size_bytes // share, detail=json.dumps(detail))


def chunk_rows(rows: int, size_bytes: int) -> int:
    """Rows per chunk of a table with these estimates."""
    width = max(1, size_bytes // max(1, rows))
    return min(CHUNK_ROWS, max(LEAST_ROWS, CHUNK_BYTES // width))


class Ranges:
    """The splits of a job, and the cuts in the reads of the current epoch."""

    def __init__(self, splits: Sequence[Split]) -> None:
        self._splits: dict[SplitKey, KeyRange] = {}
        for split in splits:
            detail = json.loads(split.detail)
            self._splits[split.table, split.id] = KeyRange(detail.get("after"), detail.get("up_to"))
        self._cuts: dict[SnapshotRead, tuple[Cursor, ...]] = {}
        self._passed: dict[SnapshotRead, int] = {}

    def keys(self, read: SnapshotRead) -> KeyRange:
        """The keys of a read; without a begin or an end, from its split's begin or to its end."""
        low, high = self._splits[read.table, read.split]
        return KeyRange(low if read.after is None else read.after, high if read.up_to is None else read.up_to)

    def closed(
        self,
        read: SnapshotRead,
        most: int,
        key_after: Callable[[KeyRange, int], Cursor | None],
        count: Callable[[KeyRange, int], int] | None = None,
    ) -> SnapshotRead:
        """The read, ending at the key of the last row within its limit; at its split's end if there are fewer.

        most: rows per chunk. key_after: the key of a range's row with this number, from 1; None if it has fewer.
        count: how many rows a range has that has fewer than this number; None where nobody asks for `passed`.
        """
        limit = read.limit_rows or 1
        step = min(limit, most)
        cuts: list[Cursor] = []
        end: Cursor | None = None
        for _ in range(limit // step):
            rest = replace(read, after=cuts[-1] if cuts else read.after, up_to=None)
            end = key_after(self.keys(rest), step)
            if end is None:
                break
            cuts.append(end)
        done = replace(read, up_to=end, limit_rows=None)
        self._cuts[done] = tuple(cuts if end is None else cuts[:-1])
        if count is not None:
            rest = replace(read, after=cuts[-1] if cuts else read.after, up_to=None)
            self._passed[done] = len(cuts) * step + (count(self.keys(rest), step) if end is None else 0)
        return done

    def passed(self, read: SnapshotRead) -> int | None:
        """How many rows a read of the current epoch had when it was closed, whichever are read; None: unknown.

        Never 0: the rows that a chunk must show may not have been there yet.
        """
        return self._passed.get(read) or None

    def parts(self, read: SnapshotRead) -> Sequence[KeyRange]:
        """The keys of a closed read, cut into chunks."""
        ends = (*self._cuts.pop(read, ()), read.up_to)
        begins = (read.after, *ends[:-1])
        return [self.keys(replace(read, after=low, up_to=high)) for low, high in zip(begins, ends, strict=True)]

    def covered(self, within: Mapping[SplitKey, Cursor | None]) -> dict[str, tuple[KeyRange, ...]]:
        """By table, the keys that were read, a range for each split that was begun. Without tables read whole.

        within: by split, how far it was read, None for its end; one that is missing was not begun.
        """
        found: dict[str, tuple[KeyRange, ...]] = {}
        for name in dict.fromkeys(table for table, _ in self._splits):
            of_table = {key: keys for key, keys in self._splits.items() if key[0] == name}
            if any(within.get(key, "") is not None for key in of_table):
                found[name] = tuple(
                    keys if within[key] is None else keys._replace(up_to=within[key])
                    for key, keys in of_table.items()
                    if key in within
                )
        return found
