"""The loop in a process: how it sleeps, handles signals and renews its lease."""

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from backfill_cli.engine.job.resources import Watcher
from backfill_cli.engine.loop.orchestrator import Orchestrator, Tick
from backfill_cli.errors import BackfillError, Held, thread_failed
from backfill_cli.model.limit import Limit
from backfill_cli.model.pace import Backoff
from backfill_cli.spark import driver
from backfill_cli.strategies import StrategyState
from backfill_cli.unwinding import unwind

Answer = TypeVar("Answer")

HEARTBEAT_S = 10.0  # the lease of a runner on another machine counts as expired after three missed heartbeats
LOOK_S = 0.5  # how often the heartbeat checks whether there is something to report before it is due
INBOX_S = 0.25  # how often the inbox is looked at, however long the interval: one stat
WAITING_S = 1.0  # maximum age of what `status` shows while the loop waits for something


def steady_ms() -> int:
    """Milliseconds by a clock that is never set; meaningless in another process."""
    return time.monotonic_ns() // 1_000_000


class Wake:
    """A sleep that others can end: a finished commit, a failed heartbeat, a signal."""

    def __init__(self) -> None:
        # put() may interrupt get() in the same thread, as a signal handler does; Event.set() may not.
        self._rung: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ring(self) -> None:
        """Wakes the sleeper; if none is asleep, the next sleep ends at once."""
        self._rung.put(None)

    def sleep(self, seconds: float) -> None:
        try:
            self._rung.get(timeout=seconds)
            while True:
                self._rung.get_nowait()
        except queue.Empty:
            return


class Signals:
    """SIGINT and SIGTERM while a job runs: the first requests a stop, the second ends the process at once.

    Before there is a loop no epoch is in hand, and the first signal unwinds as SystemExit. caught: its number.
    wake: the loop's sleep. give_up: ends, with an exit code, what any thread waits for before there is an epoch.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._loop: Orchestrator[StrategyState] | None = None
        self.wake = Wake()
        self.give_up: Callable[[int], None] = lambda _code: None
        self.caught: int | None = None

    @contextmanager
    def installed(self) -> Iterator["Signals"]:
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.signal(number, self._hear) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        except Exception:
            if self.caught is not None and self.unwinding:  # Ctrl-C also ends a Spark that is starting
                raise SystemExit(128 + self.caught) from None
            raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @property
    def unwinding(self) -> bool:
        """A signal came before there was a loop: whatever error follows is of what it interrupted."""
        return self.caught is not None and self._loop is None

    def ask(self, loop: Orchestrator[StrategyState]) -> None:
        """From here on, a signal asks this loop to stop; so does one that came before it."""
        self._loop = loop
        if self.caught is not None:
            loop.ask_stop()

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if self.caught is not None:
            self._watcher.leave()
            os._exit(128 + number)
        self.caught = number
        self.give_up(128 + number)
        if self._loop is None:
            unwind(128 + number)
            return
        self._watcher.stopping()
        self._loop.ask_stop()
        self.wake.ring()


class Heartbeat:
    """Renews the lease every 10 s while the `with` block lasts, whatever the run's own thread is doing.

    renew: the renewal; the loop's own once there is a loop. has_news: whether to renew before it is due, which
    `reported` then is told. limit_ms: how long it may fail in a row. A permanent failure (another runner has the
    lease, Spark's Java process ended, a bug) wakes the loop, and `check` raises it there. failed:
    receives each failure before that.
    """

    def __init__(self, job: str, renew: Callable[[], None], limit_ms: int, wake: Wake) -> None:
        self._job = job
        self.renew = renew
        self.has_news: Callable[[], bool] = lambda: False
        self.reported: Callable[[], None] = lambda: None
        self.failed: Callable[[BackfillError], None] = lambda _error: None
        self._limit_ms = limit_ms
        self._wake = wake
        self._turn = threading.Lock()
        self._trouble = Backoff()
        self._failed: BackfillError | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="heartbeat", daemon=True)

    def beat(self) -> None:
        """Renews now. A transient failure is left to the next renewal, up to the limit; Held is raised at once."""
        with self._turn:
            try:
                self.renew()
            except Held:
                raise
            except BackfillError as exc:  # the lease survives two missed renewals
                now_ms = steady_ms()
                self._trouble = self._trouble.failed(now_ms, Limit(exc.message))
                if self._trouble.spent(now_ms, self._limit_ms):
                    raise
                self.failed(exc)
            else:
                self._trouble = Backoff()

    def check(self) -> None:
        """Raises the error that ended the heartbeat."""
        if self._failed is not None:
            raise self._failed

    def _go_on(self) -> None:
        due_s = time.monotonic() + HEARTBEAT_S
        while not self._over.wait(min(LOOK_S, HEARTBEAT_S)):
            try:
                driver.require_running()
                has_news = self._by_name(self.has_news)
                if time.monotonic() < due_s and not has_news:
                    continue
                due_s = time.monotonic() + HEARTBEAT_S
                self._by_name(self.beat)
                if has_news:
                    self.reported()
            except BackfillError as exc:
                self._failed = exc
                self._wake.ring()
                return

    def _by_name(self, act: Callable[[], Answer]) -> Answer:
        """A bug that ends this thread is told, instead of a lease that is renewed no longer."""
        try:
            return act()
        except BackfillError:
            raise
        except Exception as exc:
            raise thread_failed(self._job, "its heartbeat", exc) from exc

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def run_loop(loop: Orchestrator[StrategyState], watcher: Watcher, heartbeat: Heartbeat, wake: Wake) -> Tick:
    """Steps until the job is stopped or done."""
    shown = _Shown(loop, watcher, heartbeat)
    while True:
        tick = loop.step()
        heartbeat.check()
        if tick in (Tick.STOPPED, Tick.DONE, Tick.REDEFINED):
            return tick
        shown.after(tick)
        if tick != Tick.WORKED:
            least_ms = 5 if loop.committing() is None else 50
            wake.sleep(min(max(loop.wait_ms(), least_ms) / 1000, INBOX_S))


class _Shown:
    """Notifies the watcher when there is something new to see, and records what the loop waits for."""

    def __init__(self, loop: Orchestrator[StrategyState], watcher: Watcher, heartbeat: Heartbeat) -> None:
        self._loop = loop
        self._watcher = watcher
        self._heartbeat = heartbeat
        self._caught_up = loop.caught_up
        self._seen = self._sight()
        self._waited = False
        self._told_s = 0.0

    def _sight(self) -> object:
        return self._loop.state.control, self._loop.state.phase, self._loop.recorded

    def after(self, tick: Tick) -> None:
        sight = self._sight()
        if tick == Tick.WORKED or sight != self._seen:
            self._seen = sight
            self._watcher.progressed()
        waits = self._loop.waiting_for() is not None or self._loop.opening
        caught_up = self._loop.caught_up
        now_s = time.monotonic()
        changed = waits != self._waited or caught_up != self._caught_up or self._loop.asked()
        if changed or (waits and now_s - self._told_s >= WAITING_S):
            self._waited, self._caught_up, self._told_s = waits, caught_up, now_s
            self._heartbeat.beat()
            self._watcher.progressed()
