"""What a new runner does with catalog, markers and staging: fences, keeps the promise, and may die doing so."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from loop_world import World
from recovery_world import (
    AFTER,
    BEFORE,
    BEGUN,
    COMMITTED,
    ENDED,
    NOTHING_PREPARED,
    PREPARED,
    TOKEN,
    World3,
    committed,
    left,
    prepared,
)
from simulation.world import Crash

from backfill_cli import failpoint
from backfill_cli.errors import Held, StateConflict, Transient
from backfill_cli.model.checkpoint import EpochRecord, Marker, Recovered
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.plan import ChangeWindow, EpochPlan
from backfill_cli.model.position import START, Position
from backfill_cli.model.refill import RefillPart

# -- fencing -----------------------------------------------------------------------------------------------------


def test_the_takeover_fences_before_it_reads_catalog_or_marker() -> None:
    world = left(BEFORE, BEFORE)
    world.recover()
    assert world.trace[:3] == ["fence", "load", "markers"]


def test_case_40_a_runner_with_an_older_token_reads_and_changes_nothing() -> None:
    world = left(BEFORE, replace(BEFORE, token=TOKEN + 1))
    with pytest.raises(Held):
        world.recover()
    assert world.trace == ["fence"]


def test_case_40_a_commit_of_the_runner_before_is_refused_and_it_never_marks_or_acknowledges() -> None:
    world = World(rows=100)
    world.step()
    old, late = world.loop, world.commits[-1]
    world.open()  # fences, and keeps the promise itself
    rows = dict(world.sink.rows)
    world.sink.marker = replace(world.sink.marker, attempt="another", epoch=0)  # not even if the epoch is open
    late.finish()
    world.seen()
    with pytest.raises(Held):
        old.step()
    assert world.sink.rows == rows
    assert world.seen() == []


# -- nothing prepared --------------------------------------------------------------------------------------------


def test_where_nothing_was_promised_markers_at_the_committed_epoch_are_all_it_needs() -> None:
    world = left(BEFORE, BEFORE, start=NOTHING_PREPARED)
    assert world.recover() == NOTHING_PREPARED
    assert world.trace == ["fence", "load", "markers"]


def test_a_new_job_has_no_marker_yet() -> None:
    fresh = Recovered(Control(), replace(committed, epoch=0), None, 0)
    assert World3(start=fresh).recover() == fresh


@pytest.mark.parametrize("promised", [False, True], ids=["nothing promised", "an epoch promised"])
def test_a_side_table_that_came_later_is_brought_to_the_committed_epoch_first(promised: bool) -> None:
    world = left(BEFORE, BEFORE, start=Recovered(Control(), committed, prepared if promised else None, PREPARED))
    world.tables, world.side = ("a", "b", "a.quarantine"), ("a.quarantine",)
    world.recover()
    level, *rest = world.commits
    assert [t.name for t in level.tables] == ["a.quarantine"]
    assert (level.epoch, level.prev_epoch, level.attempt, level.token) == (COMMITTED, 0, "old", TOKEN)
    assert (dict(level.staged.tables), level.saved.checkpoint) == ({}, committed)
    assert [one.epoch for one in rest] == [PREPARED] * promised
    assert len({(marker.epoch, marker.attempt) for marker in world.markers.values()}) == 1


@pytest.mark.parametrize(
    ("side", "aside"), [((), {}), (("c",), {"c": 3})], ids=["a table of the job", "a side table that had rows"]
)
def test_any_other_table_without_a_marker_was_restored(side: tuple[str, ...], aside: dict[str, int]) -> None:
    world = left(BEFORE, BEFORE, start=replace(NOTHING_PREPARED, committed=replace(committed, quarantined=aside)))
    world.tables, world.side = ("a", "b", "c"), side
    with pytest.raises(StateConflict, match="table 'c': the sink is older than the catalog"):
        world.recover()
    assert world.commits == []


def test_a_restored_sink_is_told_before_a_side_table_is_written() -> None:
    world = left(BEFORE, replace(BEFORE, epoch=50), start=NOTHING_PREPARED)
    world.tables, world.side = ("a", "b", "c"), ("c",)
    with pytest.raises(StateConflict, match="table 'b'"):
        world.recover()
    assert world.commits == []


# -- a promise is kept -------------------------------------------------------------------------------------------


def test_case_37_a_prepared_epoch_is_applied_again_from_the_same_files() -> None:
    world = left(BEFORE, BEFORE)
    world.recover()
    (commit,) = world.commits
    assert (commit.epoch, commit.attempt, commit.folder) == (PREPARED, "new", "200-new/renamed")
    assert (commit.prev_epoch, commit.token) == (COMMITTED, TOKEN)
    assert commit.staged == prepared.staged
    assert commit.unique == ("a",)
    assert commit.saved.checkpoint == prepared
    assert world.trace[3:] == ["columns wider", "commit a, b", "mark", "discard new"]


def test_case_37_an_epoch_whose_reply_was_lost_is_only_marked() -> None:
    world = left(AFTER, AFTER)
    world.recover()
    assert world.trace[3:] == ["mark", "discard new"]


@pytest.mark.parametrize(("a", "b", "lacks"), [(AFTER, BEFORE, "b"), (BEFORE, AFTER, "a")])
def test_case_20_a_table_that_has_the_epoch_is_left_alone(a: Marker, b: Marker, lacks: str) -> None:
    world = left(a, b)
    world.recover()
    assert [c.only for c in world.commits] == [{lacks}]


def test_case_03_what_was_committed_before_stays_beside_what_the_epoch_changed() -> None:
    world = left(BEFORE, BEFORE)
    found = world.recover()
    assert found.prepared is None
    assert found.committed.splits == {("a", "0"): ENDED, ("b", "0"): BEGUN}
    assert (found.committed.epoch, found.committed.state) == (PREPARED, '{"later": 1}')
    assert (found.committed.plan, found.committed.staged) == (None, None)
    assert found.last_epoch == PREPARED


def test_the_ledger_has_the_recovered_epoch() -> None:
    world = left(BEFORE, BEFORE)
    world.recover()
    assert world.record == EpochRecord(
        PREPARED, COMMITTED, Phase.SNAPSHOT, 999, 4, 2, 0, pending_epochs=4, mutations="recovered"
    )


def test_the_ledger_says_that_a_recovered_epoch_is_of_a_refill() -> None:
    refilled = replace(prepared, plan=EpochPlan(refill=RefillPart(1, 2, 3, 4, True)), splits={})
    world = left(AFTER, AFTER, start=Recovered(Control(), committed, refilled, PREPARED))
    world.recover()
    assert world.record.mutations == "refilled, recovered"


def test_the_ledger_counts_the_upstream_epochs_of_a_recovered_window() -> None:
    window = ChangeWindow(START, Position.of({"log": 3}), 0, 9, 3)
    logged = replace(prepared, plan=EpochPlan(window=window), splits={})
    world = left(AFTER, AFTER, start=Recovered(Control(), committed, logged, PREPARED))
    world.recover()
    assert (world.record.upstream_epochs, world.record.phase) == (3, Phase.LOG_STORE)


def test_control_and_numbers_that_barriers_without_rows_used_outlive_the_recovery() -> None:
    paused = Control("ann", 5, 3.0)
    found = left(BEFORE, BEFORE, start=Recovered(paused, committed, prepared, 250)).recover()
    assert (found.control, found.last_epoch) == (paused, 250)


# -- recovery dies too -------------------------------------------------------------------------------------------


@pytest.fixture
def dies_at() -> Iterator[list[str]]:
    names: list[str] = []

    def die(name: str) -> None:
        if name in names:
            names.remove(name)
            raise Crash(name)

    failpoint.handler = die
    yield names
    failpoint.handler = failpoint._kill_when_named


POINTS = (
    "recovery-fenced",
    "recovery-before-commit",
    "table a",
    "table b",
    "recovery-committed",
    "recovery-done",
)


@pytest.mark.parametrize("first", POINTS)
@pytest.mark.parametrize("second", POINTS)
def test_case_20_a_recovery_that_dies_at_any_point_twice_still_ends_in_the_same_place(
    first: str, second: str, dies_at: list[str]
) -> None:
    calm = left(BEFORE, BEFORE)
    expected = calm.recover()
    world = left(BEFORE, BEFORE)
    dies_at += [first, second]
    for _ in range(3):
        try:
            found = world.recover()
            break
        except Crash:
            continue
    assert world.start.committed == calm.start.committed
    assert world.markers == calm.markers
    assert found.committed == expected.committed
    applied = [t for commit in world.commits for t in sorted(commit.only or ())]
    assert set(applied) == {"a", "b"}


def test_a_sink_that_is_busy_leaves_the_promise_for_the_next_try() -> None:
    world = World(rows=10)
    world.step()
    world.sink.failures = [Transient("held")]
    with pytest.raises(Transient):
        world.open()
    assert world.store.prepared is not None
    world.open()
    assert world.store.committed.attempt == "a1"
