"""Ranges of keys: where a read ends, where it is cut into chunks, which keys in the log have been read."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Cursor
from backfill_cli.model.split import Split, SplitKey
from backfill_cli.upstreams.postgres import keys
from backfill_cli.upstreams.postgres.client import Connection, row_of
from backfill_cli.upstreams.postgres.tables import PgTable
from backfill_cli.upstreams.postgres.types import selected

CHUNK_ROWS = 400_000
CHUNK_BYTES = 128 << 20
"""The most that one transaction reads: it takes a second or two. Its connection costs as much as 60,000 rows."""

LEAST_ROWS = 5_000
"""A chunk has at least this many, however wide its rows seem: sizes are estimates."""


class Ranges:
    """The splits of a job, and the cuts in the reads of the current epoch."""

    def __init__(self, splits: Sequence[Split]) -> None:
        self._splits = {(split.table, split.id): split for split in splits}
        self._cuts: dict[SnapshotRead, tuple[Cursor, ...]] = {}

    def closed(self, connection: Connection, table: PgTable, read: SnapshotRead) -> SnapshotRead:
        """The read, ending at the key of the last row within its limit; at its split's end if there are fewer."""
        limit = read.limit_rows or 1
        step = min(limit, _most(table))
        cuts: list[Cursor] = []
        end: Cursor | None = None
        for _ in range(limit // step):
            end = self._key_after(connection, table, read, cuts[-1] if cuts else read.after, step)
            if end is None:
                break
            cuts.append(end)
        done = replace(read, up_to=end, limit_rows=None)
        self._cuts[done] = tuple(cuts if end is None else cuts[:-1])
        return done

    def _key_after(
        self,
        connection: Connection,
        table: PgTable,
        read: SnapshotRead,
        after: Cursor | None,
        rows: int,
    ) -> Cursor | None:
        """The key of the `rows`-th row after a cursor, within the read's split; None if there are fewer."""
        texts = ", ".join(selected(column) + "::text" for column in table.key)
        # with the table's name: a bare name would mean the selected text, and order by that
        order = ", ".join(f"{table.sql}.{name}" for name in keys.key_names(table.key))
        where = self.condition(table, replace(read, after=after, up_to=None))
        query = f"SELECT {texts} FROM {table.source} WHERE {where} ORDER BY {order} OFFSET {rows - 1} LIMIT 1"
        row = row_of(connection, f"searching for a key of table {table.name!r}", query)
        return None if row is None else keys.cursor_of_key(row)

    def condition(self, table: PgTable, read: SnapshotRead) -> str:
        """SQL for the rows of a read; a read without an end goes to its split's end."""
        names = keys.key_names(table.key)
        low, high = keys.bounds(self._splits[(read.table, read.split)])
        after = low if read.after is None else read.after
        up_to = high if read.up_to is None else read.up_to
        limits = [keys.above(table.key, names, after)] if after is not None else []
        limits += [keys.up_to(table.key, names, up_to)] if up_to is not None else []
        return " AND ".join(limits) or "true"

    def parts(self, read: SnapshotRead) -> Sequence[SnapshotRead]:
        """A closed read, cut into chunks."""
        ends = (*self._cuts.pop(read, ()), read.up_to)
        begins = (read.after, *ends[:-1])
        return [replace(read, after=low, up_to=high) for low, high in zip(begins, ends, strict=True)]

    def covered(
        self, tables: Mapping[str, PgTable], within: Mapping[SplitKey, Cursor | None] | None
    ) -> dict[str, str | None]:
        """By table, the condition that a key was read, see `keys.within`; empty if within is None: all were."""
        if within is None:
            return {}
        found = {}
        for name, table in tables.items():
            reached = {split: cursor for (of, split), cursor in within.items() if of == name}
            splits = [split for (of, _), split in self._splits.items() if of == name]
            found[name] = keys.within(table.key, splits, reached)
        return found


def _most(table: PgTable) -> int:
    """Rows per chunk, from the table's size in the catalog."""
    width = max(1, table.size_bytes // max(1, table.rows))
    return min(CHUNK_ROWS, max(LEAST_ROWS, CHUNK_BYTES // width))
