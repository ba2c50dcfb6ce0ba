"""A window of the slot's log becomes files of net changes, a table at a time. Runs in a worker, without Spark.

The slot is peeked at, never advanced: taking a window again gives the same. Some things are known only once part
of the window was read; then it is read again, with what was learnt (`Bounds`).
"""

import gc
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from operator import itemgetter

from backfill_cli.cdc.net import NeedsAll
from backfill_cli.contracts import TakenTable
from backfill_cli.errors import START_OVER, BadData
from backfill_cli.upstreams.postgres import pgoutput as log
from backfill_cli.upstreams.postgres import slot
from backfill_cli.upstreams.postgres.client import Connection, asking, connected, row_of, rows_of
from backfill_cli.upstreams.postgres.covered import keep_covered
from backfill_cli.upstreams.postgres.files import TableFiles
from backfill_cli.upstreams.postgres.net import NetTable, ValueLost
from backfill_cli.upstreams.postgres.types import DESCRIBED, Column, by_table, spark_type
from backfill_cli.upstreams.postgres.window import Taken, TakeRequest

HELD_BYTES = 256 << 20
"""Of messages whose rows are held, plus ROW_BYTES for each; beyond it rows are written before the window ends."""

ROW_BYTES = 460
"""What a held row of five columns costs beside its message (measured)."""

MORE_CHANGES = 16
"""How many times longer a window gets that lacks a value: it is often near; all the log may not fit an epoch."""

MORE_MESSAGES = 1_000
"""Beyond the limit: what a window that begins before `after` must skip, and each transaction's B and C."""

IN_USE_S, TRY_S = 20.0, 0.05
"""How long is waited for a slot that others use, and how often it is tried: a runner and a verify take turns."""

_ABOVE = """
SELECT t.oid::bigint, a.relid::text FROM unnest(%s::oid[]) t (oid), pg_partition_ancestors(t.oid) a
WHERE a.relid = ANY(%s::oid[]) AND a.relid <> t.oid
AND EXISTS (SELECT FROM pg_publication WHERE pubname = %s AND pubviaroot) LIMIT 1
"""
"""Published tables of which others are partitions, and are published as them."""

_ROWS = frozenset({log.INSERT, log.UPDATE, log.DELETE})


@dataclass(frozen=True, slots=True)
class Bounds:
    """A transaction counts if its commit record begins in [first, stop); the begin is known before the end.

    up_to: the window's end. messages: how many the server decodes, if there is a limit. hold_all: nothing is
    written before the end. widens: columns added within the window do not end it.
    """

    first: int
    stop: int
    up_to: int
    messages: int
    hold_all: bool = False
    widens: bool = False


def further(request: TakeRequest, bounds: Bounds, up_to: int, lost: ValueLost) -> tuple[TakeRequest, Bounds]:
    """A longer window, which may have the value that one up to `up_to` lacks. Raises ValueLost if none is."""
    if request.limit is not None and up_to < bounds.up_to:
        limit = request.limit * MORE_CHANGES
        return replace(request, limit=limit), replace(bounds, messages=limit + MORE_MESSAGES)
    if bounds.up_to == request.up_to or not request.widens:
        raise lost
    if bounds.widens:
        raise ValueLost(
            f"{lost.message}; after that, columns of a table were dropped or changed: the later log cannot supply "
            "the value",
            START_OVER + ", with REPLICA IDENTITY FULL for a table whose keys change",
        )
    return request, replace(bounds, stop=request.up_to, up_to=request.up_to, widens=True)


def take(request: TakeRequest) -> Taken:
    """The window's changes are files in the request's folder.

    Raises BadData for changes that cannot be applied exactly; database errors are raised as BackfillErrors.
    """
    bounds = Bounds(request.after, request.up_to, request.up_to, (request.limit or 0) + MORE_MESSAGES)
    with (
        _no_garbage(),
        asking(f"reading the slot {request.slot!r}"),
        connected(request.dsn) as connection,
        slot.copied(connection, request.slot, of_copy=True)
        if request.copies
        else nullcontext(request.slot) as read,
    ):
        request = replace(request, slot=read)
        log.require_flushed(connection, request.up_to)
        waited_s = 0.0
        while True:
            window = _Window(request, connection, bounds)
            try:
                return window.taken()
            except log.SlotInUse:
                window.discard()
                if waited_s > IN_USE_S:
                    raise
                waited_s += TRY_S
                time.sleep(TRY_S)
            except _Again as again:
                window.discard()
                bounds = again.bounds
            except ValueLost as lost:
                window.discard()
                request, bounds = further(request, bounds, window.up_to, lost)
            except NeedsAll:
                window.discard()
                bounds = replace(bounds, hold_all=True)
            except BaseException:
                window.discard()
                raise


class _Again(Exception):
    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self.bounds = bounds


class _Incompatible(Exception):
    """The window's first transaction has changes of a table whose columns changed by more than additions."""


class _Window:
    """One pass over the window."""

    def __init__(self, request: TakeRequest, connection: Connection, bounds: Bounds) -> None:
        self._request, self._connection, self._bounds = request, connection, bounds
        self._tables = {table.oid.to_bytes(4): NetTable(table) for table in request.tables}
        self._ready: dict[
            bytes, NetTable | None
        ] = {}  # with the log's columns at this point; None: not a table of the job
        self._relations: dict[bytes, log.Relation] = {}
        self._files = {table.name: TableFiles(number, request) for number, table in enumerate(request.tables)}
        self._changed: dict[str, tuple[Column, ...]] = {}
        self._transaction: log.Begin | None = None  # None: it is before the window
        self._times: list[int] = []
        self._xids: list[int] = []
        self._number = self._before = self._held = 0
        self._end: int | None = None  # of the last transaction of the window that was read
        self.up_to = bounds.up_to  # where the window ends, once it was read

    def taken(self) -> Taken:
        """Raises _Again, NeedsAll."""
        with self._connection.transaction():
            try:
                self.up_to = up_to = self._read()
            except _Incompatible:
                self.discard()
                return Taken(self._end or self._request.after, None, None, 0, (), {}, self._changed)
            self._require_own_names()
            for net in self._tables.values():
                self._write(net, is_last=True)
        tables = {
            net.table.name: self._table(net) for net in self._tables.values() if net.changes or net.truncated
        }
        first, last = (self._times[0], self._times[-1]) if self._times else (None, None)
        unsure = tuple(net.table.name for net in self._tables.values() if net.unsure)
        return Taken(up_to, last, first, len(self._xids), tuple(self._xids), tables, self._changed, unsure)

    def _require_own_names(self) -> None:
        """No change was published as that of a table that one of ours is a partition of. Raises BadData."""
        others = [int.from_bytes(oid) for oid, net in self._ready.items() if net is None]
        if not others:
            return
        given = ([table.oid for table in self._request.tables], others, self._request.publication)
        row = row_of(self._connection, "checking which tables are partitions", _ABOVE, given)
        if row is not None:
            names = {table.oid: table.name for table in self._request.tables}
            raise BadData(
                f"table {names[row[0]]!r}: changes of {row[1]}, which it is a partition of, are published as that "
                "table's, and its own may be among them",
                START_OVER,
            )

    def discard(self) -> None:
        """Its files are gone."""
        for one in self._files.values():
            one.discard()

    def _table(self, net: NetTable) -> TakenTable:
        held = self._files[net.table.name]
        partial = tuple(column.name for column in net.columns if column.name in held.partial)
        netted = len(held.files) <= 1
        return TakenTable(
            tuple(held.files), netted, net.changes, held.changed, held.deleted, net.truncated, partial
        )

    def _read(self) -> int:
        """All changes of the window are in the tables. Returns where the window ends."""
        count = 0
        messages = None if self._request.limit is None else self._bounds.messages
        with closing(log.blocks(self._connection, self._request, self._bounds.up_to, messages)) as blocks:
            for block, size in blocks:
                self._held += size + ROW_BYTES * len(block)
                for (message,) in block:
                    kind = message[0]
                    if kind in _ROWS:
                        if self._transaction is not None:
                            self._change(kind, message, self._transaction)
                    elif kind == log.TRUNCATE:
                        if self._transaction is not None:
                            self._truncate(message, self._transaction)
                    elif kind == log.BEGIN:
                        begun = log.begin(message)
                        if begun.commit_lsn >= self._bounds.stop:
                            return self._bounds.up_to
                        self._transaction = begun if begun.commit_lsn >= self._bounds.first else None
                        self._before = self._number
                    elif kind == log.COMMIT:
                        self._commit(message)
                        if self._end is not None and self._number >= (self._request.limit or self._number + 1):
                            return self._end
                    elif kind == log.RELATION:
                        self._relations[message[1:5]] = log.relation(message)
                        self._ready.pop(message[1:5], None)
                count += len(block)
                self._spill()
        if self._request.limit is None or count < self._bounds.messages:
            return self._bounds.up_to
        if self._end is None:  # everything that the server decoded is before the window
            raise _Again(replace(self._bounds, messages=self._bounds.messages * 4))
        return self._end

    def _commit(self, message: bytes) -> None:
        """Whether the transaction is in the window is checked by its end; its begin decided whether to read it."""
        begun, end = self._transaction, log.end_lsn(message)
        if begun is None:
            if end > self._request.after:
                raise _Again(replace(self._bounds, first=log.commit_lsn(message)))
            return
        if end > self._bounds.up_to:
            raise _Again(replace(self._bounds, stop=begun.commit_lsn))
        self._end = end
        self._times.append(begun.ms)
        if self._number > self._before:
            self._xids.append(begun.xid)

    def _change(self, kind: int, message: bytes, begun: log.Begin) -> None:
        oid = message[1:5]
        try:
            net = self._ready[oid]
        except KeyError:
            net = self._made_ready(oid, begun)
        if net is None:
            return
        self._number += 1
        net.changes += 1
        row, at, gaps = log.row_at(message, 6)
        if kind == log.INSERT:
            net.insert(row, self._number, begun.ms)
        elif kind == log.DELETE:
            net.delete(row, self._number, begun.ms)
        elif message[5] == log.NEW:
            net.update(row, gaps, None, False, self._number, begun.ms)
        else:
            new, _, gaps = log.row_at(message, at + 1)
            if net.update(new, gaps, row, message[5] == log.FULL_OLD, self._number, begun.ms):
                self._number += 1

    def _truncate(self, message: bytes, begun: log.Begin) -> None:
        for oid in log.truncated(message):
            net = self._made_ready(oid, begun)
            if net is not None:
                self._number += 1
                net.truncate()
                self._files[net.table.name].discard()

    def _made_ready(self, oid: bytes, begun: log.Begin) -> NetTable | None:
        """The table, with the columns that the log has from here on; None if it is not one of the job.

        Raises _Again to end the window before a transaction that changed them, if an earlier one was taken and it
        cannot widen; _Incompatible if none was taken and columns changed by more than additions.
        """
        net = self._tables.get(oid)
        if net is not None:
            relation = self._relations[oid]
            known = tuple((column.name, column.type_oid, column.typmod) for column in net.columns)
            if relation.columns != known and not self._same_for_spark(net, relation):
                is_wider = relation.columns[: len(known)] == known
                if self._xids and not (is_wider and self._bounds.widens):
                    assert self._end is not None
                    raise _Again(replace(self._bounds, stop=begun.commit_lsn, up_to=self._end))
                new = self._described(net.table.name, relation)
                if not is_wider:
                    self._changed[net.table.name] = new
                    raise _Incompatible
                net.widen((*net.columns, *new[len(known) :]))
                self._changed[net.table.name] = net.columns
            net.identify(relation.identity, relation.full)
        self._ready[oid] = net
        return net

    def _same_for_spark(self, net: NetTable, relation: log.Relation) -> bool:
        """Whether only the length of a varchar or the like differs: the catalog has the newest length."""
        if [one[:2] for one in relation.columns] != [(one.name, one.type_oid) for one in net.columns]:
            return False
        return [*map(spark_type, self._described(net.table.name, relation))] == [*map(spark_type, net.columns)]

    def _described(self, table: str, relation: log.Relation) -> tuple[Column, ...]:
        names, types, typmods = (list(part) for part in zip(*relation.columns, strict=True))
        rows = rows_of(self._connection, f"describing the columns of {table}", DESCRIBED, (names, types, typmods))
        found = by_table(rows).get(0, ())
        if len(found) != len(names):
            raise BadData(f"table {table!r}: the type of a column no longer exists", START_OVER)
        return found

    def _spill(self) -> None:
        """Not much more than HELD_BYTES is held; the largest tables are written first."""
        if self._held <= HELD_BYTES or self._bounds.hold_all:
            return
        sizes = sorted(((net.held_bytes(ROW_BYTES), net) for net in self._tables.values()), key=itemgetter(0))
        self._held = sum(size for size, _ in sizes)  # less, if changes had the same keys
        if self._held <= HELD_BYTES * 3 // 4:
            return
        while self._held > HELD_BYTES // 2:
            size, net = sizes.pop()
            self._write(net, is_last=False)
            self._held -= size

    def _write(self, net: NetTable, is_last: bool) -> None:
        name = net.table.name
        net.require_keys()
        predicate = self._request.covered.get(name)
        if predicate is not None:
            keep_covered(self._connection, net, predicate)
        if net.entries:
            self._files[name].add(net, is_last)


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Cycles are not collected inside: rows, lists of bytes, have none, and searching took a fifth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
