"""What a new runner finds damaged or restored: what is planned again, and what stops the job."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_world import World
from recovery_world import (
    AFTER,
    BEFORE,
    COMMITTED,
    NOTHING_PREPARED,
    PREPARED,
    World3,
    at,
    committed,
    left,
    prepared,
)

from backfill_cli.errors import StateConflict
from backfill_cli.model.checkpoint import Marker, Recovered
from backfill_cli.model.job import Control

# -- damaged staging ---------------------------------------------------------------------------------------------


def test_case_42_damaged_staging_that_no_table_has_is_dropped_and_its_number_not_used_again() -> None:
    world = left(BEFORE, BEFORE, intact_files=False)
    found = world.recover()
    assert world.trace[3:] == [f"unprepare {PREPARED}"]
    assert found == Recovered(Control(), committed, None, PREPARED)


def test_case_42_damaged_staging_that_some_tables_have_stops_the_job_naming_them() -> None:
    world = left(AFTER, BEFORE, intact_files=False)
    with pytest.raises(StateConflict, match="is in a but not") as caught:
        world.recover()
    assert "damaged" in caught.value.message
    assert "drop" in str(caught.value.hint)
    assert world.trace[3:] == []


def test_staging_that_every_table_has_is_not_needed_any_more() -> None:
    world = left(AFTER, AFTER, intact_files=False)
    assert world.recover().committed.epoch == PREPARED


def test_case_42_after_damage_the_loop_plans_the_epoch_anew_under_a_greater_number() -> None:
    world = World(rows=10)
    world.step()
    dead = world.store.prepared
    assert dead is not None
    world.stager.files.clear()
    world.open()
    world.steps(2)
    assert world.store.committed.epoch > dead.epoch
    assert world.sink.rows == dict(world.upstream.splits[0])


# -- one side was restored ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [NOTHING_PREPARED, Recovered(Control(), committed, prepared, PREPARED)])
@pytest.mark.parametrize(("epoch", "what"), [(300, "newer"), (150, "newer"), (99, "older"), (0, "older")], ids=str)
def test_case_36_a_side_that_was_restored_stops_the_job_and_says_which(
    start: Recovered, epoch: int, what: str
) -> None:
    world = left(BEFORE, at(epoch, "x"), start=start)
    with pytest.raises(StateConflict, match=f"table 'b': the sink is {what} than the catalog") as caught:
        world.recover()
    assert f"{epoch}" in caught.value.message
    assert f"{COMMITTED}" in caught.value.message
    assert ("--from-sink" in str(caught.value.hint)) == bool(
        epoch
    )  # a sink without a marker keeps nothing to continue from
    assert caught.value.hint.starts_over
    assert world.trace == ["fence", "load", "markers"]


def test_case_36_a_sink_that_lost_its_marker_is_older() -> None:
    with pytest.raises(StateConflict, match="older"):
        World3(markers={"a": BEFORE}).recover()


def test_case_39_the_prepared_number_under_another_attempt_is_not_the_prepared_epoch() -> None:
    world = left(BEFORE, at(PREPARED, "stranger"))
    with pytest.raises(StateConflict, match="newer"):
        world.recover()
    assert world.commits == []


markers = st.sampled_from((None, at(0, ""), at(99), BEFORE, AFTER, at(PREPARED, "other"), at(300, "x")))


@given(markers, markers, st.booleans(), st.booleans())
def test_every_meeting_of_markers_and_promise_is_kept_dropped_or_refused(
    a: Marker | None, b: Marker | None, promised: bool, intact: bool
) -> None:
    start = Recovered(Control(), committed, prepared if promised else None, PREPARED)
    found = {t: m for t, m in (("a", a), ("b", b)) if m is not None}
    world = World3(markers=dict(found), start=start, intact_files=intact)
    has = {t for t, m in found.items() if promised and m == AFTER}
    agree = all(t in has or found.get(t) == BEFORE for t in "ab")
    if not agree or (has and len(has) < 2 and not intact):
        with pytest.raises(StateConflict):
            world.recover()
        assert world.trace == ["fence", "load", "markers"]
        return
    kept = world.recover().committed.epoch == PREPARED
    assert kept == (promised and (intact or len(has) == 2))
    assert {m.epoch for m in world.markers.values()} == {PREPARED if kept else COMMITTED}
