"""A database whose tables are read as they are now, by ranges of their keys, and that has one log of all changes.

Rows that are read as they are now hold changes that are still in the log; the log is taken together with them, and
a change counts if its key was read. A chunk of rows must show every transaction that was taken from the log: its
changes would be lost otherwise.
"""

import json
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

from backfill_cli.cdc.files import C, LogTable
from backfill_cli.cdc.ranges import KeyRange, Ranges
from backfill_cli.cdc.window import TakenWindow, WindowRequest
from backfill_cli.contracts import (
    ArrowTasks,
    Capabilities,
    ConsumableLog,
    Current,
    LogRequest,
    Piece,
    Source,
    Taken,
)
from backfill_cli.errors import RETRIED, LogFirst
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.limit import Limit
from backfill_cli.model.plan import ChangeWindow, SnapshotRead
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.schema import names_of
from backfill_cli.model.upstream import Pin, UpstreamEpoch, UpstreamView
from backfill_cli.spark import arrow_tasks, own_worker
from backfill_cli.spark.api import SparkSession

if TYPE_CHECKING:
    import pyarrow as pa

LONG_LOG_BYTES = 1 << 30
"""A longer log is applied before rows are read again: an epoch that reads rows must take all of it at once."""

MARK_EVERY_S = 30.0
"""How often a position that moved without changes of our tables is committed: it must not hold back the log."""

Batches: TypeAlias = "Iterator[pa.RecordBatch]"
Request = TypeVar("Request")
Answer = TypeVar("Answer")


def place_of(position: Position) -> int:
    """Where a position of one log is, as a whole number; 0 is its beginning."""
    return int(position.cursors[0][1]) if position.cursors else 0


@dataclass(frozen=True, slots=True)
class Known:
    """What is known at a position, and kept with its checkpoint.

    hidden: transactions that were taken and that no snapshot shows yet. read: whether a chunk was read, or what
    the first one waits for has ended. columns: by table, the names of those in force. storage: the database's own,
    as text.
    """

    hidden: tuple[int, ...] = ()
    read: bool = False
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    storage: str = ""


@dataclass(frozen=True, slots=True)
class Visibility:
    """What a chunk's snapshot must show.

    consumed: transactions that were consumed and that no snapshot is known to show yet. since: every transaction
    below this id must have ended; None once they are known to have, see `Known.read`.
    """

    consumed: tuple[int, ...] = ()
    since: int | None = None


class LogSource(ConsumableLog, Source, Generic[C]):
    """What a database adds: `pin` and `restore`, which end with `_follow`; `observe`, which ends with `_view`; and
    the methods of the first part. Nothing is queried before `pin` or `restore`.

    log: the name of the log in positions. keeps: see Capabilities. read_chunk: a module's function that returns
    the rows of a `_chunk`; called in workers.
    """

    log: ClassVar[str]

    def __init__(self, keeps: str, read_chunk: Callable[[Any], Batches]) -> None:
        self._read_chunk = read_chunk
        self.capabilities = Capabilities(Current(self), before_images=True, one_log=True, keeps=keeps)
        self._pin: Pin | None = None
        self._ranges = Ranges(())
        self._since: int | None = None
        self._apart = self._beside = False
        self._known: dict[int, Known] = {}  # at the begin and the end of the last window: it may be taken again
        self._empty_to = 0  # up to here the log is known to hold no changes of our tables
        self._marked_s = time.monotonic()

    # -- what a database adds

    @abstractmethod
    def _key_after(self, table: str, keys: KeyRange, rows: int) -> Cursor | None:
        """The key of a range's row with this number, from 1, as it is now; None if the range has fewer."""

    def _rows_in(self, table: str, keys: KeyRange, most: int) -> int:
        """How many rows a range has now, at most this many; for a database that `leaves_rows_out`."""
        raise NotImplementedError

    @abstractmethod
    def _chunk_rows(self, table: str) -> int:
        """How many rows one transaction may read, see `ranges.chunk_rows`."""

    @abstractmethod
    def _chunk(self, table: str, keys: KeyRange) -> Any:
        """What `read_chunk` reads: the rows of these keys, with the columns in force, with `_visibility`."""

    @abstractmethod
    def _schema(self, table: str) -> str:
        """Spark's schema of rows with the columns in force, as JSON."""

    @abstractmethod
    def _tables(self, schemas: Mapping[str, str]) -> tuple[LogTable[C], ...]:
        """The tables; from now on these columns are in force. Raises BadData for one that cannot be followed."""

    @abstractmethod
    def _log_end(self) -> int:
        """A position at or after every transaction that any snapshot taken so far shows."""

    @abstractmethod
    def _take(self, spark: SparkSession, request: WindowRequest[C]) -> TakenWindow[C]:
        """Take a window, see `window.take`; `in_worker` does it in another process."""

    @abstractmethod
    def _advance(self, at: int) -> None:
        """Allow the log to discard what precedes a position."""

    @abstractmethod
    def _first_ms(self, up_to: int) -> int | None:
        """When the first transaction of our tables after what was acknowledged committed; None for none."""

    def _covered(self, table: str, ranges: Sequence[KeyRange]) -> Any:
        """That a key is in one of the ranges, in the database's terms: what `Window.keep_covered` is given."""
        return tuple(ranges)

    def _hidden(self, taken: TakenWindow[C], known: Sequence[int]) -> tuple[int, ...]:
        """Of the taken transactions, and those known from before, the ones that a snapshot does not show yet."""
        return ()

    def _newest_transaction(self) -> int | None:
        """A number above that of every open transaction; None if no chunk needs to wait for any."""
        return None

    def _open_before(self, since: int) -> Limit | None:
        """Who has a transaction below this number open, which `Visibility` demands to have ended; None: nobody."""
        return None

    def _followed(self, taken: TakenWindow[C], after: int) -> Mapping[str, str]:
        """Check that what was taken can be followed. Returns the schemas of tables whose columns changed."""
        return {}

    def _storage(self) -> str:
        """What a later process is given to `_recalled`."""
        return ""

    def _storage_without(self, storage: str, tables: Collection[str]) -> str:
        """What `_storage` returned, without these tables."""
        return storage

    def _recalled(self, known: Known) -> None:
        """Receives what an earlier process knew at the position where this one continues."""

    # -- pin, restore, observe

    def _follow(self, pin: Pin) -> Pin:
        """The job has this pin. The first read waits for transactions open now: the log may lack an older one."""
        self._pin, self._ranges, self._since = pin, Ranges(pin.splits), self._newest_transaction()
        return pin

    @property
    def _pinned(self) -> Pin:
        if self._pin is None:
            raise RuntimeError("pin() or restore() comes first")
        return self._pin

    def _position(self, at: int) -> Position:
        return Position.of({self.log: at})

    def _view(
        self,
        after: int,
        end: int,
        snapshot_open: bool,
        *,
        oldest: int | None = None,
        held_bytes: int | None = None,
        columns_wait: bool = False,
        added: Mapping[str, str] = MappingProxyType({}),
        behind: bool = False,
    ) -> UpstreamView:
        """The log after a position, up to `end`, as one epoch or none.

        oldest: where the log begins. columns_wait: some columns are not in force yet. added: schemas of tables
        with new columns before `end`: they come with the table's next change in the log, or with a window that has
        no changes. behind: see UpstreamView.
        """
        waits = self._reads_wait() if snapshot_open else None
        return UpstreamView(
            identity=self._pinned.identity,
            latest=self._position(end),
            pending=self._epochs(after, end, added),
            oldest=None if oldest is None else self._position(oldest),
            log_first=snapshot_open and (end - after > LONG_LOG_BYTES or columns_wait or waits is not None),
            held_bytes=held_bytes,
            behind=behind,
            waits=waits,
        )

    def _reads_wait(self) -> Limit | None:
        """For whom the first chunk waits, where tables that others follow would wait with it; None: for nobody."""
        since = self._visibility.since
        return None if since is None or not self._beside else self._open_before(since)

    def read_on(self, tables: Collection[str]) -> None:
        self._beside = True

    def _epochs(self, after: int, end: int, added: Mapping[str, str]) -> tuple[UpstreamEpoch, ...]:
        """What the log has, as one epoch; without our tables' changes, once in MARK_EVERY_S."""
        cursors, schema = ((self.log, end),), tuple(added.items())
        first_ms = self._first_ms(end) if end > max(after, self._empty_to) else None
        if first_ms is not None:
            return (UpstreamEpoch(cursors, first_ms, None, end - after, schema),)
        self._empty_to = max(self._empty_to, end)
        if added or (end > after and time.monotonic() - self._marked_s > MARK_EVERY_S):
            return (UpstreamEpoch(cursors, time.time_ns() // 1_000_000, 0, 0, schema),)
        return ()

    # -- rows as they are now

    def closed(self, table: str, reads: Sequence[SnapshotRead]) -> Sequence[SnapshotRead]:
        """Each read ends at the key that its limit reaches now, or at its split's end if there are fewer rows."""
        most, key_after = self._chunk_rows(table), partial(self._key_after, table)
        count = partial(self._rows_in, table) if self.leaves_rows_out(table) else None
        return [self._ranges.closed(read, most, key_after, count) for read in reads]

    def row_count(self, read: SnapshotRead) -> int | None:
        """How many rows are passed, where chunks leave rows out; otherwise they are counted as they are read."""
        return self._ranges.passed(read)

    def batches(self, table: str, reads: Sequence[SnapshotRead], cores: int) -> ArrowTasks:
        pieces = tuple(
            (Piece(index, self._chunk(table, keys)),)
            for index, read in enumerate(reads)
            for keys in self._ranges.parts(read)
        )
        return ArrowTasks(self._read_chunk, pieces, self._schema(table))

    @property
    def _visibility(self) -> Visibility:
        """What the next chunks must show, from what is known at the newest position that was taken."""
        newest = self._known[max(self._known)] if self._known else Known()
        return Visibility(newest.hidden, None if newest.read else self._since)

    def snapshot_only(self, begun: bool) -> None:
        self._apart = True
        if begun:
            self._since = None

    # -- the log

    def take(self, spark: SparkSession, asked: LogRequest) -> Taken:
        window, within, schemas = asked.window, asked.within, asked.schemas
        after, tables = place_of(window.after), self._tables(schemas)
        up_to = self._log_end() if window.open else place_of(window.up_to)
        taken: TakenWindow[C] = TakenWindow(up_to)
        if up_to > self._empty_to:
            read = {} if within is None else self._ranges.covered(within)
            covered = {table: self._covered(table, ranges) for table, ranges in read.items()}
            attempt, widens = uuid.uuid4().hex, not window.open
            taken = self._take(
                spark, WindowRequest(after, up_to, tables, asked.folder, attempt, window.limit, covered, widens)
            )
        if window.open and taken.up_to < up_to:
            whose = f"table {next(iter(taken.changed))!r}: its" if taken.changed else "a table's"
            raise LogFirst(f"{whose} columns changed while rows were read", RETRIED)
        known = self._known.get(after, Known())
        hidden = self._hidden(taken, known.hidden) if within is not None else ()
        followed = self._followed(taken, after)
        whole = taken.up_to == up_to
        added = {name: schema for name, schema in window.schema if whole and name not in taken.tables}
        changed = {**added, **followed}
        columns = {name: names_of(text) for name, text in {**schemas, **changed}.items()}
        then = Known(hidden, known.read or window.open or self._ended(), columns, self._storage())
        self._known = {after: known, taken.up_to: then}
        return Taken(self._closed(window, taken), taken.tables, changed, taken.skipped)

    def _ended(self) -> bool:
        """Whether what a first chunk would wait for has ended: then it has for good, read or not."""
        return self._since is not None and self._open_before(self._since) is None

    def _closed(self, window: ChangeWindow, taken: TakenWindow[C]) -> ChangeWindow:
        """The window as it was taken: where it ends, its times, and how many transactions it has."""
        return replace(
            window,
            up_to=self._position(taken.up_to),
            up_to_ms=window.up_to_ms if taken.up_to_ms is None else taken.up_to_ms,
            from_ms=window.from_ms if taken.from_ms is None else taken.from_ms,
            epochs=max(taken.transactions, window.epochs),
        )

    def acknowledge(self, position: Position) -> None:
        self._marked_s = time.monotonic()
        self._advance(place_of(position))

    def remembered(self, position: Position) -> str:
        at = place_of(position)
        return json.dumps({"at": at, **asdict(self._known.get(at, Known()))})

    def recall(self, memory: str) -> None:
        given = json.loads(memory)
        known = Known(tuple(given["hidden"]), given["read"], given["columns"], given["storage"])
        self._known = {given["at"]: known}
        self._recalled(known)

    def rejoined(self, memory: str, tables: Collection[str], before: str = "") -> str:
        """The first chunk waits once more: open transactions may have changed the new tables before."""
        if not memory:
            return memory
        told = json.loads(memory)
        columns = {name: known for name, known in told["columns"].items() if name not in tables}
        storage = self._storage_without(told["storage"], tables)
        return json.dumps({**told, "read": False, "columns": columns, "storage": storage})


def in_worker(
    spark: SparkSession, take: Callable[[Request], Answer], request: Request, kind: type[Answer]
) -> Answer:
    """What `take`, a module's function, returns for a request, run in another process; a value of this kind.

    That is our own worker in local mode, otherwise a task of Spark's, which returns the answer as JSON.
    """
    if arrow_tasks.is_local(spark):
        return own_worker.run(take, request)
    found = arrow_tasks.frame(spark, partial(_taken, take), (request,), "taken STRING").toArrow()
    return decode(kind, found["taken"].to_pylist()[0])


def _taken(take: Callable[[Any], Any], request: Any) -> Batches:
    """Runs in a worker."""
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"taken": [encode(take(request))]})
