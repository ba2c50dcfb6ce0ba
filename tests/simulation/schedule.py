"""One seeded schedule: changes, commands, failures and crashes at every step, over the real loop and recovery."""

from collections import Counter
from copy import copy
from dataclasses import replace
from random import Random
from typing import Any

from backfill_cli import failpoint
from backfill_cli.contracts import SinkTable
from backfill_cli.engine.loop.meter import Meter
from backfill_cli.engine.loop.orchestrator import Orchestrator, Tick
from backfill_cli.engine.loop.ports import Job, Ports, Settings
from backfill_cli.engine.loop.process import Heartbeat, Wake
from backfill_cli.engine.loop.recovery import recover
from backfill_cli.engine.loop.sizes import Sizes
from backfill_cli.errors import BadData, Held, HistoryGone, StateConflict, Transient
from backfill_cli.model.checkpoint import Checkpoint, Recovered
from backfill_cli.model.job import Command, Control, Verb
from backfill_cli.model.pace import Sizer
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import Pin
from backfill_cli.strategies import Strategy
from backfill_cli.strategies.snapshot import SnapshotStrategy
from backfill_cli.strategies.source import SourceStrategy

from .log_world import LogStager, MemoryLog, log_law_holds
from .memory_sink import LazyCommit, MemorySink, law_holds
from .memory_store import Leased, MemoryStore
from .two_tables import EVEN, ODD, TwoTables
from .world import TABLE, Crash, MemoryStager, MemoryUpstream

STEPS = 60
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
)


class Schedule:
    """All that one seed decides. `run` raises AssertionError where a law does not hold.

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
        self.posted: dict[int, int] = {}  # command -> when
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

    # -- the schedule --------------------------------------------------------------------------------------------

    def run(self) -> None:
        failpoint.handler = self._maybe_crash
        try:
            for _ in range(self.runners):
                try:
                    if self._runner(STEPS):
                        break
                except Crash:
                    self.seen["crash"] += 1
                self._checked()
                self._mistreat()
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
        job = Job("j", self.store.token, tuple(SinkTable(t, t, ("k",), "{}") for t in self.tables), "{}")
        store = Leased(lambda: self.store, self.store.token)
        recovered = recover(job, store, self.sink, self.stager, self.now)
        upstream, stager = self._connected(recovered)
        ports = Ports(
            upstream,
            self.sink,
            store,
            stager,
            lambda f: LazyCommit(f, self.random),
            lambda: self.now,
            lambda: self.steady,
        )
        meter = Meter("j", "time", 1)
        settings = replace(SETTINGS, until="caught-up" if self.quiet else self.until)
        loop = Orchestrator(job, ports, self.strategy, settings, recovered, meter)
        of_snapshot, of_log = (Sizer(self.random.randrange(1, self.most_rows)) for _ in range(2))
        loop._sizes = Sizes(SETTINGS.target_ms, of_snapshot, of_log)
        return loop

    def _runner(self, steps: int) -> bool:
        """Run one process for a while. True when it ended by itself."""
        try:
            self.loop = self._open()
            heartbeat = Heartbeat("j", self.loop.heartbeat, 10**9, Wake())
            for _ in range(steps):
                self._happen()
                tick = self._stepped(self.loop)
                self._checked()
                if tick in (Tick.DONE, Tick.STOPPED):
                    return tick == Tick.DONE
                if self.random.random() < 0.1:
                    self._beaten(heartbeat)
                self._others_step()
                if not self.quiet and self.random.random() < 0.005:
                    self.others.append(self.loop)  # frozen for longer than its lease; it will go on
                    break
        except Transient:
            return False
        except BadData as refusal:
            self._taken_back(refusal)
        except HistoryGone:
            self.seen["history gone"] += 1
            self._checked()
            assert self._regain_history(), "nothing was taken"
        finally:
            self.loop = None
        return False

    def _stepped(self, loop: Orchestrator) -> Tick:
        """One step; the loop is deaf for no longer than the interval, and gives up no earlier than the limit."""
        free = loop._flight.epoch is None and loop._ahead is None
        heard = {c.id for c in self.store.inbox if self.posted[c.id] + SETTINGS.interval_ms <= self.steady}
        self.seen["command in time"] += free and bool(heard)
        self.looks.append((self.now, self._commits()))
        try:
            tick = loop.step()
            self._settled(loop)
        except Transient:
            since = loop._backoff.since_ms
            assert since is not None
            assert self.steady - since >= SETTINGS.retry_limit_ms, "gave up before the limit"
            raise
        assert not free or heard.isdisjoint(c.id for c in self.store.inbox), "deaf to a command"
        return tick

    def _commits(self) -> int:
        """How many commits the upstream has, whose rows `_lacks` tells."""
        return 0

    def _lacks(self, commits: int) -> bool:
        """Whether the sink lacks a row of the first so many."""
        return False

    def _settled(self, loop: Orchestrator) -> None:
        """What the upstream had when the loop says that it was all in the sink, is there: `wait` ends by it."""
        settled = loop._meter._settled_ms
        if settled is None or settled == self.told:
            return
        self.told = None
        before = [commits for at, commits in self.looks if at < settled]
        if before:
            self.seen["settled"] += 1
            assert not self._lacks(before[-1]), "said to be in the sink, and is not"
            self.looks = self.looks[len(before) - 1 :]

    def _beaten(self, heartbeat: Heartbeat) -> None:
        """A heartbeat meets a full disk as often as not: the run goes on."""
        try:
            heartbeat.beat()
        except Transient as exc:
            raise AssertionError("a heartbeat that fails in passing ended the run") from exc

    def _others_step(self) -> None:
        """A runner that was taken over goes on where it was: the catalog or the sink's fence ends it."""
        if not self.others or self.random.random() < 0.7:
            return
        other, before = self.others[-1], (dict(self.sink.rows), self.sink.committed("j"), self.store.committed)
        try:
            ended = other.step() in (Tick.DONE, Tick.STOPPED)
        except self.ends_fenced:
            ended = True
            self.seen["taken over"] += 1
        if ended:
            self.others.remove(other)
        assert before == (self.sink.rows, self.sink.committed("j"), self.store.committed), "a fenced runner wrote"
        self._checked()

    def _taken_back(self, refusal: BadData) -> None:
        """The sink can never take the prepared epoch: it is prepared no more, unless one of two tables has it."""
        prepared = self.store.prepared
        if prepared is None:
            self.seen["refused"] += 1
            return
        promised = (prepared.epoch, prepared.attempt)
        assert promised in [(m.epoch, m.attempt) for m in self.sink.committed("j").values()], "it is stuck"
        assert f"epoch {prepared.epoch} is in" in refusal.message
        self.seen["half refused"] += 1
        self.sink.cured.add(prepared.attempt)

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
            verb = self.random.choice(tuple(Verb))
            rate = self.random.choice((None, 0.0, 1.0, 20.0))
            self.posted[number := len(self.posted)] = self.steady
            self.store.inbox.append(Command(number, verb, "sim", self.now, rate))

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

    # -- what people and disks do to a job that does not run -----------------------------------------------------

    def _mistreat(self) -> None:
        if self.random.random() < 0.25:
            sink = copy(self.sink)
            sink.checkpoints = list(self.sink.checkpoints)
            self.backups.append((replace(self.store, inbox=[]), sink))
        if self.random.random() < 0.25:
            self._damage_staging()
        if self.backups and self.random.random() < 0.25:
            self._restore_one_side()

    def _damage_staging(self) -> None:
        """The prepared epoch's files are gone: no table has it: planned anew; some have it: stop, naming them."""
        prepared = self.store.prepared
        folder = self.stager.folder(prepared.epoch, prepared.attempt) if prepared else ""
        if prepared is None or folder not in self.stager.files:
            return
        lost = self.stager.files.pop(folder)
        promised = (prepared.epoch, prepared.attempt)
        has = [table for table, m in self.sink.committed("j").items() if (m.epoch, m.attempt) == promised]
        if has and len(has) < len(self.tables):
            self._refused(f"epoch {prepared.epoch} is in {', '.join(has)} but not in the other")
            self.stager.files[folder] = lost
            self.seen["damaged"] += 1
        elif not has:
            self.seen["dropped"] += 1

    def _restore_one_side(self) -> None:
        """Catalog or sink as it was some time ago: stop and say which, change nothing, guess nothing."""
        mine = self.store, self.sink
        older, sink = self.random.choice(self.backups)
        if self.random.random() < 0.5:
            self.store = replace(older, token=self.store.token)
        else:
            self.sink = copy(sink)
        if not self._agree():
            self._refused(f"the sink is {'newer' if self.sink is mine[1] else 'older'} than the catalog")
            self.seen["restored"] += 1
        token = self.store.token
        self.store, self.sink = mine
        self.store.token = token

    def _agree(self) -> bool:
        """Whether every table is at the committed epoch, or at the prepared one."""
        prepared, committed = self.store.prepared, self.store.committed.epoch
        promised = (prepared.epoch, prepared.attempt) if prepared else None
        markers = self.sink.committed("j").values()
        return all(m.epoch == committed or (m.epoch, m.attempt) == promised for m in markers)

    def _refused(self, why: str) -> None:
        """A new runner stops with this conflict, and has changed neither side."""
        before = self.store.committed, self.store.prepared, dict(self.sink.rows)
        try:
            self._open()
        except StateConflict as conflict:
            said = conflict.message
        except Crash:
            return
        else:
            raise AssertionError(f"it went on although {why}")
        assert why in said
        assert (self.store.committed, self.store.prepared, dict(self.sink.rows)) == before

    def _finish(self) -> None:
        """The world calms down: the job must end caught up, equal to its upstream."""
        self.quiet = self.sink.calm = self.upstream.calm = True
        self.others = []
        self._regain_history()
        self.store.inbox = []
        self.store.control = Control()
        for _ in range(20):
            if self._runner(2_000):
                break
        else:
            raise AssertionError("never caught up although nothing changed any more")
        self._ended()


class SnapshotSchedule(Schedule):
    """Rows of a pinned snapshot, then a log; the sink one table, or two that commit one by one."""

    upstream: MemoryUpstream

    def _world(self) -> Pin:
        self.upstream = MemoryUpstream(self.random, lambda: self.now)
        self.upstream.fill()
        self.stager = MemoryStager(self.upstream, self.random)
        two = self.random.random() < 0.3
        self.sink = TwoTables(self.stager, self.random) if two else MemorySink(self.stager, self.random)
        self.tables = (EVEN, ODD) if two else (TABLE,)
        pin = self.upstream.pin()
        measure = self.random.choice(("time", "barriers"))
        self.strategy = SnapshotStrategy(pin.splits, measure)  # type: ignore[arg-type]
        return pin

    def _checked(self) -> None:
        if not (isinstance(self.sink, TwoTables) and self.sink.half_way):
            super()._checked()

    def _law(self) -> None:
        law_holds(self.upstream, self.sink)

    def _commits(self) -> int:
        return len(self.upstream.log)

    def _lacks(self, commits: int) -> bool:
        done = int(self.sink.checkpoints[-1].position.get("log") or 0) if self.sink.checkpoints else 0
        return any(changes for _, changes in self.upstream.log[done:commits])

    def _lose_history(self) -> None:
        self.upstream.gone = self.random.randrange(len(self.upstream.log) + 1)

    def _regain_history(self) -> bool:
        gone, self.upstream.gone = self.upstream.gone, 0
        return gone > 0

    def _ended(self) -> None:
        assert self.sink.rows == self.upstream.at(self.upstream.observe_all())


class SourceSchedule(Schedule):
    """History and live log of the same partitions, with an archive or without."""

    upstream: MemoryLog
    strategy: SourceStrategy
    most_rows = 30  # of all partitions together
    busy = 0.2

    def _world(self) -> Pin:
        self.upstream = MemoryLog(self.random, lambda: self.now)
        self.upstream.fill()
        self.stager = LogStager(self.upstream, self.random)  # type: ignore[arg-type]
        self.sink = MemorySink(self.stager, self.random)
        pin = self.upstream.pin()
        self.strategy = SourceStrategy(pin.splits, TABLE)
        return pin

    def _happen(self) -> None:
        super()._happen()
        # An epoch under way may have handed a partition over: what it relies on is not in the catalog yet.
        under_way = self.store.prepared or (self.loop and self.loop._ahead)
        if not self.quiet and not under_way and self.random.random() < 0.3:
            self.upstream.retain(self._known())

    def _known(self) -> Any:
        committed = self.store.committed
        state = self.strategy.thaw(committed.state, committed.splits, Control())
        return {partition: progress for (_, partition), progress in state.splits.items()}

    def _law(self) -> None:
        log_law_holds(self.upstream, self.sink, self.strategy)

    def _lose_history(self) -> None:
        self.upstream.take(self._known())

    def _regain_history(self) -> bool:
        return self.upstream.give_back()

    def _ended(self) -> None:
        position = self.sink.checkpoints[-1].position if self.sink.checkpoints else self.held
        known = dict(position)  # a partition that retention emptied before anybody saw it need not be there
        ends = {name: p.end for name, p in self.upstream.partitions.items() if p.oldest < p.end or name in known}
        assert position == Position.of(ends)


def run_all(kind: type[Schedule], seeds: range) -> Counter[str]:
    """What happened in these schedules: crashes, restored sides, … each compared with the law after it."""
    happened: Counter[str] = Counter()
    for seed in seeds:
        schedule = kind(seed)
        try:
            schedule.run()
        except BaseException as exc:
            exc.add_note(f"replay: {kind.__name__}({seed}).run()")
            raise
        happened.update(schedule.seen)
    return happened
