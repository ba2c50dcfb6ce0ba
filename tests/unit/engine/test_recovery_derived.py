"""A derived table that waits for nothing but a commit has one from the loop, where commands act."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from recovery_world import BEFORE, COMMITTED, NOTHING_PREPARED, TOKEN, World3, at, committed, prepared

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

    def recover(self) -> Recovered:
        tables = tuple(SinkTable(name, name, ("k",), "narrow") for name in self.tables)
        job = Job("j", TOKEN, tables, "{}", derived=KEPT)
        return recover(job, self, self, self, 999, fill_rows=1_000)  # type: ignore[arg-type]

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
    ("x", "y", "phase"),
    [
        (COMMITTED, COMMITTED, Phase.UPSTREAM),
        (0, 0, Phase.SNAPSHOT),
        (0, COMMITTED, Phase.UPSTREAM),
        (0, 0, Phase.LOG_STORE),
        (COMMITTED, 0, Phase.SNAPSHOT),
    ],
)
def test_what_is_to_be_filled_is_left_to_the_loop(x: int, y: int, phase: Phase) -> None:
    left = world(x, y, phase)
    assert left.recover() == left.start
    assert left.commits == []


@pytest.mark.parametrize("transactional", [True, False])
def test_a_promised_commit_fills_in_its_transaction_and_elsewhere_waits_for_the_loop(transactional: bool) -> None:
    left = world(0, 0, Phase.LOG_STORE)
    left.start = replace(left.start, prepared=prepared)
    left.capabilities = replace(left.capabilities, transactional=transactional)
    left.recover()
    assert [one.fill_rows for one in left.commits] == [1_000 if transactional else 0]
