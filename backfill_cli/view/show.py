"""`status` without --watch: drawn on a terminal, in plain lines elsewhere."""

import os
import sys
from collections.abc import Callable, Sequence

from backfill_cli.catalog import Catalog
from backfill_cli.catalog.lost import told_of
from backfill_cli.view.console import answer, coloured, say
from backfill_cli.view.model import JobView


def show_status(views: Sequence[JobView], in_full: bool, catalog: Catalog, typed: Callable[[str], str]) -> None:
    """Print the jobs to stdout: one in full, or one per line.

    in_full: a job was named. catalog: their file. typed: a hint, its commands as the user would type them.
    """
    if not views:
        said, hint = nothing_in(catalog)
        say(f"{said}\nTry: {typed(hint)}")
        return
    if sys.stdout.isatty():
        _draw(views, in_full)
        return
    from backfill_cli.view.lines import job_details, jobs_table

    answer(job_details(views[0]) if in_full else jobs_table(views))


def nothing_in(catalog: Catalog) -> tuple[str, str]:
    """What is known where there are no jobs, and what to type: the catalog's file may have been moved away."""
    left = catalog.left_behind()
    if not left:
        written = "" if os.path.exists("job.toml") else "backfill init, then: "
        return f"no jobs yet in {catalog.path}", f"{written}backfill start --config job.toml"
    return told_of(catalog.path, left, "")


def _draw(views: Sequence[JobView], in_full: bool) -> None:
    from rich.console import Console

    from backfill_cli.view.picture import Jobs, job_picture

    console = Console(no_color=not coloured(sys.stdout), highlight=False)
    console.print(job_picture(views[0]) if in_full else Jobs(views))
