"""One materialisation of an asset by Dagster, of a job that is paused and resumed from outside meanwhile.

Run by scripts/test-integrations, in an environment with Dagster.
"""

import os
import tempfile
from pathlib import Path

from dagster import DagsterInstance, materialize
from small_job import made, meanwhile, typed, until

from backfill_cli import Job
from backfill_cli.errors import NoSuchJob
from backfill_cli.integrations.dagster import backfill_asset


def begun(job: Job) -> bool:
    try:
        return job.status().state == "running"
    except NoSuchJob:
        return False


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="backfill-dagster-") as home:
        folder = Path(home) / "orders"
        folder.mkdir()
        os.environ["DAGSTER_HOME"] = home
        config = made(folder, 300)
        table = backfill_asset(config, group_name="shop")
        job = Job.from_toml(config)

        def outside() -> None:
            until(job, lambda one: begun(one))
            typed(folder, "pause", "--wait")
            assert job.status().rows_read == 0
            typed(folder, "throttle", "--rate", "none")
            typed(folder, "resume", "--wait")

        with meanwhile(outside), DagsterInstance.ephemeral() as instance:
            ended = materialize([table], instance=instance)
        assert ended.success
        (event,) = ended.asset_materializations_for_node("orders")
        told = event.metadata
        assert told["this_run"].value["snapshot_rows"] == 300, told
        assert (job.status().state, job.verify().equal) == ("done", True)
        print("dagster: 1 materialisation passed")


if __name__ == "__main__":
    main()
