"""Tables with a log each, of which a job has some: upstream, staging, sink and catalog in memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, ClassVar

from backfill_cli.contracts import (
    Capabilities,
    EpochCommit,
    JobDefinition,
    Pinned,
    SavedJob,
    SinkCapabilities,
    SinkTable,
    Source,
    StagedEpoch,
)
from backfill_cli.errors import BadData, Held, StateConflict, Transient
from backfill_cli.failpoint import hit
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Marker
from backfill_cli.model.job import Command, Control
from backfill_cli.model.plan import EpochPlan, SnapshotRead, Staged, StagedFile, StagedTable
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split, SplitKey, SplitProgress, SplitStatus
from backfill_cli.model.upstream import Pin, UpstreamEpoch, UpstreamView

from .memory_store import MemoryStore
from .world import Change, MemoryStager, Rows, row_of

TABLES = ("a", "b", "c")


@dataclass
class Shop(Source):
    """parts: by table and split, the rows that a pin had there; no split is pinned twice.

    failing: tables that have what cannot be read, or taken.
    """

    random: Random
    now_ms: Callable[[], int]
    logs: dict[str, list[tuple[int, list[Change]]]] = field(default_factory=lambda: {name: [] for name in TABLES})
    parts: dict[SplitKey, list[tuple[int, int]]] = field(default_factory=dict)
    acknowledged: Position = field(default_factory=Position)
    failing: set[str] = field(default_factory=set)
    calm: bool = False
    capabilities = Capabilities(Pinned(), True, False)

    def change(self) -> None:
        table, random = self.random.choice(TABLES), self.random
        changes = [
            (random.choice("UUD"), random.randrange(12), random.randrange(10**6))
            for _ in range(random.randrange(4))
        ]
        self.logs[table].append((self.now_ms(), changes))

    def at(self, table: str, end: int) -> Rows:
        """The law's right side: a table once so many commits of its log are applied to nothing."""
        rows: Rows = {}
        for _, changes in self.logs[table][:end]:
            for op, key, value in changes:
                rows.pop(key, None)
                if op == "U":
                    rows[key] = value
        return rows

    def pinned(self, table: str) -> Pin:
        end = len(self.logs[table])
        rows, count = sorted(self.at(table, end).items()), self.random.randrange(1, 4)
        splits = []
        for at in range(count):
            part, name = rows[at::count], f"{len(self.parts)}"
            self.parts[table, name] = part
            splits.append(Split(table, name, len(part), 100 * len(part), cuttable=self.random.random() < 0.8))
        return Pin(Position.of({table: end}), None, None, tuple(splits), {table: "{}"})

    def pin(self) -> Pin:
        return self.pinned(TABLES[0])

    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        if not self.calm and self.random.random() < 0.03:
            raise Transient("the upstream does not answer")
        pending = [
            UpstreamEpoch(((table, at + 1),), ms, len(changes), 100)
            for table, done in position
            for at, (ms, changes) in enumerate(self.logs[table])
            if at >= int(done)
        ]
        ends = Position.of({table: len(self.logs[table]) for table, _ in position})
        return UpstreamView("{}", ends, tuple(sorted(pending, key=lambda epoch: epoch.ms)))

    def acknowledge(self, position: Position) -> None:
        self.acknowledged = position

    def restore(self, pin: Pin) -> None: ...
    def scan(self, *_: Any) -> Any: ...


@dataclass
class ShopStager(MemoryStager):
    upstream: Any

    def stage(
        self,
        plan: EpochPlan,
        epoch: int,
        schemas: Mapping[str, str],
        unwanted: Callable[[], bool] = lambda: False,
    ) -> StagedEpoch:
        self.made += 1
        attempt, found = f"a{self.made}", dict[str, tuple[Rows, dict[int, tuple[str, int]]]]()
        if not self.upstream.calm and self.random.random() < 0.03:
            raise Transient("an executor was lost")
        touched = {read.table for read in plan.reads} | {
            table
            for table, end in (plan.window.up_to if plan.window else ())
            if end != plan.window.after.get(table)
        }
        for table in sorted(touched & self.upstream.failing):
            if self.random.random() < 0.5:
                raise BadData(f"{table}: no number").of(table)
        reads: list[tuple[SnapshotRead, int]] = []
        for read in plan.reads:
            after, held = row_of(read.after), self.upstream.parts[read.table, read.split]
            part = held[after:] if read.limit_rows is None else held[after : after + read.limit_rows]
            rows = found.setdefault(read.table, ({}, {}))[0]
            assert not rows.keys() & dict(part).keys()
            rows.update(part)
            ended = read.limit_rows is None or after + len(part) == len(held)
            up_to = None if ended else f"row {after + len(part)}"
            reads.append((replace(read, up_to=up_to, limit_rows=None), len(part)))
        count = 0
        for table, end in plan.window.up_to if plan.window else ():
            assert plan.window is not None
            for _, changes in self.upstream.logs[table][int(plan.window.after.get(table) or 0) : int(end)]:
                net = found.setdefault(table, ({}, {}))[1]
                net.update({key: (op, value) for op, key, value in changes})
                count += len(changes)
        self._go_on(unwanted)
        self.files[self.folder(epoch, attempt)] = found  # type: ignore[assignment]
        tables = {
            name: StagedTable((StagedFile("f", 1),), (), len(rows), len(net))
            for name, (rows, net) in found.items()
        }
        return StagedEpoch(Staged(attempt, tables, tuple(reads), count, plan.window), schemas, {})

    def intact(self, epoch: int, staged: Staged) -> bool:
        return not staged.tables or super().intact(epoch, staged)


@dataclass
class ShopSink:
    """A transaction for all tables of a commit. A table that the job left stays, unless it is dropped."""

    stager: ShopStager
    random: Random
    rows: dict[str, Rows] = field(default_factory=dict)
    markers: dict[str, Marker] = field(default_factory=dict)
    last: Checkpoint | None = None
    calm: bool = False
    capabilities: ClassVar[SinkCapabilities] = SinkCapabilities(transactional=True, partial=True)

    def prepare(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        for table in tables:
            assert table.name in self.markers or into_existing or not self.rows.get(table.name)
            self.rows.setdefault(table.name, {})
            self.markers.setdefault(table.name, Marker(0, 0, ""))

    def fence(self, job: str, token: int) -> None:
        if any(marker.token > token for marker in self.markers.values()):
            raise Held("fenced")
        self.markers = {table: replace(marker, token=token) for table, marker in self.markers.items()}

    def committed(self, job: str) -> Mapping[str, Marker]:
        return dict(self.markers)

    def commit(self, commit: EpochCommit) -> None:
        if not self.calm and self.random.random() < 0.05:
            raise Transient("the sink is held by somebody else")
        staged, now = self.stager.files.get(commit.folder, {}), dict(self.rows)
        mine = Marker(commit.epoch, commit.token, commit.attempt)
        due = []
        for table in (one.name for one in commit.tables if commit.only is None or one.name in commit.only):
            marker = self.markers[table]
            if (marker.epoch, marker.attempt) == (commit.epoch, commit.attempt):
                continue
            if commit.token < marker.token:
                raise Held("an older token")
            if commit.epoch <= marker.epoch or commit.prev_epoch != marker.epoch:
                raise StateConflict(
                    f"{table}: epoch {commit.epoch} after {marker.epoch}, prev {commit.prev_epoch}"
                )
            inserts, net = staged.get(table, ({}, {}))  # type: ignore[attr-defined]
            rows = dict(now[table])
            assert not inserts.keys() & rows.keys(), "a row of the snapshot twice"
            rows |= inserts
            for key, (op, value) in net.items():
                rows.pop(key, None)
                if op == "U":
                    rows[key] = value
            now[table] = rows
            due.append(table)
        for table in due:
            if table in self.stager.upstream.failing and any(staged.get(table, ())):  # type: ignore[attr-defined]
                raise BadData(f"{table} cannot take a value").of(table)
        due += self.derive(commit, now, due)
        hit("sink-before-commit")
        self.rows, self.markers = now, self.markers | dict.fromkeys(due, mine)
        self.last = commit.saved.checkpoint
        hit("sink-after-commit")

    def derive(self, commit: EpochCommit, now: dict[str, Rows], due: Sequence[str]) -> list[str]:
        """Derived tables are in `now`, the rows after the commit, which writes the tables that are due."""
        assert not commit.derived
        return []

    def drop(self, tables: Sequence[SinkTable]) -> None:
        for table in tables:
            self.rows.pop(table.name, None)

    def leave(self, job: str, tables: Sequence[str]) -> None:
        self.markers = {name: one for name, one in self.markers.items() if name not in tables}

    def saved(self, job: str) -> SavedJob | None:
        return None


@dataclass
class ShopStore(MemoryStore):
    """definition: of the job, in the transaction that takes the command which changes it."""

    definition: JobDefinition = field(kw_only=True)
    refused_ids: list[int] = field(default_factory=list)

    def redefined(
        self,
        command: Command,
        record: EpochRecord,
        after: JobDefinition,
        control: Control,
        committed: Checkpoint,
        promise: Checkpoint | None,
    ) -> None:
        assert record.epoch > self.last_epoch
        self.inbox = [one for one in self.inbox if one != command]
        self.definition, self.control, self.committed = after, control, committed
        self.last_epoch = record.epoch
        if promise is not None:
            self.prepared, self.last_epoch = promise, promise.epoch

    def refused(self, command: Command, record: EpochRecord) -> None:
        self.inbox = [one for one in self.inbox if one != command]
        self.refused_ids.append(command.id)
        self.last_epoch = record.epoch


def is_read(store: ShopStore, splits: Mapping[SplitKey, SplitProgress], table: str) -> bool:
    mine = [split for split in store.definition.pin.splits if split.table == table]
    done = (splits.get((table, split.id)) for split in mine)
    return all(one is not None and one.status == SplitStatus.CONSUMED for one in done)
