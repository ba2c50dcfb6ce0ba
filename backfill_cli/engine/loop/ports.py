"""What the loop works with: the job, its settings, and the world outside, each part replaceable.

Shared by the loop and by recovery, so that both apply an epoch in the same way.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Protocol

from backfill_cli.contracts import EpochCommit, JobDefinition, JobStore, SavedJob, Sink, SinkTable, Source, Stager
from backfill_cli.engine.loop.failures import Failures
from backfill_cli.errors import START_OVER, BackfillError, BadData, Hint, sql
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord
from backfill_cli.model.codec import encode
from backfill_cli.model.deadline import Deadline
from backfill_cli.model.derived import Derived
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.limit import Limit
from backfill_cli.model.plan import Staged
from backfill_cli.model.position import Position
from backfill_cli.model.refill import RefillPart, RefillProgress

REFILLED = "refilled"
FILLED = "filled"
"""The ledger's entry for an epoch that applied a part of a refill."""


class Spooling(Protocol):
    """Takes the upstream's log into a spool in parallel with the loop (strategy chain)."""

    @property
    def taken(self) -> Position:
        """The position up to which the log is in the spool: kept with each checkpoint, to detect a lost spool."""

    def enter(self, phase: Phase, position: Position, schemas: Mapping[str, str], takes: bool) -> None:
        """A barrier begins; called before the upstream is observed.

        schemas: in force at `position`, table -> Spark schema. takes: whether the log may be taken; if not, it
        waits with its owner.
        """


@dataclass(frozen=True, slots=True)
class RefillEpoch:
    """A part of a refill, staged for an epoch that reads nothing and moves no position."""

    part: RefillPart
    staged: Staged


class Refilling(Protocol):
    """Compares tables, or parts of them, beside the loop, and has what was found staged for a barrier."""

    @property
    def pending(self) -> bool:
        """Whether a refill has not ended."""
        ...

    @property
    def filling(self) -> tuple[str, ...]:
        """The tables all of whose rows a refill brings that has not ended."""
        ...

    @property
    def putting_back(self) -> bool:
        """Whether a table that was set aside is back, and not right before its refill is done."""
        ...

    def progress(self) -> RefillProgress | None:
        """The comparison that is under way, for display. Called by another thread."""
        ...

    def told(self) -> None:
        """A barrier took a command about refills."""
        ...

    def paced(self, control: Control) -> None:
        """A barrier took commands: what is read goes on at the rate that is in force now."""
        ...

    def ready(self, applied: Position) -> bool:
        """Whether `due` would find more than at the barrier before: the next need not wait for the interval."""
        ...

    def due(self, committed: Checkpoint, applied: Position, control: Control) -> bool:
        """Whether a part is to be applied now, on top of `committed`. Called at each barrier.

        applied: the sink has all changes up to here. That may be past its position: no changes are between them.
        """
        ...

    def stage(self, epoch: int, committed: Checkpoint) -> RefillEpoch | None:
        """That part; None if it could not be staged, which is not the job's failure."""
        ...

    def keep(self, checkpoint: Checkpoint) -> None:
        """This commit is in the sink, and its staged files are about to be removed."""
        ...

    def refused(self, error: BackfillError) -> None:
        """The sink refused a part for good, and its epoch was taken back."""
        ...


class NoRefills:
    """Of a job, or a simulation, without any."""

    pending = False
    filling = ()
    putting_back = False

    def progress(self) -> RefillProgress | None:
        return None

    def told(self) -> None: ...
    def paced(self, control: Control) -> None: ...
    def ready(self, applied: Position) -> bool:
        return False

    def due(self, committed: Checkpoint, applied: Position, control: Control) -> bool:
        return False

    def stage(self, epoch: int, committed: Checkpoint) -> RefillEpoch | None:
        return None

    def keep(self, checkpoint: Checkpoint) -> None: ...
    def refused(self, error: BackfillError) -> None: ...


@dataclass(frozen=True, slots=True)
class Settings:
    """interval_ms: minimum time between barriers. target_ms: what an epoch should take. retry_limit_ms: for
    consecutive transient failures. until: 'caught-up' or 'forever'. deadline: of the snapshot. fill_rows: see
    `EpochCommit`."""

    interval_ms: int
    target_ms: int
    retry_limit_ms: int
    until: str
    deadline: Deadline | None = None
    fill_rows: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """What never changes while a runner holds the job. definition: JSON that the sink keeps (see SavedJob).

    aside: tables that are set aside or being put back: it keeps their rates, and its sink may have lost one.
    derived: its derived tables. beside: the sink's tables of those that are set aside, which these may read.
    """

    name: str
    token: int
    tables: tuple[SinkTable, ...]
    definition: str
    aside: tuple[str, ...] = ()
    derived: tuple[Derived, ...] = ()
    beside: tuple[SinkTable, ...] = ()


def job_of(definition: JobDefinition, token: int) -> Job:
    """The job for a runner with this token."""
    aside = tuple(one.table for one in definition.aside)
    derived, beside = definition.derived, definition.beside
    return Job(definition.name, token, definition.tables, encode(definition), aside, derived, beside)


@dataclass(frozen=True, slots=True)
class Ports:
    """The world outside, each part replaceable: the simulation brings its own.

    spool: for strategy chain only. commit: runs a function in the background. now_ms: time of day, which can be
    set; used for epoch numbers and display. steady_ms: milliseconds of a clock that only moves forward, for
    intervals, backoff and timeouts. failures: of the whole run. tell: what people should know and ends nothing.
    """

    upstream: Source
    sink: Sink
    store: JobStore
    stager: Stager
    spool: Spooling | None
    commit: Callable[[Callable[[], None]], "Future[None]"]
    now_ms: Callable[[], int]
    steady_ms: Callable[[], int]
    refills: Refilling = field(default_factory=NoRefills)
    failures: Failures = field(default_factory=Failures)
    tell: Callable[[Limit], None] = lambda _said: None


def record_of(
    checkpoint: Checkpoint, tables: Iterable[SinkTable], phase: Phase, committed_ms: int, mutations: str
) -> EpochRecord:
    """The ledger's line for a staged epoch, without how long it took. phase: the one in which it was read.

    tables: the sink's; rows that go to side tables are not counted as written.
    """
    plan, staged = checkpoint.plan, checkpoint.staged
    assert plan is not None
    assert staged is not None
    side = {table.name for table in tables if table.side}
    written = replace(staged, tables={name: one for name, one in staged.tables.items() if name not in side})
    return EpochRecord(
        epoch=checkpoint.epoch,
        prev_ms=checkpoint.prev_ms,
        phase=phase,
        committed_ms=committed_ms,
        snapshot_rows=sum(rows for _, rows in staged.reads),
        changes_read=staged.changes_read,
        rows_written=written.rows,
        upstream_epochs=plan.window.epochs if plan.window else 0,
        pending_epochs=plan.pending_after,
        mutations=mutations,
        rows_inserted=written.inserted,
        rows_upserted=written.upserted,
        rows_deleted=written.deleted,
    )


def require_takers(tables: Iterable[SinkTable], staged: Staged) -> None:
    """Each staged table is one that the sink writes. Raises AssertionError: rows of any other would be lost."""
    lost = staged.tables.keys() - {table.name for table in tables}
    if lost:
        raise AssertionError(
            f"rows were staged for {', '.join(sorted(lost))}, which is no table of this job's sink"
        )


def require_taken(sink: Sink, staged: Staged) -> None:
    """The sink takes what was staged: rows that lack columns, truncates. Raises BadData naming the table.

    What a job's samples show is refused at its start; this is what only a later change shows.
    """
    for name, one in staged.tables.items():
        if (one.partial or one.truncated) and not sink.capabilities.partial:
            what = (
                f"changes leave out the value of {', '.join(one.partial)}, which did not change, but the sink "
                "writes whole rows"
                if one.partial
                else "it was truncated, which the sink cannot apply"
            )
            way = sql(f"ALTER TABLE {name} REPLICA IDENTITY FULL") + "; then " if one.partial else Hint()
            raise BadData(f"table {name!r}: {what}", way + START_OVER).of(name)


def commit_of(
    job: Job,
    checkpoint: Checkpoint,
    prev_epoch: int,
    stager: Stager,
    only: frozenset[str] | None = None,
    fill_rows: int | None = None,
) -> EpochCommit:
    """What the sink receives for a prepared epoch: the same in the loop and in recovery, but for `fill_rows`."""
    assert checkpoint.plan is not None
    assert checkpoint.staged is not None
    require_takers(job.tables, checkpoint.staged)
    tables = tuple(replace(t, schema=checkpoint.sink_schemas.get(t.name, t.schema)) for t in job.tables)
    return EpochCommit(
        job=job.name,
        epoch=checkpoint.epoch,
        prev_epoch=prev_epoch,
        token=job.token,
        attempt=checkpoint.attempt,
        tables=tables,
        folder=stager.folder(checkpoint.epoch, checkpoint.attempt),
        staged=checkpoint.staged,
        unique=checkpoint.plan.closes_snapshot,
        saved=SavedJob(job.definition, checkpoint),
        only=only,
        converging=checkpoint.plan.converging,
        filling=frozenset(checkpoint.plan.filling),
        derived=job.derived,
        aside=job.beside,
        fill_rows=fill_rows,
    )
