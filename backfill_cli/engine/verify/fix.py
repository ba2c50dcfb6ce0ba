"""`backfill verify --fix`: makes the sink equal to the upstream, as one epoch of the job that keeps its position.

Meanwhile this process is the job's runner: it takes lock and lease, fences, keeps an earlier promise, and compares
at the checkpoint, which nobody else can move. The rows that make the sink equal are staged as net changes, the
epoch is prepared, and `recover` keeps that promise like any other. A fix that is interrupted leaves nothing but
files, or an epoch that the next runner applies.
"""

import shutil
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote

from pyspark.sql import DataFrame

from backfill_cli.catalog import Catalog, wall_clock_ms
from backfill_cli.catalog.lease import user
from backfill_cli.config import from_stored
from backfill_cli.contracts import JobDefinition, JobStore, SinkTable
from backfill_cli.engine.job.derived import prepare_derived
from backfill_cli.engine.job.fixable import why_not
from backfill_cli.engine.job.ownership import require_kept, start_over_named, take
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.loop.ports import Job, job_of
from backfill_cli.engine.loop.process import Heartbeat, Wake
from backfill_cli.engine.loop.recovery import recover
from backfill_cli.engine.staging.files import sync
from backfill_cli.engine.staging.stage import SparkStager
from backfill_cli.engine.verify.job import (
    Changes,
    Tell,
    Verification,
    config_of,
    history_named,
    noted,
    require_drained,
    require_known,
    verify,
)
from backfill_cli.engine.verify.progress import Steps
from backfill_cli.engine.verify.table import write_difference
from backfill_cli.errors import Held, UsageError, command
from backfill_cli.failpoint import hit
from backfill_cli.model.checkpoint import Checkpoint, Recovered
from backfill_cli.model.job import ENDED, Barrier, JobState, Mutations
from backfill_cli.model.plan import EpochPlan, Staged, StagedTable
from backfill_cli.model.verify import Asked, Fix, TableFix, VerifyReport
from backfill_cli.model.written import written

FIXED = "verify --fix"
"""The ledger's entry for such an epoch."""


def would_fix(job: str, catalog: Catalog, asked: Asked, tell: Tell) -> VerifyReport:
    """What `fix` would do; changes nothing. Raises the errors with which `fix` would refuse the job."""
    _require_fixable(job, catalog, asked)
    report = verify(job, catalog, asked=asked, tell=tell)
    return replace(report, fix=_of(report))


def fix(
    job: str, catalog: Catalog, asked: Asked, tell: Tell, before: Callable[[VerifyReport], None]
) -> VerifyReport:
    """The sink's rows equal the upstream's at the job's checkpoint; returns the report of a comparison afterwards.

    before: called with what was found and will be done, right before it is done. Raises Held while a runner has
    the job, UsageError if the upstream's rows at the checkpoint are not what the sink must hold.
    """
    definition = _require_fixable(job, catalog, asked)
    config = config_of(definition)
    with (
        catalog.lock_job(job) as lock,
        history_named(job),
        start_over_named(job, catalog),
        ExitStack() as opened,
    ):
        steps = Steps(job, tell, time.monotonic)
        resources = opened.enter_context(Resources(config, steps.doing))
        opened.enter_context(steps)  # it reads its progress from Spark, so it ends first
        require_drained(definition, catalog, False)
        require_kept(job, catalog, resources.sink)
        with catalog.claim(job, user(), wall_clock_ms(), lock) as claim:
            limit_ms = int(config.retry.limit_s * 1000)
            heartbeat = Heartbeat(job, lambda: claim.store.heartbeat(wall_clock_ms(), None), limit_ms, Wake())
            with heartbeat:
                held = resources.with_retries(lambda: require_kept(job, catalog, resources.sink))
                verification = Verification.of(definition, config, resources, False, asked, steps)
                resources.with_retries(lambda: take(job, catalog, resources.sink, held))
                stager = SparkStager(lambda: resources.spark, resources.upstream, config)
                runner = job_of(definition, claim.token)
                fixing = _Fixing(runner, definition, claim.store, resources, stager, heartbeat)
                # Noted before it is fixed, too: `status` is right after a kill.
                report = fixing.done(verification, lambda found: before(noted(found, catalog)))
            _leave(claim.store, catalog.job(job).state)
    return noted(report, catalog)


def _require_fixable(job: str, catalog: Catalog, asked: Asked) -> JobDefinition:
    """The job's definition. Raises Held, Transient, UsageError: see `fix`."""
    definition = catalog.definition(job)
    require_known(definition, asked)
    if catalog.job(job).live:
        again = " ".join(["verify", job, *(f"--table {quote(name)}" for name in asked.tables), "--fix"])
        raise Held(
            f"job {job!r} has a runner, whose next commits would conflict with a fix",
            command(f"stop {job} --wait", again, f"resume {job}"),
        )
    require_drained(definition, catalog, False)
    with Resources(from_stored(definition.config)) as resources:
        saved = resources.sink.saved(job)
    if saved is not None:
        _refuse(definition, saved.checkpoint, asked)
    return definition


def _leave(store: JobStore, state: JobState) -> None:
    """A job whose runner died is left stopped."""
    if state not in ENDED:
        for then in (JobState.STARTING, JobState.STOPPING, JobState.STOPPED):
            store.become(then, FIXED)


def _refuse(definition: JobDefinition, at: Checkpoint, asked: Asked) -> None:
    """Raises UsageError if this part of the job cannot be fixed at this checkpoint."""
    found = why_not(definition, at, asked.tables)
    if found is not None:
        why, instead = found
        raise UsageError(f"job {definition.name!r} cannot be fixed now: {why}", instead)


def _of(report: VerifyReport, epoch: int | None = None) -> Fix:
    return Fix(
        tuple(
            TableFix(one.table, one.target, one.missing, one.changed, one.extra, one.gone)
            for one in report.tables
            if not one.equal
        ),
        epoch,
    )


@dataclass(frozen=True)
class _Fixing:
    """A job that this process has claimed, from its recovery to the comparison after the fix."""

    job: Job
    definition: JobDefinition
    store: JobStore
    resources: Resources
    stager: SparkStager
    heartbeat: Heartbeat

    def done(self, verification: Verification, before: Callable[[VerifyReport], None]) -> VerifyReport:
        began_s = time.monotonic()
        promised = self.resources.with_retries(self.store.load)
        if promised.prepared is not None:
            self._prepare(promised.committed)
        recovered = self._recovered("recovered")
        at = recovered.committed
        _refuse(self.definition, at, verification.asked)
        epoch = Barrier.next(recovered.last_epoch, wall_clock_ms(), Mutations(recovered.control))
        stage = _Stage(lambda attempt: Path(self.stager.folder(epoch.epoch, attempt)))
        try:
            found = verification.report(stage.begun)
            if found.equal:
                return replace(found, fix=Fix(()))
            stage.folder.mkdir(parents=True, exist_ok=True)  # nothing is staged for derived tables
            sync(stage.folder)
            hit("fix-staged")
            before(replace(found, fix=_of(found)))
            self._prepare(at)  # once compared: it marks what somebody has dropped as not filled
            self._renew(found)
            self._commit(at, epoch, stage, found)
        finally:
            if not stage.promised:
                stage.remove()
        after = verification.report()
        return replace(after, fix=_of(found, epoch.epoch), seconds=time.monotonic() - began_s)

    def _prepare(self, committed: Checkpoint) -> None:
        """The sink can keep the derived tables: the next commit fills those that somebody has dropped."""
        prepare_derived(self.definition, committed.sink_schemas, self.resources)

    def _recovered(self, what: str) -> Recovered:
        """Keeps any outstanding promise: the sink has the epoch afterwards. what: for the ledger."""
        sink, now_ms = self.resources.sink, wall_clock_ms
        return self.resources.with_retries(
            lambda: recover(self.job, self.store, sink, self.stager, now_ms(), what)
        )

    def _renew(self, found: VerifyReport) -> None:
        """The commit that follows fills derived tables that differ anew, and so would any other."""
        different = {one.table for one in found.tables if one.derived and not (one.equal or one.gone)}
        if different:
            derives = self.resources.sink.extras.derives
            assert derives is not None
            derives.renew(self.job.name, [one for one in self.job.derived if one.name in different])
            hit("fix-renewed")

    def _commit(self, at: Checkpoint, epoch: Barrier, stage: "_Stage", found: VerifyReport) -> None:
        """Puts the staged changes into the sink: an epoch like any other, with the state and position of `at`."""
        self.heartbeat.check()
        assert found.epoch == at.epoch, "nobody else commits while the job is ours"
        prepared = replace(
            at,
            epoch=epoch.epoch,
            prev_ms=epoch.prev_ms,
            token=self.job.token,
            attempt=stage.attempt,
            splits={},
            joined=(),
            plan=EpochPlan(),
            staged=Staged(stage.attempt, stage.tables),
            written=written(at.written, stage.tables, at.phase),
        )
        stage.promised = True
        self.store.prepare(prepared, None, None)
        hit("fix-prepared")
        self._recovered(FIXED)


@dataclass
class _Stage:
    """The net changes of the last attempt, in files that are kept once an epoch is promised of them.

    folder_of: where an attempt's files are.
    """

    folder_of: Callable[[str], Path]
    attempt: str = ""
    tables: dict[str, StagedTable] = field(default_factory=dict)
    promised: bool = False

    @property
    def folder(self) -> Path:
        return self.folder_of(self.attempt)

    def begun(self) -> Changes:
        """Begins another attempt; the files of the previous one are removed."""
        self.remove()
        self.attempt, self.tables = uuid.uuid4().hex[:12], {}
        return self._take

    def remove(self) -> None:
        if self.attempt:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _take(self, table: SinkTable, changes: DataFrame) -> None:
        path = self.folder / table.name / "changes"
        self.tables[table.name], _ = write_difference(changes, table, path, self.folder)
