"""A job run in the foreground: shown while it runs, recorded in its log, told to hooks, summed up at its end."""

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

import typer

from backfill_cli.catalog import Catalog, wall_clock_ms
from backfill_cli.errors import BackfillError, BadData, UsageError
from backfill_cli.model.job import JobState
from backfill_cli.model.units import spell_exit
from backfill_cli.view.console import answer_json, interactive, say
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
from backfill_cli.view.model import look_at, read_jobs, spell_quarantined
from backfill_cli.view.running import Ran, RunView, Tally, Viewer, closing_lines

from ._detached import LOG, bounded_log, in_background
from ._options import limits_typed, seconds

if TYPE_CHECKING:
    from backfill_cli.config.sections import Hooks

WAITING_AT_MOST = 100
SAID_BYTES = 4_000


@dataclass(frozen=True, slots=True)
class Telling:
    """How a run is reported. every_s: between progress lines. quiet: only warnings, errors, closing lines.

    metrics_file, metrics_port: where its metrics go; None for nowhere.
    """

    metrics_file: str | None
    metrics_port: str | None
    every_s: float
    quiet: bool
    fail_on_quarantine: bool
    as_json: bool

    @property
    def words(self) -> list[str]:
        """As command line arguments for a run in the background, whose log has every line."""
        return [
            *(() if self.metrics_file is None else ("--metrics-file", str(Path(self.metrics_file).resolve()))),
            *(() if self.metrics_port is None else ("--metrics-port", self.metrics_port)),
            *(("--progress-interval", f"{self.every_s:g}") if self.every_s != EVERY_S else ()),
            *(("--fail-on-quarantine",) if self.fail_on_quarantine else ()),
        ]

    @property
    def drawn(self) -> bool:
        return interactive(sys.stderr) and not self.quiet

    def metrics(self, name: str, catalog: Catalog) -> AbstractContextManager[None]:
        """Inside the block the metrics are provided. Raises UsageError, and Held while a runner has the job."""
        if self.metrics_file is None and self.metrics_port is None:
            return nullcontext()
        if catalog.path.exists():
            catalog.lock_job(name).release()  # a runner that has the job also has the port
        return measured(
            lambda: (read_jobs(catalog, name)[0], catalog.totals(name)), self.metrics_file, self.metrics_port
        )


def telling(
    metrics_file: str | None,
    metrics_port: str | None,
    progress_interval: str | None,
    quiet: bool,
    fail_on_quarantine: bool,
    as_json: bool,
) -> Telling:
    """From the command line. Raises UsageError if the interval is not a duration, or too short."""
    every_s = EVERY_S if progress_interval is None else seconds(progress_interval, "--progress-interval")
    if every_s < 1:
        raise UsageError(f"--progress-interval {progress_interval}: less than a second", "--progress-interval 1m")
    return Telling(metrics_file, metrics_port, every_s, quiet, fail_on_quarantine, as_json)


class Voice:
    """Where a run's entries go: its log, its hooks, and stderr unless a view is drawn there. In the background
    stderr is the log."""

    def __init__(self, name: str, catalog: Path, telling: Telling, hooks: "Hooks") -> None:
        self._name = name
        self._telling = telling
        self._log = None if in_background() else JobLog(log_of(catalog, name), say)
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
            say(stamped(self._name, entry.brief or entry.text, now_ms))
            return
        lines = stamped(self._name, entry.text, now_ms)
        self._log.write(lines)
        # An error ends the process, which prints it then.
        if entry.weight is Weight.ERROR or (self._telling.drawn and entry.weight is not Weight.END):
            return
        if entry.weight is not Weight.INFO or not self._telling.quiet:
            say(entry.text if self._telling.drawn else lines)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()


def run_shown(
    ctx: typer.Context,
    name: str,
    catalog: Catalog,
    telling: Telling,
    hooks: "Hooks",
    run: Callable[[Viewer], JobState],
    *,
    rebuilt: bool = False,
) -> None:
    """Run a job to its end and report it; an error that ends the run passes through.

    ctx: that of the verb. rebuilt: the run begins by rebuilding the catalog, whatever it holds of the job. Raises
    BadData for quarantined rows, with --fail-on-quarantine.
    """
    before = REBUILT if rebuilt else known_before(catalog, name)
    journal = Journal(before, telling.every_s, time.monotonic, hooks.max_lag_s)
    began_s = time.monotonic()
    fresh = Unless(log_of(catalog.path, name))
    voice = Voice(name, catalog.path, telling, hooks)
    viewer = Viewer(
        name,
        lambda after: look(catalog, name, after, wall_clock_ms()),
        journal,
        voice.tell,
        (lambda: limits_typed(read_jobs(catalog, name), ctx)) if telling.drawn else None,
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
    if telling.as_json:
        answer_json(Ran(limits_typed(read_jobs(catalog, name), ctx), told))
    if telling.fail_on_quarantine and after.quarantined:
        error = BadData(
            f"job {name!r}: quarantined {spell_quarantined(after.quarantined)}: they could not be read",
            "look at them in the sink: " + look_at(after.quarantined),
        )
        error.answered = telling.as_json
        raise error


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
