"""A job in a process: created or taken up, recovered, run to its end. The commands call this."""

import getpass
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig, differences, from_stored
from backfill_cli.contracts import JobDefinition, JobStore, Sink, SinkTable, Upstream
from backfill_cli.engine.orchestrator import Job, Orchestrator, Ports, Settings, Tick
from backfill_cli.engine.recovery import recover
from backfill_cli.engine.report import Meter
from backfill_cli.engine.schemas import sink_schema
from backfill_cli.engine.session import session_of
from backfill_cli.engine.stage import SparkStager
from backfill_cli.errors import BackfillError, Held, NoSuchJob, StateConflict, StoppedEarly, Transient, UsageError
from backfill_cli.model.checkpoint import Checkpoint, Progress, Recovered
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.job import Control, JobState, Verb
from backfill_cli.model.upstream import Pin
from backfill_cli.strategies.snapshot import SnapshotStrategy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backfill_cli.catalog.catalog import Claim
    from backfill_cli.catalog.lease import JobLock

Report = Callable[[Progress], None]

HEARTBEAT_S = 10.0  # the lease of a runner on another machine counts as dead after three of them


def start(config: JobConfig, catalog: Catalog, until: str, into_existing: bool, report: Report | None) -> JobState:
    """Create the job, or go on with it when its fingerprint is equal, and run it to its end.

    Raises UsageError for a config that would lead to another result, Held while another runner has the job.
    """
    name = config.job.name
    with catalog.lock_job(name) as lock:
        known = _definition(catalog, name)
        if known is not None:
            _require_same(known, config)
        with session_of(config) as spark, closing(config.open_upstream()) as upstream:
            sink = config.open_sink()
            if known is None:
                known = _create(config, catalog, spark, upstream, sink, until, into_existing)
            else:
                upstream.restore(known.pin)
                sink.prepare(name, known.tables, into_existing=True)
            return _run(replace(known, until=until), config, catalog, spark, upstream, sink, lock, report)


def resume(name: str, catalog: Catalog, sink_config: JobConfig | None, report: Report | None) -> JobState:
    """Run a job from its last checkpoint on, from the catalog alone, or from what a sink keeps of it."""
    with catalog.lock_job(name) as lock:
        if sink_config is not None:
            _rebuild(name, catalog, sink_config, lock)
        known = catalog.definition(name)
        config = from_stored(known.config)
        with session_of(config) as spark, closing(config.open_upstream()) as upstream:
            sink = config.open_sink()
            upstream.restore(known.pin)
            sink.prepare(name, known.tables, into_existing=True)
            return _run(known, config, catalog, spark, upstream, sink, lock, report, unpause=True)


def drop(name: str, catalog: Catalog) -> None:
    """Nothing of the job is left in catalog, sink and staging but the sink's rows."""
    with catalog.lock_job(name) as lock:
        config = from_stored(catalog.definition(name).config)
        config.open_sink().forget(name)
        catalog.drop(name, lock)
        import shutil

        shutil.rmtree(Path(config.job.staging) / name, ignore_errors=True)


def _definition(catalog: Catalog, name: str) -> JobDefinition | None:
    try:
        catalog.job(name)
    except NoSuchJob:
        return None
    return catalog.definition(name)


def _require_same(known: JobDefinition, config: JobConfig) -> None:
    import json

    found = differences(json.loads(known.fingerprint), config.fingerprint())
    if found:
        raise UsageError(
            f"job {known.name!r} exists with another result; different are:\n  " + "\n  ".join(found),
            "undo that (rates, sizes, barrier, catch_up, retry, spark may change), or give the job another name",
        )


def sink_tables(config: JobConfig, spark: "SparkSession", pin: Pin, plain: bool) -> tuple[SinkTable, ...]:
    """The job's tables as the sink sees them, after the transform."""
    return tuple(
        SinkTable(
            t.name,
            t.sink_name,
            config.sink_key(t.name),
            sink_schema(spark, pin.schema[t.name], config.transform_of(t.name)),
            plain_inserts=plain,
        )
        for t in config.tables
    )


def strategy_of(config: JobConfig, pin: Pin) -> SnapshotStrategy:
    return SnapshotStrategy(pin.splits, config.catch_up.measure)


def _create(
    config: JobConfig,
    catalog: Catalog,
    spark: "SparkSession",
    upstream: Upstream,
    sink: Sink,
    until: str,
    into_existing: bool,
) -> JobDefinition:
    """Check all that can be checked, then the sink's tables, then the job: a fault leaves no trace of it."""
    import json

    pin = upstream.pin()
    tables = sink_tables(config, spark, pin, plain=not into_existing)
    definition = JobDefinition(
        name=config.job.name,
        config=config.stored(),
        fingerprint=json.dumps(config.fingerprint()),
        pin=pin,
        until=until,
        strategy="snapshot",
        tables=tables,
    )
    control = Control(rate=config.throttle.rate)
    strategy = strategy_of(config, pin)
    state = strategy.start(pin, control)
    checkpoint = Checkpoint(
        epoch=0,
        prev_ms=0,
        token=0,
        attempt="",
        state=strategy.freeze(state),
        phase=state.phase,
        position=state.position,
        schemas=dict(pin.schema),
        sink_schemas={t.name: t.schema for t in tables},
    )
    sink.prepare(config.job.name, tables, into_existing)
    catalog.create_job(definition, control, checkpoint)
    return definition


def _rebuild(name: str, catalog: Catalog, config: JobConfig, lock: "JobLock") -> None:
    """The catalog as the sink says; its token starts above the marker's."""
    sink = config.open_sink()
    saved = sink.saved(name)
    if saved is None:
        raise StateConflict(f"the sink keeps nothing of job {name!r}", "check [sink] in the config, and the name")
    token = max((m.token for m in sink.committed(name).values()), default=saved.checkpoint.token)
    definition = decode(JobDefinition, saved.definition)
    checkpoint = replace(saved.checkpoint, plan=None, staged=None)
    catalog.rebuild(definition, checkpoint, Control(rate=config.throttle.rate), token, lock)


def _run(
    definition: JobDefinition,
    config: JobConfig,
    catalog: Catalog,
    spark: "SparkSession",
    upstream: Upstream,
    sink: Sink,
    lock: "JobLock",
    report: Report | None,
    unpause: bool = False,
) -> JobState:
    """Claim, recover, loop; the state the job ends in is in the catalog before this returns or raises."""
    name = definition.name
    with catalog.claim(name, getpass.getuser(), _now_ms(), lock) as claim:
        store = claim.store
        store.become(JobState.STARTING, "a runner took the job")
        try:
            stager = SparkStager(spark, upstream, config)
            job = Job(name, claim.token, definition.tables, encode(definition))
            recovered = _patient(config, lambda: recover(job, store, sink, stager, _now_ms()))
            stager.sweep([])
            if unpause and recovered.control.paused:
                store.become(JobState.RUNNING, "resumed")
                catalog.post(name, Verb.RESUME, None, "resume", _now_ms())
            paused = recovered.control.paused and not unpause
            store.become(JobState.PAUSED if paused else JobState.RUNNING, "the runner has recovered")
            interval_ms = int(config.barrier.interval_s * 1000)
            settings = Settings(
                interval_ms,
                int(config.barrier.target_s * 1000),
                int(config.retry.limit_s * 1000),
                definition.until,
            )
            strategy = strategy_of(config, definition.pin)
            meter = Meter(name, definition.pin.splits, config.catch_up.measure, interval_ms)
            with ThreadPoolExecutor(1, "commit") as pool:
                ports = Ports(upstream, sink, store, stager, pool.submit, _now_ms)
                loop = Orchestrator(job, ports, strategy, settings, recovered, meter)
                tick, signalled = _loop(loop, claim, report)
            return _ended(store, tick, signalled, definition)
        except Held:
            raise
        except Exception as exc:
            _fail(store, exc)
            raise


def _patient(config: JobConfig, act: Callable[[], Recovered]) -> Recovered:
    """`act`, tried again with backoff while it fails in passing, up to the config's limit."""
    import tenacity

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(Transient),
        wait=tenacity.wait_exponential(0.2, max=15),
        stop=tenacity.stop_after_delay(config.retry.limit_s),
        reraise=True,
    )
    return retrying(act)


def _fail(store: JobStore, exc: Exception) -> None:
    """The job is failed in the catalog, with the reason, unless the catalog itself is what failed."""
    reason = exc.message if isinstance(exc, BackfillError) else f"{type(exc).__name__}: {exc}"
    try:
        store.become(JobState.FAILED, reason)
    except BackfillError as other:
        exc.add_note(f"and the catalog could not be told: {other.message}")


def _loop(loop: Orchestrator, claim: "Claim", report: Report | None) -> tuple[Tick, int | None]:
    """Step until the end; the first signal asks to stop, a second one ends the process at once."""
    with _signals(loop) as signalled, _heartbeats(loop) as failed:
        while True:
            tick = loop.step()
            if failed:
                raise failed[0]
            if tick in (Tick.STOPPED, Tick.DONE):
                return tick, signalled[0] if signalled else None
            if tick == Tick.WORKED:
                if report is not None:
                    report(loop.progress())
                continue
            commit = loop.committing()
            if commit is not None:
                wait([commit], timeout=max(loop.wait_ms(), 50) / 1000)
            else:
                time.sleep(max(loop.wait_ms(), 5) / 1000)


@contextmanager
def _signals(loop: Orchestrator) -> Iterator[list[int]]:
    caught: list[int] = []

    def ask(number: int, _frame: FrameType | None) -> None:
        if caught:
            os._exit(128 + number)
        caught.append(number)
        loop.ask_stop()

    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _heartbeats(loop: Orchestrator) -> Iterator[list[BackfillError]]:
    """The lease is renewed while the loop works, also through a long read; what fails is kept for the loop."""
    failed: list[BackfillError] = []
    over = threading.Event()

    def beat() -> None:
        while not over.wait(HEARTBEAT_S):
            try:
                loop.heartbeat()
            except Held as exc:
                failed.append(exc)
            except BackfillError:
                continue  # the next beat tries again; the lease outlives two that are missed

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield failed
    finally:
        over.set()
        thread.join()


def _ended(store: JobStore, tick: Tick, signalled: int | None, definition: JobDefinition) -> JobState:
    if tick == Tick.DONE:
        store.become(JobState.DONE, "caught up")
        return JobState.DONE
    store.become(JobState.STOPPING, "a signal" if signalled else "a stop was asked for")
    store.become(JobState.STOPPED, "a signal" if signalled else "a stop was asked for")
    if signalled:
        raise SystemExit(128 + signalled)
    if definition.until == "caught-up":
        raise StoppedEarly(
            f"job {definition.name!r} was stopped before it was caught up", f"backfill resume {definition.name}"
        )
    return JobState.STOPPED


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
