"""One job of the product from files to DuckDB, epoch by epoch as told, without its barrier loop.

The loop adds commands, crashes and pace, which tests of their own try; here it is the values that count.
"""

import json
import shutil
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

from backfill_cli.config import JobConfig, from_stored
from backfill_cli.contracts import Source, SpoolEntry
from backfill_cli.engine.job.checks import sink_tables
from backfill_cli.engine.loop.ports import Job, commit_of
from backfill_cli.engine.spool.folder import Spool
from backfill_cli.engine.spool.taker import take
from backfill_cli.engine.spool.upstream import SpooledUpstream
from backfill_cli.engine.staging.stage import SparkStager
from backfill_cli.engine.staging.transform import evolved
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import EpochPlan, SnapshotRead
from backfill_cli.model.position import START
from backfill_cli.model.upstream import Pin
from oracle.routes import Config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Plans = Callable[[Source, Pin], Iterable[EpochPlan]]
"""The epochs of a job, in order. A plan that closes the snapshot names its table in `closes_snapshot`."""


def loaded(config: Config, spark: "SparkSession", plans: Plans) -> None:
    """The sink holds the rows of these epochs. Raises what the product raises; BackfillError where it refuses."""
    job_config = from_stored(json.dumps(config))
    with closing(job_config.open_upstream()) as upstream:
        upstream.use(lambda: spark)
        pin = upstream.pin()
        sinking = Sinking(job_config, spark, upstream, pin, SparkStager(lambda: spark, upstream, job_config))
        for plan in plans(upstream, pin):
            sinking.commit(plan)
    shutil.rmtree(job_config.job.staging, ignore_errors=True)


def spooled(config: Config, spark: "SparkSession", plans: Plans) -> None:
    """As `loaded`, each window an entry of a spool; entries are drained together, up to a change of columns."""
    job_config = from_stored(json.dumps(config))
    root = f"{job_config.job.staging}-spool"
    spool = Spool(root, job_config.job.name, "oracle")
    spool.open()
    with closing(job_config.open_upstream()) as upstream:
        pin = upstream.pin()
        held = SimpleNamespace(entries=())
        facade = SpooledUpstream(upstream, upstream, held, spool)  # type: ignore[arg-type]
        stager = SparkStager(lambda: spark, facade, job_config)
        sinking = Sinking(job_config, spark, facade, pin, stager)  # type: ignore[arg-type]
        schemas = dict(pin.schema)
        for number, plan in enumerate(plans(upstream, pin), 1):
            if plan.window is None:
                sinking.commit(plan)
                continue
            if plan.window.schema:
                sinking.drain(held)
            entry = SpoolEntry(number, f"{number:012x}", plan.window, {})
            taken = take(spark, upstream, job_config, plan.window, schemas, spool.place(entry.name))
            schemas = evolved(schemas, taken.schemas)
            held.entries = (*held.entries, spool.seal(replace(entry, window=taken.window, tables=taken.tables)))
        sinking.drain(held)
    for folder in (root, job_config.job.staging):
        shutil.rmtree(folder, ignore_errors=True)


class Sinking:
    """Epochs of a job, staged and committed one after the other."""

    def __init__(
        self, config: JobConfig, spark: "SparkSession", upstream: Source, pin: Pin, stager: SparkStager
    ) -> None:
        self.stager, self.epoch, self.schemas = stager, 0, dict(pin.schema)
        tables = sink_tables(config, lambda: spark, upstream, pin, plain=True)
        self.sink, self.job = config.open_sink(), Job(config.job.name, 1, tables, "{}")
        self.sink.use(lambda: spark)
        self.sink.prepare(self.job.name, tables, into_existing=False)
        self.tables = tables

    def commit(self, plan: EpochPlan) -> None:
        before, self.epoch = self.epoch, self.epoch + 1
        done = self.stager.stage(plan, self.epoch, self.schemas)
        self.schemas = dict(done.schemas)
        checkpoint = Checkpoint(
            self.epoch, before, self.job.token, done.staged.attempt, "{}", Phase.SNAPSHOT, START,
            plan=plan, staged=done.staged, schemas=done.schemas, sink_schemas=done.sink_schemas,
        )  # fmt: skip
        made = commit_of(self.job, checkpoint, before, self.stager)
        if made.tables != self.tables:
            self.sink.prepare(self.job.name, made.tables, into_existing=True)
            self.tables = made.tables
        self.sink.commit(made)
        self.stager.discard(self.epoch, done.staged.attempt)

    def drain(self, held: SimpleNamespace) -> None:
        """All entries in one epoch; then there are none."""
        if held.entries:
            first, last = held.entries[0].window, held.entries[-1].window
            window = replace(last, after=first.after, schema=first.schema)
            self.commit(EpochPlan(window=window, spooled=True))
        held.entries = ()


def whole(upstream: Source, pin: Pin) -> Iterable[EpochPlan]:
    """One epoch: every split, from its begin to its end."""
    yield EpochPlan(reads=reads_of(pin), closes_snapshot=("t",))


def reads_of(pin: Pin) -> tuple[SnapshotRead, ...]:
    return tuple(
        SnapshotRead(s.table, s.id)
        if s.first is None or s.rows is None
        # a partition, up to where its history ends
        else SnapshotRead(s.table, s.id, s.first, s.first + s.rows)
        for s in pin.splits
    )
