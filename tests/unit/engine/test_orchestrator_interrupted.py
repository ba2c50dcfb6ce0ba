"""Commands while an epoch is staged: those for which less is read interrupt it, and starve no job."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_world import SETTINGS, World

from backfill_cli.contracts import StagedEpoch
from backfill_cli.engine.loop.orchestrator import Tick
from backfill_cli.engine.loop.pace import INTERRUPTIONS
from backfill_cli.model.job import Verb
from backfill_cli.model.plan import EpochPlan


def staging_meets(world: World, *during: tuple[Verb, float | None]) -> list[str]:
    """Commands come while it stages, one at each attempt. Returns what was asked of it, and told to it."""
    staged, left, told = world.stager.stage, list(during), []

    def stage(
        plan: EpochPlan, epoch: int, schemas: Mapping[str, str], unwanted: Callable[[], bool]
    ) -> StagedEpoch:
        if left:
            world.post(*left.pop(0))
        told.append(f"{sum(read.limit_rows or 0 for read in plan.reads)}{' interrupted' if unwanted() else ''}")
        return staged(plan, epoch, schemas, unwanted)

    world.stager.stage = stage  # type: ignore[method-assign]
    return told


@pytest.mark.parametrize(
    ("verb", "rate"), [(Verb.PAUSE, None), (Verb.STOP, None), (Verb.THROTTLE, 3.0), (Verb.HOLD, None)]
)
def test_a_command_for_which_less_is_read_interrupts_what_is_staged_and_acts_at_once(
    verb: Verb, rate: float | None
) -> None:
    world = World(rows=100)
    staging_meets(world, (verb, rate))
    assert world.step() == Tick.WORKED
    world.step()
    assert world.seen()[:3] == ["observe", "stage", f"take {verb}"]
    assert world.store.inbox == []
    assert world.loop.waiting_for() is None, "it is no failure"


def test_a_command_that_redefines_the_job_interrupts_what_is_staged() -> None:
    world = World(rows=100)
    staging_meets(world, (Verb.SET, None))
    assert world.step() == Tick.WORKED
    assert world.step() == Tick.REDEFINED
    assert world.seen() == ["observe", "stage"]


@pytest.mark.parametrize(("verb", "rate"), [(Verb.RESUME, None), (Verb.THROTTLE, None), (Verb.LIFT, None)])
def test_a_command_for_which_no_less_is_read_waits_until_the_epoch_is_staged(
    verb: Verb, rate: float | None
) -> None:
    world = World(rows=100)
    told = staging_meets(world, (verb, rate))
    world.steps(2)
    assert told[0] == "10"
    assert world.seen()[:4] == ["observe", "stage", "prepare a1", "commit a1"]


def test_a_signal_interrupts_what_is_staged_and_the_commit_in_progress_is_finished() -> None:
    world = World(rows=100)
    world.step()
    staged = world.stager.stage

    def stage(
        plan: EpochPlan, epoch: int, schemas: Mapping[str, str], unwanted: Callable[[], bool]
    ) -> StagedEpoch:
        world.loop.ask_stop()
        return staged(plan, epoch, schemas, unwanted)

    world.stager.stage = stage  # type: ignore[method-assign]
    assert world.step() == Tick.WORKED
    assert world.step() == Tick.WAITING
    world.finish()
    assert world.step() == Tick.STOPPED
    assert [line.snapshot_rows for line in world.store.ledger] == [10]


def test_commands_that_come_faster_than_an_epoch_is_staged_do_not_starve_the_job() -> None:
    world = World(rows=20_000, per_epoch=8_000)
    rates = [(Verb.THROTTLE, rate) for rate in (9e9, 8e9, 7e9, 6e9, 5e9, 4e9)]
    told = staging_meets(world, *rates)
    world.steps(8)
    assert told[:4] == ["8000 interrupted", "4000 interrupted", "2000 interrupted", "1000"]
    assert told[4].startswith("8000"), "once an epoch is prepared, the next one is as large as before"
    assert "commit a4" in world.seen()


def test_an_epoch_that_can_be_smaller_is_interrupted_however_often() -> None:
    world = World(rows=100_000, per_epoch=32_000)
    told = staging_meets(world, *((Verb.THROTTLE, 9e9 - at) for at in range(9)))
    world.steps(9)
    halves = [32_000 >> at for at in range(5)]
    assert told[:6] == [*(f"{rows} interrupted" for rows in halves), "1000"]


def test_a_command_does_not_wait_for_a_long_interval() -> None:
    world = World(rows=0, settings=replace(SETTINGS, interval_ms=60_000))
    world.steps(3)
    assert world.step(1_000) == Tick.IDLE
    world.seen()
    world.post(Verb.PAUSE)
    world.step(1_000)
    assert world.seen()[0] == "take pause"


def test_a_stop_interrupts_what_is_staged_however_often_it_was_interrupted() -> None:
    world = World(rows=100)
    rates = [(Verb.THROTTLE, rate) for rate in (300.0, 200.0, 100.0)]
    told = staging_meets(world, *rates, (Verb.STOP, None))
    world.steps(5)
    assert len(told) == 4
    assert all(one.endswith("interrupted") for one in told)
    assert world.store.ledger == []


@given(
    st.lists(st.sampled_from([(Verb.PAUSE, None), (Verb.RESUME, None), (Verb.THROTTLE, 5.0), (Verb.LIFT, None)]))
)
def test_whatever_is_commanded_while_it_stages_a_job_that_is_not_paused_commits_after_four_attempts(
    during: list[tuple[Verb, float | None]],
) -> None:
    world = World(rows=100)
    staged, since, left = world.stager.stage, [0], list(during)

    def stage(
        plan: EpochPlan, epoch: int, schemas: Mapping[str, str], unwanted: Callable[[], bool]
    ) -> StagedEpoch:
        if left:
            world.post(*left.pop(0))
        since[0] += 1
        assert since[0] <= INTERRUPTIONS + 1
        done = staged(plan, epoch, schemas, unwanted)
        since[0] = 0
        return done

    world.stager.stage = stage  # type: ignore[method-assign]
    for _ in range(40):
        world.step(1_000)
        if world.commits and not world.commits[-1].done():
            world.finish()
        if world.loop.state.control.paused:
            world.post(Verb.RESUME)
    assert sum(line.snapshot_rows for line in world.store.ledger) > 0
