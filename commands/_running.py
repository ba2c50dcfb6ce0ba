"""A job run in the foreground: shown while it runs, told what came of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from backfill_cli.view.console import answer_json
from backfill_cli.view.live import Viewer, following
from backfill_cli.view.model import as_json as to_json
from backfill_cli.view.read import read_jobs

from ._detached import bounded_log

if TYPE_CHECKING:
    from backfill_cli.catalog import Catalog
    from backfill_cli.model.job import JobState


def run_shown(name: str, catalog: "Catalog", as_json: bool, run: "Callable[[Viewer], JobState]") -> None:
    """Run a job to its end with a view of it on stderr; the error that ends it passes through."""
    with bounded_log(), following(name, lambda: read_jobs(catalog, name)) as viewer:
        run(viewer)
    if as_json:
        answer_json(to_json(read_jobs(catalog, name)))
