"""`status`: drawn on a terminal, in plain lines elsewhere; once, or live with --watch."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from backfill_cli.catalog import Catalog
from backfill_cli.catalog.store import told_of
from backfill_cli.errors import Hint, command
from backfill_cli.view.console import answer, answer_json, coloured, interactive, say
from backfill_cli.view.lines import progress_line
from backfill_cli.view.model import ENDED, JobView
from backfill_cli.view.model import as_json as to_json

if TYPE_CHECKING:
    from rich.console import Console


def show_status(views: Sequence[JobView], in_full: bool, catalog: Catalog, typed: Callable[[Hint], Hint]) -> None:
    """Print the jobs to stdout: one in full, or one per line.

    in_full: a job was named. catalog: their file. typed: a hint, its commands as the user would type them.
    """
    if not views:
        said, hint = nothing_in(catalog)
        say(f"{said}\nTry: {typed(hint)}")
        return
    if sys.stdout.isatty():
        from backfill_cli.view.picture import Jobs, job_picture

        console_of(stderr=False).print(job_picture(views[0]) if in_full else Jobs(views))
        return
    from backfill_cli.view.lines import job_details, jobs_table

    answer(job_details(views[0]) if in_full else jobs_table(views))


def nothing_in(catalog: Catalog) -> tuple[str, Hint]:
    """What is known where there are no jobs, and what to type: the catalog's file may have been moved away."""
    left = catalog.left_behind()
    if not left:
        first = Hint() if os.path.exists("job.toml") else command("init") + ", then: "
        return f"no jobs yet in {catalog.path}", first + command("start --config job.toml")
    return told_of(catalog.path, left, Hint())


Look = Callable[[], Sequence[JobView]]

REFRESH_S = 1.0
LINE_S = 10.0
WATCHING = "Ctrl-C leaves this view; the job continues."


def watch_jobs(look: Look, as_json: bool, nothing: Callable[[], str]) -> None:
    """Show jobs until all have ended, or Ctrl-C: drawn on a terminal, else as a line every 10 s, or as JSON.

    nothing: what is drawn while there are no jobs.
    """
    if as_json:
        _follow(look, lambda views: answer_json(to_json(views)))
    elif interactive(sys.stdout):
        _watch_drawn(look, nothing)
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


def _watch_drawn(look: Look, nothing: Callable[[], str]) -> None:
    from rich.live import Live

    from backfill_cli.view.picture import live_picture

    console = console_of(stderr=False)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            views = look()
            live.update(live_picture(views, WATCHING, "" if views else nothing()), refresh=True)
            if views and all(view.state in ENDED for view in views):
                break
            time.sleep(REFRESH_S)
    console.print(live_picture(views, ""))


def console_of(stderr: bool) -> "Console":
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
