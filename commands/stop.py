"""`backfill stop`: end the run at the next commit."""

import typer

from backfill_cli.model.job import Verb

from ._options import CatalogOption, JobArgument, JsonOption, TimeoutOption, WaitOption
from ._posting import post

EXAMPLES = (
    "backfill stop",
    "backfill stop orders --wait --timeout 1m",
)


def stop(
    ctx: typer.Context,
    job: JobArgument = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = "5m",
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """End a job's run at the next commit; backfill resume continues from there."""
    post(ctx, catalog, job, Verb.STOP, rate=None, wait=wait, timeout=timeout, as_json=as_json)
