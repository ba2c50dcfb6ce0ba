"""When a plan has something to do, and what a staged epoch counts."""

from dataclasses import replace

import pytest

from backfill_cli.model.plan import ChangeWindow, EpochPlan, SnapshotRead, Staged, StagedTable
from backfill_cli.model.position import START, Position

WINDOW = ChangeWindow(START, Position.of({"log": 1}), 0, 0, 1)
READ = SnapshotRead("t", "0", 0, 5)


def test_a_plan_that_only_observed_is_empty() -> None:
    assert not EpochPlan(pending_after=3, lag_after_ms=9, oldest_pending_ms=1, latest=Position.of({"log": 4}))


@pytest.mark.parametrize("part", [{"reads": (READ,)}, {"window": WINDOW}, {"hands_over": ("p-0",)}])
def test_a_read_a_window_or_a_hand_over_is_something_to_do(part: dict[str, object]) -> None:
    assert replace(EpochPlan(), **part)  # type: ignore[arg-type]


def test_a_staged_epoch_counts_what_was_written_of_all_tables() -> None:
    tables = {"a": StagedTable(rows=5), "b": StagedTable(changed=2, deleted=1)}
    assert Staged("x", tables, changes_read=99).rows == 8
