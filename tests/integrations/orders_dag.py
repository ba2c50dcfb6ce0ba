"""A DAG: a sensor waits for the job, its runner is stopped, then an operator applies what is new.

BACKFILL_FOLDER: the job's folder.
"""

import json
import os
from pathlib import Path

from airflow.sdk import DAG, task

from backfill_cli import Job
from backfill_cli.integrations.airflow import BackfillOperator, BackfillSensor

FOLDER = Path(os.environ["BACKFILL_FOLDER"])
CATALOG = FOLDER / ".backfill/catalog.duckdb"
CHANGE = {"_change_type": "insert", "_commit_version": 1, "_commit_timestamp": "2026-11-26T00:00:00Z"}

with DAG("orders", schedule=None) as dag:

    @task
    def ended() -> None:
        """The runner ends, there is a new change, and somebody pauses the job."""
        (FOLDER / "let_go_on").touch()
        job = Job("orders", CATALOG)
        job.stop(wait_s=120)
        (FOLDER / "changes/1.json").write_text(json.dumps(CHANGE | {"id": 1000, "status": "new"}) + "\n")
        job.pause()

    caught_up = BackfillSensor(task_id="caught_up", job="orders", catalog=str(CATALOG), every_s=0.2)
    caught_up >> ended() >> BackfillOperator(task_id="apply", config=str(FOLDER / "job.toml"))
