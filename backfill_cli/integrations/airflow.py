"""Airflow: an operator that runs a job until it is caught up, and a sensor that waits for a job without a worker.

`pip install 'backfill-cli[airflow]'`; tried with Airflow 3.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from airflow.exceptions import AirflowException
from airflow.sdk import BaseOperator, BaseSensorOperator, Context
from airflow.triggers.base import BaseTrigger, TriggerEvent

from backfill_cli.api.job import Job
from backfill_cli.api.waiting import Goal, Wait
from backfill_cli.catalog import Catalog
from backfill_cli.errors import BackfillError
from backfill_cli.view.answers import plain


class BackfillOperator(BaseOperator):
    """Runs the job of a config file, in the task's process, until it is caught up; each run applies what is new.

    config: the file. catalog: that of the job; None for the one beside the config. A task that is stopped lets the
    current epoch commit first. Returns what `start --json` prints as `run`.
    """

    template_fields = ("config", "catalog")

    def __init__(self, *, config: str, catalog: str | None = None, **more: Any) -> None:
        super().__init__(**more)
        self.config, self.catalog = config, catalog

    def execute(self, context: Context) -> Any:
        job = Job.from_toml(self.config, self.catalog)
        return plain(job.start("caught-up", say=self.log.info).run)


class BackfillSensor(BaseSensorOperator):
    """Waits until a job that another process runs is caught up, paused, stopped or done.

    It is deferred at once: the triggerer waits, and no worker does. job: its name. catalog: its file. every_s: how
    often the triggerer looks into the catalog.
    """

    template_fields = ("job", "catalog")

    def __init__(
        self, *, job: str, catalog: str, goal: Goal = "caught-up", every_s: float = 5.0, **more: Any
    ) -> None:
        super().__init__(**more)
        self.job, self.catalog, self.goal, self.every_s = job, catalog, goal, every_s

    def execute(self, context: Context) -> None:
        trigger = BackfillTrigger(self.job, self.catalog, self.goal, self.every_s)
        self.defer(trigger=trigger, method_name="reached", timeout=self.timeout)

    def reached(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """What `wait --json` prints. Raises AirflowException if the job failed or stopped first."""
        if "error" in event:
            raise AirflowException(event["error"])
        return event


class BackfillTrigger(BaseTrigger):
    """Fires once the job has reached the goal, or cannot any more."""

    def __init__(self, job: str, catalog: str, goal: Goal, every_s: float) -> None:
        super().__init__()
        self.job, self.catalog, self.goal, self.every_s = job, catalog, goal, every_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        told = {"job": self.job, "catalog": self.catalog, "goal": self.goal, "every_s": self.every_s}
        return f"{__name__}.BackfillTrigger", told

    async def run(self) -> AsyncIterator[TriggerEvent]:
        try:
            store = Catalog(Path(self.catalog))
            waiting = Wait(store, await asyncio.to_thread(store.listed_job, self.job), self.goal)
            while (found := await asyncio.to_thread(waiting.look)) is None:
                await asyncio.sleep(self.every_s)
        except BackfillError as error:
            yield TriggerEvent({"error": str(error)})
        else:
            yield TriggerEvent(plain(found))
