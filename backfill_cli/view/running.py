"""What `start` and `resume` show of their own job: drawn or reported as entries, summed up at its end."""

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from backfill_cli.errors import BackfillError, Held, NoSuchJob, UsageError
from backfill_cli.model.checkpoint import Totals
from backfill_cli.model.limit import Limit
from backfill_cli.model.units import spell_count, spell_duration, spell_rate, spell_so_far
from backfill_cli.view.journal import Entry, Journal, News
from backfill_cli.view.model import JobView, spell_quarantined
from backfill_cli.view.status import REFRESH_S, Look, console_of

STARTING = "Ctrl-C ends the command; this run has committed nothing yet."
RUNNING = "Ctrl-C stops the job after the current commit; backfill resume continues it."
LEAVE = b"\x1b[?1049l\x1b[?25h"  # leave the alternate screen of a drawn view, and show the cursor

REFUSALS = (UsageError, NoSuchJob, Held)
"""A run that is refused like this before it began has changed nothing; only the user who typed it is told."""

Told = Callable[[Entry], None]


class Viewer:
    """The engine calls the first four methods; `shown` follows the run meanwhile, in a thread of its own.

    news: reads the catalog once for `journal`, whose entries go to `tell`. look: reads what is drawn, None if
    nothing is. The catalog is read only after a call, at most once a second: an idle job costs nothing here.
    """

    def __init__(
        self, name: str, news: Callable[[int], News], journal: Journal, tell: Told, look: Look | None
    ) -> None:
        self._name = name
        self._news_after = news
        self._journal = journal
        self._tell = tell
        self._look = look
        self._doing: deque[Limit] = deque()  # received, not yet shown
        self._began = False
        self._news = threading.Event()
        self._ended = threading.Event()
        self._last: News | None = None
        self._error: Exception | None = None

    def progressed(self) -> None:
        self._began = True
        self._news.set()

    def tell(self, doing: Limit | str) -> None:
        self._began = True
        self._doing.append(Limit.of(doing))
        self._news.set()

    def stopping(self) -> None:
        said = f"{self._name}: stopping after the current commit; a second signal ends it at once\n"
        with suppress(OSError):  # the terminal is gone, which caused the signal
            os.write(sys.stderr.fileno(), said.encode())

    def leave(self) -> None:
        if self._look is not None:
            os.write(sys.stderr.fileno(), LEAVE)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Inside the block the run is followed; the error that ends it is reported, too."""
        thread = threading.Thread(target=self._follow, name="view", daemon=True)
        thread.start()
        try:
            yield
        except Exception as error:
            self._error = error
            raise
        finally:
            self._ended.set()
            self._news.set()
            thread.join(timeout=5)

    def _looks(self) -> Iterator[None]:
        """Yields when it is time to look: each second where it is drawn, else after news, or when a line is due.

        Once more at the end.

        Never in a run that was refused, which had no news: the job in the catalog then belongs to another run.
        """
        ended = False
        while not ended:
            if self._look is None:  # else it is drawn anyway: what the run is doing, and for how long
                self._news.wait(self._journal.due_in_s())
            self._news.clear()
            ended = self._ended.is_set()
            if self._began:
                yield
            self._ended.wait(REFRESH_S)

    def _follow(self) -> None:
        with self._screen() as show:
            for _ in self._looks():
                show(self._note())
        if self._began or not (self._error is None or isinstance(self._error, REFUSALS)):
            self._told(self._journal.ended(self._last, self._error))

    def _note(self) -> Limit | None:
        """What is new has been reported. Returns what a start is doing."""
        doing = None
        while self._doing:
            doing = self._doing.popleft()
            self._told(self._journal.doing(doing))
        # The view must not end the run that it shows; the engine reports what matters.
        with suppress(BackfillError):
            self._last = self._news_after(self._journal.known.epoch)
            self._told(self._journal.look(self._last))
        self._told(self._journal.still())
        return doing

    def _told(self, entries: Iterator[Entry]) -> None:
        for entry in entries:
            self._tell(entry)

    @contextmanager
    def _screen(self) -> Iterator[Callable[[Limit | None], None]]:
        """Draws the job, given what its start is doing; does nothing if nothing is drawn."""
        look = self._look
        if look is None:
            yield lambda _doing: None
            return
        from rich.live import Live

        from backfill_cli.view.picture import beginning_picture, live_picture

        console = console_of(stderr=True)
        last: Sequence[JobView] = ()
        at, timed = Limit("starting"), _Timed(time.monotonic)
        with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False) as live:
            live.update(beginning_picture(self._name, at, STARTING), refresh=True)

            def show(doing: Limit | None) -> None:
                nonlocal last, at
                at = doing or at
                with suppress(BackfillError):
                    last = look() or last
                views = [replace(one, limited_by=timed(one.limited_by)) if _starts(one) else one for one in last]
                picture = (
                    live_picture(views, RUNNING) if views else beginning_picture(self._name, timed(at), STARTING)
                )
                live.update(picture, refresh=True)

            yield show
        if last:
            console.print(live_picture(last, ""))


def _starts(view: JobView) -> bool:
    return view.state == "starting"


class _Timed:
    """Says of what is waited for how long it has been that. now_s: a monotonic clock."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._text, self._since_s = "", 0.0

    def __call__(self, limit: Limit) -> Limit:
        if limit.text != self._text:
            self._text, self._since_s = limit.text, self._now_s()
        return replace(limit, text=spell_so_far(limit.text, self._now_s() - self._since_s))


@dataclass(frozen=True, slots=True)
class Tally:
    """What was done, according to the ledger.

    rows_written: to the job's tables. quarantined: sink table → rows that could not be read, counted apart.
    """

    snapshot_rows: int = 0
    rows_written: int = 0
    changes_read: int = 0
    commits: int = 0
    quarantined: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(totals: Totals, quarantined: Mapping[str, int]) -> "Tally":
        rows, written = totals.snapshot_rows, totals.rows_written
        return Tally(rows, written, totals.changes_read, totals.commits, dict(quarantined))

    def since(self, before: "Tally") -> "Tally":
        more = {table: rows - before.quarantined.get(table, 0) for table, rows in self.quarantined.items()}
        return Tally(
            self.snapshot_rows - before.snapshot_rows,
            self.rows_written - before.rows_written,
            self.changes_read - before.changes_read,
            self.commits - before.commits,
            {table: rows for table, rows in more.items() if rows},
        )


@dataclass(frozen=True, slots=True)
class RunView:
    """A run that has ended.

    this_run: what it did. all_runs: all that the catalog knows of the job. seconds: from the command to the end,
    including Spark's start.
    """

    this_run: Tally
    all_runs: Tally
    seconds: float

    @property
    def rows_per_s(self) -> float | None:
        """Rows and changes read per second; None for a run that read none."""
        read = self.this_run.snapshot_rows + self.this_run.changes_read
        return round(read / self.seconds, 1) if read and self.seconds else None


@dataclass(frozen=True, slots=True)
class Ran:
    """A run that has ended, and its job as it is now."""

    jobs: Sequence[JobView]
    run: RunView


NAMES = 10
"""Columns of the names before the closing lines."""


def closing_lines(told: RunView) -> list[str]:
    """Rows, changes, rejected rows, time and commits, rate: for the run, and for the job where that is more."""

    def both(spell: Callable[[Tally], str]) -> str:
        run, job = spell(told.this_run), spell(told.all_runs)
        return run if run == job else f"{run} (this run; all runs: {job})"

    facts = {
        "rows": both(lambda one: f"{one.snapshot_rows:,} read from the snapshot, {one.rows_written:,} written"),
        "changes": both(lambda one: f"{one.changes_read:,} read"),
        "rejected": both(lambda one: spell_quarantined(one.quarantined) or "none"),
        "time": f"{spell_duration(told.seconds)}, {both(lambda one: spell_count(one.commits, 'commit'))}",
        "rate": _rate(told),
    }
    return [f"{(name + ':').ljust(NAMES)}{said}" for name, said in facts.items()]


def _rate(told: RunView) -> str:
    if told.rows_per_s is None:
        return "N/A: nothing was read"
    return f"{spell_rate(told.rows_per_s, 'rows and changes')} read, since the command was given"
