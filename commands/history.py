"""`backfill history`: the commits and commands of a job, from the ledger. Changes nothing."""

from typing import Annotated

import typer

from backfill_cli.catalog.ledger import KEPT
from backfill_cli.errors import UsageError
from backfill_cli.view.model import read_jobs
from backfill_cli.view.reports import show_history

from ._options import CatalogOption, JobArgument, JsonOption, named_job, open_catalog, tell_if_above

EXAMPLES = (
    "backfill history",
    "backfill history orders --last 100 --json",
)

LastOption = Annotated[str, typer.Option("--last", metavar="N", help="How many commits; at most 10,000 are kept.")]


def history(
    job: JobArgument = None,
    last: LastOption = "20",
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """List a job's newest commits, oldest first: times, rows, durations, and the commands they applied.

    A commit's number is the time when it began, in ms; TIME is when the sink had it.
    """
    if not last.isdecimal() or int(last) < 1:
        raise UsageError(f"--last {last}: not a whole number above 0", "name a number: --last 100")
    store = open_catalog(catalog)
    tell_if_above(store)
    (view,) = read_jobs(store, named_job(store, job).name)
    show_history(view, store.ledger(view.name, min(int(last), KEPT)), as_json)
