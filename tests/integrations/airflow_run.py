"""One run of a DAG by Airflow on SQLite.

A sensor waits for a job that is paused and throttled from outside; an operator then applies what is new, once
somebody ends the job's pause.

Run by scripts/test-integrations, in an environment with Airflow.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from small_job import made, meanwhile, typed, until

from backfill_cli import Job


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="backfill-airflow-") as home:
        folder = Path(home) / "orders"
        folder.mkdir()
        config = made(folder, 300)
        os.environ |= {
            "AIRFLOW_HOME": home,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
            "BACKFILL_FOLDER": str(folder),
        }
        (Path(home) / "dags").mkdir()
        shutil.copy(Path(__file__).with_name("orders_dag.py"), Path(home) / "dags")
        ran(folder, config)
    print("airflow: 1 DAG run passed")


def ran(folder: Path, config: Path) -> None:
    airflow = Path(sys.executable).with_name("airflow")
    subprocess.run([airflow, "db", "migrate"], check=True, capture_output=True)
    typed(folder, "start", "--detach", "--config", str(config))
    typed(folder, "pause", "--wait")
    job, seen = Job("orders", folder / ".backfill/catalog.duckdb"), folder / "let_go_on"

    def outside() -> None:
        typed(folder, "throttle", "--rate", "none", "--wait")
        assert not seen.exists(), "a paused job is not caught up"
        typed(folder, "resume", "--wait")
        until(job, lambda one: seen.exists() and one.status().runner.alive and one.status().state == "paused")
        typed(folder, "resume", "--wait")

    with meanwhile(outside):
        done = subprocess.run([airflow, "dags", "test", "orders"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "1 read" in done.stdout + done.stderr, "the operator tells the changes that it applied"
    assert (job.status().state, job.verify().equal) == ("done", True)


if __name__ == "__main__":
    main()
