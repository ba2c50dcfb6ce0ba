"""One job of the product from files to DuckDB, epoch by epoch as told, without its barrier loop.

The loop adds commands, crashes and pace, which tests of their own try; here it is the values that count.
"""

import json
import shutil
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import TYPE_CHECKING

from backfill_cli.config import from_stored
from backfill_cli.contracts import Upstream
from backfill_cli.engine.job.create import sink_tables
from backfill_cli.engine.loop.ports import Job, commit_of
from backfill_cli.engine.staging.stage import SparkStager
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import EpochPlan, SnapshotRead
from backfill_cli.model.position import START
from backfill_cli.model.upstream import Pin
from oracle.routes import Config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Plans = Callable[[Upstream, Pin], Iterable[EpochPlan]]
"""The epochs of a job, in order. A plan that closes the snapshot names its table in `closes_snapshot`."""


def loaded(config: Config, spark: "SparkSession", plans: Plans) -> None:
    """The sink holds the rows of these epochs. Raises what the product raises; BackfillError where it refuses."""
    job_config = from_stored(json.dumps(config))
    with closing(job_config.open_upstream()) as upstream:
        pin = upstream.pin()
        tables = sink_tables(job_config, spark, upstream, pin, plain=True)
        sink = job_config.open_sink()
        job = Job(job_config.job.name, 1, tables, "{}")
        sink.prepare(job.name, tables, into_existing=False)
        stager = SparkStager(lambda: spark, upstream, job_config)
        schemas, before = dict(pin.schema), 0
        for epoch, plan in enumerate(plans(upstream, pin), 1):
            done = stager.stage(plan, epoch, schemas)
            schemas = dict(done.schemas)
            checkpoint = Checkpoint(
                epoch, before, job.token, done.staged.attempt, "{}", Phase.SNAPSHOT, START,
                plan=plan, staged=done.staged, schemas=done.schemas, sink_schemas=done.sink_schemas,
            )  # fmt: skip
            sink.commit(commit_of(job, checkpoint, before, stager))
            stager.discard(epoch, done.staged.attempt)
            before = epoch
    shutil.rmtree(job_config.job.staging, ignore_errors=True)


def whole(upstream: Upstream, pin: Pin) -> Iterable[EpochPlan]:
    """One epoch: every split, from its begin to its end."""
    yield EpochPlan(reads=reads_of(pin), closes_snapshot=("t",))


def reads_of(pin: Pin) -> tuple[SnapshotRead, ...]:
    return tuple(
        SnapshotRead(s.table, s.id, s.first, None if s.first is None else s.first + (s.rows or 0))
        for s in pin.splits
    )
