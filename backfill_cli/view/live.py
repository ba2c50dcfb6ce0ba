"""Views that go on: `status --watch`, and what `start` shows while its job runs."""

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from backfill_cli.errors import BackfillError
from backfill_cli.view.console import answer_json, coloured, interactive, say
from backfill_cli.view.lines import progress_line
from backfill_cli.view.model import ENDED, JobView
from backfill_cli.view.model import as_json as to_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Look = Callable[[], Sequence[JobView]]

REFRESH_S = 1.0
LINE_S = 10.0
WATCHING = "Ctrl-C leaves this view; the job goes on."
STARTING = "Ctrl-C ends the command; no epoch has begun yet."
RUNNING = "Ctrl-C stops the job after the current epoch; backfill resume continues it."
LEAVE = b"\x1b[?1049l\x1b[?25h"  # back from the screen that a drawn view has to itself, the cursor shown


def watch_jobs(look: Look, as_json: bool) -> None:
    """Show jobs until all have ended, or Ctrl-C: drawn on a terminal, else a line now and then, or as JSON."""
    if as_json:
        _follow(look, lambda views: answer_json(to_json(views)))
    elif interactive(sys.stdout):
        _watch_drawn(look)
    else:
        lines = Lines(time.monotonic)
        _follow(look, lines.tell_all)


def _follow(look: Look, tell: Callable[[Sequence[JobView]], None]) -> None:
    while True:
        views = look()
        tell(views)
        if views and all(view.state in ENDED for view in views):
            return
        time.sleep(REFRESH_S)


def _watch_drawn(look: Look) -> None:
    from rich.live import Live

    console = _console(stderr=False)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            views = look()
            live.update(draw(views, WATCHING), refresh=True)
            if views and all(view.state in ENDED for view in views):
                break
            time.sleep(REFRESH_S)
    console.print(draw(views, ""))


def draw(views: Sequence[JobView], footer: str) -> "RenderableType":
    from backfill_cli.view.picture import live_picture

    return live_picture(views, footer)


def draw_beginning(name: str, doing: str, footer: str) -> "RenderableType":
    from backfill_cli.view.picture import beginning_picture

    return beginning_picture(name, doing, footer)


def _console(stderr: bool) -> "Console":
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, no_color=not coloured(stream), highlight=False)


class Lines:
    """One plain line to stderr every 10 s, and at each change of state or phase. now_s: a monotonic clock."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._told: dict[str, tuple[str, str, float]] = {}

    def tell_all(self, views: Sequence[JobView]) -> None:
        for view in views:
            self.tell(view)

    def tell(self, view: JobView) -> None:
        now = self._now_s()
        state, phase, at = self._told.get(view.name, ("", "", -LINE_S))
        if (state, phase) == (view.state, view.phase) and now - at < LINE_S:
            return
        self._told[view.name] = (view.state, view.phase, now)
        say(progress_line(view))


@contextmanager
def following(name: str, look: Look) -> Iterator["Viewer"]:
    """A viewer for the engine to call; meanwhile the job `name` is shown on stderr.

    The catalog is looked at only after a call, at most once a second: an idle job costs nothing here.
    """
    viewer = Viewer(name, look)
    with viewer.shown():
        yield viewer


class Viewer:
    """What `start` and `resume` show of their own job. The engine calls the first three methods."""

    def __init__(self, name: str, look: Look) -> None:
        self._name = name
        self._look = look
        self._doing: deque[str] = deque()  # told, not yet shown
        self._began = False
        self._news = threading.Event()
        self._ended = threading.Event()
        self._drawn = interactive(sys.stderr)

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
        if self._drawn:
            os.write(sys.stderr.fileno(), LEAVE)

    @contextmanager
    def shown(self) -> Iterator[None]:
        target = self._draw if self._drawn else self._tell
        thread = threading.Thread(target=target, name="view", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._news.set()
            thread.join(timeout=5)

    def _looks(self) -> Iterator[Sequence[JobView]]:
        """The jobs, each time there was news, and once more at the end; none while the job is not there yet.

        A run that was refused had no news: the job that the catalog shows is another one's.
        """
        ended = False
        while not ended:
            self._news.wait()
            self._news.clear()
            ended = self._ended.is_set()
            if not self._began:
                return
            views: Sequence[JobView] = ()
            # The view must not end the run that it shows; what matters the engine will tell.
            with suppress(BackfillError):
                views = self._look()
            yield views
            self._ended.wait(REFRESH_S)

    def _tell(self) -> None:
        lines = Lines(time.monotonic)
        told = ""
        for views in self._looks():
            while self._doing:
                doing = self._doing.popleft()
                if doing != told:
                    say(f"{self._name}: {doing}")
                told = doing
            lines.tell_all([view for view in views if view.state != "starting"])

    def _draw(self) -> None:
        from rich.live import Live

        console = _console(stderr=True)
        last: Sequence[JobView] = ()
        doing = "starting"
        with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False) as live:
            live.update(draw_beginning(self._name, doing, STARTING), refresh=True)
            for views in self._looks():
                last = views or last
                while self._doing:
                    doing = self._doing.popleft()
                picture = draw(last, RUNNING) if last else draw_beginning(self._name, doing, STARTING)
                live.update(picture, refresh=True)
        if last:
            console.print(draw(last, ""))
