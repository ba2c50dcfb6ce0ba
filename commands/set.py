"""`backfill set`: what may change in a running job's config acts at its next barrier."""

import typer

from backfill_cli.errors import Hint, command
from backfill_cli.model.job import Verb

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
    from backfill_cli.config import load
    from backfill_cli.engine.job.change import of_next_run, setting

    store, before, path = job_and_config(job, config, catalog)
    change = setting(before.name, load(path, of_job=store.keys), store)
    later, note = of_next_run(change.keys), Hint()
    if not change.keys:
        note = Hint.of("the config is as it was")
    elif later and before.live:
        name = before.name
        note = f"{', '.join(later)}: as the next run begins: " + command(f"stop {name} --wait", f"resume {name}")
    said = f": {', '.join(change.keys)}" if change.keys else ""
    post_change(ctx, store, before, Verb.SET, change, said, note, wait, timeout, as_json)
