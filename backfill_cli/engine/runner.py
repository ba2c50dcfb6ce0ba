"""The loop in a process: its clock, its signals, its heartbeat."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from types import FrameType

from backfill_cli.engine.orchestrator import Orchestrator, Tick
from backfill_cli.engine.world import Watcher
from backfill_cli.errors import BackfillError, Held

HEARTBEAT_S = 10.0  # the lease of a runner on another machine counts as dead after three of them
WAITING_S = 1.0  # how old what `status` says may be while the loop waits for somebody


class Signals:
    """SIGINT and SIGTERM while a job runs: the first asks to stop, the second ends the process at once.

    Before there is a loop nothing is in hand, and the first one unwinds as SystemExit. caught: its number.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._loop: Orchestrator | None = None
        self.caught: int | None = None

    @contextmanager
    def heard(self) -> Iterator["Signals"]:
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.signal(number, self._hear) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def ask(self, loop: Orchestrator) -> None:
        """From here on a signal asks this loop to stop."""
        self._loop = loop

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if self.caught is not None:
            self._watcher.leave()
            os._exit(128 + number)
        self.caught = number
        if self._loop is None:
            raise SystemExit(128 + number)
        self._loop.ask_stop()


def run_loop(loop: Orchestrator, watcher: Watcher) -> Tick:
    """Step until the job is stopped or done."""
    shown = _Shown(loop, watcher)
    with _heartbeats(loop) as failed:
        while True:
            tick = loop.step()
            if failed:
                raise failed[0]
            if tick in (Tick.STOPPED, Tick.DONE):
                return tick
            shown.after(tick)
            if tick == Tick.WORKED:
                continue
            commit = loop.committing()
            if commit is not None:
                wait([commit], timeout=max(loop.wait_ms(), 50) / 1000)
            else:
                time.sleep(max(loop.wait_ms(), 5) / 1000)


class _Shown:
    """Tells the watcher when there is something new to see, and the catalog what the loop waits for."""

    def __init__(self, loop: Orchestrator, watcher: Watcher) -> None:
        self._loop = loop
        self._watcher = watcher
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
        waits = self._loop.waiting_for() is not None
        now_s = time.monotonic()
        if (waits and now_s - self._told_s >= WAITING_S) or waits != self._waited:
            self._waited, self._told_s = waits, now_s
            self._loop.heartbeat()
            self._watcher.progressed()


@contextmanager
def _heartbeats(loop: Orchestrator) -> Iterator[list[BackfillError]]:
    """The lease is renewed while the loop works, also through a long read; what fails is kept for the loop."""
    failed: list[BackfillError] = []
    over = threading.Event()

    def beat() -> None:
        while not over.wait(HEARTBEAT_S):
            try:
                loop.heartbeat()
            except Held as exc:
                failed.append(exc)
            except BackfillError:
                continue  # the next beat tries again; the lease outlives two that are missed

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield failed
    finally:
        over.set()
        thread.join()
