"""`backfill pause`: stop every read for the sink; barriers continue."""

from typing import Annotated

import typer

from backfill_cli.model.job import Verb

from ._options import CatalogOption, JobArgument, JsonOption, TimeoutOption, WaitOption
from ._posting import post


def pause(
    ctx: typer.Context,
    job: JobArgument = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Strategy chain: also stop taking the change log; the upstream keeps it meanwhile."
        ),
    ] = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = "5m",
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Stop reading at the next barrier; the job is kept and can be resumed."""
    verb = Verb.PAUSE_ALL if everything else Verb.PAUSE
    post(ctx, catalog, job, verb, rate=None, wait=wait, timeout=timeout, as_json=as_json)
