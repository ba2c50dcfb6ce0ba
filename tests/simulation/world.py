"""An upstream, a sink, a catalog and a stager in memory: the world of the simulation.

The real strategy, loop and recovery run over it; every random choice comes from one seeded generator.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from backfill_cli.contracts import EpochCommit, SavedJob, SinkTable, SpoolEntry, UpstreamCapabilities
from backfill_cli.engine.loop.ports import StagedEpoch
from backfill_cli.errors import BadData, Held, HistoryGone, StateConflict, Transient
from backfill_cli.failpoint import hit
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Marker, Progress, Recovered
from backfill_cli.model.job import Command, Control, JobState, Phase, may_become
from backfill_cli.model.plan import EpochPlan, SnapshotRead, Staged, StagedFile, StagedTable
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.split import Split, SplitKey, SplitProgress
from backfill_cli.model.upstream import Pin, UpstreamEpoch, UpstreamView

Rows = dict[Any, int]
"""key -> value"""
Change = tuple[str, int, int]

TABLE = "t"


class Crash(BaseException):
    """The process is gone, as by kill -9."""


@dataclass
class MemoryUpstream:
    """A pinned snapshot in splits, and a log that grows. gone: how many commits retention has taken from it."""

    random: Random
    now_ms: Callable[[], int]
    splits: list[list[tuple[int, int]]] = field(default_factory=list)
    log: list[tuple[int, list[Change]]] = field(default_factory=list)
    acknowledged: Position = field(default_factory=Position)
    gone: int = 0
    capabilities = UpstreamCapabilities(True, True, True, True)

    def fill(self) -> None:
        keys = list(range(self.random.randrange(1, 30)))
        count = self.random.randrange(1, 5)
        self.splits = [[(k, 1000 + k) for k in keys if k % count == i] for i in range(count)]

    def change(self) -> None:
        """One upstream commit: several changes, keys old and new, deletes and inserts of one key together."""
        changes = []
        for _ in range(self.random.randrange(0, 5)):
            op = self.random.choice("UUD")
            changes.append((op, self.random.randrange(40), self.random.randrange(10**6)))
        self.log.append((self.now_ms(), changes))

    def pin(self) -> Pin:
        splits = tuple(
            Split(
                TABLE,
                str(i),
                len(rows) if self.random.random() < 0.7 else None,
                int(100 * len(rows) * self.random.uniform(0.3, 3)),
                cuttable=self.random.random() < 0.8,
            )
            for i, rows in enumerate(self.splits)
        )
        return Pin(Position(), None, None, splits)

    def at(self, position: Position) -> Rows:
        """The law's right side: the whole snapshot with the log applied up to `position`."""
        rows = {k: v for split in self.splits for k, v in split}
        for _, changes in self.log[: int(position.get("log") or 0)]:
            for op, key, value in changes:
                rows.pop(key, None)
                if op == "U":
                    rows[key] = value
        return rows

    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        if self.random.random() < 0.03:
            raise Transient("the upstream does not answer")
        done = int(position.get("log") or 0)
        if done < self.gone:
            raise HistoryGone(f"changes from {done} on are needed, the oldest is {self.gone}")
        pending = tuple(
            UpstreamEpoch((("log", i + 1),), ms, len(changes), 100)
            for i, (ms, changes) in enumerate(self.log)
            if i >= done
        )
        return UpstreamView("{}", Position.of({"log": len(self.log)}), pending)

    def observe_all(self) -> Position:
        return Position.of({"log": len(self.log)})

    def acknowledge(self, position: Position) -> None:
        self.acknowledged = position

    def restore(self, pin: Pin) -> None: ...
    def close(self) -> None: ...
    def closed(self, *_: Any) -> Any: ...
    def row_count(self, *_: Any) -> Any: ...
    def scan(self, *_: Any) -> Any: ...
    def changes(self, *_: Any) -> Any: ...
    def failure(self, exc: Exception) -> None: ...


def row_of(cursor: Cursor | None) -> int:
    """Cursors are texts that only this upstream reads: whoever counted with one would fail."""
    return 0 if cursor is None else int(str(cursor).removeprefix("row "))


@dataclass
class MemoryStager:
    """Staged epochs, by (epoch, attempt): durable, so they outlive a crash."""

    upstream: MemoryUpstream
    random: Random
    files: dict[str, tuple[Rows, dict[int, tuple[str, int]]]] = field(default_factory=dict)
    made: int = 0

    def folder(self, epoch: int, attempt: str) -> str:
        return f"{epoch}-{attempt}"

    def stage(self, plan: EpochPlan, epoch: int, schemas: Mapping[str, str]) -> StagedEpoch:
        self.made += 1
        attempt = f"a{self.made}"
        if self.random.random() < 0.03:
            raise Transient("an executor was lost")
        reads: list[tuple[SnapshotRead, int]] = []
        rows: Rows = {}
        for read in plan.reads:
            after, held = row_of(read.after), self.upstream.splits[int(read.split)]
            part = held[after:] if read.limit_rows is None else held[after : after + read.limit_rows]
            assert not rows.keys() & dict(part).keys()
            rows.update(part)
            ended = read.limit_rows is None or after + len(part) == len(held)
            up_to = None if ended else f"row {after + len(part)}"
            reads.append((replace(read, up_to=up_to, limit_rows=None), len(part)))
        net: dict[int, tuple[str, int]] = {}
        count = 0
        if plan.window:
            begin, end = plan.window.after.get("log") or 0, plan.window.up_to.get("log") or 0
            for _, changes in self.upstream.log[int(begin) : int(end)]:
                for op, key, value in changes:
                    net[key] = (op, value)
                    count += 1
        self.files[self.folder(epoch, attempt)] = (rows, net)
        table = StagedTable((StagedFile("f", 1),), (), len(rows), len(net))
        return StagedEpoch(Staged(attempt, {TABLE: table}, tuple(reads), count, plan.window), schemas, {})

    def intact(self, epoch: int, staged: Staged) -> bool:
        return self.folder(epoch, staged.attempt) in self.files

    def discard(self, epoch: int, attempt: str) -> None:
        self.files.pop(self.folder(epoch, attempt), None)


@dataclass
class MemorySink:
    """Rows and marker, committed together. plain inserts refuse a key that is there."""

    stager: MemoryStager
    random: Random
    rows: Rows = field(default_factory=dict)
    marker: Marker = field(default_factory=lambda: Marker(0, 0, ""))
    checkpoints: list[Checkpoint] = field(default_factory=list)
    splits: dict[SplitKey, SplitProgress] = field(default_factory=dict)
    judged: dict[tuple[str, str], bool] = field(default_factory=dict)  # attempt and table -> rows are bad
    cured: set[str] = field(default_factory=set)
    calm: bool = False
    closed: list[str] = field(default_factory=list)
    transactional = True
    partial = False

    def prepare(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None: ...

    def fence(self, job: str, token: int) -> None:
        if self.marker.token > token:
            raise Held("fenced")
        self.marker = replace(self.marker, token=token)

    def committed(self, job: str) -> Mapping[str, Marker]:
        return {TABLE: self.marker}

    def commit(self, commit: EpochCommit) -> None:
        if (self.marker.epoch, self.marker.attempt) == (commit.epoch, commit.attempt):
            return
        if commit.token < self.marker.token:
            raise Held("an older token")
        if commit.epoch <= self.marker.epoch or commit.prev_epoch != self.marker.epoch:
            raise StateConflict(f"epoch {commit.epoch} after {self.marker.epoch}, prev {commit.prev_epoch}")
        if self.random.random() < 0.05:
            raise Transient("the sink is held by somebody else")
        self.judge(commit.attempt, TABLE)
        rows = self.applied(*self.stager.files[commit.folder])
        hit("sink-before-commit")
        self.rows, self.marker = rows, Marker(commit.epoch, commit.token, commit.attempt)
        self.keep(commit.saved.checkpoint)
        hit("sink-after-commit")

    def judge(self, attempt: str, table: str) -> None:
        """Some staged rows can never be taken, however often they come."""
        bad = self.judged.setdefault((attempt, table), not self.calm and self.random.random() < 0.01)
        if bad and attempt not in self.cured:
            raise BadData(f"rows of {attempt} that {table} cannot take")

    def applied(self, inserts: Mapping[Any, int], net: Mapping[Any, tuple[str, int]]) -> dict[Any, int]:
        """The rows once these are in."""
        rows = dict(self.rows)
        for key, value in inserts.items():
            assert key not in rows, f"snapshot row {key} twice"
            rows[key] = value
        for key, (op, value) in net.items():
            rows.pop(key, None)
            if op == "U":
                rows[key] = value
        return rows

    def keep(self, checkpoint: Checkpoint) -> None:
        self.checkpoints.append(checkpoint)
        self.closed += checkpoint.plan.closes_snapshot if checkpoint.plan is not None else ()
        self.splits = {**self.splits, **checkpoint.splits}

    def saved(self, job: str) -> SavedJob | None:
        return None

    def drop(self, tables: Sequence[SinkTable]) -> None: ...
    def forget(self, job: str) -> None: ...


@dataclass
class MemoryStore:
    """The catalog's tables, and one runner's token into them."""

    committed: Checkpoint
    control: Control = field(default_factory=Control)
    prepared: Checkpoint | None = None
    inbox: list[Command] = field(default_factory=list)
    token: int = 0
    last_epoch: int = 0
    state: JobState = JobState.RUNNING
    progress: Progress | None = None
    spool_entries: list[SpoolEntry] = field(default_factory=list)

    def spooled(self) -> tuple[SpoolEntry, ...]:
        return tuple(self.spool_entries)

    def spool(self, entry: SpoolEntry) -> None:
        self.spool_entries = [*(one for one in self.spool_entries if one.number != entry.number), entry]

    def trim(self, number: int) -> None:
        self.spool_entries = [one for one in self.spool_entries if one.number > number]

    def load(self) -> Recovered:
        """Asked by each new runner, which then is at work."""
        self.state = JobState.PAUSED if self.control.paused else JobState.RUNNING
        return Recovered(self.control, self.committed, self.prepared, self.last_epoch)

    def commands(self) -> tuple[Command, ...]:
        return tuple(self.inbox)

    def asked(self) -> bool:
        return False

    def take(self, commands: Sequence[Command], control: Control, state: JobState, record: EpochRecord) -> None:
        assert record.epoch > self.last_epoch
        assert may_become(self.state, state), (self.state, state)
        self.inbox = [c for c in self.inbox if c not in commands]
        self.control, self.state, self.last_epoch = control, state, record.epoch

    def prepare(self, checkpoint: Checkpoint, committed: EpochRecord | None, progress: Progress) -> None:
        assert checkpoint.epoch >= self.last_epoch
        assert checkpoint.epoch > self.committed.epoch
        self._mark(committed)
        assert self.prepared is None, "n+1 was prepared before n was known to be committed"
        self.prepared, self.last_epoch = checkpoint, checkpoint.epoch

    def _mark(self, record: EpochRecord | None) -> None:
        if record is None:
            return
        assert self.prepared is not None
        assert self.prepared.epoch == record.epoch
        splits = {**self.committed.splits, **self.prepared.splits}
        self.committed = replace(self.prepared, splits=splits, plan=None, staged=None)
        self.prepared = None

    def mark(self, committed: EpochRecord, progress: Progress | None) -> None:
        self._mark(committed)

    def unprepare(self, epoch: int) -> None:
        assert self.prepared is not None
        self.prepared = None

    def heartbeat(self, now_ms: int, progress: Progress | None) -> None:
        if now_ms % 3 == 0:
            raise Transient("the catalog's disk is full")

    def become(self, state: JobState, reason: str) -> None:
        self.state = state


class Leased:
    """The catalog as one runner uses it: from the next claim on it is refused. store: the one there is now."""

    def __init__(self, store: Callable[[], MemoryStore], token: int) -> None:
        self._store = store
        self._token = token

    def __getattr__(self, name: str) -> Any:
        store = self._store()
        if name != "commands" and store.token != self._token:
            raise Held("taken over")
        return getattr(store, name)


class LazyCommit(Future[None]):
    """A commit in the background: it runs at some time between being asked for and being needed."""

    def __init__(self, run: Callable[[], None], random: Random) -> None:
        super().__init__()
        self._run: Callable[[], None] | None = run
        self._random = random

    def done(self) -> bool:
        if self._run is not None and self._random.random() < 0.5:
            run, self._run = self._run, None
            try:
                run()
            except Exception as exc:
                self.set_exception(exc)
            else:
                self.set_result(None)
        return super().done()


def law_holds(upstream: MemoryUpstream, sink: MemorySink) -> None:
    """At every checkpoint: sink = f(upstream) as the committed state says."""
    if not sink.checkpoints:
        assert sink.rows == {}
        return
    last = sink.checkpoints[-1]
    snapshot = {k: v for (_, split), p in sink.splits.items() for k, v in upstream.splits[int(split)][: p.rows]}
    if last.phase == Phase.SNAPSHOT or json.loads(last.state)["position"] == {}:
        assert sink.rows == snapshot, "snapshot phase: the consumed prefix of each split"
    else:
        assert sink.rows == upstream.at(last.position), "later: the upstream at the position"
    finished = last.phase != Phase.SNAPSHOT and upstream.splits
    assert sink.closed == ([TABLE] if finished else []), "a table's keys are checked once, with its last rows"
