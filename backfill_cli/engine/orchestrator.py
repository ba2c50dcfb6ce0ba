"""The barrier loop: start reading here.

Each `step` does what can be done now and says what it waits for; it never sleeps. One barrier is: commands act →
observe → plan (pure) → stage (Spark) → advance (pure) → prepare (catalog) → commit (sink, in the background)
→ mark. While the sink commits epoch n, n+1 may be staged, never further ahead; n+1 is prepared only once n is
committed.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from backfill_cli.contracts import EpochCommit, JobStore, SavedJob, Sink, SinkTable, Upstream
from backfill_cli.engine.report import Meter
from backfill_cli.errors import Transient
from backfill_cli.failpoint import hit
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Progress, Recovered
from backfill_cli.model.job import Barrier, Command, Control, JobState, Mutations, Phase, apply_command
from backfill_cli.model.pace import Backoff, Budget, Sizer
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.strategies import Strategy

SELF_PAUSED_AFTER = 6  # times the longer of interval and target without a barrier


class Stager(Protocol):
    """Turns a plan into durable files under one attempt id. The engine's uses Spark, the simulation's lists."""

    def stage(self, plan: EpochPlan, epoch: int, schemas: Mapping[str, str]) -> "StagedEpoch":
        """Write the epoch's rows once, durably. Raises Transient or Fatal; nothing of it is used then."""
        ...

    def folder(self, epoch: int, attempt: str) -> str:
        """Where an attempt's files are."""
        ...

    def intact(self, epoch: int, staged: Staged) -> bool:
        """Whether every staged file is still there, with its size."""
        ...

    def discard(self, epoch: int, attempt: str) -> None:
        """Remove an attempt's files: committed, or thrown away."""
        ...


@dataclass(frozen=True, slots=True)
class StagedEpoch:
    """schemas, sink_schemas: table -> Spark schema as JSON as of this epoch, before and after the transform."""

    staged: Staged
    schemas: Mapping[str, str]
    sink_schemas: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Settings:
    """interval_ms: between barriers at least. target_ms: what an epoch should take. retry_limit_ms: of transient
    failures in a row. until: 'caught-up' or 'forever'."""

    interval_ms: int
    target_ms: int
    retry_limit_ms: int
    until: str


@dataclass(frozen=True, slots=True)
class Job:
    """What never changes while a runner holds the job. definition: JSON that the sink keeps (see SavedJob)."""

    name: str
    token: int
    tables: tuple[SinkTable, ...]
    definition: str


@dataclass(frozen=True, slots=True)
class Ports:
    """The world outside, each part replaceable: the simulation brings its own.

    commit: runs a function in the background. now_ms: physical time.
    """

    upstream: Upstream
    sink: Sink
    store: JobStore
    stager: Stager
    commit: Callable[[Callable[[], None]], "Future[None]"]
    now_ms: Callable[[], int]


class Tick(StrEnum):
    WORKED = "worked"
    WAITING = "waiting"
    IDLE = "idle"
    STOPPED = "stopped"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class _Epoch:
    """An epoch between its staging and its mark."""

    checkpoint: Checkpoint
    plan: EpochPlan
    record: EpochRecord
    state: Any
    schema_changed: bool


class Orchestrator:
    """One runner of one job. `step` until it says STOPPED or DONE; an exception ends the run."""

    def __init__(
        self, job: Job, ports: Ports, strategy: Strategy, settings: Settings, start: Recovered, meter: Meter
    ) -> None:
        self._job = job
        self._ports = ports
        self._strategy = strategy
        self._settings = settings
        self._meter = meter
        committed = start.committed
        self.state: Any = strategy.thaw(committed.state, committed.splits, start.control)
        self._schemas = committed.schemas
        self._sink_schemas = committed.sink_schemas
        self._committed_epoch = committed.epoch
        self._last_epoch = start.last_epoch
        self._job_state = JobState.PAUSED if start.control.paused else JobState.RUNNING
        self._ahead: _Epoch | None = None  # staged, not yet prepared
        self._flight: _Epoch | None = None  # prepared, the sink may be committing it
        self._commit: Future[None] | None = None
        self._unmarked: EpochRecord | None = None  # committed, the catalog does not say so yet
        self._snapshot_size, self._log_size = Sizer(), Sizer()
        self._commit_ms = 0
        self._behind = True
        self._barrier_ms = 0  # when one was looked for last
        self._passed_ms = 0  # when one passed last: with rows, or idle and with no epoch in flight
        self._committed_state = self.state
        self._backoff = Backoff()
        self._stop_asked = False
        self._caught_up_ms: int | None = None

    # -- what the runner around it uses --------------------------------------------------------------------------

    def ask_stop(self) -> None:
        """A signal came: no new barrier; what was staged is still committed."""
        self._stop_asked = True

    def progress(self) -> Progress:
        """The numbers for people: what the sink holds, under the control in force."""
        state = replace(self._committed_state, control=self.state.control)
        return self._meter.progress(state, self._committed_epoch, self.waiting_for(), self._caught_up_ms)

    def waiting_for(self) -> str | None:
        """What holds the loop up now, None for nothing."""
        silent_ms = self._ports.now_ms() - self._passed_ms
        patience_ms = SELF_PAUSED_AFTER * max(self._settings.interval_ms, self._settings.target_ms)
        if self._passed_ms and silent_ms > patience_ms and self._flight is not None:
            reason = self._backoff.reason or f"the sink to commit epoch {self._flight.checkpoint.epoch}"
            return f"self-paused, no barrier for {silent_ms / 1000:.0f} s: {reason}"
        return self._backoff.reason

    def step(self) -> Tick:
        """Do what can be done now. A transient failure waits its backoff, up to the limit."""
        now_ms = self._ports.now_ms()
        try:
            if now_ms < self._backoff.until_ms:
                return self._control_alone(now_ms)
            return self._step(now_ms)
        except Transient as exc:
            self._backoff = self._backoff.failed(now_ms, exc.waits_for)
            if self._backoff.spent(now_ms, self._settings.retry_limit_ms):
                raise
            return Tick.WAITING

    def wait_ms(self) -> int:
        """How long nothing will happen, at most: until the next barrier, or the next try."""
        now_ms = self._ports.now_ms()
        if self._backoff.until_ms > now_ms:
            return min(self._backoff.until_ms - now_ms, self._settings.interval_ms)
        return max(0, self._barrier_ms + self._settings.interval_ms - now_ms)

    def committing(self) -> "Future[None] | None":
        """The commit under way, for a runner that would rather wait for it than ask again."""
        return self._commit

    # -- one step ------------------------------------------------------------------------------------------------

    def _step(self, now_ms: int) -> Tick:
        self._settle()
        if self._ahead is None:
            tick = self._barrier(now_ms)
            if tick is not None:
                return tick
        if self._flight is not None:
            return Tick.WAITING
        self._prepare()
        return Tick.WORKED

    def _control_alone(self, now_ms: int) -> Tick:
        """While a failure waits for its next try, commands act all the same: nothing is read meanwhile."""
        commands = self._ports.store.commands()
        if commands:
            self._throw_away()
            self._take(self._next(commands, now_ms))
        return Tick.STOPPED if self._stop_wanted() else Tick.WAITING

    def _throw_away(self) -> None:
        """What was read ahead was read under the control before: it is planned anew."""
        if self._ahead is not None:
            self._ports.stager.discard(self._ahead.checkpoint.epoch, self._ahead.checkpoint.attempt)
            self._ahead = None

    def heartbeat(self) -> None:
        """Renew the lease and the numbers for people; called from a thread of its own, every 10 s."""
        self._ports.store.heartbeat(self._ports.now_ms(), self.progress())

    def _settle(self) -> None:
        """Take the result of the commit under way; start it again when it failed in passing."""
        flight = self._flight
        if flight is None:
            return
        if self._commit is None:
            self._commit = self._ports.commit(lambda: self._apply(flight))
        if not self._commit.done():
            return
        commit, self._commit = self._commit, None
        commit.result()
        hit("commit-known")
        self._backoff = Backoff()
        self._flight = None
        self._committed_epoch = flight.checkpoint.epoch
        self._committed_state = flight.state
        committed_ms = self._ports.now_ms()
        self._unmarked = replace(flight.record, committed_ms=committed_ms, commit_ms=self._commit_ms)
        self._meter.committed(self._unmarked)
        self._note_caught_up(flight.state, flight.plan)
        self._ports.upstream.acknowledge(flight.checkpoint.position)
        self._ports.stager.discard(flight.checkpoint.epoch, flight.checkpoint.attempt)

    def _apply(self, flight: _Epoch) -> None:
        """Commit one prepared epoch (in the background)."""
        began_ms = self._ports.now_ms()
        commit = commit_of(self._job, flight.checkpoint, self._committed_epoch, self._ports.stager)
        if flight.schema_changed:
            self._ports.sink.prepare(self._job.name, commit.tables, into_existing=True)
        hit("before-commit")
        self._ports.sink.commit(commit)
        hit("after-commit")
        self._commit_ms = self._ports.now_ms() - began_ms

    def _barrier(self, now_ms: int) -> Tick | None:
        """Begin the next barrier if it is time: None once an epoch is staged, else what is waited for."""
        if not self._behind and now_ms - self._barrier_ms < self._settings.interval_ms and not self._stop_asked:
            return Tick.IDLE if self._flight is None else Tick.WAITING
        commands = self._ports.store.commands()
        if (commands or self._stop_asked) and self._flight is not None:
            return Tick.WAITING  # control acts once the epoch in flight is known to be committed
        barrier = self._next(commands, now_ms)
        if commands:
            self._take(barrier)
        if self._stop_wanted():
            self._mark()
            return Tick.STOPPED
        if self._is_done() and self._flight is None:
            self._mark()
            return Tick.DONE
        self._barrier_ms = now_ms
        return self._read(barrier)

    def _next(self, commands: tuple[Command, ...], now_ms: int) -> Barrier:
        control: Control = self.state.control
        for command in commands:
            control = apply_command(control, command, now_ms)
        return Barrier.next(self._last_epoch, now_ms, Mutations(control, commands))

    def _take(self, barrier: Barrier) -> None:
        """The barrier's commands act from here on, and the catalog knows it first."""
        control = barrier.mutations.control
        verbs = ", ".join(c.verb for c in barrier.mutations.commands)
        phase: Phase = self.state.phase
        record = EpochRecord(barrier.epoch, barrier.prev_ms, phase, barrier.epoch, mutations=verbs)
        self._mark()
        if control.stop:
            self._job_state = JobState.STOPPING
        else:
            self._job_state = JobState.PAUSED if control.paused else JobState.RUNNING
        self._ports.store.take(barrier.mutations.commands, control, self._job_state, record)
        hit("after-take")
        self.state = self._strategy.apply(self.state, barrier.mutations)
        self._last_epoch = barrier.epoch

    def _stop_wanted(self) -> bool:
        return self._stop_asked or self.state.control.stop

    def _read(self, barrier: Barrier) -> Tick | None:
        """Observe, plan and stage one epoch."""
        snapshot_open = self.state.phase == Phase.SNAPSHOT
        view = self._ports.upstream.observe(self.state.position, snapshot_open)
        size = self._snapshot_size if snapshot_open else self._log_size
        budget = Budget(barrier.epoch, size.rows, self._settings.interval_ms)
        plan = self._strategy.plan(self.state, view, budget)
        self._meter.observed(plan, self._ports.now_ms())
        if not plan:
            return self._idle(plan, budget)
        began_ms = self._ports.now_ms()
        done = self._ports.stager.stage(plan, barrier.epoch, self._schemas)
        hit("after-stage")
        stage_ms = self._ports.now_ms() - began_ms
        self._resize(snapshot_open, done.staged, stage_ms)
        self._ahead = self._epoch(barrier, plan, done, budget, stage_ms)
        self._passed_ms = self._barrier_ms
        self._backoff = Backoff() if self._flight is None else self._backoff
        return None

    def _idle(self, plan: EpochPlan, budget: Budget) -> Tick:
        """A barrier without rows carries only control: no Spark, no database, unless a mark is still owed."""
        if self._flight is not None:
            return Tick.WAITING
        self.state = self._strategy.advance(self.state, plan, None, budget)
        self._behind = False
        self._passed_ms = self._barrier_ms
        self._backoff = Backoff()
        self._note_caught_up(self.state, plan)
        self._mark()
        return Tick.DONE if self._is_done() else Tick.IDLE

    def _note_caught_up(self, state: Any, plan: EpochPlan) -> None:
        """Caught up from the first barrier of the upstream phase that leaves nothing pending, nor converging."""
        live = state.phase == Phase.UPSTREAM and not state.control.paused
        if live and plan.pending_after == 0 and not state.converging and self._caught_up_ms is None:
            self._caught_up_ms = self._ports.now_ms()
            self.heartbeat()

    def _is_done(self) -> bool:
        return (
            self._settings.until == "caught-up"
            and self._caught_up_ms is not None
            and not self.state.control.paused
        )

    def _resize(self, snapshot: bool, staged: Staged, stage_ms: int) -> None:
        took_ms = max(stage_ms, self._commit_ms)
        if snapshot:
            read = sum(rows for _, rows in staged.reads)
            if self.state.control.rate is None:
                self._snapshot_size = self._snapshot_size.after(read, took_ms, self._settings.target_ms)
        else:
            self._log_size = self._log_size.after(staged.changes_read, took_ms, self._settings.target_ms)

    def _epoch(
        self, barrier: Barrier, plan: EpochPlan, done: StagedEpoch, budget: Budget, stage_ms: int
    ) -> _Epoch:
        """The checkpoint that this barrier will commit, and its line of the ledger."""
        before = self.state
        state = self._strategy.advance(before, plan, done.staged, budget)
        changed = {key: p for key, p in state.splits.items() if before.splits.get(key) is not p}
        checkpoint = Checkpoint(
            epoch=barrier.epoch,
            prev_ms=barrier.prev_ms,
            token=self._job.token,
            attempt=done.staged.attempt,
            state=self._strategy.freeze(state),
            phase=state.phase,
            position=state.position,
            splits=changed,
            plan=plan,
            staged=done.staged,
            schemas=done.schemas,
            sink_schemas=done.sink_schemas,
        )
        record = EpochRecord(
            epoch=barrier.epoch,
            prev_ms=barrier.prev_ms,
            phase=before.phase,
            committed_ms=barrier.epoch,
            snapshot_rows=sum(rows for _, rows in done.staged.reads),
            changes_read=done.staged.changes_read,
            rows_written=done.staged.rows,
            upstream_epochs=plan.window.epochs if plan.window else 0,
            stage_ms=stage_ms,
            lag_ms=self._meter.lag_ms(plan, self._ports.now_ms()),
            pending_epochs=plan.pending_after,
            mutations=", ".join(c.verb for c in barrier.mutations.commands),
        )
        return _Epoch(checkpoint, plan, record, state, done.sink_schemas != self._sink_schemas)

    def _prepare(self) -> None:
        """Promise the staged epoch, then let the sink commit it."""
        ahead = self._ahead
        assert ahead is not None
        self._ports.store.prepare(ahead.checkpoint, self._unmarked, self.progress())
        self._unmarked = None
        self._flight, self._ahead = ahead, None
        self.state = ahead.state
        self._schemas, self._sink_schemas = ahead.checkpoint.schemas, ahead.checkpoint.sink_schemas
        self._last_epoch = ahead.checkpoint.epoch
        self._behind = self._more(ahead)
        hit("after-prepare")
        self._settle()

    def _more(self, epoch: _Epoch) -> bool:
        """Whether the next barrier need not wait for the interval."""
        if epoch.state.phase == Phase.SNAPSHOT:
            return epoch.state.control.rate is None
        return epoch.plan.pending_after > 0 or epoch.record.phase == Phase.SNAPSHOT

    def _mark(self) -> None:
        if self._unmarked is not None:
            self._ports.store.mark(self._unmarked, self.progress())
            self._unmarked = None
            hit("after-mark")


def commit_of(
    job: Job, checkpoint: Checkpoint, prev_epoch: int, stager: Stager, only: frozenset[str] | None = None
) -> EpochCommit:
    """What the sink is told of a prepared epoch: the same in the loop and in recovery."""
    assert checkpoint.plan is not None
    assert checkpoint.staged is not None
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
    )
