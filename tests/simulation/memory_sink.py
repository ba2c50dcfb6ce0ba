"""A sink in memory, commits to it in the background, and the law that holds at each of its checkpoints."""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, ClassVar

from backfill_cli.contracts import EpochCommit, SavedJob, SinkCapabilities, SinkTable
from backfill_cli.errors import BadData, Held, StateConflict, Transient
from backfill_cli.failpoint import hit
from backfill_cli.model.checkpoint import Checkpoint, Marker
from backfill_cli.model.job import Phase
from backfill_cli.model.split import SplitKey, SplitProgress

from .world import TABLE, MemoryStager, MemoryUpstream, Rows


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
    capabilities: ClassVar[SinkCapabilities] = SinkCapabilities(transactional=True, partial=True)

    def prepare(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None: ...

    def fence(self, job: str, token: int) -> None:
        if self.marker.token > token:
            raise Held("fenced")
        self.marker = replace(self.marker, token=token)

    def committed(self, job: str) -> Mapping[str, Marker]:
        return dict.fromkeys(self.stager.names, self.marker)

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
        # nothing is staged for a commit without rows
        rows = self.applied(*self.stager.files[commit.folder]) if commit.staged.tables else dict(self.rows)
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
