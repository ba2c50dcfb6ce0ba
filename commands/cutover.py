"""`backfill cutover`: the names that people query lead to the job's tables; `--reverse` undoes it."""

from typing import Annotated

import typer

from backfill_cli.errors import UsageError
from backfill_cli.view.console import as_typed
from backfill_cli.view.reports import show_cutover
from backfill_cli.view.waiting import waiting

from ._options import CatalogOption, JobArgument, JsonOption, named_job, open_catalog, seconds

EXAMPLES = (
    "backfill cutover --dry-run",
    "backfill cutover orders --window 36h",
    "backfill cutover orders --reverse",
)

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show each gate and each name; change nothing.")]
ReverseOption = Annotated[
    bool, typer.Option("--reverse", help="Make each name again what it was before the cutover.")
]
WindowOption = Annotated[
    str, typer.Option("--window", metavar="TIME", help="How long --reverse stays possible: 36h, 7d.")
]


def cutover(
    ctx: typer.Context,
    job: JobArgument = None,
    dry_run: DryRunOption = False,
    reverse: ReverseOption = False,
    window: WindowOption = "7d",
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Make the names that people query (live in the config) views of the job's tables, all at once.

    Each gate must be open: caught up, verified at the last commit, no other writer, nothing left behind. What had
    a name before is kept under another one. The job continues.

    Exit code 2 if a gate is closed: nothing has changed then.
    """
    if dry_run and reverse:
        raise UsageError("--dry-run and --reverse cannot be used together", "leave one of them out")
    window_s = seconds(window, "--window")
    store = open_catalog(catalog, above=dry_run or job is not None)
    name = named_job(store, job).name
    with waiting("asking the sink"):
        if reverse:
            from backfill_cli.engine.cutover import reverse as put_back

            report = put_back(name, store)
        elif dry_run:
            from backfill_cli.engine.cutover import look

            report = look(name, store)
        else:
            from backfill_cli.engine.cutover import cut_over

            report = cut_over(name, store, window_s)
    show_cutover(report, lambda said: as_typed(said, ctx), as_json)
    if not report.open and not report.cut_over:
        raise typer.Exit(UsageError.exit_code)
