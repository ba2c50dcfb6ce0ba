"""States in which errors of the catalog name a command.

Each function brings one about in a scene of `hint_scene`, and returns the hint of the error.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from half_done import EPOCH, progress, run_elsewhere
from hint_scene import Scene

from backfill_cli.catalog import lease
from backfill_cli.catalog.store import Store
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord
from backfill_cli.model.job import Control, JobState, Phase


def in_catalog_already(s: Scene) -> str:
    first = Checkpoint(0, 0, 0, "", "{}", Phase.SNAPSHOT, s.job.pin.position)
    return s.failed(lambda: s.catalog.create_job(s.job, Control(), first))


def claimed(s: Scene, act: Callable[[Any], object]) -> str:
    with s.catalog.claim("orders", "test", 5) as claim:
        return s.failed(lambda: act(claim.store))


def no_such_arrow(s: Scene) -> str:
    return claimed(s, lambda store: store.become(JobState.PAUSING, ""))


def epoch_used(s: Scene) -> str:
    record = EpochRecord(EPOCH, 0, Phase.SNAPSHOT, EPOCH)
    return claimed(s, lambda store: store.take((), Control(), JobState.STOPPED, record))


def never_prepared(s: Scene) -> str:
    return claimed(s, lambda store: store.unprepare(99))


def unknown_job(s: Scene) -> str:
    return s.refused("pause", "ordres")


def unknown_job_of_an_empty_catalog(s: Scene) -> str:
    s.run("drop", "orders", "--confirm", "orders")
    s.sql(s.sink, "DROP TABLE orders")
    return s.refused("status", "orders")


def catalog_damaged(s: Scene) -> str:
    whole = s.catalog.path.read_bytes()
    s.catalog.path.write_bytes(whole[:12288] + whole[12288:].translate(bytes(range(255, -1, -1))))
    hint = s.refused("status", "orders")
    moved = re.search(r"mv (\S+) (\S+);", hint)
    assert moved is not None
    Path(moved[1]).rename(moved[2])
    return hint


def catalog_missing(s: Scene) -> str:
    s.catalog.path.unlink()
    return s.refused("pause", "orders")


def taken_over(s: Scene) -> str:
    with s.catalog.claim("orders", "test", 5) as claim:
        with Store(s.catalog.path).writing() as db:
            lease.write(db, "orders", replace(lease.read(db, "orders"), token=99))
        return s.failed(lambda: claim.store.heartbeat(6, progress()))


def held_elsewhere(s: Scene) -> str:
    run_elsewhere(s.catalog.path)
    return s.refused("resume", "--from-sink", "job.toml")


def no_checkpoint(s: Scene) -> str:
    s.sql(s.catalog.path, "DELETE FROM checkpoints")
    return s.ended("resume", "orders")


def start_killed(s: Scene) -> str:
    s.catalog.starters.begin("fresh", "me", "starting Spark", s.config.stored(), str(s.folder / "job.toml"))
    return s.refused("resume", "fresh")


def start_in_progress(s: Scene) -> str:
    start_killed(s)
    with s.catalog.lock_job("fresh"):
        return s.refused("pause", "fresh")


def older_version_looked_at(s: Scene) -> str:
    """By doctor, which upgrades nothing. What the last version added is not there."""
    newest = "SELECT max(version) FROM catalog_version"
    s.sql(s.catalog.path, f"DELETE FROM catalog_version WHERE version = ({newest})")
    s.sql(s.catalog.path, "ALTER TABLE jobs DROP COLUMN aside")
    return s.failed(s.catalog.look)


STATES: dict[str, tuple[Callable[[Scene], str], ...]] = {
    "backfill_cli/catalog/store.py:looking": (older_version_looked_at,),
    "backfill_cli/catalog/jobs.py:create": (in_catalog_already,),
    "backfill_cli/catalog/jobs.py:become": (no_such_arrow,),
    "backfill_cli/catalog/jobs.py:use_epoch": (epoch_used,),
    "backfill_cli/catalog/jobs.py:unknown": (unknown_job, unknown_job_of_an_empty_catalog),
    "backfill_cli/catalog/files.py:_of_duckdb": (catalog_damaged,),
    "backfill_cli/catalog/store.py:_missing": (catalog_missing,),
    "backfill_cli/catalog/starts.py:refusal": (start_killed, start_in_progress),
    "backfill_cli/catalog/lease.py:check": (taken_over,),
    "backfill_cli/catalog/lease.py:held": (held_elsewhere,),
    "backfill_cli/catalog/checkpoints.py:recover": (no_checkpoint,),
    "backfill_cli/catalog/checkpoints.py:_conflict": (never_prepared,),
}
