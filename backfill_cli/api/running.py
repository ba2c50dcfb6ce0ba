"""A job run in this process: recorded in its log while it runs, told to hooks, summed up at its end."""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from backfill_cli.api.background import LOG, bounded_log, in_background
from backfill_cli.catalog import Catalog, wall_clock_ms
from backfill_cli.errors import BackfillError
from backfill_cli.model.job import JobState
from backfill_cli.model.units import spell_duration, spell_exit
from backfill_cli.view.console import wrapped
from backfill_cli.view.journal import (
    EVERY_S,
    REBUILT,
    Entry,
    Journal,
    Weight,
    event_json,
    known_before,
    look,
    stamped,
)
from backfill_cli.view.log import JobLog, Unless, log_of
from backfill_cli.view.metrics import measured
from backfill_cli.view.model import read_jobs
from backfill_cli.view.running import NAMES, RunView, Tally, Viewer, closing_lines
from backfill_cli.view.status import Look

if TYPE_CHECKING:
    from backfill_cli.config.sections import Hooks

WAITING_AT_MOST = 100
SAID_BYTES = 4_000


@dataclass(frozen=True, slots=True)
class Telling:
    """How a run is reported, besides its log.

    every_s: between progress lines. say: takes each line; quiet: only warnings and the closing lines.
    metrics_file, metrics_port: where its metrics go; None for nowhere. drawn: reads the job for a view that is
    drawn on stderr, instead of lines; None for no view.
    """

    every_s: float = EVERY_S
    say: Callable[[str], None] = lambda _: None
    quiet: bool = False
    metrics_file: str | None = None
    metrics_port: str | None = None
    drawn: Look | None = None

    def metrics(self, name: str, catalog: Catalog) -> AbstractContextManager[None]:
        """Inside the block the metrics are provided. Raises UsageError, and Held while a runner has the job."""
        if self.metrics_file is None and self.metrics_port is None:
            return nullcontext()
        if catalog.path.exists():
            catalog.lock_job(name).release()  # a runner that has the job also has the port
        return measured(
            lambda: (read_jobs(catalog, name)[0], catalog.totals(name)), self.metrics_file, self.metrics_port
        )


class Voice:
    """Where a run's entries go: its log, its hooks, and stderr unless a view is drawn there. In the background
    stderr is the log."""

    def __init__(self, name: str, catalog: Path, telling: Telling, hooks: "Hooks") -> None:
        self._name = name
        self._telling = telling
        self._log = None if in_background() else JobLog(log_of(catalog, name), telling.say)
        self._hooks = HookRunner(hooks, {"BACKFILL_CATALOG": str(catalog)}, self._of_hook)

    def _of_hook(self, line: str, warning: bool) -> None:
        self.tell(Entry(line, Weight.WARNING if warning else Weight.INFO))

    def tell(self, entry: Entry) -> None:
        if entry.event is not None:
            self._hooks.hear(event_json(entry.event, wall_clock_ms()))
        if entry.text:
            self._tell(entry)

    def hooks_ended(self) -> None:
        """Waiting hooks have been run or dropped."""
        self._hooks.close()

    def _tell(self, entry: Entry) -> None:
        now_ms = wall_clock_ms()
        if self._log is None:
            # stderr is the log: the error that ends the process is printed there in full afterwards.
            self._telling.say(stamped(self._name, entry.brief or entry.text, now_ms))
            return
        lines = stamped(self._name, entry.text, now_ms)
        self._log.write(lines)
        # An error ends the process, which prints it then.
        drawn = self._telling.drawn is not None
        if entry.weight is Weight.ERROR or (drawn and entry.weight is not Weight.END):
            return
        if entry.weight is not Weight.INFO or not self._telling.quiet:
            self._telling.say(wrapped(entry.text, NAMES, sys.stderr) if drawn else lines)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()


def run_job(
    name: str,
    catalog: Catalog,
    telling: Telling,
    hooks: "Hooks",
    run: Callable[[Viewer], JobState],
    *,
    rebuilt: bool = False,
) -> RunView:
    """Run a job to its end, recorded in its log; an error that ends the run passes through.

    rebuilt: the run begins by rebuilding the catalog, whatever it holds of the job.
    """
    before = REBUILT if rebuilt else known_before(catalog, name)
    journal = Journal(before, telling.every_s, time.monotonic, hooks.max_lag_s, hooks.min_headroom_s)
    began_s = time.monotonic()
    fresh = Unless(log_of(catalog.path, name))
    voice = Voice(name, catalog.path, telling, hooks)
    viewer = Viewer(
        name, lambda after: look(catalog, name, after, wall_clock_ms()), journal, voice.tell, telling.drawn
    )
    with ExitStack() as ending, closing(voice):
        ending.push(lambda kind, *_: _left_out(fresh, catalog, name) if kind is not None else None)
        try:
            with telling.metrics(name, catalog), bounded_log(), viewer.shown():
                state = run(viewer)
            took_s = time.monotonic() - began_s
        finally:
            voice.hooks_ended()
        after = known_before(catalog, name)
        then, now = (Tally.of(known.totals, known.quarantined or {}) for known in (journal.before, after))
        told = RunView(now.since(then), now, round(took_s, 3))
        if state == JobState.DONE:
            voice.tell(Entry("\n".join(closing_lines(told)), Weight.END))
    return told


def _left_out(fresh: Unless, catalog: Catalog, name: str) -> None:
    """A job that was refused has no log; in the background, who started it shows the log before."""
    with suppress(BackfillError):  # the catalog cannot be read: the log stays
        if not in_background() and name not in {row.name for row in catalog.listed()}:
            fresh.left_out()


class HookRunner:
    """Runs the command for one event after the other, in a thread of its own; reporting an event never blocks.

    environment: variables for the command, in addition to this process's own. told: takes a line for the log, and
    whether it is a warning.
    """

    def __init__(self, hooks: "Hooks", environment: Mapping[str, str], told: Callable[[str, bool], None]) -> None:
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
                    return f"killed after {spell_duration(limit_s)}"
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
