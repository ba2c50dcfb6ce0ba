"""`status` without --watch: drawn on a terminal, in plain lines elsewhere."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from backfill_cli.view.console import answer, coloured, say
from backfill_cli.view.model import JobView


def show_status(views: Sequence[JobView], in_full: bool, catalog: Path, typed: Callable[[str], str]) -> None:
    """Print the jobs to stdout: one in full, or one per line.

    in_full: a job was named. catalog: their file. typed: a hint, its commands as the user would type them.
    """
    if not views:
        hint = typed("backfill init, then: backfill start --config job.toml")
        say(f"no jobs yet in {catalog}\nTry: {hint}")
        return
    if sys.stdout.isatty():
        _draw(views, in_full)
        return
    from backfill_cli.view.lines import job_details, jobs_table

    answer(job_details(views[0]) if in_full else jobs_table(views))


def _draw(views: Sequence[JobView], in_full: bool) -> None:
    from rich.console import Console

    from backfill_cli.view.picture import Jobs, job_picture

    console = Console(no_color=not coloured(sys.stdout), highlight=False)
    console.print(job_picture(views[0]) if in_full else Jobs(views))
