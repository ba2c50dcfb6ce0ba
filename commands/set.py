"""`backfill set`: what may change in a running job's config acts at its next barrier."""

import typer

from backfill_cli.api.changing import setting

from ._options import (
    CatalogOption,
    ConfigOption,
    JobArgument,
    JsonOption,
    TimeoutOption,
    WaitOption,
    job_and_config,
)
from ._posting import post_change

EXAMPLES = (
    "backfill set orders --config job.toml",
    "backfill set --config job.toml --wait",
)


def set(
    ctx: typer.Context,
    job: JobArgument = None,
    config: ConfigOption = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = "5m",
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Give a job the config as it is now, without stopping it. What would give another result is refused.

    Without --config it is the file that the job was last started with.
    """
    store, before, path = job_and_config(job, config, catalog)
    asked = setting(store, before, path)
    said = f": {', '.join(asked.change.keys)}" if asked.change.keys else ""
    post_change(ctx, store, before, asked, said, wait, timeout, as_json)
