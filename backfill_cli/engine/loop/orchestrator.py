"""The barrier loop: start reading here.

Each `step` does what can be done now and says what it waits for; it never sleeps. One barrier is: commands act →
observe → plan (pure) → stage (Spark) → advance (pure) → prepare (catalog) → commit (sink, in the background)
→ mark. While the sink commits epoch n, n+1 can be staged if the job is behind, but none further ahead; n+1 is
prepared only once n is committed.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from enum import StrEnum
from typing import Generic
from uuid import uuid4

from backfill_cli.contracts import StagedEpoch
from backfill_cli.engine.loop.epoch import Epoch, Flight, leaves_more, left_of, quarantined, spelled
from backfill_cli.engine.loop.fills import Fills
from backfill_cli.engine.loop.finishing import Finishing
from backfill_cli.engine.loop.meter import InHand, Meter
from backfill_cli.engine.loop.pace import CaughtUp, Rhythm, Sizes
from backfill_cli.engine.loop.ports import (
    FILLED,
    REFILLED,
    Job,
    Ports,
    Settings,
    record_of,
    require_taken,
    require_takers,
)
from backfill_cli.errors import Interrupted, Transient
from backfill_cli.failpoint import hit
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Progress, Recovered
from backfill_cli.model.committing import Committing
from backfill_cli.model.headroom import Headroom, Unread
from backfill_cli.model.job import (
    OF_REFILLS,
    Barrier,
    Command,
    JobState,
    Mutations,
    Phase,
    reads_less,
    until_redefined,
)
from backfill_cli.model.limit import Limit
from backfill_cli.model.pace import Backoff, Budget
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.position import START
from backfill_cli.model.skipped import added
from backfill_cli.model.units import spell_duration
from backfill_cli.model.written import written
from backfill_cli.strategies import S, Strategy


class Tick(StrEnum):
    WORKED = "worked"
    WAITING = "waiting"
    IDLE = "idle"
    STOPPED = "stopped"
    DONE = "done"
    REDEFINED = "redefined"


class Orchestrator(Generic[S]):
    """One runner of one job, under one definition of it.

    Call `step` until it returns STOPPED, DONE or REDEFINED; an exception ends the run. REDEFINED: a command of the
    inbox, which is left there, changes what the job is, and nothing is in flight.
    """

    def __init__(
        self,
        job: Job,
        ports: Ports,
        strategy: Strategy[S],
        settings: Settings,
        start: Recovered,
        meter: Meter,
        unfilled: Sequence[str] = (),
    ) -> None:
        self._job = job
        self._ports = ports
        self._strategy = strategy
        self._settings = settings
        self._meter = meter
        committed = start.committed
        self.state: S = strategy.thaw(committed.state, committed.splits, start.control)
        self._schemas = committed.schemas
        self._last_epoch = start.last_epoch
        self._job_state = JobState.PAUSED if start.control.paused else JobState.RUNNING
        self._ahead: Epoch[S] | None = None  # staged, not yet prepared
        tried = unfilled if committed.phase != Phase.SNAPSHOT else ()
        self._flight: Flight[S] = Flight(job, ports, committed.sink_schemas, unfilled, tried)
        self._unmarked: EpochRecord | None = None  # committed, not yet marked in the catalog
        self._sizes = Sizes.of(settings.target_ms, ports.sink.capabilities.transactional)
        self._rhythm = Rhythm(settings.interval_ms, settings.target_ms)
        self._caught_up = CaughtUp(settings.until, ports.now_ms)
        self._committed_state = self.state
        self._promised = self._committed = committed
        self._applied = committed.position  # or past that: no changes are in between
        self._backoff = Backoff()
        self._opening = False  # whether the stager was still starting when it was last needed
        self._stop_asked = False
        self._redefines: Command | None = None  # what is to redefine the job, once nothing is in flight
        self._headroom: Headroom | None = None
        self._finishing = Finishing(settings.deadline)
        self._fills = Fills(settings.fill_rows, self._flight.filling)

    # -- what the runner around it uses --------------------------------------------------------------------------

    def ask_stop(self) -> None:
        """A signal came: no new barrier; what is being staged is given up, what is prepared still committed."""
        self._stop_asked = True

    def progress(self) -> Progress:
        """The numbers for display: what the sink holds, under the control in force."""
        strategy, steady_ms, at_ms = self._strategy, self._ports.steady_ms(), self._caught_up.at_ms
        state = strategy.apply(self._committed_state, Mutations(self.state.control))
        held, waits, in_hand = self._committed, self.waiting_for(), self._in_hand()
        stays = state.phase == Phase.LOG_STORE and self._sizes.not_converging
        outlook = self._finishing.outlook
        told = self._meter.progress(strategy, state, held.epoch, waits, at_ms, steady_ms, in_hand, stays, outlook)
        return replace(
            told,
            token=self._job.token,
            quarantined=held.quarantined,
            skipped=held.skipped,
            written=held.written,
            headroom=self._headroom,
            refill=self._ports.refills.progress(),
            failures=self._ports.failures.by_cause,
            unfilled=self._flight.unfilled,
            filling=self._flight.filling,
            uncomputed=self._flight.uncomputed,
            converging=told.converging or self._ports.refills.putting_back,
        )

    def unread(self) -> Unread:
        """What the job has not read yet, and nothing of ours holds. Called by another thread."""
        held, taken = self._committed, START if self._ports.spool is None else self._ports.spool.taken
        position = held.position if taken == START else taken
        oldest_ms = self._meter.oldest_ms
        return Unread(position, held.phase == Phase.SNAPSHOT, self._ports.now_ms(), oldest_ms)

    def keeps(self, headroom: Headroom | None) -> None:
        """How long the upstream keeps that, for display. Called by another thread."""
        self._headroom = headroom

    def _in_hand(self) -> InHand:
        """What was read and is not committed yet, for display: the loop's own thread may be changing it."""
        being_read, changes = self._ports.stager.so_far()
        rows = being_read
        for epoch in (self._ahead, self._flight.epoch):
            if epoch is not None:
                rows, changes = rows + epoch.record.snapshot_rows, changes + epoch.record.changes_read
        return InHand(rows, changes, being_read)

    @property
    def caught_up(self) -> bool:
        """Whether the job had caught up at some point in this run."""
        return self._caught_up.at_ms is not None

    @property
    def opening(self) -> bool:
        """Whether what is to be staged waits for the stager, which is starting."""
        return self._opening

    @property
    def recorded(self) -> int | None:
        """The last committed epoch once the catalog's ledger has it, None until then."""
        return self._committed.epoch if self._unmarked is None else None

    def waiting_for(self) -> Limit | None:
        """What holds the loop up now, None for nothing."""
        flight, silent_ms = self._flight, self._rhythm.silent_ms(self._ports.steady_ms(), self._flight.begun_ms)
        ended = flight.has_ended and self._backoff.reason is None  # while the next one was being read
        told = self._meter.where is not None and self._backoff.reason is None
        if flight.epoch is not None and silent_ms is not None and not (self._meter.is_busy or ended or told):
            committing = f"the sink is still writing commit {flight.epoch.checkpoint.epoch}"
            reason = self._backoff.reason or Limit(committing)
            return replace(reason, text=f"no commit for {spell_duration(silent_ms / 1000)}: {reason.text}")
        return self._backoff.reason

    def step(self) -> Tick:
        """Do what can be done now. A transient failure is retried after its backoff, up to the limit."""
        steady_ms = self._ports.steady_ms()
        try:
            if steady_ms < self._backoff.until_ms:
                return self._control_alone()
            return self._step(steady_ms)
        except Transient as exc:
            self._backoff = self._backoff.failed(steady_ms, Limit.cause(exc))
            if self._backoff.spent(steady_ms, self._settings.retry_limit_ms):
                raise
            self._ports.failures.count(exc)
            return Tick.WAITING

    def wait_ms(self) -> int:
        """How long nothing can happen, at most: until the next barrier, or the next retry."""
        if self._opening:  # its end wakes the loop
            return self._settings.interval_ms
        return self._rhythm.wait_ms(self._ports.steady_ms(), self._backoff.until_ms)

    def committing(self) -> "Future[None] | None":
        """The commit in progress, for a runner that would rather wait for it than poll."""
        return self._flight.committing

    # -- one step ------------------------------------------------------------------------------------------------

    def _step(self, steady_ms: int) -> Tick:
        self._settle()
        self._reach_pause()
        if self._opening and self._flight.epoch is None and self._opens():
            return self._control_alone()
        if self._ahead is None:
            tick = self._barrier(steady_ms)
            if tick is not None:
                return tick
        if self._flight.epoch is not None:
            if not self._flight.has_ended:
                self._take_early()
            return Tick.WAITING
        self._prepare()
        return Tick.WORKED

    def _time_of_day(self, steady_ms: int) -> int:
        """That moment by the time of day as it is set now; epoch numbers may differ if the clock was set back."""
        return self._ports.now_ms() - (self._ports.steady_ms() - steady_ms)

    def _control_alone(self) -> Tick:
        """Commands still act while a failure waits for its next retry, or Spark starts: nothing is read."""
        self._take_early()
        if self._stop_wanted():
            return Tick.STOPPED
        return Tick.REDEFINED if self._is_to_redefine() else Tick.WAITING

    def _is_to_redefine(self) -> bool:
        """Whether a command is to redefine the job now. A commit that has failed is kept as a promise is."""
        if self._redefines is None or self._flight.committing is not None:
            return False
        if self._flight.epoch is None:
            self._mark()
        return True

    def _opens(self) -> bool:
        """Whether the stager is still starting, which it does from now on."""
        what = self._ports.stager.awaited()
        self._meter.opening(what, self._ports.now_ms(), self._ports.steady_ms())
        self._opening = what is not None
        return self._opening

    def _take_early(self) -> None:
        """Commands act before what was read ahead is prepared: a commit can take many times the interval."""
        commands, self._redefines = until_redefined(self._ports.store.commands())
        if commands or self._redefines or self._stop_asked:
            self._throw_away()
        if commands:
            self._take(self._next(commands))

    def _reach_pause(self) -> None:
        """A pause that was taken while an epoch was prepared is reached once that epoch is committed."""
        if self._job_state == JobState.PAUSING and self._flight.epoch is None:
            held = self.state.control.pausing
            self._ports.store.become(JobState.PAUSED, "" if held is None else held.by)
            self._job_state = JobState.PAUSED

    def _throw_away(self) -> None:
        """Discards what was read ahead, under the previous control: it is planned again."""
        if self._ahead is not None:
            self._ports.stager.discard(self._ahead.checkpoint.epoch, self._ahead.checkpoint.attempt)
            self._ahead = None
            self._meter.discarded()

    def asked(self) -> bool:
        """Whether somebody has asked for the job's status since the last call."""
        return self._ports.store.asked()

    def heartbeat(self) -> None:
        """Renew the lease and the numbers for display. Raises Held when the lease is lost."""
        self._ports.store.heartbeat(self._ports.now_ms(), self.progress())

    def has_news(self) -> bool:
        """Whether a heartbeat before it is due would report something new. Called by another thread."""
        # while paused, no epoch reports it
        paused = self.state.control.paused and self._meter.lag_untold
        return paused or self._meter.untold(self._ports.steady_ms(), self._in_hand())

    def _settle(self) -> None:
        """Take the result of the running commit; start it again after a transient failure."""
        flight = self._flight.landed()
        if flight is None:
            return
        hit("commit-known")
        self._rhythm.landed()
        refills = flight.plan.refill is not None  # it says nothing of what is pending
        if not refills:
            self._sizes.committed(flight.record.phase, flight.checkpoint.staged, self._flight.commit_ms)
            self._sizes.left(flight.record.phase, flight.plan.left)
        self._backoff = Backoff()
        self._committed = flight.checkpoint
        self._committed_state = flight.state
        self._applied = self._applied.join(flight.state.position)
        committed_ms = self._ports.now_ms()
        record = replace(flight.record, committed_ms=committed_ms, commit_ms=self._flight.commit_ms)
        if flight.fills:
            filled = " and ".join(self._flight.filled) or "no derived table"
            record = replace(record, mutations=f"{FILLED} {filled}")
        self._unmarked = record
        kept_ms = self._flight.kept_ms
        self._meter.committed(self._unmarked, flight.barrier_ms, self._ports.steady_ms(), kept_ms)
        self._meter.landed()
        if not refills:
            self._settled(flight.state, flight.plan, flight.barrier_ms)
        self._fills.landed(self._flight.filling, self._ports.steady_ms())
        self._rhythm.behind |= self._fills_now
        self._ports.upstream.acknowledge(flight.state.position)
        self._ports.refills.keep(flight.checkpoint)
        self._ports.stager.discard(flight.checkpoint.epoch, flight.checkpoint.attempt)
        if refills:
            self._mark()  # somebody may wait for its end, and nothing need follow that would mark it

    def _barrier(self, steady_ms: int) -> Tick | None:
        """Begin the next barrier if it is due: None once an epoch is staged, otherwise what is waited for."""
        early = self._rhythm.is_early(steady_ms) and not self._ports.store.commands()
        if early and not self._ports.refills.ready(self._applied) and not self._stop_wanted():
            return Tick.IDLE if self._flight.epoch is None else Tick.WAITING
        commands, self._redefines = until_redefined(self._ports.store.commands())
        barrier = self._next(commands)
        if commands:
            self._take(barrier)  # even while the sink commits, or it would wait for two epochs
        if self._stop_wanted():
            if self._flight.epoch is not None:
                return Tick.WAITING
            self._mark()
            return Tick.STOPPED
        if self._redefines is not None:
            if self._flight.epoch is not None:
                return Tick.WAITING
            self._mark()
            return Tick.REDEFINED
        # Even if more has arrived since, or a busy upstream would keep the run going for ever.
        if self._ends():
            if self._flight.epoch is not None:
                return Tick.WAITING
            self._mark()
            return Tick.DONE
        self._rhythm.looked_ms = steady_ms
        if self._ports.refills.due(self._committed, self._applied, self.state.control):
            return self._refill(barrier, steady_ms)
        return self._read(barrier, steady_ms)

    def _ends(self) -> bool:
        """Whether the run is done: caught up, no refill is pending, and derived tables are filled."""
        left = self._ports.refills.pending or self._has_unfilled
        return self._caught_up.ends(self.state.control) and not left

    @property
    def _has_unfilled(self) -> bool:
        """Whether derived tables wait for further commits, and not for what corrects the rows that they read."""
        flight, derived = self._flight, self._job.derived
        begun = flight.filling or len(flight.unfilled) < len(derived)
        past = self._committed.epoch and (begun or self._committed.phase != Phase.SNAPSHOT)
        return bool(past and flight.unfilled and flight.uncomputed is None)

    @property
    def _fills_now(self) -> bool:
        """Whether a commit without rows is worth it, as it brings derived tables further."""
        return self._has_unfilled and self._fills.allowed(self.state.control, self._ports.steady_ms()) != 0

    def _next(self, commands: tuple[Command, ...]) -> Barrier:
        """The next barrier; its number is the only thing that depends on the time of day."""
        tables = {*(table.name for table in self._job.tables), *self._job.aside}
        return Barrier.taking(commands, self._last_epoch, self._ports.now_ms(), self.state.control, tables)

    def _take(self, barrier: Barrier) -> None:
        """The barrier's commands act from here on; the catalog records them first."""
        control = barrier.mutations.control
        verbs = barrier.mutations.verbs
        record = EpochRecord(barrier.epoch, barrier.prev_ms, self.state.phase, barrier.epoch, mutations=verbs)
        self._mark()
        if control.stop:
            self._job_state = JobState.STOPPING
        else:
            paused = JobState.PAUSED if self._flight.epoch is None else JobState.PAUSING
            self._job_state = paused if control.paused else JobState.RUNNING
        self._ports.store.take(barrier.mutations.commands, control, self._job_state, record)
        self._rhythm.passed_ms = self._ports.steady_ms()
        hit("after-take")
        self.state = self._strategy.apply(self.state, barrier.mutations)
        self._last_epoch = barrier.epoch
        if any(one.verb in OF_REFILLS for one in barrier.mutations.commands):
            self._ports.refills.told()
        self._ports.refills.paced(self.state.control)

    def _stop_wanted(self) -> bool:
        return self._stop_asked or self.state.control.stop

    def _read(self, barrier: Barrier, steady_ms: int) -> Tick | None:
        """Observe, plan and stage one epoch."""
        upstream, spool, phase = self._ports.upstream, self._ports.spool, self.state.phase
        if spool is not None:
            spool.enter(phase, self.state.position, self._schemas, takes=not self.state.control.pause_all)
        view = upstream.observe(self.state.position, phase == Phase.SNAPSHOT)
        if upstream.lease is not None:
            upstream.lease.enforce_limit(self.state.position, phase == Phase.SNAPSHOT)
        # rows that are read beside a log that is followed keep that waiting: such epochs are as short as live ones
        settings = self._settings
        self._sizes.target_ms = settings.interval_ms if self.state.beside else settings.target_ms
        budget = self._budget(barrier, steady_ms)
        plan = self._strategy.plan(self.state, view, budget)
        if view.behind:
            plan = replace(plan, pending_after=plan.pending_after + 1)
        self._meter.observed(plan, self._ports.now_ms(), view)
        if not plan:
            if self._flight.epoch is None and not view.pending:
                self._applied = self._applied.join(view.latest)
            return self._fill(barrier, plan, budget) if self._fills_now else self._idle(plan, budget)
        if self._opens():
            self._meter.discarded()
            self._rhythm.behind = True  # the next barrier follows at once
            return Tick.WAITING
        if self._flight.epoch is not None and phase == Phase.UPSTREAM and not self._rhythm.behind:
            # Live: rows read now would only wait for the sink, and slow it down; later, newer ones can be read.
            self._meter.discarded()
            return Tick.WAITING
        began_ms = self._ports.steady_ms()
        with self._meter.busy(spelled(plan), self._ports.now_ms(), began_ms):
            try:
                done = self._ports.stager.stage(plan, barrier.epoch, self._schemas, self._unwanted)
            except Interrupted:
                return self._give_up()
        require_takers(self._job.tables, done.staged)
        require_taken(self._ports.sink, done.staged)
        hit("after-stage")
        stage_ms = self._ports.steady_ms() - began_ms
        limited = self._paced(self.state, budget)
        expected = plan.window.expected if plan.window is not None else 0
        self._sizes.staged(phase, limited, done.staged, expected, stage_ms, self._flight.takes_ms)
        self._ahead = self._closed(barrier, plan, done, budget, stage_ms)
        self._rhythm.passed()
        self._backoff = Backoff() if self._flight.epoch is None else self._backoff
        return None

    def _unwanted(self) -> bool:
        """Whether what is being staged would be thrown away: less may be read, or another job.

        Called by another thread.
        """
        if self._stop_asked:
            return True
        commands, redefines = until_redefined(self._ports.store.commands())
        control = self._next(commands).mutations.control
        less = redefines is not None or reads_less(self.state.control, control)
        return control.stop or (less and self._sizes.may_interrupt(self.state.phase))

    def _give_up(self) -> Tick:
        """The command for which staging was interrupted acts at the next barrier, which follows at once."""
        self._meter.discarded()
        self._sizes.interrupted += 1
        self._rhythm.behind = True
        return Tick.WORKED

    def _budget(self, barrier: Barrier, steady_ms: int) -> Budget:
        enough = self._finishing.enough(
            self._strategy, self.state, self._meter.read_per_s, self._time_of_day(steady_ms)
        )
        rows, interval_ms = self._sizes.rows(self.state.phase), self._settings.interval_ms
        return Budget(barrier.epoch, rows, interval_ms, steady_ms, enough)

    def _refill(self, barrier: Barrier, steady_ms: int) -> Tick | None:
        """Stage a part of a refill on top of what is committed: an epoch with state and position as they are."""
        if self._flight.epoch is not None or self._opens():
            return Tick.WAITING
        began_ms = self._ports.steady_ms()
        with self._meter.busy("applying a refill", self._ports.now_ms(), began_ms):
            made = self._ports.refills.stage(barrier.epoch, self._committed)
        if made is None:
            return self._read(barrier, steady_ms)
        require_taken(self._ports.sink, made.staged)
        hit("refill-staged")
        ahead = self._standing(barrier, EpochPlan(refill=made.part), made.staged, steady_ms, REFILLED)
        record = replace(ahead.record, stage_ms=self._ports.steady_ms() - began_ms)
        self._ahead = replace(ahead, record=record)
        self._rhythm.passed()
        return None

    def _fill(self, barrier: Barrier, plan: EpochPlan, budget: Budget) -> Tick | None:
        """An epoch without rows, whose commit brings derived tables further. plan: without any reads."""
        in_spark = not self._ports.sink.capabilities.transactional
        if self._flight.epoch is not None or (in_spark and self._opens()):
            return Tick.WAITING
        self.state = self._strategy.advance(self.state, plan, None, budget)
        ahead = self._standing(barrier, plan, Staged(uuid4().hex[:12]), budget.steady_ms, FILLED)
        self._ahead = replace(ahead, fills=True)
        self._rhythm.passed()
        self._backoff = Backoff()
        return None

    def _standing(self, barrier: Barrier, plan: EpochPlan, staged: Staged, steady_ms: int, what: str) -> Epoch[S]:
        """An epoch on top of what is committed, with state and position as they are. what: for the ledger."""
        state, before = self.state, self._committed
        stays = state.position == before.position
        checkpoint = replace(
            before,
            epoch=barrier.epoch,
            prev_ms=barrier.prev_ms,
            token=self._job.token,
            attempt=staged.attempt,
            state=self._strategy.freeze(state),
            phase=state.phase,
            position=state.position,
            splits={},
            plan=plan,
            staged=staged,
            memory=before.memory if stays else self._ports.upstream.remembered(state.position),
            written=written(before.written, staged.tables, state.phase),
        )
        record = record_of(checkpoint, self._job.tables, state.phase, barrier.epoch, what)
        return Epoch(checkpoint, plan, record, state, steady_ms)

    def _closed(
        self, barrier: Barrier, plan: EpochPlan, done: StagedEpoch, budget: Budget, stage_ms: int
    ) -> Epoch[S]:
        """The epoch of a plan that has been staged, with the state that it leads to."""
        before, spool, staged = self.state, self._ports.spool, done.staged
        after = self._strategy.advance(before, plan, staged, budget)
        filling = self._ports.refills.filling
        plan = replace(plan, closes_snapshot=self._strategy.closes(before, after), filling=filling)
        plan = left_of(plan, staged)
        checkpoint = Checkpoint(
            epoch=barrier.epoch,
            prev_ms=barrier.prev_ms,
            token=self._job.token,
            attempt=staged.attempt,
            state=self._strategy.freeze(after),
            phase=after.phase,
            position=after.position,
            splits={key: p for key, p in after.splits.items() if before.splits.get(key) is not p},
            plan=plan,
            staged=staged,
            schemas=done.schemas,
            sink_schemas=done.sink_schemas,
            memory=self._ports.upstream.remembered(after.position),
            taken=START if spool is None else spool.taken,
            quarantined=quarantined(self._promised.quarantined, self._job.tables, staged),
            skipped=added(self._promised.skipped, staged.skipped),
            written=written(self._promised.written, staged.tables, before.phase),
        )
        record = record_of(checkpoint, self._job.tables, before.phase, barrier.epoch, barrier.mutations.verbs)
        lag_ms = self._meter.lag_ms(plan, self._ports.now_ms())
        record = replace(record, stage_ms=stage_ms, lag_ms=lag_ms)
        return Epoch(checkpoint, plan, record, after, budget.steady_ms, self._paced(after, budget))

    def _paced(self, state: S, budget: Budget) -> bool:
        """Whether rates alone limit what is read of the snapshot: that of all tables, or each table's own."""
        if budget.pace(state.control.pace) is not None:
            return True
        unread = self._strategy.unread(state) if state.control.tables else frozenset()
        return bool(unread) and unread <= state.control.rates.keys()

    def _idle(self, plan: EpochPlan, budget: Budget) -> Tick:
        """A barrier without rows carries only control: no Spark, no database, unless a mark is pending."""
        if self._flight.epoch is not None:
            return Tick.WAITING
        self.state = self._strategy.advance(self.state, plan, None, budget)
        self._rhythm.behind = False
        self._rhythm.passed()
        self._backoff = Backoff()
        self._settled(self.state, plan, budget.steady_ms)
        self._mark()
        return Tick.DONE if self._ends() else Tick.IDLE

    def _settled(self, state: S, plan: EpochPlan, steady_ms: int) -> None:
        """The sink has the plan of a barrier begun then: the job has caught up, if that was all there was.

        Not while a table is put back, whose rows are not right yet.
        """
        if not self._ports.refills.putting_back:
            self._caught_up.note(state, plan)
            self._meter.settled(state, plan, self._time_of_day(steady_ms))

    def _prepare(self) -> None:
        """Promise the staged epoch, then let the sink commit it."""
        ahead = self._ahead
        assert ahead is not None
        self._ports.store.prepare(ahead.checkpoint, self._unmarked, self.progress())
        self._unmarked = None
        fill_rows = self._fills.allowed(self.state.control, self._ports.steady_ms())
        self._flight.begin(ahead, self._committed.epoch, fill_rows, self._committing, self._holds)
        self._meter.flying(self._ports.steady_ms(), self._ports.now_ms(), ahead.record.rows_written)
        self._ahead = None
        self._sizes.interrupted = 0
        self.state = ahead.state
        self._schemas = ahead.checkpoint.schemas
        self._promised = ahead.checkpoint
        self._last_epoch = ahead.checkpoint.epoch
        if ahead.plan.refill is None:
            self._rhythm.behind = leaves_more(ahead, self._sizes)
        hit("after-prepare")
        self._settle()

    def _holds(self) -> bool:
        """Whether derived tables are filled later: a command holds the fill, or the job stops.

        Called by the commit's thread.
        """
        control = self.state.control
        return self._stop_wanted() or self._fills.allowed(control, self._ports.steady_ms()) == 0

    def _committing(self, at: Committing) -> None:
        """The sink is so far with the commit. Called by the commit's thread."""
        self._meter.writing(at, self._ports.now_ms(), self._ports.steady_ms())

    def _mark(self) -> None:
        if self._unmarked is not None:
            self._ports.store.mark(self._unmarked, self.progress())
            self._unmarked = None
            hit("after-mark")
