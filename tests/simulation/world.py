"""An upstream and a stager in memory: the world of the simulation, with `memory_sink` and `memory_store`.

The real strategy, loop and recovery run over it; every random choice comes from one seeded generator.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from backfill_cli.contracts import Capabilities, Pinned, Source, StagedEpoch
from backfill_cli.errors import HistoryGone, Interrupted, Transient
from backfill_cli.model.plan import EpochPlan, SnapshotRead, Staged, StagedFile, StagedTable
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin, UpstreamEpoch, UpstreamView

Rows = dict[Any, int]
"""key -> value"""
Change = tuple[str, int, int]

TABLE = "t"


class Crash(BaseException):
    """The process is gone, as by kill -9."""


@dataclass
class MemoryUpstream(Source):
    """A pinned snapshot in splits, and a log that grows. gone: how many commits retention has taken from it."""

    random: Random
    now_ms: Callable[[], int]
    splits: list[list[tuple[int, int]]] = field(default_factory=list)
    log: list[tuple[int, list[Change]]] = field(default_factory=list)
    acknowledged: Position = field(default_factory=Position)
    gone: int = 0
    capabilities = Capabilities(Pinned(), True, True)

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
    def scan(self, *_: Any) -> Any: ...


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
    names: tuple[str, ...] = (TABLE,)  # of the sink's tables, each of which takes its part of the rows
    during: Callable[[], None] = lambda: None  # what happens while it stages

    def awaited(self) -> str | None:
        """As Spark, it can take a while to start, at any time here."""
        return "starting Spark" if self.random.random() < 0.03 else None

    def so_far(self) -> tuple[int, int]:
        return 0, 0

    def _go_on(self, unwanted: Callable[[], bool]) -> None:
        """All is read. Raises Interrupted where that is not wanted any more."""
        self.during()
        if unwanted():
            raise Interrupted

    def folder(self, epoch: int, attempt: str) -> str:
        return f"{epoch}-{attempt}"

    def stage(
        self,
        plan: EpochPlan,
        epoch: int,
        schemas: Mapping[str, str],
        unwanted: Callable[[], bool] = lambda: False,
    ) -> StagedEpoch:
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
        self._go_on(unwanted)
        self.files[self.folder(epoch, attempt)] = (rows, net)
        table = StagedTable((StagedFile("f", 1),), (), len(rows), len(net))
        tables = dict.fromkeys(self.names, table)
        return StagedEpoch(Staged(attempt, tables, tuple(reads), count, plan.window), schemas, {})

    def intact(self, epoch: int, staged: Staged) -> bool:
        return self.folder(epoch, staged.attempt) in self.files

    def current_folder(self, epoch: int, staged: Staged) -> str:
        return self.folder(epoch, staged.attempt)

    def discard(self, epoch: int, attempt: str) -> None:
        self.files.pop(self.folder(epoch, attempt), None)
