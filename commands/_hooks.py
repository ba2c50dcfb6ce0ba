"""A job's hooks: the user's command, run at events beside the job. Its outcome is a line in the log."""

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from backfill_cli.model.units import spell_exit

from ._detached import LOG

if TYPE_CHECKING:
    from backfill_cli.config.sections import Hooks

WAITING_AT_MOST = 100
SAID_BYTES = 4_000

Told = Callable[[str, bool], None]


class HookRunner:
    """Runs the command for one event after the other, in a thread of its own; reporting an event never blocks.

    environment: variables for the command, in addition to this process's own. told: takes a line for the log, and
    whether it is a warning.
    """

    def __init__(self, hooks: "Hooks", environment: Mapping[str, str], told: Told) -> None:
        self._hooks = hooks
        # The command may run `backfill` itself: that is not the background process.
        inherited = {name: value for name, value in os.environ.items() if name != LOG}
        self._environment = {**inherited, **environment}
        self._told = told
        self._events: queue.Queue[Mapping[str, Any] | None] = queue.Queue(WAITING_AT_MOST)
        self._thread: threading.Thread | None = None
        self._closed = False
        self._ends_s: float | None = None  # monotonic; once the run has ended
        self._running: subprocess.Popen[bytes] | None = None

    def hear(self, event: Mapping[str, Any]) -> None:
        """The command will run, if the event is one of those configured; it is dropped if too many are waiting."""
        if event["event"] not in self._hooks.on:
            return
        if self._closed:
            self._told(f"hook for {event['event']}: dropped, the run has ended", True)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._go_on, name="hooks", daemon=True)
            self._thread.start()
        try:
            self._events.put_nowait(event)
        except queue.Full:
            self._told(f"hook for {event['event']}: dropped, {WAITING_AT_MOST} events are already waiting", True)

    def close(self) -> None:
        """Waiting events have been handled within one more time limit in total; the rest are dropped."""
        self._closed = True
        if self._thread is None:
            return
        self._ends_s = time.monotonic() + self._hooks.timeout_s
        try:
            self._events.put(None)
            self._thread.join()
        except BaseException:  # a signal: stop waiting
            if self._running is not None:
                _kill(self._running)
            raise

    def _go_on(self) -> None:
        while (event := self._events.get()) is not None:
            limit_s = self._hooks.timeout_s
            if self._ends_s is not None:
                limit_s = min(limit_s, self._ends_s - time.monotonic())
            if limit_s <= 0:
                self._told(
                    f"hook for {event['event']}: dropped, the run has ended and the time limit is used up", True
                )
                continue
            wrong = self._run(event, limit_s)
            self._told(f"hook for {event['event']}: {wrong or 'ran'}", wrong is not None)

    def _run(self, event: Mapping[str, Any], limit_s: float) -> str | None:
        """Run the command to its end. Returns what went wrong, or None."""
        try:
            with tempfile.TemporaryFile() as said:
                self._running = hook = subprocess.Popen(
                    self._hooks.command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    env=self._environment,
                    start_new_session=True,
                )
                try:
                    hook.communicate(json.dumps(event).encode() + b"\n", timeout=limit_s)
                except subprocess.TimeoutExpired:
                    _kill(hook)
                    return f"killed after {round(limit_s, 1):g} s"
                return None if hook.returncode == 0 else f"{spell_exit(hook.returncode)}{_last_line(said)}"
        except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
            return f"{self._hooks.command[0]}: {getattr(error, 'strerror', None) or error}"
        finally:
            self._running = None


def _kill(hook: "subprocess.Popen[bytes]") -> None:
    """The command is gone, with every process that it started."""
    with suppress(ProcessLookupError):
        os.killpg(hook.pid, signal.SIGKILL)
    hook.wait()


def _last_line(said: IO[bytes]) -> str:
    """The last line that the command wrote to stderr."""
    size = said.seek(0, os.SEEK_END)
    said.seek(max(0, size - SAID_BYTES))
    lines = said.read().decode(errors="replace").strip().splitlines()
    return f": {lines[-1][:200]}" if lines else ""
