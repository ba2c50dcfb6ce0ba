"""`backfill start`: create a job, or go on with it, and run it here or in the background."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from .options import CatalogOption, ConfigOption, JsonOption, open_catalog

Until = Literal["caught-up", "forever"]
UntilOption = Annotated[Until, typer.Option("--until", help="When the run ends by itself.")]
DetachOption = Annotated[bool, typer.Option("--detach", help="Run in the background, with a log file.")]
ExistingOption = Annotated[bool, typer.Option("--into-existing", help="Allow sink tables that already have rows.")]


def start(
    config: ConfigOption,
    until: UntilOption = "forever",
    detach: DetachOption = False,
    into_existing: ExistingOption = False,
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Start a job, or continue it when its config still gives the same result."""
    from backfill_cli.config import load

    job = load(Path(config))
    store = open_catalog(catalog)
    if detach:
        from .detached import start_detached

        options = ["--config", str(Path(config).resolve()), "--until", until]
        start_detached(job.job.name, store, [*options, "--into-existing"] if into_existing else options, as_json)
        return
    from backfill_cli.engine.loop.run import start as start_job

    from .running import run_shown

    run_shown(job.job.name, store, as_json, lambda viewer: start_job(job, store, until, into_existing, viewer))
