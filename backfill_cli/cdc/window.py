"""A window of a log becomes files of net changes, a table at a time. Runs in a worker, without Spark.

A database writes `Window.read`, which applies the log's transactions to the tables. Some things are known only
once part of the window was read; then it is read again, with what was learnt (`Bounds`).
"""

import gc
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Generic, TypeVar

from backfill_cli.cdc.files import C, LogTable, NetTable, TableFiles, ValueLost
from backfill_cli.cdc.net import NeedsAll
from backfill_cli.contracts import TakenTable
from backfill_cli.errors import START_OVER, Transient, of_table
from backfill_cli.model.skipped import Skipped

HELD_BYTES = 256 << 20
"""Of log whose rows are held, plus ROW_BYTES for each; beyond it rows are written before the window ends."""

ROW_BYTES = 460
"""What a held row of five columns costs beside its message (measured)."""

MORE_CHANGES = 16
"""How many times longer a window gets that lacks a value: it is often near; all the log may not fit an epoch."""

IN_USE_S, TRY_S = 20.0, 0.05
"""How long is waited for a log that others read, and how often it is tried: a runner and a verify take turns."""

Id = TypeVar("Id")
Kind = TypeVar("Kind")
"""As C, without a bound: a protocol has no form in JSON."""


@dataclass(frozen=True, slots=True)
class WindowRequest(Generic[C]):
    """For the transactions whose commit ends in (after, up_to], positions in the log as whole numbers.

    folder: where files go. attempt: part of their names. limit: the window ends after the transaction that reaches
    this many changes. covered: by table, which keys were read, in the database's terms: only changes of these are
    written; of all, if it is missing or None. widens: whether the window may continue past added columns if it
    must; not if rows are read beside it.
    """

    after: int
    up_to: int
    tables: tuple[LogTable[C], ...]
    folder: str
    attempt: str
    limit: int | None = None
    covered: Mapping[str, Any] = field(default_factory=dict)
    widens: bool = True


@dataclass(frozen=True, slots=True)
class TakenWindow(Generic[Kind]):
    """up_to: the window's real end: the request's, or the end of the last transaction before what ended it.

    from_ms, up_to_ms: when its first and last transaction committed, ms since 1970. transactions: how many have
    changes of our tables; xids: of those, as the log has them. changed: the columns that a table has from the
    window's first transaction on; if more changed than additions at the end, neither that transaction nor any
    later one was taken. unsure: tables with updates or deletes that the server allows while no index keeps the key
    unique, because old rows are identified otherwise. skipped: changes that were dropped, by kind: of
    keys that were not read yet (after netting), and of tables that the log has and the request lacks.
    """

    up_to: int
    up_to_ms: int | None = None
    from_ms: int | None = None
    transactions: int = 0
    xids: tuple[int, ...] = ()
    tables: Mapping[str, TakenTable] = field(default_factory=dict)
    changed: Mapping[str, tuple[Kind, ...]] = field(default_factory=dict)
    unsure: tuple[str, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bounds:
    """A transaction counts if its commit begins in [first, stop); the begin is known before the end.

    up_to: the window's end. asked: how many times as much of the log is asked for as should suffice for the limit.
    hold_all: nothing is written before the end. widens: columns added within the window do not end it.
    """

    first: int
    stop: int
    up_to: int
    asked: int = 1
    hold_all: bool = False
    widens: bool = False


class LogInUse(Transient):
    """Another session reads the log, which only one can."""


class Again(Exception):
    """The window has to be read again, within other bounds."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self.bounds = bounds


class Incompatible(Exception):
    """The window's first transaction has changes of a table whose columns changed by more than additions."""


class Window(ABC, Generic[Id, C]):
    """One pass over the window.

    tables: by what the log calls them. number: of the last change. held: bytes of log whose rows are held. end:
    where the last transaction of the window that was read ends. up_to: where the window ends, once it was read.
    """

    def __init__(self, request: WindowRequest[C], bounds: Bounds, tables: Mapping[Id, NetTable[C]]) -> None:
        self.request, self.bounds, self.tables = request, bounds, tables
        begin = f"log-{request.attempt}"
        self.files = {
            net.table.name: TableFiles(request.folder, f"{begin}-{at}") for at, net in enumerate(tables.values())
        }
        self.changed: dict[str, tuple[C, ...]] = {}
        self.number = self.held = self._counted = 0
        self.skipped: Counter[str] = Counter()
        self.xids: list[int] = []
        self.times: list[int] = []
        self.end: int | None = None
        self.up_to = bounds.up_to

    # -- what a database writes

    @abstractmethod
    def read(self) -> int:
        """Apply all changes of the window to the tables. Returns where the window ends.

        Calls `count` after each transaction, and `spill` now and then. Raises Again, NeedsAll, LogInUse.
        """

    def check(self) -> None:
        """Check what can be checked once the window was read. Raises BadData."""

    @abstractmethod
    def keep_covered(self, net: NetTable[C], covered: Any) -> None:
        """Of the table's changes, keep those whose key was read. covered: see WindowRequest."""

    # -- what all share

    def taken(self) -> TakenWindow[C]:
        """Write the window's changes. Raises Again, NeedsAll, ValueLost, LogInUse."""
        try:
            self.up_to = self.read()
        except Incompatible:
            self.discard()
            return TakenWindow(self.end or self.request.after, changed=self.changed)
        self.check()
        nets = self.tables.values()
        for net in nets:
            self._write(net, is_last=True)
        first, last = (self.times[0], self.times[-1]) if self.times else (None, None)
        tables = {
            net.table.name: self.files[net.table.name].taken(net) for net in nets if net.changes or net.truncated
        }
        unsure = tuple(net.table.name for net in nets if net.unsure)
        xids, skipped = tuple(self.xids), dict(+self.skipped)
        return TakenWindow(self.up_to, last, first, len(xids), xids, tables, self.changed, unsure, skipped)

    def discard(self) -> None:
        """Its files are gone."""
        for one in self.files.values():
            one.discard()

    def count(self, end: int, ms: int, xid: int) -> bool:
        """A transaction of the window was read. Returns whether the window has as many changes as it may have."""
        self.end = end
        self.times.append(ms)
        if self.number > self._counted:
            self.xids.append(xid)
        self._counted = self.number
        return self.number >= (self.request.limit or self.number + 1)

    def truncate(self, net: NetTable[C]) -> None:
        self.number += 1
        net.truncate()
        self.files[net.table.name].discard()

    def change_columns(
        self, net: NetTable[C], is_wider: bool, begins: int, described: Callable[[], tuple[C, ...]]
    ) -> None:
        """From a transaction on, the table has other columns. is_wider: by additions at the end.

        begins: where the transaction's commit begins. described: returns the columns.
        Raises Again to end the window before the transaction, if an earlier one was taken and it cannot widen;
        Incompatible if none was taken and columns changed by more than additions.
        """
        if self.xids and not (is_wider and self.bounds.widens):
            assert self.end is not None
            raise Again(replace(self.bounds, stop=begins, up_to=self.end))
        new = described()
        if not is_wider:
            self.changed[net.table.name] = new
            raise Incompatible
        net.widen((*net.columns, *new[len(net.columns) :]))
        self.changed[net.table.name] = net.columns

    def spill(self) -> None:
        """Not much more than HELD_BYTES is held; the largest tables are written first."""
        if self.held <= HELD_BYTES or self.bounds.hold_all:
            return
        sizes = sorted(((net.held_bytes(ROW_BYTES), net) for net in self.tables.values()), key=itemgetter(0))
        self.held = sum(size for size, _ in sizes)  # less, if changes had the same keys
        if self.held <= HELD_BYTES * 3 // 4:
            return
        while self.held > HELD_BYTES // 2:
            size, net = sizes.pop()
            self._write(net, is_last=False)
            self.held -= size

    def _write(self, net: NetTable[C], is_last: bool) -> None:
        with of_table(net.table.name):
            net.require_keys()
            covered = self.request.covered.get(net.table.name)
            if covered is not None:
                before = len(net.entries)
                self.keep_covered(net, covered)
                self.skipped[Skipped.UNREAD] += before - len(net.entries)
            if net.entries:
                self.files[net.table.name].add(net, is_last)


def take(
    request: WindowRequest[C], window: Callable[[WindowRequest[C], Bounds], Window[Any, C]]
) -> TakenWindow[C]:
    """The window's changes are files in the request's folder. window: makes one pass over it.

    Raises BadData for changes that cannot be applied exactly, and what the passes raise.
    """
    bounds = Bounds(request.after, request.up_to, request.up_to)
    waited_s = 0.0
    with _no_garbage():
        while True:
            one = window(request, bounds)
            try:
                return one.taken()
            except LogInUse:
                one.discard()
                if waited_s > IN_USE_S:
                    raise
                waited_s += TRY_S
                time.sleep(TRY_S)
            except Again as again:
                one.discard()
                bounds = again.bounds
            except ValueLost as lost:
                one.discard()
                request, bounds = further(request, bounds, one.up_to, lost)
            except NeedsAll:
                one.discard()
                bounds = replace(bounds, hold_all=True)
            except BaseException:
                one.discard()
                raise


def further(
    request: WindowRequest[C], bounds: Bounds, up_to: int, lost: ValueLost
) -> tuple[WindowRequest[C], Bounds]:
    """A longer window, which may have the value that one up to `up_to` lacks. Raises ValueLost if none is."""
    if request.limit is not None and up_to < bounds.up_to:
        return replace(request, limit=request.limit * MORE_CHANGES), replace(bounds, asked=1)
    if bounds.up_to == request.up_to or not request.widens:
        raise lost
    if bounds.widens:
        raise ValueLost(
            f"{lost.message}; after that, columns of a table were dropped or changed: the later log cannot supply "
            "the value",
            START_OVER + lost.with_all,
        )
    return request, replace(bounds, stop=request.up_to, up_to=request.up_to, widens=True)


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
