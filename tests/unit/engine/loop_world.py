"""The barrier loop over the simulation's world, step by step: tests finish the commits, calls are recorded."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from random import Random

from simulation.memory_sink import MemorySink
from simulation.memory_store import MemoryStore
from simulation.world import TABLE, MemoryStager, MemoryUpstream

from backfill_cli.contracts import EpochCommit, SinkTable, StagedEpoch
from backfill_cli.engine.loop.meter import Meter
from backfill_cli.engine.loop.orchestrator import Orchestrator, Tick
from backfill_cli.engine.loop.pace import Sizes
from backfill_cli.engine.loop.ports import Job, Ports, Settings
from backfill_cli.engine.loop.recovery import recover, unfilled
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Progress, Recovered
from backfill_cli.model.derived import Derived
from backfill_cli.model.job import Command, Control, JobState, Verb
from backfill_cli.model.limit import Limit
from backfill_cli.model.pace import Sizer
from backfill_cli.model.plan import EpochPlan
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin, UpstreamView
from backfill_cli.strategies.snapshot import SnapshotStrategy

SETTINGS = Settings(interval_ms=1_000, target_ms=5_000, retry_limit_ms=60_000, until="forever")
TABLES = (SinkTable(TABLE, TABLE, ("k",), "{}"),)


class Steady(Random):
    """Nothing in the world fails at random."""

    def random(self) -> float:
        return 0.99


@dataclass
class Upstream(MemoryUpstream):
    trace: list[str] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        self.trace.append("observe")
        if self.failures:
            raise self.failures.pop(0)
        return super().observe(position, snapshot_open)

    def acknowledge(self, position: Position) -> None:
        self.trace.append(f"acknowledge {position.get('log') or 0}")
        super().acknowledge(position)


@dataclass
class Stager(MemoryStager):
    trace: list[str] = field(default_factory=list)
    sink_schemas: dict[str, str] = field(default_factory=dict)
    failures: list[Exception] = field(default_factory=list)

    def stage(
        self,
        plan: EpochPlan,
        epoch: int,
        schemas: Mapping[str, str],
        unwanted: Callable[[], bool] = lambda: False,
    ) -> StagedEpoch:
        self.trace.append("stage")
        if self.failures:
            raise self.failures.pop(0)
        return replace(super().stage(plan, epoch, schemas, unwanted), sink_schemas=dict(self.sink_schemas))

    def discard(self, epoch: int, attempt: str) -> None:
        self.trace.append(f"discard {attempt}")
        super().discard(epoch, attempt)


@dataclass
class Sink(MemorySink):
    trace: list[str] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    def prepare(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        self.trace.append(f"columns {tables[0].schema}")

    def fence(self, job: str, token: int) -> None:
        self.trace.append(f"fence {token}")
        super().fence(job, token)

    def commit(self, commit: EpochCommit) -> None:
        self.trace.append(f"commit {commit.attempt}")
        if self.failures:
            raise self.failures.pop(0)
        super().commit(commit)


@dataclass
class Store(MemoryStore):
    trace: list[str] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    ledger: list[EpochRecord] = field(default_factory=list)
    states: list[JobState] = field(default_factory=list)

    def take(self, commands: Sequence[Command], control: Control, state: JobState, record: EpochRecord) -> None:
        self.trace.append(f"take {record.mutations}")
        if self.failures:
            raise self.failures.pop(0)
        self.states.append(state)
        super().take(commands, control, state, record)

    def prepare(self, checkpoint: Checkpoint, committed: EpochRecord | None, progress: Progress) -> None:
        marks = "" if committed is None else f" marks {committed.epoch}"
        self.trace.append(f"prepare {checkpoint.attempt}{marks}")
        if committed is not None:
            self.ledger.append(committed)
        super().prepare(checkpoint, committed, progress)

    def mark(self, committed: EpochRecord, progress: Progress | None) -> None:
        self.trace.append(f"mark {committed.epoch}")
        self.ledger.append(committed)
        super().mark(committed, progress)

    def unprepare(self, epoch: int) -> None:
        self.trace.append(f"unprepare {epoch}")
        super().unprepare(epoch)

    def heartbeat(self, now_ms: int, progress: Progress | None) -> None:
        self.trace.append("heartbeat")

    def become(self, state: JobState, reason: str) -> None:
        self.trace.append(f"become {state}")
        self.states.append(state)
        super().become(state, reason)


class Later(Future[None]):
    """A commit that runs when the test says so."""

    def __init__(self, run: Callable[[], None]) -> None:
        super().__init__()
        self._run = run

    def finish(self) -> None:
        try:
            self._run()
        except Exception as exc:
            self.set_exception(exc)
        else:
            self.set_result(None)


class World:
    """One job with a snapshot of `rows` rows in one split, and a log of `log` upstream epochs of one change.

    fuzzy: how many of them the load of the snapshot already saw in part.
    """

    def __init__(
        self, rows: int = 20, log: int = 0, per_epoch: int = 10, settings: Settings = SETTINGS, fuzzy: int = 0
    ) -> None:
        self.now_ms = 10**9  # how much time has passed: days
        self.stepped_ms = 0  # by how much the clock was set wrong
        self.trace: list[str] = []
        self.commits: list[Later] = []
        self.told: list[Limit] = []
        self.settings = settings
        self.per_epoch = per_epoch
        self.derived: tuple[Derived, ...] = ()
        steady = Steady()
        self.upstream = Upstream(steady, self.wall_ms, trace=self.trace)
        self.upstream.splits = [[(k, 1000 + k) for k in range(rows)]] if rows else []
        self.stager = Stager(self.upstream, steady, trace=self.trace)
        self.sink = Sink(self.stager, steady, trace=self.trace)
        splits = tuple(Split(TABLE, str(i), len(s), 100 * len(s)) for i, s in enumerate(self.upstream.splits))
        self.strategy = SnapshotStrategy(splits)
        complete_at = Position.of({"log": fuzzy}) if fuzzy else None
        first = self.strategy.start(Pin(Position(), None, complete_at, splits), Control())
        self.store = Store(
            Checkpoint(0, 0, 0, "", self.strategy.freeze(first), first.phase, first.position), trace=self.trace
        )
        self.change(log)
        self.open()

    def open(self) -> None:
        """A new runner: recovered, its loop not started."""
        self.store.token += 1
        self.job = Job("j", self.store.token, TABLES, "{}", derived=self.derived)
        self.loop = self.loop_from(recover(self.job, self.store, self.sink, self.stager, self.wall_ms()))
        self.trace.clear()

    def wall_ms(self) -> int:
        return self.now_ms + self.stepped_ms

    def loop_from(self, start: Recovered) -> Orchestrator:
        ports = Ports(
            self.upstream,
            self.sink,
            self.store,
            self.stager,
            None,
            self._in_background,
            self.wall_ms,
            lambda: self.now_ms,
            tell=self.told.append,
        )
        meter = Meter("j", self.settings.interval_ms)
        waits = unfilled(self.job, self.sink)
        loop = Orchestrator(self.job, ports, self.strategy, self.settings, start, meter, waits)
        loop._sizes = Sizes(self.settings.target_ms, Sizer(self.per_epoch), Sizer(self.per_epoch))
        return loop

    def _in_background(self, run: Callable[[], None]) -> Later:
        self.commits.append(Later(run))
        return self.commits[-1]

    def change(self, epochs: int = 1) -> None:
        for _ in range(epochs):
            self.upstream.log.append((self.wall_ms(), [("U", 0, len(self.upstream.log))]))

    def post(self, verb: Verb, rate: float | None = None, payload: str = "") -> None:
        at_ms = self.now_ms
        self.store.inbox.append(Command(len(self.trace) + at_ms, verb, "ann", at_ms, rate, payload=payload))

    def step(self, passes_ms: int = 0) -> Tick:
        self.now_ms += passes_ms
        return self.loop.step()

    def finish(self) -> None:
        """The commit in progress finishes."""
        self.commits[-1].finish()

    def steps(self, count: int, passes_ms: int = 0) -> list[Tick]:
        """Steps of a loop whose commits finish at once."""
        ticks = []
        for _ in range(count):
            ticks.append(self.step(passes_ms))
            if self.commits and not self.commits[-1].done():
                self.finish()
        return ticks

    def until(self, *ends: Tick, at_most: int = 200) -> Tick:
        """Steps at the interval until one returns this tick."""
        for _ in range(at_most):
            (tick,) = self.steps(1, self.settings.interval_ms)
            if tick in ends:
                return tick
        raise AssertionError(f"none of {ends} after {at_most} steps")

    def seen(self) -> list[str]:
        """What was called since this was last read."""
        found = list(self.trace)
        self.trace.clear()
        return found
