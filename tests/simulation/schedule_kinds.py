"""Schedules of the strategies `snapshot` and `source`: what each brings to a seeded job, and its law."""

from typing import Any

from backfill_cli.model.job import Control
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import Pin
from backfill_cli.strategies.snapshot import SnapshotStrategy
from backfill_cli.strategies.source import SourceStrategy

from .log_world import LogStager, MemoryLog, log_law_holds
from .memory_sink import MemorySink, law_holds
from .schedule import Schedule
from .two_tables import EVEN, ODD, TwoTables
from .world import TABLE, MemoryStager, MemoryUpstream


class SnapshotSchedule(Schedule):
    """Rows of a pinned snapshot, then a log; the sink one table, or two that commit one by one."""

    upstream: MemoryUpstream

    def _world(self) -> Pin:
        self.upstream = MemoryUpstream(self.random, lambda: self.now)
        self.upstream.fill()
        self.stager = MemoryStager(self.upstream, self.random)
        two = self.random.random() < 0.3
        self.sink = TwoTables(self.stager, self.random) if two else MemorySink(self.stager, self.random)
        self.tables = self.stager.names = (EVEN, ODD) if two else (TABLE,)
        pin = self.upstream.pin()
        self.strategy = SnapshotStrategy(pin.splits)
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
    """History and live log of the same partitions, of one topic, with an archive or without, or of two."""

    upstream: MemoryLog
    strategy: SourceStrategy
    most_rows = 30  # of all partitions together
    busy = 0.2

    def _world(self) -> Pin:
        self.upstream = MemoryLog(self.random, lambda: self.now)
        self.upstream.fill()
        self.stager = LogStager(self.upstream, self.random)  # type: ignore[arg-type]
        self.sink = MemorySink(self.stager, self.random)
        self.tables = self.stager.names = self.upstream.tables
        pin = self.upstream.pin()
        self.strategy = SourceStrategy(pin.splits)
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
