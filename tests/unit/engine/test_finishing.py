"""A snapshot with a deadline, in the real loop: as slow as it may be, as fast as people and guards let it."""

from dataclasses import replace

from loop_world import SETTINGS, TABLE, World

from backfill_cli.engine.loop.finishing import Finishing
from backfill_cli.engine.loop.orchestrator import Tick
from backfill_cli.model.deadline import Deadline
from backfill_cli.model.job import Phase, Verb, of_table

ROWS, BEGAN_MS = 100_000, 10**9


def world(seconds: int, floor: float = 1.0) -> World:
    deadline = Deadline(BEGAN_MS + seconds * 1000, BEGAN_MS, floor)
    return World(rows=ROWS, per_epoch=10_000, settings=replace(SETTINGS, deadline=deadline))


def read_after(world: World, seconds: int) -> int:
    world.steps(seconds, 1000)
    return len(world.sink.rows)


def test_rows_are_read_over_the_time_that_there_is_and_all_of_them_in_it() -> None:
    one = world(200)
    assert 0.4 * ROWS <= read_after(one, 90) <= 0.55 * ROWS
    told = one.loop.progress()
    assert told.deadline is not None
    assert not told.deadline.late
    assert str(told.limited_by).endswith("rows/s, which is enough for throttle.finish_by")
    assert read_after(one, 100) == ROWS
    assert one.loop.state.phase == Phase.UPSTREAM
    assert one.loop.progress().deadline is None


def test_without_a_deadline_it_is_read_at_once() -> None:
    one = World(rows=ROWS, per_epoch=10_000)
    assert read_after(one, 30) == ROWS


def test_a_persons_rate_prevails_and_is_named_as_the_cause() -> None:
    one = world(200)
    one.post(Verb.THROTTLE, rate=100.0)
    assert read_after(one, 50) <= 100 * 52
    told = one.loop.progress().deadline
    assert told is not None
    assert told.late
    assert told.cause is not None
    assert told.cause.text == "rate 100 rows/s"
    one.post(Verb.THROTTLE, rate=None)
    assert read_after(one, 140) == ROWS


def test_a_rate_of_a_table_prevails_and_is_named_as_the_cause_with_how_to_lift_it() -> None:
    one = world(200)
    one.post(Verb.THROTTLE, 100.0, of_table(TABLE))
    assert read_after(one, 50) <= 100 * 52
    told = one.loop.progress().deadline
    assert told is not None
    assert told.late
    assert told.cause is not None
    lift = f"to change: backfill throttle j --table {TABLE} --rate none"
    assert str(told.cause) == f"rate 100 rows/s of table {TABLE}; {lift}"
    one.post(Verb.THROTTLE, None, of_table(TABLE))
    assert read_after(one, 140) == ROWS


def test_a_pause_prevails_and_the_time_is_made_up_for_afterwards() -> None:
    one = world(300)
    read_after(one, 20)
    one.post(Verb.PAUSE)
    one.steps(2, 1000)
    held = len(one.sink.rows)
    assert read_after(one, 150) == held
    one.post(Verb.RESUME)
    assert read_after(one, 110) == ROWS


def test_a_new_runner_goes_on_with_the_same_deadline() -> None:
    one = world(200)
    read_after(one, 50)
    one.open()
    assert read_after(one, 60) < 0.75 * ROWS
    assert read_after(one, 80) == ROWS
    one.until(Tick.IDLE)


def test_a_table_that_joins_later_has_no_deadline() -> None:
    one = world(200)
    read_after(one, 190)
    state = replace(one.loop.state, phase=Phase.SNAPSHOT, snapshot_finished_ms=None, beside=True)
    finishing = Finishing(Deadline(BEGAN_MS + 200_000, BEGAN_MS, 1.0))
    assert finishing.enough(one.loop._strategy, state, 10.0, BEGAN_MS + 900_000) is None
    assert finishing.outlook is None
