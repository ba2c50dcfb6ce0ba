"""What `start` and `resume` show of their own job, and what of it is told: drawn on a terminal, and as entries."""

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from backfill_cli.errors import BackfillError, Held, NoSuchJob, UsageError
from backfill_cli.view.journal import Entry, Journal, News
from backfill_cli.view.live import REFRESH_S, Look, console_of, draw, draw_beginning
from backfill_cli.view.model import JobView

STARTING = "Ctrl-C ends the command; no epoch has begun yet."
RUNNING = "Ctrl-C stops the job after the current epoch; backfill resume continues it."
LEAVE = b"\x1b[?1049l\x1b[?25h"  # back from the screen that a drawn view has to itself, the cursor shown

REFUSALS = (UsageError, NoSuchJob, Held)
"""A run that ends so before it began has changed nothing, and tells nobody but who typed it."""

Told = Callable[[Entry], None]

DRAWN_S = 2.0  # how long a screen may stand still: what the run is at, and for how long, is on it


class Viewer:
    """The engine calls the first four methods; `shown` follows the run meanwhile, in a thread of its own.

    news: one look at the catalog, for `journal`, whose entries `tell` gets. look: for what is drawn, None where
    nothing is. The catalog is looked at only after a call, at most once a second: an idle job costs nothing here.
    """

    def __init__(
        self, name: str, news: Callable[[int], News], journal: Journal, tell: Told, look: Look | None
    ) -> None:
        self._name = name
        self._news_after = news
        self._journal = journal
        self._tell = tell
        self._look = look
        self._doing: deque[str] = deque()  # told, not yet shown
        self._began = False
        self._news = threading.Event()
        self._ended = threading.Event()
        self._last: News | None = None
        self._error: Exception | None = None

    def progressed(self) -> None:
        self._began = True
        self._news.set()

    def tell(self, doing: str) -> None:
        self._began = True
        self._doing.append(doing)
        self._news.set()

    def stopping(self) -> None:
        said = f"{self._name}: stopping; the epoch in hand is committed first, a second signal ends it at once\n"
        with suppress(OSError):  # a terminal that is gone: the signal was its end
            os.write(sys.stderr.fileno(), said.encode())

    def leave(self) -> None:
        if self._look is not None:
            os.write(sys.stderr.fileno(), LEAVE)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Meanwhile the run is followed; what ends it is told too."""
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
        """When to look: each time there was news or a line is due, and once more at the end.

        Never in a run that was refused, which had no news: the job that the catalog shows is another one's.
        """
        ended = False
        while not ended:
            self._news.wait(self._journal.due_in_s() if self._look is None else DRAWN_S)
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

    def _note(self) -> str:
        """What is new is told. Returns what a start is at."""
        doing = ""
        while self._doing:
            doing = self._doing.popleft()
            self._told(self._journal.doing(doing))
        # The view must not end the run that it shows; what matters the engine will tell.
        with suppress(BackfillError):
            self._last = self._news_after(self._journal.known.epoch)
            self._told(self._journal.look(self._last))
        return doing

    def _told(self, entries: Iterator[Entry]) -> None:
        for entry in entries:
            self._tell(entry)

    @contextmanager
    def _screen(self) -> Iterator[Callable[[str], None]]:
        """How to draw the job, given what its start is at; nothing where nothing is drawn."""
        look = self._look
        if look is None:
            yield lambda _doing: None
            return
        from rich.live import Live

        console = console_of(stderr=True)
        last: Sequence[JobView] = ()
        at = "starting"
        with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False) as live:
            live.update(draw_beginning(self._name, at, STARTING), refresh=True)

            def show(doing: str) -> None:
                nonlocal last, at
                at = doing or at
                with suppress(BackfillError):
                    last = look() or last
                picture = draw(last, RUNNING) if last else draw_beginning(self._name, at, STARTING)
                live.update(picture, refresh=True)

            yield show
        if last:
            console.print(draw(last, ""))
