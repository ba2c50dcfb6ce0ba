"""`backfill cutover`: people query the job's tables from now on; `--reverse` undoes it."""

from typing import Annotated

import typer

from backfill_cli.errors import UsageError

from ._options import CatalogOption, JobArgument, JsonOption, named_job, open_catalog, seconds

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show each gate and each name as it is; change nothing.")
]
ReverseOption = Annotated[
    bool, typer.Option("--reverse", help="Make each name again what it was before the cut over.")
]
WindowOption = Annotated[
    str, typer.Option("--window", metavar="TIME", help='How long --reverse may be asked for: "7d", "36h".')
]


def cutover(
    job: JobArgument = None,
    dry_run: DryRunOption = False,
    reverse: ReverseOption = False,
    window: WindowOption = "7d",
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Make the names that people query (`live` in the config) views of the job's tables, all at one moment.

    Every gate must be open: caught up, verified at the last checkpoint, no other writer, nothing left behind.
    What was under a name is kept under another. The job goes on. Exit code 2 where a gate is closed: nothing has
    changed then.
    """
    from backfill_cli.view.cutover import show_cutover

    if dry_run and reverse:
        raise UsageError("--dry-run and --reverse exclude each other", "name one of them")
    window_s = seconds(window, "--window")
    store = open_catalog(catalog, above=dry_run or job is not None)
    name = named_job(store, job).name
    if reverse:
        from backfill_cli.engine.cutover import reverse as put_back

        report = put_back(name, store)
    elif dry_run:
        from backfill_cli.engine.cutover import look

        report = look(name, store)
    else:
        from backfill_cli.engine.cutover import cut_over

        report = cut_over(name, store, window_s)
    show_cutover(report, as_json)
    if not report.open and not report.is_cut_over:
        raise typer.Exit(UsageError.exit_code)
