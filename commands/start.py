"""`backfill start`: create a job or continue one, and run it here or in the background."""

from typing import Annotated

import typer

from ._options import (
    CatalogOption,
    ConfigOption,
    DetachOption,
    ExistingOption,
    FailOnQuarantineOption,
    FileArgument,
    IntervalOption,
    JsonOption,
    MetricsFileOption,
    MetricsPortOption,
    QuietOption,
    Until,
    catalog_of,
    config_file,
    refuse_moved,
)
from ._running import run_detached, run_shown, telling

UntilOption = Annotated[Until, typer.Option("--until", help="End once caught up, or follow until stopped.")]


def start(
    ctx: typer.Context,
    file: FileArgument = None,
    config: ConfigOption = None,
    until: UntilOption = "forever",
    detach: DetachOption = False,
    into_existing: ExistingOption = False,
    metrics_file: MetricsFileOption = None,
    metrics_port: MetricsPortOption = None,
    fail_on_quarantine: FailOnQuarantineOption = False,
    quiet: QuietOption = False,
    progress_interval: IntervalOption = None,
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Start a job, or continue one whose config has not changed in a way that affects its result."""
    from backfill_cli.config import load

    path = config_file(file, config)
    job = load(path)
    store = catalog_of(path, catalog)
    refuse_moved(job.job.name, path, store, catalog)
    told = telling(metrics_file, metrics_port, progress_interval, quiet, fail_on_quarantine, as_json)
    if detach:
        words = ["start", "--config", str(path.absolute()), "--until", until, *told.words]
        run_detached(job.job.name, store, [*words, "--into-existing"] if into_existing else words, as_json)
        return
    from backfill_cli.engine.loop.run import start as start_job

    run_shown(
        ctx,
        job.job.name,
        store,
        told,
        job.hooks,
        lambda viewer: start_job(job, store, until, into_existing, viewer),
    )
