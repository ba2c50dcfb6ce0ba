"""A derived table that waits for nothing but a commit has one when a runner takes the job up."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from recovery_world import BEFORE, COMMITTED, NOTHING_PREPARED, TOKEN, World3, at, committed

from backfill_cli.contracts import SinkTable
from backfill_cli.engine.loop.ports import Job
from backfill_cli.engine.loop.recovery import recover
from backfill_cli.model.checkpoint import Checkpoint, Recovered
from backfill_cli.model.derived import Derived
from backfill_cli.model.job import Phase

KEPT = tuple(Derived(name, name, (), f"SELECT count(*) AS n FROM {of}") for name, of in (("x", "a"), ("y", "x")))


@dataclass
class Deriving(World3):
    """A job with derived tables: the sink's `commit` fills those that are not."""

    def recover(self, fills: bool = True) -> Recovered:
        tables = tuple(SinkTable(name, name, ("k",), "narrow") for name in self.tables)
        job = Job("j", TOKEN, tables, "{}", derived=KEPT)
        return recover(job, self, self, self, 999, fills=fills)  # type: ignore[arg-type]

    def prepare(self, first: Any, *more: Any, **named: Any) -> None:  # of the sink, and of the catalog
        if not isinstance(first, Checkpoint):
            return super().prepare(first, *more, **named)
        self.trace.append("promise")
        self.start = replace(self.start, prepared=first)
        return None


def world(x: int, y: int, phase: Phase) -> Deriving:
    markers = {"a": BEFORE, "b": BEFORE, "x": at(x), "y": at(y)}
    start = replace(NOTHING_PREPARED, committed=replace(committed, phase=phase))
    return Deriving(markers=markers, start=start)


@pytest.mark.parametrize(
    ("x", "y", "phase"), [(0, COMMITTED, Phase.UPSTREAM), (0, 0, Phase.LOG_STORE), (COMMITTED, 0, Phase.SNAPSHOT)]
)
def test_one_that_is_not_filled_past_the_snapshot_is_filled_by_a_commit_without_rows(
    x: int, y: int, phase: Phase
) -> None:
    left = world(x, y, phase)
    found = left.recover()
    (commit,) = left.commits
    assert (commit.derived, dict(commit.staged.tables), commit.prev_epoch) == (KEPT, {}, COMMITTED)
    assert found.prepared is None
    assert found.committed.epoch == commit.epoch > COMMITTED
    assert replace(found.committed, epoch=0, prev_ms=0, attempt="", token=0) == replace(
        left.start.committed, epoch=0, prev_ms=0, attempt="", token=0
    )


@pytest.mark.parametrize(
    ("x", "y", "phase", "fills"),
    [
        (COMMITTED, COMMITTED, Phase.UPSTREAM, True),
        (0, 0, Phase.SNAPSHOT, True),
        (0, COMMITTED, Phase.UPSTREAM, False),
    ],
    ids=["all are filled", "the snapshot is not read", "verify --fix compares first"],
)
def test_otherwise_recovery_commits_nothing(x: int, y: int, phase: Phase, fills: bool) -> None:
    left = world(x, y, phase)
    assert left.recover(fills) == left.start
    assert left.commits == []
