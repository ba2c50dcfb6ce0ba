"""The wall clock is set a day ahead or back: waits, retries and limits of a job are unaffected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_world import SETTINGS, World

from backfill_cli.engine.loop.orchestrator import Tick
from backfill_cli.errors import Transient
from backfill_cli.model.job import Verb

DAY_MS = 86_400_000
BOTH_WAYS = pytest.mark.parametrize("step_ms", [DAY_MS, -DAY_MS], ids=["ahead", "back"])


@BOTH_WAYS
def test_a_command_acts_within_one_interval(step_ms: int) -> None:
    world = World(rows=10)
    world.until(Tick.IDLE)
    world.stepped_ms += step_ms
    world.post(Verb.THROTTLE, rate=7.0)
    world.seen()
    world.steps(1, SETTINGS.interval_ms)
    assert world.seen()[0] == "take throttle"


@BOTH_WAYS
def test_a_change_is_committed_at_the_next_barrier_and_an_idle_loop_sleeps_no_longer_than_the_interval(
    step_ms: int,
) -> None:
    world = World(rows=10)
    world.until(Tick.IDLE)
    world.stepped_ms += step_ms
    assert 0 <= world.loop.wait_ms() <= SETTINGS.interval_ms
    world.change()
    world.steps(3, SETTINGS.interval_ms)
    assert world.sink.rows == world.upstream.at(world.upstream.observe_all())


@pytest.mark.seconds
@given(st.lists(st.sampled_from((0, 0, 0, 0, DAY_MS, -DAY_MS, 3_600_000)), min_size=100, max_size=100))
def test_a_limit_is_kept_on_average_wherever_the_clock_is_set(steps: list[int]) -> None:
    world = World(rows=100_000, per_epoch=10_000)
    world.post(Verb.THROTTLE, rate=500.0)
    began_ms = world.now_ms
    for step_ms in steps:
        world.stepped_ms += step_ms
        world.steps(2, SETTINGS.interval_ms // 2)
    fair = 500 * (world.now_ms - began_ms + SETTINGS.interval_ms) / 1000
    assert 0.95 * fair <= len(world.sink.rows) <= 1.05 * fair


@BOTH_WAYS
def test_retries_end_at_the_limit_and_not_before(step_ms: int) -> None:
    world = World()
    world.upstream.failures = [Transient("no answer")] * 999
    began_ms = world.now_ms
    world.steps(10, 1_000)
    world.stepped_ms += step_ms
    with pytest.raises(Transient, match="no answer"):
        world.steps(1_000, 100)
    assert 60_000 <= world.now_ms - began_ms < 76_000


@BOTH_WAYS
def test_a_commit_that_goes_on_is_neither_given_up_nor_said_to_be_silent(step_ms: int) -> None:
    world = World(rows=100)
    world.step()
    world.stepped_ms += step_ms
    world.step(1_000)
    assert world.loop.progress().waiting_for is None
    world.step(40_000)
    assert "no commit for 40 s" in str(world.loop.progress().waiting_for)


@given(st.lists(st.sampled_from((0, 0, DAY_MS, -DAY_MS)), min_size=30, max_size=30))
def test_what_is_shown_is_measured_and_never_below_zero(steps: list[int]) -> None:
    world = World(rows=10_000, per_epoch=100)
    world.post(Verb.THROTTLE, rate=50.0)
    for i, step_ms in enumerate(steps):
        world.stepped_ms += step_ms
        if i > 20:
            world.change()
        world.steps(1, SETTINGS.interval_ms)
        told = world.loop.progress()
        assert told.rows_per_s is None or 45 <= told.rows_per_s <= 50
        assert told.lag_ms is None or told.lag_ms >= 0
        assert told.eta_s is None or 0 < told.eta_s[0] <= told.eta_s[1] <= 10_000 / 45
    assert all(line.stage_ms >= 0 and line.commit_ms >= 0 for line in world.store.ledger)
    assert all(line.lag_ms is None or line.lag_ms >= 0 for line in world.store.ledger)
