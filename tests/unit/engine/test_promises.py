"""A prepared epoch that the sink can never take: withdrawn if no table has it, so that `resume` continues."""

from dataclasses import dataclass, replace

import pytest
from loop_world import World
from recovery_world import AFTER, BEFORE, COMMITTED, PREPARED, World3, left

from backfill_cli.contracts import EpochCommit
from backfill_cli.errors import START_OVER, BackfillError, BadData, Fatal, StateConflict, Transient, UsageError
from backfill_cli.model.job import JobState, Verb

POISON = BadData("key 7 twice", "filter it out")


# -- in the loop -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "refusal", [BadData("key 7 twice"), Fatal("DuckDB failed"), UsageError("a column cannot be called '_spec_id'")]
)
def test_an_epoch_that_the_sink_refuses_for_good_is_promised_no_more(refusal: BackfillError) -> None:
    world = World(rows=100)
    world.step()
    dead = world.store.prepared
    assert dead is not None
    world.sink.failures = [refusal]
    world.finish()
    world.seen()
    with pytest.raises(type(refusal)) as ended:
        world.step()
    assert world.seen() == [f"unprepare {dead.epoch}", "discard a1"]
    assert world.store.prepared is None
    assert ended.value.message == refusal.message
    assert str(ended.value.hint).endswith("then: backfill resume j")


def test_where_the_sink_says_to_start_over_no_resume_is_advised() -> None:
    world = World(rows=100)
    world.step()
    world.sink.failures = [BadData("the key is not unique", START_OVER + ", with another key")]
    world.finish()
    with pytest.raises(BadData) as ended:
        world.step()
    assert str(ended.value.hint) == "drop the job and start over, with another key"


def test_once_the_cause_is_gone_the_job_goes_on_with_what_the_upstream_says_then() -> None:
    world = World(rows=30)
    world.step()
    world.sink.failures = [replace_of(POISON)]
    world.finish()
    with pytest.raises(BadData):
        world.step()
    world.upstream.splits[0][3] = (3, 4_000)
    world.open()
    world.steps(20, 1_000)
    assert world.sink.rows == dict(world.upstream.splits[0])
    assert world.sink.rows[3] == 4_000


def replace_of(error: BackfillError) -> BackfillError:
    return type(error)(error.message, error.hint)


def test_a_side_that_was_restored_keeps_the_promise_as_evidence() -> None:
    world = World(rows=100)
    world.step()
    world.sink.failures = [StateConflict("the sink is older")]
    world.finish()
    with pytest.raises(StateConflict):
        world.step()
    assert world.store.prepared is not None


def test_a_catalog_that_is_busy_just_then_is_asked_again_and_the_epoch_still_taken_back() -> None:
    world = World(rows=100)
    world.step()
    world.sink.failures = [replace_of(POISON), replace_of(POISON)]
    unprepare, busy = world.store.unprepare, [Transient("the catalog is busy")]

    def once_busy(epoch: int) -> None:
        if busy:
            raise busy.pop()
        unprepare(epoch)

    world.store.unprepare = once_busy  # type: ignore[method-assign]
    world.finish()
    world.step()
    assert world.store.prepared is not None
    with pytest.raises(BadData):
        world.steps(10, 1_000)
    assert world.store.prepared is None


# -- in recovery -------------------------------------------------------------------------------------------------


@dataclass
class Refusing(World3):
    """refuses: the table whose rows are bad; those before it in the order are committed."""

    refuses: str = "a"

    def commit(self, commit: EpochCommit) -> None:
        for table in sorted(commit.only or ()):
            if table == self.refuses:
                raise replace_of(POISON)
            super().commit(replace(commit, only=frozenset({table})))


def test_a_recovery_whose_epoch_is_refused_takes_it_back_and_the_next_one_plans_anew() -> None:
    world = Refusing(markers={"a": BEFORE, "b": BEFORE})
    with pytest.raises(BadData, match="key 7 twice"):
        world.recover()
    assert world.trace[-2:] == [f"unprepare {PREPARED}", "discard new"]
    again = world.recover()
    assert (again.prepared, again.committed.epoch, again.last_epoch) == (None, COMMITTED, PREPARED)


@pytest.mark.parametrize(("a", "refuses"), [(BEFORE, "b"), (AFTER, "b")])
def test_an_epoch_that_one_table_has_and_another_refuses_stops_naming_them(a: object, refuses: str) -> None:
    world = Refusing(markers={"a": a, "b": BEFORE}, refuses=refuses)  # type: ignore[dict-item]
    for _ in range(2):
        with pytest.raises(BadData, match="commit 200 is in a but not in b") as ended:
            world.recover()
        assert ended.value.hint.starts_over
        assert world.start.prepared is not None


def test_a_recovery_that_the_sink_takes_is_as_before() -> None:
    world = left(BEFORE, BEFORE)
    assert world.recover().committed.epoch == PREPARED


# -- asked and reached -------------------------------------------------------------------------------------------


def test_paused_is_said_once_the_prepared_epoch_is_committed() -> None:
    world = World(rows=100)
    world.step()
    world.sink.failures = [Transient("held")]
    world.finish()
    world.step()
    world.post(Verb.PAUSE)
    world.step()
    assert world.store.state == JobState.PAUSING
    assert world.store.prepared is not None
    world.steps(2, 1_000)
    assert world.store.state == JobState.PAUSED
    assert world.store.prepared is None or world.sink.marker.epoch == world.store.prepared.epoch


def test_a_resume_takes_back_a_pause_that_was_not_reached() -> None:
    world = World(rows=100)
    world.step()
    world.sink.failures = [Transient("held")]
    world.finish()
    world.step()
    world.post(Verb.PAUSE)
    world.step()
    world.post(Verb.RESUME)
    world.step()
    world.steps(5, 1_000)
    assert world.store.states == [JobState.PAUSING, JobState.RUNNING]
