"""The log's taker: at each interval it takes what is new in the log into the spool, however far the loop is.

It has the log's connection to itself, and its own thread while the loop reads or commits. An entry is made
durable, then recorded in the catalog, then acknowledged upstream: never in another order.
"""

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from backfill_cli.config import JobConfig
from backfill_cli.config.sections import Table
from backfill_cli.contracts import (
    ArrowTasks,
    ChangeFrame,
    JobStore,
    LogRequest,
    Source,
    SpoolEntry,
    Taken,
    TakenTable,
    own,
)
from backfill_cli.engine.spool.folder import Spool
from backfill_cli.engine.staging import transform
from backfill_cli.engine.staging.failures import explaining
from backfill_cli.engine.staging.files import folder_made, write_changes
from backfill_cli.engine.staging.transform import evolved
from backfill_cli.engine.staging.values import null_keys_of_log, refuse_null_keys_of_log
from backfill_cli.errors import BackfillError, SpoolFull, Transient, in_config, thread_failed
from backfill_cli.failpoint import hit
from backfill_cli.model.limit import Limit
from backfill_cli.model.pace import Backoff
from backfill_cli.model.plan import ChangeWindow
from backfill_cli.model.position import START, Position
from backfill_cli.model.units import spell_size
from backfill_cli.spark.api import F, SparkSession
from backfill_cli.strategies.chain import window_to_take

REST, MOST_REST_MS = 3, 10_000
"""After each take the taker rests three times as long as the take lasted, so that it uses at most a quarter of the
snapshot's time; at most 10 s, because the log must be taken.
"""

LOOK_S = 0.05
"""How often the thread checks whether a take is due: a check costs two comparisons."""


@dataclass(frozen=True, slots=True)
class TakerSettings:
    """interval_ms: minimum time between two takes. max_bytes: of the spool, None for no limit. stops_when_full: a
    full spool stops the job; otherwise the log waits upstream. retry_limit_ms: for consecutive transient failures.
    """

    interval_ms: int
    max_bytes: int | None
    stops_when_full: bool
    retry_limit_ms: int

    def is_full(self, size_bytes: int, snapshot_open: bool) -> bool:
        """Whether a spool of this size accepts no more. Raises SpoolFull if that ends the job."""
        most = self.max_bytes
        if most is None or size_bytes < most:
            return False
        if self.stops_when_full and snapshot_open:  # later, draining makes room
            raise SpoolFull(
                f"the spool holds {spell_size(size_bytes)}, but spool.max_size is {spell_size(most)}: the log is "
                "no longer read",
                in_config('raise spool.max_size, or let the log wait upstream: spool.on_full = "wait"'),
            )
        return True


class Takes(Protocol):
    """Writes a window's changes: with Spark, or into lists."""

    def __call__(self, window: ChangeWindow, schemas: Mapping[str, str], folder: Path) -> Taken: ...


class Taker:
    """Call `begin` first; then `take` from the loop's thread and `beside` from another thread, one at a time.

    snapshot_open: whether the snapshot is still being read, so that its pin is checked too. behind: whether the
    log had more than was taken when last observed; untaken_ms: the time of the oldest change not taken. full:
    because the spool has no room for it. failed: receives each failure after which it is tried again.
    """

    def __init__(
        self,
        log: Source,
        spool: Spool,
        store: JobStore,
        takes: Takes,
        settings: TakerSettings,
        now_ms: Callable[[], int],
        steady_ms: Callable[[], int],
    ) -> None:
        self._log, self._spool, self._store, self._takes = log, spool, store, takes
        self._settings, self._now_ms, self._steady_ms = settings, now_ms, steady_ms
        self._turn = threading.RLock()
        self._entries: tuple[SpoolEntry, ...] = ()
        self._begun: Position | None = None
        self._schemas: Mapping[str, str] = {}
        self._position_ms: int | None = None
        self._due_ms: int | None = None  # by the steady clock, as is the end of the rest
        self._rested_ms = 0
        self._trouble = Backoff()
        self._failed: BackfillError | None = None
        self._number = 0
        self._owed: Position | None = None  # taken, and not acknowledged yet
        self.running = self.snapshot_open = self.full = self.behind = False
        self._over = False
        self.held_bytes: int | None = None
        self.added: int | None = None
        self.untaken_ms: int | None = None
        self.failed: Callable[[Transient], None] = lambda _error: None

    # -- what it has ---------------------------------------------------------------------------------------------

    @property
    def entries(self) -> tuple[SpoolEntry, ...]:
        """The spool's entries, in order."""
        return self._entries

    @property
    def position(self) -> Position:
        """The position up to which the log has been taken."""
        if self._entries:
            return self._entries[-1].window.up_to
        assert self._begun is not None, "go_on_from comes first"
        return self._begun

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self._entries)

    @property
    def waits(self) -> Limit | None:
        """What the taking waits for, None while it proceeds."""
        return self._trouble.reason

    def begin(self, entries: Sequence[SpoolEntry]) -> None:
        """Adopts what an earlier process left in the spool; the catalog then knows all of it, and no more."""
        known = {entry.number for entry in self._store.spooled()}
        applied = known - {entry.number for entry in entries}
        if applied:  # the earlier process died before it recorded that
            self._store.trim(max(applied))
        for entry in entries:
            if entry.number not in known:
                self._store.spool(replace(entry, memory=""))
        self._entries = tuple(entries)
        self._owed = entries[-1].window.up_to if entries else None
        self._number = max([*known, *(entry.number for entry in entries)], default=0)

    def go_on_from(self, position: Position, schemas: Mapping[str, str]) -> None:
        """The log is taken from here on, or from the spool's end. schemas: those in force here, table -> JSON."""
        with self._turn:
            if not self._entries:
                self._owed = position if position not in (self._begun, START) else self._owed
                self._begun, self._schemas = position, schemas
            elif not self._schemas:
                self._schemas = evolved_by(schemas, self._entries)

    # -- taking --------------------------------------------------------------------------------------------------

    def take(self) -> None:
        """Takes one more entry, if the log has one.

        Raises what the log raises, and SpoolFull if that ends the job; otherwise a full spool is left as it is.
        """
        with self._turn:
            self.check()
            self._take_some()

    def cover(self) -> bool:
        """Takes the log up to a position at or after everything that any read has seen so far.

        False if the spool had no room for it, or if more than one entry precedes it.
        """
        with self._turn:
            self.take()
            if self.behind:
                return False
            at, at_ms = self.position, self._position_ms or self._now_ms()
            self._add(ChangeWindow(at, at, at_ms, at_ms, 0, open=True))
            return True

    def _take_some(self) -> bool:
        """Takes one more entry; returns whether there may be another."""
        began_ms, at = self._steady_ms(), self.position
        self._acknowledge()
        view = self._log.observe(at, self.snapshot_open)
        self.held_bytes, self.added = view.held_bytes, view.added
        if self._log.lease is not None:
            self._log.lease.enforce_limit(at, self.snapshot_open)
        window = window_to_take(at, self._position_ms, view)
        self.full = window is not None and self._settings.is_full(self.size_bytes, self.snapshot_open)
        moved = window is not None and not self.full and self._add(window)
        self.behind = view.behind or (window is not None and not view.latest <= self.position)
        self.untaken_ms = None
        if window is not None and self.behind:
            self.untaken_ms = window.up_to_ms if moved else window.from_ms
        took_ms = self._steady_ms() - began_ms
        self._due_ms = began_ms + self._settings.interval_ms
        self._rested_ms = began_ms + took_ms + min(REST * took_ms, MOST_REST_MS)
        return moved and self.behind

    def _add(self, window: ChangeWindow) -> bool:
        """Makes an entry of the window; False if the log did not advance."""
        late_ms = 0 if self._due_ms is None else max(0, self._steady_ms() - self._due_ms)
        due_ms = self._now_ms() - late_ms
        number, attempt = self._number + 1, uuid.uuid4().hex[:12]
        entry = SpoolEntry(number, attempt, window, {}, due_ms=due_ms)
        try:
            taken = self._takes(window, self._schemas, self._spool.place(entry.name))
            schemas = evolved(self._schemas, taken.schemas)
            hit("spool-taken")
            if taken.window.up_to == self.position:
                self._spool.remove(entry)
                return False
            entry = self._spool.seal(self._closed(entry, taken))
        except BackfillError:
            self._spool.remove(entry)
            raise
        hit("spool-sealed")
        self._store.spool(replace(entry, memory=""))
        hit("spool-known")
        self._number = number
        # The memory of older entries is no longer needed, and it can be long.
        before = (*self._entries[:-1], *(replace(one, memory="") for one in self._entries[-1:]))
        self._entries = (*before, entry)
        self._schemas = schemas
        self._position_ms = max(entry.window.up_to_ms, self._position_ms or 0)
        self._owed = entry.window.up_to
        self._acknowledge()
        return True

    def _closed(self, entry: SpoolEntry, taken: Taken) -> SpoolEntry:
        return replace(
            entry,
            window=replace(taken.window, open=False, limit=None, schema=tuple(taken.schemas.items())),
            tables=taken.tables,
            skipped=taken.skipped,
            schemas=taken.schemas,
            memory=self._log.remembered(taken.window.up_to),
            taken_ms=self._now_ms(),
        )

    def _acknowledge(self) -> None:
        """Allows the log to discard what the spool has; repeated, also by the next process, until it succeeds."""
        if self._owed is not None:
            self._log.acknowledge(self._owed)
            self._owed = None

    def trim(self, position: Position) -> None:
        """Removes from the spool what the sink holds up to a position."""
        with self._turn:
            done = [entry for entry in self._entries if entry.window.up_to <= position]
            if not done:
                return
            self._store.trim(done[-1].number)
            self._begun = done[-1].window.up_to
            self._entries = self._entries[len(done) :]
            for entry in done:
                self._spool.remove(entry)

    # -- beside the loop -----------------------------------------------------------------------------------------

    def hold(self) -> None:
        """From now on nothing is taken except by `take`."""
        with self._turn:
            self.running = False

    def go_on(self) -> None:
        with self._turn:
            self.running = True

    def end(self) -> None:
        """The process ends: the entry in progress is the last one."""
        self._over = True

    def beside(self) -> bool:
        """Takes what is new if it is time, for the thread beside the loop. Returns whether to call it again.

        What ends the taking for good is raised by the loop's next `take` or `check`.
        """
        with self._turn:
            steady_ms = self._steady_ms()
            due = self._due_ms is None or steady_ms >= max(self._due_ms, self._rested_ms)
            if not self.running or not due or steady_ms < self._trouble.until_ms:
                return True
            try:
                self._take_by_name()
                self._trouble = Backoff()
            except Transient as exc:
                self._trouble = self._trouble.failed(steady_ms, Limit.cause(exc))
                if self._trouble.spent(steady_ms, self._settings.retry_limit_ms):
                    self._failed = exc
                else:
                    self.failed(exc)
            except BackfillError as exc:
                self._failed = exc
            return self._failed is None

    def _take_by_name(self) -> None:
        try:
            self.check()
            while self._take_some() and not self._over:
                pass
        except BackfillError:
            raise
        except Exception as exc:
            raise thread_failed(self._spool.job, "taking the change log", exc) from exc

    def check(self) -> None:
        """Raises the error that ended the taking."""
        if self._failed is not None:
            raise self._failed


@contextmanager
def taking(taker: Taker, wake: Callable[[], None]) -> Iterator[None]:
    """Takes the log while the `with` block lasts; an entry in progress is finished. wake: called on failure."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(LOOK_S):
            if not taker.beside():
                wake()
                return

    thread = threading.Thread(target=go_on, name="taking", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        taker.end()
        thread.join()


def take(
    spark: SparkSession,
    log: Source,
    config: JobConfig,
    window: ChangeWindow,
    schemas: Mapping[str, str],
    folder: Path,
) -> Taken:
    """The window's changes are files in `folder`, not yet durable. schemas: those in force at its beginning.

    Raises what the log raises, BadData for a change of columns that cannot be followed or for a NULL key.
    """
    folder_made(folder)
    with explaining(log, config, folder):
        again = log.capabilities.log is None
        now = evolved(schemas, dict(window.schema)) if again else schemas
        batch = log.read_log(spark, LogRequest(window, None, now, str(folder)))
        tables = {
            name: _written(spark, log, config.table(name), found, folder) for name, found in batch.tables.items()
        }
        held = {name: one for name, one in tables.items() if one.changes or one.truncated}
        return Taken(batch.window, held, batch.schemas, batch.skipped)


def _written(
    spark: SparkSession, log: Source, table: Table, found: TakenTable | ChangeFrame | ArrowTasks, folder: Path
) -> TakenTable:
    """One table's changes in files. Every single one is written: a later drain nets them over many entries."""
    if isinstance(found, TakenTable):
        return found
    found = ChangeFrame(found.frame(spark)) if isinstance(found, ArrowTasks) else found
    keys = null_keys_of_log(table.key)
    if own.QUARANTINED in found.frame.columns:
        readable = F.col(own.QUARANTINED).isNull()
        keys = {name: F.when(readable, column) for name, column in keys.items()}
    counts = {**keys, "images": transform.images(found.frame)}
    done, counted = write_changes(found.frame, folder / table.name, folder, counts)
    refuse_null_keys_of_log(log, table.name, table.key, counted)
    changes = counted["rows"] - counted["images"]
    return TakenTable(
        done.changes,
        False,
        changes=changes,
        changed=done.changed,
        deleted=done.deleted,
        truncated=found.truncated,
        partial=found.partial,
    )


def evolved_by(schemas: Mapping[str, str], entries: Sequence[SpoolEntry]) -> Mapping[str, str]:
    """The schemas in force once these entries are applied."""
    for entry in entries:
        schemas = evolved(schemas, entry.schemas)
    return schemas
