"""One seeded job: its world, its runners over the real loop and recovery, and what happens between two steps."""

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

from backfill_cli.contracts import SinkTable
from backfill_cli.engine.loop.meter import Meter
from backfill_cli.engine.loop.orchestrator import Orchestrator
from backfill_cli.engine.loop.pace import Sizes
from backfill_cli.engine.loop.ports import Job, Ports, Settings
from backfill_cli.engine.loop.recovery import recover
from backfill_cli.engine.spool.upstream import SpooledUpstream
from backfill_cli.errors import Held, HistoryGone, Transient
from backfill_cli.model.checkpoint import Checkpoint, Recovered
from backfill_cli.model.job import REDEFINES, Command, Control, Verb
from backfill_cli.model.pace import Sizer
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import Pin
from backfill_cli.strategies import Strategy

from .memory_sink import LazyCommit, MemorySink
from .memory_store import Leased, MemoryStore
from .world import TABLE, Crash, MemoryStager

SETTINGS = Settings(interval_ms=1000, target_ms=5000, retry_limit_ms=600_000, until="caught-up")
DAY_MS = 86_400_000

RARE = (
    "crash",
    "dropped",
    "damaged",
    "history gone",
    "restored",
    "refused",
    "half refused",
    "taken over",
    "set",
    "command in time",
    "interrupted",
)


class SeededJob:
    """All that one seed decides, apart from the order in which it happens.

    What a strategy brings is in the subclasses. seen: how often something that is rare happened.
    """

    upstream: Any
    stager: MemoryStager
    sink: MemorySink
    strategy: Strategy
    tables: tuple[str, ...] = (TABLE,)
    most_rows = 12  # an epoch has
    busy = 0.3  # how often the upstream changes between two steps
    ends_fenced: tuple[type[BaseException], ...] = (Held, Crash, HistoryGone, Transient)

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.steady = 10**9  # how much time has passed
        self.stepped = 0  # how far somebody has set the clock off it
        self.pin = self._world()
        start = self.strategy.start(self.pin, Control())
        self.store = MemoryStore(Checkpoint(0, 0, 0, "", self.strategy.freeze(start), start.phase, start.position))
        self.quiet = False
        forever = self.random.random() < 0.3
        self.until, self.runners = ("forever", self.random.randrange(2, 8)) if forever else ("caught-up", 40)
        self.held: Position = start.position
        self.lawful = -1
        self.loop: Orchestrator | None = None
        self.others: list[Orchestrator] = []  # runners on other hosts that were taken for dead, and live
        self.posted = 0  # commands
        self.backups: list[tuple[MemoryStore, MemorySink]] = []
        self.seen = Counter(dict.fromkeys(RARE, 0))
        self.looks: list[tuple[int, int]] = []  # (time of day, commits that the upstream had then), by one clock
        self.told: int | None = None  # what was settled when the clock was set

    @property
    def now(self) -> int:
        """The time of day, which people and machines set."""
        return self.steady + self.stepped

    # -- what a strategy brings ----------------------------------------------------------------------------------

    def _world(self) -> Pin:
        """Upstream, stager, sink and strategy are there."""
        raise AssertionError("a schedule has a strategy")

    def _connected(self, recovered: Recovered) -> tuple[Any, MemoryStager]:
        """The upstream as a new runner has it, and what stages from there."""
        return self.upstream, self.stager

    def _law(self) -> None:
        """The law of the strategy at the checkpoint that the sink holds."""
        raise AssertionError("a schedule has a law")

    def _lose_history(self) -> None:
        """Retention takes what the job still needs."""
        raise AssertionError("a schedule has a retention")

    def _regain_history(self) -> bool:
        """What was taken comes back; whether anything had been taken."""
        raise AssertionError("a schedule has a retention")

    def _ended(self) -> None:
        """Nothing changes any more and the job is caught up: the sink equals the upstream."""
        raise AssertionError("a schedule has an end")

    def _commits(self) -> int:
        """How many commits the upstream has, whose rows `_lacks` tells."""
        return 0

    def _lacks(self, commits: int) -> bool:
        """Whether the sink lacks a row of the first so many."""
        return False

    # -- the job and its world -----------------------------------------------------------------------------------

    def _maybe_crash(self, name: str) -> None:
        if not self.quiet and self.random.random() < 0.02:
            raise Crash(name)

    def _open(self) -> Orchestrator:
        """A new runner: claim, recover, loop."""
        self.store.token += 1
        self.store.control = replace(self.store.control, stop=False)
        job = Job("j", self.store.token, tuple(SinkTable(t, t, ("k",), "{}") for t in self.tables), "{}")
        store = Leased(lambda: self.store, self.store.token)
        recovered = recover(job, store, self.sink, self.stager, self.now)
        upstream, stager = self._connected(recovered)
        stager.during = self._meanwhile
        ports = Ports(
            upstream,
            self.sink,
            store,
            stager,
            upstream if isinstance(upstream, SpooledUpstream) else None,
            lambda f: LazyCommit(f, self.random),
            lambda: self.now,
            lambda: self.steady,
        )
        meter = Meter("j", 1)
        settings = replace(SETTINGS, until="caught-up" if self.quiet else self.until)
        loop = Orchestrator(job, ports, self.strategy, settings, recovered, meter)
        of_snapshot, of_log = (Sizer(self.random.randrange(1, self.most_rows)) for _ in range(2))
        loop._sizes = Sizes(SETTINGS.target_ms, of_snapshot, of_log)
        return loop

    def _happen(self) -> None:
        """What the world does between two steps."""
        self.steady += self.random.choice((0, 1, 300, 1500))
        if self.quiet:
            return
        if self.random.random() < 0.01:
            self.stepped += self.random.choice((DAY_MS, -DAY_MS))
            self.seen["set"] += 1
            self.looks, self.told = [], self.loop and self.loop._meter._settled_ms
        if self.random.random() < self.busy:
            self.upstream.change()
        if self.random.random() < 0.005:
            self._lose_history()
        if self.random.random() < 0.1:
            self._command()

    def _command(self) -> None:
        """Somebody types one."""
        verb = self.random.choice(
            [verb for verb in Verb if verb not in {*REDEFINES, Verb.REFILL, Verb.CANCEL_REFILL}]
        )
        rate = self.random.choice((None, 0.0, 1.0, 20.0))
        self.posted += 1
        self.store.inbox.append(Command(self.posted, verb, "sim", self.now, rate))

    def _meanwhile(self) -> None:
        """A command comes while an epoch is staged: one for which less is read interrupts that."""
        if not self.quiet and self.random.random() < 0.1:
            self._command()

    def _checked(self) -> None:
        """The law; a checkpoint never moves back; nothing is acknowledged too early."""
        if self.lawful != len(self.sink.checkpoints):
            self._law()
            self.lawful = len(self.sink.checkpoints)
            position = self.sink.checkpoints[-1].position if self.sink.checkpoints else self.held
            assert self.held <= position
            self.held = position
        assert any(self.upstream.acknowledged <= end for end in self._kept()), "acknowledged too early"

    def _kept(self) -> list[Position]:
        """What is acknowledged is before one of these: nothing before them need be read again."""
        return [self.held]
