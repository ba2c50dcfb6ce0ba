"""One seeded schedule: changes, commands, failures and crashes at every step, over the real loop and recovery."""

from dataclasses import replace
from random import Random

from backfill_cli import failpoint
from backfill_cli.contracts import SinkTable
from backfill_cli.engine.orchestrator import Job, Orchestrator, Ports, Settings, Tick
from backfill_cli.engine.recovery import recover
from backfill_cli.engine.report import Meter
from backfill_cli.errors import Transient
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Command, Control, Verb
from backfill_cli.model.pace import Sizer
from backfill_cli.strategies.snapshot import SnapshotStrategy

from .world import TABLE, Crash, LazyCommit, MemorySink, MemoryStager, MemoryStore, MemoryUpstream, law_holds

STEPS = 60
SETTINGS = Settings(interval_ms=1000, target_ms=5000, retry_limit_ms=10**9, until="caught-up")


class Schedule:
    """All that one seed decides. `run` raises AssertionError where a law does not hold."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 1_000
        self.upstream = MemoryUpstream(self.random, lambda: self.now)
        self.upstream.fill()
        self.stager = MemoryStager(self.upstream, self.random)
        self.sink = MemorySink(self.stager, self.random)
        pin = self.upstream.pin()
        measure = self.random.choice(("time", "barriers"))
        self.strategy = SnapshotStrategy(pin.splits, measure)  # type: ignore[arg-type]
        start = self.strategy.start(pin, Control())
        self.store = MemoryStore(Checkpoint(0, 0, 0, "", self.strategy.freeze(start), start.phase, start.position))
        self.quiet = False
        self.positions = 0
        self.crashes = 0

    def run(self) -> None:
        failpoint.handler = self._maybe_crash
        try:
            for _ in range(40):
                try:
                    if self._runner(STEPS):
                        break
                except Crash:
                    self.crashes += 1
                law_holds(self.upstream, self.sink)
            self._finish()
        finally:
            failpoint.handler = failpoint._kill_when_named

    def _maybe_crash(self, name: str) -> None:
        if not self.quiet and self.random.random() < 0.02:
            raise Crash(name)

    def _open(self) -> Orchestrator:
        """A new runner: claim, recover, loop."""
        self.store.token += 1
        self.store.control = replace(self.store.control, stop=False)
        job = Job("j", self.store.token, (SinkTable(TABLE, TABLE, ("k",), "{}"),), "{}")
        recovered = recover(job, self.store, self.sink, self.stager, self.now)
        ports = Ports(
            self.upstream,
            self.sink,
            self.store,
            self.stager,
            lambda f: LazyCommit(f, self.random),
            lambda: self.now,
        )
        loop = Orchestrator(
            job, ports, self.strategy, SETTINGS, recovered, Meter("j", self.strategy.splits, "time", 1)
        )
        loop._snapshot_size = Sizer(self.random.randrange(1, 12))
        loop._log_size = Sizer(self.random.randrange(1, 12))
        return loop

    def _runner(self, steps: int) -> bool:
        """Run one process for a while. True when it ended by itself."""
        try:
            loop = self._open()
        except Transient:
            return False
        for _ in range(steps):
            self._happen()
            try:
                tick = loop.step()
            except Transient:
                return False
            law_holds(self.upstream, self.sink)
            self._monotone()
            if tick in (Tick.DONE, Tick.STOPPED):
                return tick == Tick.DONE
        return False

    def _happen(self) -> None:
        """What the world does between two steps."""
        self.now += self.random.choice((0, 1, 300, 1500))
        if self.quiet:
            return
        if self.random.random() < 0.3:
            self.upstream.change()
        if self.random.random() < 0.1:
            verb = self.random.choice(tuple(Verb))
            rate = self.random.choice((None, 0.0, 1.0, 20.0))
            self.store.inbox.append(Command(self.random.randrange(10**9), verb, "sim", self.now, rate))

    def _monotone(self) -> None:
        """A checkpoint never moves back, and nothing is acknowledged before the sink holds it."""
        held = int(self.sink.checkpoints[-1].position.get("log") or 0) if self.sink.checkpoints else 0
        assert held >= self.positions
        self.positions = held
        assert int(self.upstream.acknowledged.get("log") or 0) <= held

    def _finish(self) -> None:
        """The world calms down: the job must end caught up, equal to its upstream."""
        self.quiet = True
        self.store.inbox = []
        self.store.control = Control()
        for _ in range(20):
            if self._runner(2_000):
                break
        else:
            raise AssertionError("never caught up although nothing changed any more")
        assert self.sink.rows == self.upstream.at(self.upstream.observe_all())
