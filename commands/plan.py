"""`backfill plan`: what a start would do, from metadata and a sample. Writes nothing."""

import typer

from backfill_cli.api.moved import refuse_moved
from backfill_cli.view.reports import show_plan

from ._options import (
    CatalogOption,
    ConfigOption,
    ExistingOption,
    FileArgument,
    JsonOption,
    catalog_of,
    config_file,
)
from ._planning import planned

EXAMPLES = (
    "backfill plan",
    "backfill plan other.toml",
)


def plan(
    ctx: typer.Context,
    file: FileArgument = None,
    config: ConfigOption = None,
    into_existing: ExistingOption = False,
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Show what a start would do: strategy, parts, rows, time. Change nothing.

    What a start would refuse is shown, too, and the exit code is that of the start.
    """
    from backfill_cli.config import load

    path = config_file(file, config)
    store = catalog_of(path, catalog)
    job = load(path, of_job=store.sections)
    refuse_moved(job.job.name, path, store, catalog)
    planned(ctx, job, store, into_existing, lambda report: show_plan(report, as_json))
