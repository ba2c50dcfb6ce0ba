"""A job in a process: created or resumed, recovered, run to its end. The commands call this."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from backfill_cli.catalog import Catalog
from backfill_cli.catalog.lease import JobLock, actor, user
from backfill_cli.catalog.runner import Claim
from backfill_cli.catalog.starts import Starter
from backfill_cli.config import JobConfig, from_stored
from backfill_cli.contracts import JobDefinition, JobStore, Source
from backfill_cli.engine.job.aside import require_aside
from backfill_cli.engine.job.asked import before_waiting
from backfill_cli.engine.job.derived import prepare_derived
from backfill_cli.engine.job.gauges import gauge_of
from backfill_cli.engine.job.held import recover_start_before
from backfill_cli.engine.job.machine import extras, untried
from backfill_cli.engine.job.ownership import (
    forget_strays,
    owners_sought,
    require_kept,
    start_over_named,
    take,
)
from backfill_cli.engine.job.resources import NoWatcher, Resources, Watcher
from backfill_cli.engine.job.select import (
    beside_aside,
    changed_keys,
    changed_rates,
    edited,
    nothing_follows,
    present,
    require_same_strategy,
    sections_of,
    strategy_of,
)
from backfill_cli.engine.job.side_tables import late_tables
from backfill_cli.engine.loop.failures import Failures
from backfill_cli.engine.loop.guards import Asked, Guards
from backfill_cli.engine.loop.headroom import asked
from backfill_cli.engine.loop.meter import Meter
from backfill_cli.engine.loop.orchestrator import Orchestrator, Tick
from backfill_cli.engine.loop.ports import Ports, Settings, job_of
from backfill_cli.engine.loop.process import Heartbeat, Signals, Wake, run_loop, steady_ms
from backfill_cli.engine.loop.recovery import recover, unfilled
from backfill_cli.engine.loop.refills import NotPutBack, Process, Refills
from backfill_cli.engine.spool.taker import taking
from backfill_cli.engine.spool.upstream import SpooledUpstream, open_spooled
from backfill_cli.engine.staging.stage import SparkStager
from backfill_cli.errors import BackfillError, Held, NoSuchJob, StoppedEarly, Transient, command
from backfill_cli.model.aside import with_sections
from backfill_cli.model.checkpoint import Owner, Recovered
from backfill_cli.model.committing import Committing
from backfill_cli.model.guard import Order
from backfill_cli.model.job import Command, JobState, Verb, of_table
from backfill_cli.model.limit import Kind, Limit
from backfill_cli.model.refill import Refill
from backfill_cli.model.split import UNREAD
from backfill_cli.spark import driver
from backfill_cli.strategies import StrategyState

SIGNALLED = "a signal"
ASKED = "a stop was requested"
RATE = "throttle.rate"


def start(
    config: JobConfig,
    catalog: Catalog,
    until: str,
    into_existing: bool,
    watcher: Watcher | None,
    paused: bool = False,
) -> JobState:
    """Create the job, or continue it if its fingerprint is unchanged, and run it to its end.

    paused: it is, before it reads a row.
    until, and the parts of the config that may change, are stored in the catalog; a later `resume` uses them.
    Raises UsageError for a config that would lead to a different result, Held while another runner has the job.
    """
    name = config.job.name
    run = _Run(name, catalog, watcher or NoWatcher())
    with (
        start_over_named(name, catalog),
        catalog.lock_job(name) as lock,
        run.signals.installed(),
        ExitStack() as used,
    ):
        known, whole = _definition(catalog, name), config
        if known is not None:
            whole = before_waiting(known, config, catalog, live=False)
            config = present(known, whole)
        resources = used.enter_context(run.resources(config))
        for one in untried(extras(config)):
            resources.tell(f"{one.said}; if something fails: {one.fix}")
        if known is None:
            from backfill_cli.engine.job.create import create  # the next runs have nothing of it to load

            try:
                with visible(config, catalog, lock, resources, run.signals.wake), owners_sought(catalog):
                    known = create(config, catalog, resources, until, into_existing, actor() if paused else None)
            except BackfillError as error:
                raise error.without_job() from error.__cause__
            return run.created(known, config, resources, lock)
        require_same_strategy(known, config, resources.upstream)
        require_aside(config, known.strategy, resources.upstream, known.pin)
        before, aside = beside_aside(known, whole).stored(), with_sections(known.aside, sections_of(known, whole))
        changed, rates = changed_keys(before, whole), changed_rates(before, whole)
        job = replace(known, until=until, config=config.stored(), config_file=config.file, aside=aside)
        return run.taken_up(
            job, config, resources, lock, unpause=False, changed=changed, rates=rates, pause=paused
        )


def resume(
    name: str, catalog: Catalog, sink_config: JobConfig | None, until: str | None, watcher: Watcher | None
) -> JobState:
    """Run a job from its last checkpoint on, from the catalog alone, or from what a sink keeps of it.

    Ends a pause. until: stored in the catalog, for later runs too; None: as stored. Raises Held while another
    runner has the job.
    """
    run = _Run(name, catalog, watcher or NoWatcher())
    with start_over_named(name, catalog), catalog.lock_job(name) as lock, run.signals.installed():
        if sink_config is not None:
            from backfill_cli.engine.job.create import rebuild

            with run.resources(sink_config) as resources:
                rebuild(name, catalog, sink_config, resources, lock)
        kept = catalog.definition(name)
        known = kept if until is None else replace(kept, until=until)
        config = from_stored(known.config)
        for said in edited(known):
            run.watcher.tell(said)
        with start_asked(name), run.resources(config) as resources:
            return run.taken_up(known, config, resources, lock, unpause=True, changed=(), was_until=kept.until)


@contextmanager
def start_asked(name: str) -> Iterator[None]:
    """An error that asks for a change of the config says to start the job with it: no resume reads the file."""
    try:
        yield
    except BackfillError as error:
        if error.hint.config and not isinstance(error, Transient):
            error.hint = error.way_on(name)
        raise


def _definition(catalog: Catalog, name: str) -> JobDefinition | None:
    with suppress(NoSuchJob):
        return catalog.definition(name)
    return None


def _asked(
    config: JobConfig, changed: Sequence[str], rates: Sequence[tuple[str, float | None]], pause: bool
) -> tuple[Command, ...]:
    """What a start asks of the first barrier: the rates that its config changes, and a pause."""
    by, now_ms = actor(), _now_ms()
    whole = [config.throttle.rate] if RATE in changed else []
    return (
        *(Command(0, Verb.PAUSE, by, now_ms) for _ in range(pause)),
        *(Command(0, Verb.THROTTLE, by, now_ms, rate) for rate in whole),
        *(Command(0, Verb.THROTTLE, by, now_ms, rate, payload=of_table(table)) for table, rate in rates),
    )


def _as_found(had: JobDefinition, has: JobDefinition) -> str:
    """The ledger's word for what is promised as a job goes on as another one, or as it was."""
    if had == has:
        return "recovered"
    was, now = ((one.tables, one.derived, [aside.table for aside in one.aside]) for one in (had, has))
    return Verb.SET if was == now else "redefined"


class _Run:
    """One run of one job, from its claim to its end."""

    def __init__(self, name: str, catalog: Catalog, watcher: Watcher) -> None:
        self.name = name
        self.catalog = catalog
        self.watcher = watcher
        self.signals = Signals(watcher)
        self.failures = Failures()

    def resources(self, config: JobConfig) -> Resources:
        """What the run uses: a signal ends the wait for Spark, whose opening wakes the loop."""
        opened = Resources(config, self.watcher.tell)
        opened.failed = self.failures.count
        self.signals.give_up, opened.opening.then = opened.opening.give_up, self.signals.wake.ring
        return opened

    def created(self, job: JobDefinition, config: JobConfig, resources: Resources, lock: JobLock) -> JobState:
        """Run a job that this process created: upstream and sink are ready."""
        with self._claimed(job, config, resources, lock) as (claim, heartbeat):
            tick = self._through(claim, heartbeat, job, config, resources, unpause=False)
        return self._ended(tick, job)

    def taken_up(
        self,
        job: JobDefinition,
        config: JobConfig,
        resources: Resources,
        lock: JobLock,
        unpause: bool,
        changed: Sequence[str],
        was_until: str | None = None,
        pause: bool = False,
        rates: Sequence[tuple[str, float | None]] = (),
    ) -> JobState:
        """Run a job that existed before: upstream and sink must be as they were left.

        changed: config keys whose value in the catalog differs. was_until: the catalog's value of `until`. pause:
        at the first barrier, if it is not paused already. rates: the tables whose own rate has changed.
        """
        with suppress(Transient):  # before the claim: a refused command has changed nothing
            require_kept(job.name, self.catalog, resources.sink)
        late = late_tables(job, resources.upstream)
        if late:
            with owners_sought(self.catalog):
                resources.with_retries(lambda: resources.sink.check(job.name, late, into_existing=False))
        job = replace(job, tables=(*job.tables, *late))
        with self._claimed(job, config, resources, lock) as (claim, heartbeat), ExitStack() as opened:
            kept = job.config, job.until, job.config_file, job.aside
            began_ms = None if unpause else _now_ms()
            to_take = _asked(config, changed, rates, pause)
            if unpause and any(one.verb is Verb.PAUSE for one in resources.with_retries(claim.store.commands)):
                to_take = (Command(0, Verb.RESUME, actor(), _now_ms()),)  # a runner died before it took the pause
            for one in resources.with_retries(lambda: claim.store.redefine(*kept, began_ms, to_take)):
                resources.tell(f"{one.said}, requested by {one.by}, is not taken: this start's config is newer")
            if late:
                resources.with_retries(lambda: claim.store.widen(job.tables))
            if was_until not in (None, job.until):
                resources.tell(f"until {job.until} from now on, stored in the catalog; it was until {was_until}")
            if changed:
                resources.tell(f"the config has changed and was stored: {', '.join(changed)}")
            for said in nothing_follows(self.name, resources.upstream.capabilities, job.until):
                resources.tell(said)
            held = resources.with_retries(lambda: require_kept(job.name, self.catalog, resources.sink))
            recover_start_before(config, self.catalog, resources)
            if resources.with_retries(lambda: self._leaves_first(claim)):
                job, config, resources = self._redefined(claim, job, config, resources, opened)
            job, config, resources = self._made_ready(claim, job, config, resources, held, opened)
            tick = self._through(claim, heartbeat, job, config, resources, unpause)
        return self._ended(tick, job)

    def _leaves_first(self, claim: Claim) -> bool:
        """A table that is to leave may be gone upstream: then nothing else can be done before it has left."""
        if not any(one.verb in (Verb.REMOVE, Verb.ADD) for one in claim.store.commands()):
            return False
        from backfill_cli.engine.loop.redefine import leaves_first

        return leaves_first(claim.store)

    def _made_ready(
        self,
        claim: Claim,
        job: JobDefinition,
        config: JobConfig,
        resources: Resources,
        held: Owner | None,
        opened: ExitStack,
    ) -> tuple[JobDefinition, JobConfig, Resources]:
        """The job with upstream and sink as a run needs them: without a table of which that cannot be."""
        while True:
            try:
                self._ready(job, claim.store, resources, held)
            except BackfillError as error:
                job, config, resources = self._without(claim, job, config, resources, opened, error)
            else:
                return job, config, resources

    def _without(
        self,
        claim: Claim,
        job: JobDefinition,
        config: JobConfig,
        resources: Resources,
        opened: ExitStack,
        error: BackfillError,
    ) -> tuple[JobDefinition, JobConfig, Resources]:
        """The job without the table that the error is of, which is set aside. Raises it if it is of none."""
        if not error.table:
            raise error
        from backfill_cli.engine.loop.aside import of_one_table, set_aside, why_not  # few runs need it

        job = replace(job, aside=self.catalog.definition(job.name).aside)
        table = of_one_table(error, job, config)
        if table is None:
            raise error
        cause = error.__cause__ if isinstance(error.__cause__, BackfillError) else error
        refused = why_not(job, config, resources, claim.store, self.catalog, table, cause)
        if refused is not None:
            self.watcher.tell(f"{table} is not set aside: {refused}")
            raise error
        why = Limit(cause.message, hint=cause.hint)
        store, tell = claim.store, self.watcher.tell
        return set_aside(job, config, resources, store, opened, tell, claim.token, table, why)

    def _again_aside(
        self, claim: Claim, job: JobDefinition, config: JobConfig, resources: Resources, opened: ExitStack
    ) -> tuple[JobDefinition, JobConfig, Resources]:
        """The job without a table that was being put back, if its refill has ended otherwise."""
        while any(one.refill is not None for one in job.aside):
            from backfill_cli.engine.loop.aside import not_put_back, refills_of, set_aside

            job = replace(job, aside=self.catalog.definition(job.name).aside)
            found = not_put_back(job, refills_of(job, self.catalog))
            if found is None:
                break
            store, tell = claim.store, self.watcher.tell
            job, config, resources = set_aside(job, config, resources, store, opened, tell, claim.token, *found)
        return job, config, resources

    def _ready(self, job: JobDefinition, store: JobStore, resources: Resources, held: Owner | None) -> None:
        """Upstream and sink are as a run of the job needs them."""
        resources.with_retries(lambda: resources.upstream.restore(job.pin))
        resources.with_retries(lambda: resources.sink.prepare(job.name, job.tables, into_existing=True))
        committed = resources.with_retries(store.load).committed
        prepare_derived(job, committed.sink_schemas, resources)
        resources.with_retries(lambda: take(job.name, self.catalog, resources.sink, held))
        resources.with_retries(lambda: forget_strays(job, committed, resources.sink, resources.tell))

    @contextmanager
    def _claimed(
        self, job: JobDefinition, config: JobConfig, resources: Resources, lock: JobLock
    ) -> Iterator[tuple[Claim, Heartbeat]]:
        """The job is ours while the block lasts, however slow the start: the lease is renewed from the claim on.

        The final state is in the catalog before the error that caused it propagates.
        """
        with self.catalog.claim(job.name, user(), _now_ms(), lock) as claim:
            store = claim.store

            def tell(doing: Limit | str) -> None:
                with suppress(Transient):  # for display only: it must not end what it reports
                    store.become(JobState.STARTING, doing)
                self.watcher.tell(doing)

            limit_ms = int(config.retry.limit_s * 1000)
            heartbeat = Heartbeat(job.name, lambda: store.heartbeat(_now_ms(), None), limit_ms, self.signals.wake)
            heartbeat.failed = self.failures.count
            try:
                with heartbeat, driver.explained(command(f"resume {job.name}")):
                    resources.with_retries(lambda: store.become(JobState.STARTING, "starting"))
                    resources.tell = tell
                    yield claim, heartbeat
            except Held:
                raise
            except BaseException as exc:
                # A signal before the first barrier: no epoch was in hand. What it interrupts may fail.
                if self.signals.unwinding or not isinstance(exc, Exception):
                    _stop(store, SIGNALLED)
                else:
                    _fail(store, job, exc)
                raise

    def _through(
        self,
        claim: Claim,
        heartbeat: Heartbeat,
        job: JobDefinition,
        config: JobConfig,
        resources: Resources,
        unpause: bool,
    ) -> Tick:
        """Run the job to its end, under each of the definitions that it gets meanwhile."""
        opened, found, begun = ExitStack(), "recovered", False

        def begin(was: Recovered) -> None:
            nonlocal begun
            if not begun:
                self._begin(claim.store, was, unpause)
            begun = True

        try:
            while True:
                job, config, resources = self._again_aside(claim, job, config, resources, opened)
                error: BackfillError | None = None
                try:
                    tick = self._work(claim, heartbeat, job, config, resources, begin, found)
                except BackfillError as failed:
                    if not failed.table:
                        raise
                    error = failed
                if error is None and tick is not Tick.REDEFINED:
                    return tick
                before, opened, had = opened, ExitStack(), job
                with before:  # until what follows is open
                    if error is None:
                        job, config, resources = self._redefined(claim, job, config, resources, opened)
                    elif isinstance(error, NotPutBack):
                        job, config, resources = self._again_aside(claim, job, config, resources, opened)
                    else:
                        job, config, resources = self._without(claim, job, config, resources, opened, error)
                found = _as_found(had, job)
        finally:
            opened.close()

    def _redefined(
        self, claim: Claim, job: JobDefinition, config: JobConfig, resources: Resources, opened: ExitStack
    ) -> tuple[JobDefinition, JobConfig, Resources]:
        from backfill_cli.engine.loop.redefine import redefined  # few runs need it

        tell = self.watcher.tell
        return redefined(job, config, resources, claim.store, self.catalog, opened, tell, claim.token)

    def _work(
        self,
        claim: Claim,
        heartbeat: Heartbeat,
        definition: JobDefinition,
        config: JobConfig,
        resources: Resources,
        begin: Callable[[Recovered], None],
        found: str = "recovered",
    ) -> Tick:
        """Recover, then loop, which needs no Spark before there are rows; the catalog records how it ended.

        found: the ledger's word for an epoch that was promised before.
        """
        store, resources.failed = claim.store, self.failures.count
        upstream, stager, spooled = resources.with_retries(
            lambda: self._parts(store, definition, config, resources)
        )
        job, fill_rows, sink = job_of(definition, claim.token), config.barrier.fill_rows, resources.sink

        def tell(at: Committing) -> None:
            resources.tell(Limit(f"commit {at.epoch} is being finished: {at.said}", Kind.NOW))

        recovered = resources.with_retries(
            lambda: recover(job, store, sink, stager, _now_ms(), found, fill_rows, tell)
        )
        if spooled is not None:
            resources.with_retries(lambda: spooled.take_up(recovered.committed, store.spooled()))
        elif recovered.committed.memory:
            upstream.recall(recovered.committed.memory)
        stager.sweep([])
        if definition.until == "forever":  # no change pays for its start
            resources.begin_spark()
        resources.with_retries(lambda: begin(recovered))
        resources.tell = self.watcher.tell  # the job no longer is starting, whatever else is waited for
        strategy = strategy_of(config, resources.upstream.capabilities, definition.pin)
        held = recovered.committed
        if strategy.thaw(held.state, held.splits, recovered.control).beside:
            resources.upstream.read_on({table for (table, _), one in held.splits.items() if one.status in UNREAD})
        interval_ms = int(config.barrier.interval_s * 1000)
        settings = Settings(
            interval_ms,
            int(config.barrier.target_s * 1000),
            int(config.retry.limit_s * 1000),
            definition.until,
            resources.with_retries(lambda: config.throttle.deadline(self.catalog.job(self.name).created_ms)),
            fill_rows,
        )
        meter = Meter(self.name, interval_ms, resources.upstream.capabilities.follows)
        with ThreadPoolExecutor(1, "commit") as pool, self._beside(spooled):
            submit = self._submits(pool)
            refills = self._refills(definition, config, store, stager, resources)
            beside = refills, self.failures, self.watcher.tell
            ports = Ports(upstream, resources.sink, store, stager, spooled, submit, _now_ms, steady_ms, *beside)
            waits = resources.with_retries(lambda: unfilled(job, resources.sink))
            loop = Orchestrator(job, ports, strategy, settings, recovered, meter, waits)
            guards = self._guards(config, loop, store)
            self.signals.ask(loop)
            heartbeat.renew, heartbeat.has_news = loop.heartbeat, loop.has_news
            heartbeat.reported = self.watcher.progressed
            heartbeat.beat()
            self.watcher.progressed()
            ask = resources.upstream.extras.headroom
            try:
                with asked(ask, loop.unread, loop.keeps), guards.beside(), refills.beside():
                    tick = run_loop(loop, self.watcher, heartbeat, self.signals.wake)
            except BackfillError:
                with suppress(BackfillError):  # what the sink holds now, not as last reported
                    loop.heartbeat()
                raise
        if tick == Tick.DONE:
            resources.with_retries(loop.heartbeat)
            resources.with_retries(lambda: store.become(JobState.DONE, "caught up"))
        elif tick == Tick.STOPPED:
            reason = SIGNALLED if self.signals.caught else ASKED
            resources.with_retries(lambda: _stop(store, reason))
        return tick

    def _parts(
        self, store: JobStore, definition: JobDefinition, config: JobConfig, resources: Resources
    ) -> tuple[Source, SparkStager, SpooledUpstream | None]:
        """What the job reads from, and what stages it; once more where its log passes through a spool."""
        log, session, spooled = resources.upstream, lambda: resources.spark, None
        if definition.strategy == "chain":
            spooled = open_spooled(definition, config, resources.rows, log, session, store, _now_ms, steady_ms)
        return spooled or log, SparkStager(session, spooled or log, config, resources.opening.awaited), spooled

    def _beside(self, spooled: SpooledUpstream | None) -> AbstractContextManager[None]:
        """What runs beside the loop: the taking of the log, if the strategy has one."""
        if spooled is None:
            return nullcontext()
        spooled.taker.failed = self.failures.count
        return taking(spooled.taker, self.signals.wake.ring)

    def _guards(self, config: JobConfig, loop: Orchestrator[StrategyState], store: JobStore) -> Guards:
        """Those of the config, which are asked beside the loop."""
        asked = [
            Asked(one.guard, gauge_of(one, config, self.catalog), one.every_s, one.timeout_s)
            for one in config.guards
        ]

        def post(order: Order) -> None:
            told = (order.verb, order.rate, order.by, _now_ms())
            self.catalog.post(self.name, *told, guard=order.guard, lifts=order.lifts)
            self.signals.wake.ring()

        return Guards(asked, lambda: loop.state.control, store.commands, post)

    def _refills(
        self,
        definition: JobDefinition,
        config: JobConfig,
        store: JobStore,
        stager: SparkStager,
        resources: Resources,
    ) -> Refills:
        """What compares beside the loop, and stages what was found."""

        def compare(refill: Refill, folder: Path) -> Process:
            return Process(self.name, self.catalog.path, refill, folder, self.signals.wake.ring)

        return Refills(
            definition,
            store,
            Path(config.job.staging) / self.name,
            stager.folder,
            lambda: resources.spark,
            compare,
            int(config.retry.limit_s * 1000),
            _now_ms,
            steady_ms,
            lambda: definition.strategy == "chain" and bool(store.spooled()),
            resources.opening.awaited,
            self.signals.wake.ring,
        )

    def _submits(self, pool: ThreadPoolExecutor) -> Callable[[Callable[[], None]], Future[None]]:
        """Runs a commit in the background: the loop wakes when it is done."""

        def submit(commit: Callable[[], None]) -> Future[None]:
            future = pool.submit(commit)
            future.add_done_callback(lambda _: self.signals.wake.ring())
            return future

        return submit

    def _begin(self, store: JobStore, recovered: Recovered, unpause: bool) -> None:
        """The job runs, or stays paused. Like every command, a resume acts at the first barrier."""
        paused = recovered.control.paused
        unpause = unpause and recovered.control.pausing is None  # a guard's hold is ended by its guard
        if paused and unpause:
            self.catalog.post(self.name, Verb.RESUME, None, actor(), _now_ms())
        if paused and not unpause:
            by = recovered.control.pauser
            store.become(JobState.PAUSED, f"started while paused by {by}: it stays paused")
        else:
            epoch = recovered.committed.epoch
            store.become(JobState.RUNNING, f"a runner resumed at commit {epoch}" if epoch else "a runner started")

    def _ended(self, tick: Tick, definition: JobDefinition) -> JobState:
        """How the process ends."""
        if tick == Tick.DONE:
            return JobState.DONE
        if self.signals.caught:
            raise SystemExit(128 + self.signals.caught)
        if definition.until == "caught-up":
            said = f"job {self.name!r} was stopped before it was caught up"
            raise StoppedEarly(said, command(f"resume {self.name}"))
        return JobState.STOPPED


def _stop(store: JobStore, reason: str) -> None:
    store.become(JobState.STOPPING, reason)
    store.become(JobState.STOPPED, reason)


def _fail(store: JobStore, definition: JobDefinition, exc: Exception) -> None:
    """Marks the job failed in the catalog, with reason and next step, unless the catalog itself is what failed."""
    job, lines = definition.name, str(exc).strip().splitlines() or [""]
    last = lines[-1]  # of a traceback, the exception; the log has the rest
    why = Limit(f"{type(exc).__name__}: {last}", hint=command(f"resume {job}"))
    if isinstance(exc, BackfillError):
        told = exc.naming(job, definition.has_tables_to_itself)
        why = Limit(told.message, hint=told.way_on(job))
    try:
        store.become(JobState.FAILED, why)
    except BackfillError as other:
        exc.add_note(f"and this could not be recorded in the catalog: {other.message}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


FIRST = "its config and sink are being checked"
"""What a start does until it says what it does."""


@contextmanager
def visible(
    config: JobConfig, catalog: Catalog, lock: JobLock, resources: Resources, wake: Wake
) -> Iterator[None]:
    """`status` shows the start, and what it does or waits for; an error that ends it has left no trace of it."""
    name, told = config.job.name, resources.tell
    before: Starter | None = None

    def begin() -> None:
        lock.new = lock.new or not catalog.path.exists()  # another start may have removed the one that it had made
        catalog.starters.begin(name, user(), FIRST, config.stored(), config.file)

    def tell(doing: Limit | str) -> None:
        with suppress(Transient):  # for display only: it must not end what it reports
            catalog.starters.tell(name, doing)
        told(doing)

    resources.tell = tell
    limit_ms = int(config.retry.limit_s * 1000)
    try:
        before = resources.with_retries(lambda: catalog.starters.of(name))
        resources.with_retries(begin)
        with Heartbeat(name, lambda: catalog.starters.renew(name), limit_ms, wake):
            yield
    except BaseException:  # Ctrl-C, too
        with suppress(BackfillError):
            catalog.leave_nothing(lock, before)
        raise
    finally:
        resources.tell = told
