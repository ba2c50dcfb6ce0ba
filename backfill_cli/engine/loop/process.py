"""The loop in a process: its sleep, its signals, its heartbeat."""

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

from backfill_cli.engine.job.resources import Watcher
from backfill_cli.engine.loop.orchestrator import Orchestrator, Tick
from backfill_cli.errors import BackfillError, Fatal, Held
from backfill_cli.model.pace import Backoff
from backfill_cli.strategies import StrategyState

HEARTBEAT_S = 10.0  # the lease of a runner on another machine counts as dead after three of them
LOOK_S = 0.5  # how often the heartbeat looks whether there is something to tell before
WAITING_S = 1.0  # how old what `status` says may be while the loop waits for somebody


def steady_ms() -> int:
    """Milliseconds by a clock that nobody sets; they mean nothing in another process."""
    return time.monotonic_ns() // 1_000_000


class Wake:
    """A sleep that others end: a commit that is done, a heartbeat that failed, a signal."""

    def __init__(self) -> None:
        # Its put may interrupt its get in the same thread, as a signal's handler does; an Event's set may not.
        self._rung: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ring(self) -> None:
        """Who sleeps wakes up; who does not will not fall asleep next time."""
        self._rung.put(None)

    def sleep(self, seconds: float) -> None:
        try:
            self._rung.get(timeout=seconds)
            while True:
                self._rung.get_nowait()
        except queue.Empty:
            return


class Signals:
    """SIGINT and SIGTERM while a job runs: the first asks to stop, the second ends the process at once.

    Before there is a loop nothing is in hand, and the first one unwinds as SystemExit. caught: its number. wake:
    what the loop sleeps by.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._loop: Orchestrator[StrategyState] | None = None
        self.wake = Wake()
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
            if self.caught is not None and self._loop is None:  # Ctrl-C ends a Spark that is starting as well
                raise SystemExit(128 + self.caught) from None
            raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def ask(self, loop: Orchestrator[StrategyState]) -> None:
        """From here on a signal asks this loop to stop."""
        self._loop = loop

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if self.caught is not None:
            self._watcher.leave()
            os._exit(128 + number)
        self.caught = number
        if self._loop is None:
            raise SystemExit(128 + number)
        self._watcher.stopping()
        self._loop.ask_stop()
        self.wake.ring()


class Heartbeat:
    """The lease is renewed every 10 s while `with` lasts, whatever the run's own thread is at.

    renew: what it does; the loop's own once there is one. has_news: whether to do it before it is due. limit_ms:
    how long it may fail in a row. A failure for good (the lease is another's, a fault of ours) wakes the loop, and
    `check` raises it there.
    """

    def __init__(self, job: str, renew: Callable[[], None], limit_ms: int, wake: Wake) -> None:
        self._job = job
        self.renew = renew
        self.has_news: Callable[[], bool] = lambda: False
        self._limit_ms = limit_ms
        self._wake = wake
        self._turn = threading.Lock()
        self._trouble = Backoff()
        self._failed: BackfillError | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="heartbeat", daemon=True)

    def beat(self) -> None:
        """Renew now. What fails in passing is left to the next one, up to the limit; Held is raised at once."""
        with self._turn:
            try:
                self.renew()
            except Held:
                raise
            except BackfillError as exc:  # the lease outlives two that are missed
                now_ms = steady_ms()
                self._trouble = self._trouble.failed(now_ms, exc.message)
                if self._trouble.spent(now_ms, self._limit_ms):
                    raise
            else:
                self._trouble = Backoff()

    def check(self) -> None:
        """Raises what ended the heartbeat."""
        if self._failed is not None:
            raise self._failed

    def _go_on(self) -> None:
        due_s = time.monotonic() + HEARTBEAT_S
        while not self._over.wait(min(LOOK_S, HEARTBEAT_S)):
            if time.monotonic() < due_s and not self.has_news():
                continue
            due_s = time.monotonic() + HEARTBEAT_S
            try:
                self._beat_by_name()
            except BackfillError as exc:
                self._failed = exc
                self._wake.ring()
                return

    def _beat_by_name(self) -> None:
        """As `beat`; a fault of ours is named, else the thread would die without a word."""
        try:
            self.beat()
        except BackfillError:
            raise
        except Exception as exc:
            said = f"job {self._job!r}: its heartbeat failed: {type(exc).__name__}: {exc}"
            raise Fatal(said, f"backfill resume {self._job}") from exc

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()


def run_loop(loop: Orchestrator[StrategyState], watcher: Watcher, heartbeat: Heartbeat, wake: Wake) -> Tick:
    """Step until the job is stopped or done."""
    shown = _Shown(loop, watcher, heartbeat)
    while True:
        tick = loop.step()
        heartbeat.check()
        if tick in (Tick.STOPPED, Tick.DONE):
            return tick
        shown.after(tick)
        if tick != Tick.WORKED:
            least_ms = 5 if loop.committing() is None else 50
            wake.sleep(max(loop.wait_ms(), least_ms) / 1000)


class _Shown:
    """Tells the watcher when there is something new to see, and the catalog what the loop waits for."""

    def __init__(self, loop: Orchestrator[StrategyState], watcher: Watcher, heartbeat: Heartbeat) -> None:
        self._loop = loop
        self._watcher = watcher
        self._heartbeat = heartbeat
        self._caught_up = loop.caught_up
        self._seen = self._sight()
        self._waited = False
        self._told_s = 0.0

    def _sight(self) -> object:
        return self._loop.state.control, self._loop.state.phase

    def after(self, tick: Tick) -> None:
        sight = self._sight()
        if tick == Tick.WORKED or sight != self._seen:
            self._seen = sight
            self._watcher.progressed()
        waits, caught_up = self._loop.waiting_for() is not None, self._loop.caught_up
        now_s = time.monotonic()
        changed = waits != self._waited or caught_up != self._caught_up or self._loop.asked()
        if changed or (waits and now_s - self._told_s >= WAITING_S):
            self._waited, self._caught_up, self._told_s = waits, caught_up, now_s
            self._heartbeat.beat()
            self._watcher.progressed()
