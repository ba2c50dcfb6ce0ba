"""`backfill pause`: stop every read for the sink."""

from typing import Annotated

import typer

from backfill_cli.model.job import Verb

from ._options import CatalogOption, JobArgument, JsonOption, TimeoutOption, WaitOption
from ._posting import post

EXAMPLES = (
    "backfill pause",
    "backfill pause orders --wait",
)


def pause(
    ctx: typer.Context,
    job: JobArgument = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="With strategy chain: stop reading the change log, too. The upstream keeps it meanwhile."
        ),
    ] = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = "5m",
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Stop reading at the next commit. The job stays paused, across restarts, until backfill resume."""
    verb = Verb.PAUSE_ALL if everything else Verb.PAUSE
    post(ctx, catalog, job, verb, rate=None, wait=wait, timeout=timeout, as_json=as_json)
