"""A Python process whose Spark was killed under a job runs the next one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typed import Place

SCRIPT = """
import json, threading, time
import backfill_cli as bf
from backfill_cli.errors import BackfillError
from backfill_cli.spark import driver

def kill():
    while True:
        try:
            if bf.Job("orders").status().rows_read:
                return driver._started[0].proc.kill()
        except BackfillError:  # there is no such job yet
            pass
        time.sleep(0.1)

threading.Thread(target=kill, daemon=True).start()
job = bf.Job.from_toml("job.toml")
try:
    job.start(until="caught-up")
except BackfillError as error:
    died = {"died": type(error).__name__}
job.throttle(None)
job.start(until="caught-up")
print(json.dumps({**died, "state": job.status().state, "equal": job.verify().equal}))
"""


@pytest.mark.in_turn("a process and its Spark")
def test_the_next_job_of_the_process_has_a_java_of_its_own(tmp_path: Path) -> None:
    place = Place(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("BACKFILL_")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"died": "SparkEnded", "state": "done", "equal": True}
    assert place.job()["state"] == "done"
