"""Dagster: an asset that is a table which a job fills.

`pip install 'backfill-cli[dagster]'`.
"""

from pathlib import Path
from typing import Any

from dagster import AssetExecutionContext, AssetsDefinition, MaterializeResult, asset

from backfill_cli.api.job import Job
from backfill_cli.view.answers import plain


def backfill_asset(config: str | Path, catalog: str | Path | None = None, **more: Any) -> AssetsDefinition:
    """The asset of a config file: a materialisation runs the job until it is caught up, and applies what is new.

    catalog: that of the job; None for the one beside the config. more: arguments of `dagster.asset`; `name` is the
    job's unless given. The metadata is what `start --json` prints as `run`, with `epoch` and `lag_s`.
    """
    job = Job.from_toml(config, catalog)

    @asset(**{"name": job.name.replace("-", "_"), **more})
    def table(context: AssetExecutionContext) -> MaterializeResult:
        ran = job.start("caught-up", say=context.log.info)
        (view,) = ran.jobs
        return MaterializeResult(metadata=plain(ran.run) | {"epoch": view.epoch, "lag_s": view.lag_s})

    return table
