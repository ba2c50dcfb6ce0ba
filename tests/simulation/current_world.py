"""Tables that show only what they hold now, as one process of a job reads them: the world of strategy arrangement.

Each chunk has a snapshot of its own; writers go on between two of them, and between the reads and the window.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from backfill_cli.contracts import Capabilities, ConsumableLog, Current, LogRequest, Source, Taken, TakenTable
from backfill_cli.errors import HistoryGone, Transient
from backfill_cli.model.plan import ChangeWindow, SnapshotRead, StagedFile
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.split import SplitKey
from backfill_cli.model.upstream import Pin, UpstreamEpoch, UpstreamView

from .current_tables import LOG, TABLES, Row, Tables, Transaction, cursor_at, key_at, lsn_of, rank


class CurrentUpstream(ConsumableLog, Source):
    """The database as one process of the job sees it: it forgets when that dies."""

    reaches_reads = True  # an open window does: where columns changed on the way nothing is taken

    def __init__(self, tables: Tables, pin: Pin) -> None:
        self.capabilities = Capabilities(Current(self), True, True)
        self.tables, self.random = tables, tables.random
        self.begun = lsn_of(pin.position)
        self.read = False
        self.hidden: set[int] = set()
        self.log_first = False
        self.files: dict[str, dict[str, dict[str, tuple[str, Row]]]] = {}

    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        tables, after = self.tables, lsn_of(position)
        if self.random.random() < 0.03:
            raise Transient("the database does not answer")
        tables.pass_time()
        self._require(after)
        there = tables.between(after, tables.flushed)
        self.log_first = any(one.alters for one in there) or self.random.random() < 0.05
        tables.met["log first"] += self.log_first
        latest = max(after, tables.flushed)
        if there and self.random.random() < 0.5:
            pending = [UpstreamEpoch(((LOG, one.lsn),), one.ms, len(one.ops), 9) for one in there]
        else:
            some = bool(there) or (latest > after and self.random.random() < 0.3)
            pending = [UpstreamEpoch(((LOG, latest),), tables.now_ms(), None, 9)] if some else []
        return UpstreamView("{}", Position.of({LOG: latest}), tuple(pending), log_first=self.log_first)

    def _require(self, after: int) -> None:
        if after < max(self.tables.gone, lsn_of(self.tables.acknowledged)):
            raise HistoryGone(f"the log after {after} is gone")

    # -- chunks --------------------------------------------------------------------------------------------------

    def closed(self, table: str, reads: Sequence[SnapshotRead]) -> list[SnapshotRead]:
        """Up to the key that the limit reaches now; more may be there once it is read, or less."""
        done = []
        for read in reads:
            assert read.up_to is None
            assert read.limit_rows is not None
            assert read.limit_rows > 0
            keys = self._keys(read)
            up_to = cursor_at(keys[read.limit_rows - 1]) if len(keys) >= read.limit_rows else None
            done.append(replace(read, up_to=up_to, limit_rows=None))
        return done

    def _keys(self, read: SnapshotRead) -> list[str]:
        """Those that are there now, in order."""
        split_of = self.tables.split_of
        begin = rank(key_at(read.after)) if read.after is not None else ""
        end = rank(key_at(read.up_to)) if read.up_to is not None else "~"
        there = [key for key in self.tables.shown[read.table] if split_of[read.table, key] == read.split]
        return sorted((key for key in there if begin < rank(key) <= end), key=rank)

    def rows(self, read: SnapshotRead, columns: str) -> dict[str, Row]:
        """A closed read, in one or two chunks, each in a snapshot of its own."""
        assert not self.log_first, "state was read although the log came first"
        keys = self._keys(read)
        cut = cursor_at(self.random.choice(keys)) if keys and self.random.random() < 0.5 else None
        chunks = [replace(read, up_to=cut), replace(read, after=cut)] if cut is not None else [read]
        rows: dict[str, Row] = {}
        for chunk in chunks:
            if self.random.random() < 0.5:
                self.tables.change()
            self._until_seen()
            rows |= self._chunk(chunk, columns)
        return rows

    def _until_seen(self) -> None:
        """The snapshot shows every transaction that was consumed, and none from before the slot is open."""
        for _ in range(3):
            before = list(self.tables.unseen)
            needed = [o for o in before if o.lsn in self.hidden or (not self.read and o.lsn <= self.begun)]
            if not needed:
                self.hidden &= {one.lsn for one in before}
                return
            self.tables.met["not shown yet"] += 1
            self.tables.pass_time()
        raise Transient("a transaction that was consumed is not shown yet")

    def _chunk(self, chunk: SnapshotRead, columns: str) -> dict[str, Row]:
        """Who empties or alters a table holds its lock until it is shown: who waited for that finds it empty."""
        holders = [one for one in self.tables.unseen if one.locks(chunk.table)]
        for one in holders:
            self.tables.show(one)
        if str(self.tables.columns[chunk.table]) != columns:
            raise Transient("its columns changed")
        if holders:
            self.tables.met["emptied while it was read"] += 1
            return {}
        return {key: self.tables.shown[chunk.table][key] for key in self._keys(chunk)}

    # -- the log -------------------------------------------------------------------------------------------------

    def may_lack(self, table: str) -> frozenset[str]:
        return frozenset({"large"})

    def take(self, spark: Any, asked: LogRequest) -> Taken:
        window, within, schemas, folder = asked.window, asked.within, asked.schemas, asked.folder
        if self.random.random() < 0.03:
            raise Transient("the slot is in use")
        if self.random.random() < 0.5:
            self.tables.change()
        self._require(lsn_of(window.after))
        up_to, there, altered = self._closed_window(window)
        with suppress(IndexError):
            window = replace(window, from_ms=there[0].ms, up_to_ms=max(there[-1].ms, window.from_ms))
        self.hidden |= {one.lsn for one in there if not one.seen or self.random.random() < 0.5}
        self.read = self.read or window.open
        told = {table: self._net(table, there, within, folder) for table in TABLES}
        columns = {table: str(int(schemas[table]) + 1) for table in altered}
        return Taken(replace(window, up_to=Position.of({LOG: up_to})), told, columns)

    def _closed_window(self, window: ChangeWindow) -> tuple[int, list[Transaction], list[str]]:
        """Its real end, its transactions, the tables that have other columns from its begin on."""
        tables, after = self.tables, lsn_of(window.after)
        if window.open:
            tables.flushed = tables.end
        up_to = tables.end if window.open else lsn_of(window.up_to)
        assert up_to <= tables.flushed
        there = tables.between(after, up_to)
        altering = [i for i, one in enumerate(there) if one.alters]
        if window.open and altering and self.reaches_reads:
            raise Transient("a table's columns changed while rows were read")
        most = len(there)
        if window.limit is not None and self.random.random() < 0.3:
            most = self.random.randrange(1, len(there) + 1) if there else 0
        stop = min([most, *(i for i in altering if i > 0)])
        if stop < len(there):
            tables.met["ended early"] += 1
            up_to, there = there[stop - 1].lsn, there[:stop]
        return up_to, there, [one.alters for one in there if one.alters]

    def _net(
        self,
        table: str,
        there: Sequence[Transaction],
        within: Mapping[SplitKey, Cursor | None] | None,
        folder: str,
    ) -> TakenTable:
        net: dict[str, tuple[str, Row]] = {}
        changes, emptied = 0, False
        for kind, _, key, (small, large) in (op for one in there for op in one.ops if op[1] == table):
            changes += 1
            if kind == "empty":
                net, emptied = {}, True
            elif kind == "drop":
                net[key] = ("D", (0, 0))
            elif kind == "put":
                net[key] = ("U", (small, large))
            else:
                net[key] = ("U", (small, net[key][1][1] if key in net else None))
        kept = {key: change for key, change in net.items() if within is None or self._reached(table, key, within)}
        self.tables.met["dropped, not reached"] += len(net) - len(kept)
        self.tables.met["emptied"] += emptied
        self.files.setdefault(folder, {})[table] = kept
        deleted = sum(op == "D" for op, _ in kept.values())
        lacks = any(op == "U" and row[1] is None for op, row in kept.values())
        files = (StagedFile(table, 1),) if kept else ()
        partial = ("large",) if lacks else ()
        return TakenTable(files, True, changes, len(kept) - deleted, deleted, emptied, partial)

    def _reached(self, table: str, key: str, within: Mapping[SplitKey, Cursor | None]) -> bool:
        split = (table, self.tables.split_of[table, key])
        if split not in within:
            return False
        cursor = within[split]
        return cursor is None or rank(key) <= rank(key_at(cursor))

    def pin(self) -> Any: ...
    def restore(self, pin: Pin) -> None: ...
    def scan(self, *_: Any) -> Any: ...

    def acknowledge(self, position: Position) -> None:
        self.tables.acknowledged = self.tables.acknowledged.join(position)

    # -- what it remembers ---------------------------------------------------------------------------------------

    def remembered(self, position: Position) -> str:
        hidden = sorted(lsn for lsn in self.hidden if lsn <= lsn_of(position))
        return json.dumps({"hidden": hidden, "read": self.read})

    def recall(self, memory: str) -> None:
        told = json.loads(memory)
        self.hidden, self.read = set(told["hidden"]), told["read"]
