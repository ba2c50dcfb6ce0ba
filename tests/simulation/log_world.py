"""A partitioned log in memory, with an archive or without: upstream, staging and law of the source strategy.

It is one topic, or a topic for each of two tables, whose partitions have the tables in their names.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from backfill_cli.contracts import Capabilities, Partitions, Source, StagedEpoch
from backfill_cli.errors import Transient
from backfill_cli.model.plan import EpochPlan, SnapshotRead, Staged, StagedFile, StagedTable
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split, SplitProgress, SplitStatus, partition_id, partition_table
from backfill_cli.model.upstream import Pin, UpstreamEpoch, UpstreamView
from backfill_cli.strategies.source import SourceStrategy

from .memory_sink import MemorySink
from .world import TABLE, MemoryStager, Rows


@dataclass
class Partition:
    """rows: offset -> value, every one that ever was. Other offsets below `end` hold none: gaps, markers, aborted.

    oldest: where retention has left the log's begin. archived: the archive holds what is below.
    """

    rows: dict[int, int] = field(default_factory=dict)
    oldest: int = 0
    end: int = 0
    archived: int = 0
    taken: int | None = None  # the log's begin before retention took what is needed
    shown: set[int] = field(default_factory=set)  # the begins that observations told

    def between(self, after: int, up_to: int) -> dict[int, int]:
        """What a reader of this range gets; it must still be somewhere."""
        assert max(after, self.archived) >= self.oldest or up_to <= self.archived, "read what is gone"
        assert up_to <= self.end
        return {offset: self.rows[offset] for offset in range(after, up_to) if offset in self.rows}


@dataclass
class MemoryLog(Source):
    """Topics: partitions that grow and are added, each observation at which an end moved remembered."""

    random: Random
    now_ms: Callable[[], int]
    partitions: dict[str, Partition] = field(default_factory=dict)
    tables: tuple[str, ...] = (TABLE,)
    has_archive: bool = False
    seen: list[UpstreamEpoch] = field(default_factory=list)
    acknowledged: Position = field(default_factory=Position)
    calm: bool = False  # its leaders are all there
    capabilities = Capabilities(Partitions(("partition", "offset"), appends=True), False, False)

    def fill(self) -> None:
        self.tables = self.random.choice(((TABLE,), ("customers", "orders")))
        self.has_archive = len(self.tables) == 1 and self.random.random() < 0.5
        for table in self.tables:
            for _ in range(self.random.randrange(1, 5)):
                self.add(table)

    def add(self, table: str) -> None:
        start = self.random.choice((0, 0, 7))
        partition = Partition(oldest=start, end=start)
        mine = [name for name in self.partitions if self.table_of(name) == table]
        self.partitions[partition_id(None if len(self.tables) == 1 else table, len(mine))] = partition
        self._grow(partition, self.random.randrange(0, 25))

    def table_of(self, partition: str) -> str:
        return partition_table(partition) or TABLE

    def _grow(self, partition: Partition, offsets: int) -> None:
        for offset in range(partition.end, partition.end + offsets):
            if self.random.random() < 0.8:
                partition.rows[offset] = self.random.randrange(10**6)
        partition.end += offsets

    def change(self) -> None:
        """Some partitions grow, their archive follows; now and then there is a new one."""
        if len(self.partitions) < 8 and self.random.random() < 0.05:
            self.add(self.random.choice(self.tables))
        names = [name for name in self.partitions if self.random.random() < 0.5]
        for name in names:
            self._grow(self.partitions[name], self.random.randrange(0, 6))
        ends = tuple((name, self.partitions[name].end) for name in names)
        if names:
            self.seen.append(UpstreamEpoch(ends, self.now_ms(), None, 0))
        for partition in self.partitions.values():
            if self.has_archive and partition.archived and self.random.random() < 0.3:
                partition.archived = self.random.randrange(partition.archived, partition.end + 1)

    def retain(self, known: Mapping[str, SplitProgress]) -> None:
        """Retention takes what was read, or is archived where history goes on, or what nobody has seen."""
        name = self.random.choice(list(self.partitions))
        partition, progress = self.partitions[name], known.get(name)
        if partition.taken is not None:
            return
        keep = partition.end if progress is None else progress.cursor
        if progress is not None and progress.status != SplitStatus.FINISHED:
            keep = max(keep, partition.archived)
        if keep > partition.oldest:
            partition.oldest = self.random.randrange(partition.oldest, keep + 1)

    def take(self, known: Mapping[str, SplitProgress]) -> None:
        """Retention takes what is needed still."""
        for name, progress in known.items():
            partition = self.partitions[name]
            finished = progress.status == SplitStatus.FINISHED
            needed = progress.cursor if finished else max(progress.cursor, partition.archived)
            if partition.taken is None and needed < partition.end:
                partition.taken, partition.oldest = (
                    partition.oldest,
                    self.random.randrange(needed, partition.end) + 1,
                )
                return

    def give_back(self) -> bool:
        """What was taken is there again; whether anything had been."""
        taken = [partition for partition in self.partitions.values() if partition.taken is not None]
        for partition in taken:
            partition.oldest, partition.taken = partition.taken or 0, None
        return bool(taken)

    def pin(self) -> Pin:
        splits = []
        for name, partition in self.partitions.items():
            if self.has_archive:
                partition.archived = partition.end - self.random.randrange(0, partition.end - partition.oldest + 1)
            target = max(partition.archived, partition.oldest) if self.has_archive else partition.end
            first = self.random.choice((partition.oldest, target, (partition.oldest + target) // 2))
            splits.append(Split(self.table_of(name), name, target - first, 0, first=first))
        return Pin(Position(), None, None, tuple(splits))

    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        if self.random.random() < 0.03:
            raise Transient("no broker answers")
        reached = dict(position)
        for partition in self.partitions.values():
            partition.shown.add(partition.oldest)
        latest = {name: partition.end for name, partition in self.partitions.items()}
        if not self.calm and self.random.random() < 0.02:  # a new leader lags
            name = self.random.choice(list(latest))
            latest[name] = max(0, latest[name] - self.random.randrange(1, 5))
        if not self.calm and self.random.random() < 0.02:
            latest.pop(self.random.choice(list(latest)))
        if not self.calm and self.random.random() < 0.01:  # a topic that is not there
            gone = self.random.choice(self.tables)
            latest = {name: end for name, end in latest.items() if self.table_of(name) != gone}
        return UpstreamView(
            "{}",
            Position.of(latest),
            tuple(e for e in self.seen if any(int(reached.get(p, -1)) < int(end) for p, end in e.cursors)),
            Position.of({name: partition.oldest for name, partition in self.partitions.items()}),
            Position.of({n: p.archived for n, p in self.partitions.items()}) if self.has_archive else None,
        )

    def acknowledge(self, position: Position) -> None:
        self.acknowledged = position

    def restore(self, pin: Pin) -> None: ...
    def scan(self, *_: Any) -> Any: ...


@dataclass
class LogStager(MemoryStager):
    """Events append: a row's key is its partition and offset, history and live rows are inserts alike."""

    upstream: Any

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
        inserts: Rows = {}
        reads: list[tuple[SnapshotRead, int]] = []
        for read in plan.reads:
            assert read.up_to is not None
            assert read.table == self.upstream.table_of(read.split)
            there = self.upstream.partitions[read.split].between(read.after, read.up_to)
            inserts |= {(read.split, offset): value for offset, value in there.items()}
            reads.append((read, len(there)))
        history = len(inserts)
        if plan.window is not None:
            begun = dict(plan.window.after)
            for name, up_to in plan.window.up_to:
                partition = self.upstream.partitions[name]
                assert int(begun[name]) >= partition.oldest, "live reads the log alone"
                there = partition.between(int(begun[name]), int(up_to))
                inserts |= {(name, offset): value for offset, value in there.items()}
        self._go_on(unwanted)
        self.files[self.folder(epoch, attempt)] = (inserts, {})
        rows = Counter(self.upstream.table_of(name) for name, _ in inserts)
        tables = {name: StagedTable((StagedFile("f", 1),), (), rows[name]) for name in self.names}
        staged = Staged(attempt, tables, tuple(reads), len(inserts) - history, plan.window)
        return StagedEpoch(staged, schemas, {})


def log_law_holds(log: MemoryLog, sink: MemorySink, strategy: SourceStrategy) -> None:
    """At every checkpoint: of each partition the rows from its begin to its next offset, once and in order."""
    arrived: dict[str, dict[int, int]] = {name: {} for name in log.partitions}
    for (name, offset), value in sink.rows.items():
        arrived[name][offset] = value
    if not sink.checkpoints:
        assert sink.rows == {}
        return
    first = {split.id: split.first for split in strategy.splits}
    for checkpoint in sink.checkpoints:
        assert checkpoint.plan is not None
        for (table, name), progress in checkpoint.plan.splits.items():
            assert table == log.table_of(name)
            if name not in first:
                first[name] = progress.cursor
                assert progress.cursor in log.partitions[name].shown, "a new partition begins at what is retained"
    for name, offset in sink.checkpoints[-1].position:
        held = {o: v for o, v in log.partitions[name].rows.items() if first[name] <= o < int(offset)}
        assert list(arrived[name].items()) == list(held.items()), f"partition {name}"
    assert first.keys() == dict(sink.checkpoints[-1].position).keys(), "a partition was forgotten"
