"""A volatile log, a spool and a stager in memory: what a chain job works with in the simulation.

The log lets go of what is acknowledged at once. The real taker, facade and strategy run over it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from backfill_cli.contracts import ConsumableLog, SpoolEntry, StagedEpoch, Taken, TakenTable
from backfill_cli.engine.spool.folder import in_order
from backfill_cli.engine.spool.taker import Taker
from backfill_cli.errors import StateConflict, Transient
from backfill_cli.failpoint import hit
from backfill_cli.model.plan import ChangeWindow, EpochPlan, SnapshotRead, Staged, StagedFile, StagedTable
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin

from .world import TABLE, Change, MemoryStager, MemoryUpstream, Rows, row_of


@dataclass
class VolatileLog(MemoryUpstream):
    """current: its snapshot can only be read as it is now. What is acknowledged is gone."""

    current: bool = False

    def pin(self) -> Pin:
        pin = super().pin()
        if not self.current:
            return pin
        splits = tuple(Split(TABLE, s.id, s.rows or 1, s.size_bytes) for s in pin.splits)
        return replace(pin, splits=splits)

    def acknowledge(self, position: Position) -> None:
        if not position <= self.acknowledged:  # a fenced runner may say again what it said
            super().acknowledge(position)
        self.gone = max(self.gone, int(position.get("log") or 0))

    def now(self) -> Rows:
        return self.at(self.observe_all())


class TakenByTheTaker(ConsumableLog):
    """A log of the current state that reaches the job through the spool only: see MemoryTakes."""

    def take(self, *_: Any) -> Any:
        raise AssertionError("the loop takes nothing")


@dataclass
class MemorySpool:
    """Sealed entries are durable; what a taking left that was cut off is swept by the next runner."""

    job: str = TABLE
    files: dict[str, list[Change]] = field(default_factory=dict)
    sealed: dict[str, SpoolEntry] = field(default_factory=dict)

    def place(self, name: str) -> Path:
        return Path(name)

    def seal(self, entry: SpoolEntry) -> SpoolEntry:
        hit("spool-before-seal")
        self.sealed[entry.name] = entry
        return entry

    def entries(self, after: Position, known: Sequence[SpoolEntry]) -> tuple[SpoolEntry, ...]:
        chain = in_order(after, known, tuple(self.sealed.values()))
        for entry in chain:
            if entry.name not in self.sealed:
                raise StateConflict(f"entry {entry.name} is gone")
        return chain

    def require_reach(self, taken: Position, after: Position, entries: Sequence[SpoolEntry]) -> None:
        assert taken <= (entries[-1].window.up_to if entries else after), "the spool lost what was taken"

    def remove(self, entry: SpoolEntry) -> None:
        self.files.pop(entry.name, None)
        self.sealed.pop(entry.name, None)

    def sweep(self, keep: Sequence[SpoolEntry]) -> None:
        kept = {entry.name for entry in keep}
        self.files = {name: held for name, held in self.files.items() if name in kept}
        self.sealed = {name: held for name, held in self.sealed.items() if name in kept}


@dataclass
class MemoryTakes:
    """Writes a window of the log into the spool."""

    log: VolatileLog
    spool: MemorySpool

    def __call__(self, window: ChangeWindow, schemas: Mapping[str, str], folder: Path) -> Taken:
        if self.log.random.random() < 0.03:
            raise Transient("the log does not answer")
        begin = int(window.after.get("log") or 0)
        assert begin >= self.log.gone, "taken after it was acknowledged"
        end = len(self.log.log) if window.open else int(window.up_to.get("log") or 0)
        changes = [change for _, held in self.log.log[begin:end] for change in held]
        self.spool.files[str(folder)] = changes
        up_to = window.after if end == begin else Position.of({"log": end})
        return Taken(
            replace(window, up_to=up_to),
            {TABLE: TakenTable((StagedFile("f", len(changes)),), changes=len(changes))},
            {},
        )


@dataclass
class ChainStager(MemoryStager):
    """Stages reads, windows of the spool, windows of the log; while it does the world goes on (`meanwhile`)."""

    upstream: VolatileLog
    spool: MemorySpool = field(default_factory=MemorySpool)
    taker: Taker | None = None
    meanwhile: Callable[[], None] = lambda: None

    def stage(
        self,
        plan: EpochPlan,
        epoch: int,
        schemas: Mapping[str, str],
        unwanted: Callable[[], bool] = lambda: False,
    ) -> StagedEpoch:
        if not plan.spooled and not (plan.reads and self.upstream.current):
            self.meanwhile()
            return super().stage(plan, epoch, schemas, unwanted)
        self.made += 1
        attempt = f"a{self.made}"
        if self.random.random() < 0.03:
            raise Transient("an executor was lost")
        rows, reads = self._read_now(plan)
        self.meanwhile()
        net: dict[int, tuple[str, int]] = {}
        count = 0
        for op, key, value in self._taken(plan.window) if plan.window else ():
            net[key] = (op, value)
            count += 1
        self._go_on(unwanted)
        self.files[self.folder(epoch, attempt)] = (rows, net)
        table = StagedTable((StagedFile("f", 1),), (), len(rows), len(net))
        return StagedEpoch(Staged(attempt, {TABLE: table}, tuple(reads), count, plan.window), schemas, {})

    def _read_now(self, plan: EpochPlan) -> tuple[Rows, list[tuple[SnapshotRead, int]]]:
        rows: Rows = {}
        reads: list[tuple[SnapshotRead, int]] = []
        many = len(self.upstream.splits)
        for read in plan.reads:
            self.meanwhile()
            now = self.upstream.now()
            after = row_of(read.after) if read.after is not None else -1
            keys = sorted(key for key in now if key % many == int(read.split) and key > after)
            part = keys if read.limit_rows is None else keys[: read.limit_rows]
            ended = len(part) == len(keys)
            rows |= {key: now[key] for key in part}
            reads.append((replace(read, up_to=None if ended else f"row {part[-1]}", limit_rows=None), len(part)))
        return rows, reads

    def _taken(self, window: ChangeWindow) -> list[Change]:
        """The changes of the entries in the window, which follow each other without a gap."""
        assert self.taker is not None
        held = [e for e in self.taker.entries if window.after <= e.window.after and e.window.up_to <= window.up_to]
        ends = [window.after, *(entry.window.up_to for entry in held)]
        assert [entry.window.after for entry in held] == ends[:-1], "a gap in the spool"
        assert ends[-1] == window.up_to
        if any(entry.name not in self.spool.files for entry in held):
            raise StateConflict("an entry's file is gone")
        return [change for entry in held for change in self.spool.files[entry.name]]
