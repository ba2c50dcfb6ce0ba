"""A job over tables that show only what they hold now: its stager, its sink, the law, its schedules.

The stager does in lists what `engine/staging/stage.py` does with files for a log that is taken.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from backfill_cli.contracts import EpochCommit, LogRequest, StagedEpoch, TakenTable
from backfill_cli.engine.staging import changes
from backfill_cli.errors import Transient
from backfill_cli.failpoint import hit
from backfill_cli.model.checkpoint import Checkpoint, Marker, Recovered
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import EpochPlan, SnapshotRead, Staged, StagedFile, StagedTable
from backfill_cli.model.split import SplitStatus
from backfill_cli.model.upstream import Pin
from backfill_cli.strategies.arrangement import ArrangementStrategy

from .current_tables import TABLES, Row, Tables, key_at, lsn_of, rank
from .current_world import CurrentUpstream
from .memory_sink import MemorySink
from .schedule import Schedule
from .world import MemoryStager

Held = dict[str, dict[str, Row]]
"""By table its rows by key."""


@dataclass
class CurrentStager(MemoryStager):
    """files: by an attempt's folder what its files hold, by their paths."""

    upstream: Any

    def stage(
        self,
        plan: EpochPlan,
        epoch: int,
        schemas: Mapping[str, str],
        unwanted: Callable[[], bool] = lambda: False,
    ) -> StagedEpoch:
        self.upstream.tables.attempts += 1
        attempt = f"a{self.upstream.tables.attempts}"
        folder = self.folder(epoch, attempt)
        content: dict[str, Any] = {}
        rows: dict[str, StagedTable] = {}
        reads: list[tuple[SnapshotRead, int]] = []
        for name in dict.fromkeys(read.table for read in plan.reads):
            found: dict[str, Row] = {}
            for read in self.upstream.closed(name, [r for r in plan.reads if r.table == name]):
                part = self.upstream.rows(read, schemas[name])
                assert not found.keys() & part.keys()
                found |= part
                reads.append((read, len(part)))
            content[f"{name}/inserts"] = found
            rows[name] = StagedTable((StagedFile(f"{name}/inserts", 1),), rows=len(found))
            hit("table-staged")
        within, into, spark = changes.reached(plan, reads), str(Path(folder) / changes.FOLDER), cast(Any, None)
        assert plan.window is not None
        taken = self.upstream.read_log(spark, LogRequest(plan.window, within, schemas, into))
        held = self.upstream.files.pop(into)
        tables: dict[str, StagedTable] = {}
        for name in TABLES:
            of_table = taken.tables.get(name, TakenTable())
            content[f"taken/{name}"] = held[name]
            tables[name] = changes.over(rows.get(name, StagedTable()), _changes(of_table))
        if self.random.random() < 0.03:
            raise Transient("the disk is full")
        self._go_on(unwanted)
        self.files[folder] = (content, {})
        now = {**schemas, **taken.schemas}
        read_changes = sum(one.changes for one in taken.tables.values())
        return StagedEpoch(Staged(attempt, tables, tuple(reads), read_changes, taken.window), now, now)


def _changes(taken: TakenTable) -> StagedTable:
    """As `changes.staged`, of changes that are net already."""
    files = tuple(StagedFile(f"taken/{file.path}", file.size_bytes) for file in taken.files)
    done = StagedTable(changes=files, changed=taken.changed, deleted=taken.deleted)
    return replace(done, truncated=taken.truncated, partial=taken.partial)


@dataclass
class CurrentSink(MemorySink):
    """All tables and their markers in one transaction. rows: by (table, key)."""

    rows: dict[Any, Any] = field(default_factory=dict)

    def committed(self, job: str) -> Mapping[str, Marker]:
        return dict.fromkeys(TABLES, self.marker)

    def commit(self, commit: EpochCommit) -> None:
        self.staged = commit.staged.tables
        super().commit(commit)

    def applied(self, inserts: Mapping[Any, Any], net: Mapping[Any, Any]) -> dict[Any, Any]:
        """inserts: here what the epoch's files hold. Truncate, rows, changes; a partial row keeps what was."""
        rows: dict[Any, Any] = dict(self.rows)
        for name, table in self.staged.items():
            if table.truncated:
                rows = {place: row for place, row in rows.items() if place[0] != name}
            for file in table.inserts:
                for key, row in inserts[file.path].items():
                    assert (name, key) not in rows, f"row {key} of {name} is there already"
                    rows[name, key] = row
            for file in table.changes:
                for key, (op, (small, large)) in inserts[file.path].items():
                    before = rows.pop((name, key), None)
                    if op == "U" and large is None:
                        assert table.partial == ("large",)
                        assert before is not None, f"row {key} of {name} is partial, and there is none"
                        rows[name, key] = (small, before[1])
                    elif op == "U":
                        rows[name, key] = (small, large)
        return rows


class History:
    """What the tables held at a place in their log: its transactions one after the other. Asked in order."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._done, self._lsn = 0, -1
        self._rows: Held = {table: {} for table in TABLES}

    def at(self, lsn: int) -> Held:
        assert lsn >= self._lsn, "asked for a place before the last one"
        self._lsn = lsn
        log = self._tables.log
        while self._done < len(log) and log[self._done].lsn <= lsn:
            for kind, table, key, row in log[self._done].ops:
                if kind == "empty":
                    self._rows[table] = {}
                elif kind == "drop":
                    del self._rows[table][key]
                else:
                    self._rows[table][key] = row
            self._done += 1
        return self._rows


class CurrentSchedule(Schedule):
    """State as it is now in the order of keys, and a log; all tables commit together."""

    upstream: Tables
    sink: CurrentSink
    strategy: ArrangementStrategy
    tables = TABLES
    most_rows = 9
    busy = 0.3
    altering = 0.02

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.store.committed = replace(self.store.committed, schemas=self.pin.schema)

    def _world(self) -> Pin:
        self.upstream = Tables(self.random, lambda: self.now, altering=self.altering)
        self.upstream.fill()
        self.history = History(self.upstream)
        pin = self.upstream.pin()
        self.stager = CurrentStager(None, self.random)
        self.sink = CurrentSink(self.stager, self.random)
        self.strategy = ArrangementStrategy(pin.splits)
        return pin

    def _connected(self, recovered: Recovered) -> tuple[Any, MemoryStager]:
        """A process has to be told what the one before it knew."""
        process = CurrentUpstream(self.upstream, self.pin)
        if recovered.committed.memory:
            process.recall(recovered.committed.memory)
        return process, CurrentStager(process, self.random, self.stager.files)

    def _law(self) -> None:
        """sink = f(upstream at the log's position, limited to the keys that were reached)."""
        if not self.sink.checkpoints:
            assert self.sink.rows == {}
            return
        last = self.sink.checkpoints[-1]
        there = self.history.at(lsn_of(last.position))
        expected = {(t, k): row for t in TABLES for k, row in there[t].items() if self._reached(last, t, k)}
        assert self.sink.rows == expected, f"at {lsn_of(last.position)}"
        schemas = {t: str(self.upstream.columns_at(t, lsn_of(last.position))) for t in TABLES}
        assert last.schemas == schemas
        open_still = {s.table for s in self.upstream.splits if self._status(s.table, s.id) != SplitStatus.CONSUMED}
        assert sorted(self.sink.closed) == sorted(set(TABLES) - open_still), "each table's keys are checked once"
        assert (last.phase == Phase.UPSTREAM) == (not open_still)

    def _status(self, table: str, split: str) -> SplitStatus:
        progress = self.sink.splits.get((table, split))
        return progress.status if progress else SplitStatus.NOT_STARTED

    def _reached(self, last: Checkpoint, table: str, key: str) -> bool:
        if last.phase == Phase.UPSTREAM:
            return True
        progress = self.sink.splits.get((table, self.upstream.split_of[table, key]))
        if progress is None or progress.status == SplitStatus.NOT_STARTED:
            return False
        return progress.cursor is None or rank(key) <= rank(key_at(progress.cursor))

    def _lose_history(self) -> None:
        self.upstream.gone = self.random.randrange(100, self.upstream.end + 1)

    def _regain_history(self) -> bool:
        gone, self.upstream.gone = self.upstream.gone, 0
        return gone > 0

    def _finish(self) -> None:
        self.upstream.calm, self.upstream.flushed = True, self.upstream.end
        super()._finish()

    def _ended(self) -> None:
        assert self.sink.rows == {(t, key): row for t in TABLES for key, row in self.upstream.head[t].items()}


class AlteringSchedule(CurrentSchedule):
    """Columns change often: also between the reads and the end of their window."""

    altering = 0.1
