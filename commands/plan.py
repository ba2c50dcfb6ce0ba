"""`backfill plan`: what a start would do, from metadata and a sample. Writes nothing."""

from dataclasses import replace

import typer

from backfill_cli.errors import UsageError
from backfill_cli.view.console import as_typed
from backfill_cli.view.reports import show_plan

from ._options import (
    CatalogOption,
    ConfigOption,
    ExistingOption,
    FileArgument,
    JsonOption,
    catalog_of,
    config_file,
    refuse_moved,
)


def plan(
    ctx: typer.Context,
    file: FileArgument = None,
    config: ConfigOption = None,
    into_existing: ExistingOption = False,
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Show the strategy and why, splits, rows, estimated time and what start would refuse, with its exit code."""
    from backfill_cli.config import load
    from backfill_cli.engine.job.checks import plan as plan_job

    path = config_file(file, config)
    job, store = load(path), catalog_of(path, catalog)
    refuse_moved(job.job.name, path, store, catalog)
    report = plan_job(job, store, into_existing)
    refused = tuple(replace(one, hint=as_typed(one.hint, ctx)) for one in report.refused)
    show_plan(replace(report, refused=refused), as_json)
    if report.refused:
        raise typer.Exit(UsageError.exit_code)
