"""The laws of the snapshot strategy under seeded schedules; a failing seed is named and replays alone."""

import os

import pytest

from backfill_cli.engine.orchestrator import Orchestrator

from .schedule import Schedule

SCHEDULES = int(os.environ.get("BACKFILL_SCHEDULES", "10000"))
CHUNK = 500


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
def test_every_schedule_keeps_the_laws(first: int) -> None:
    for seed in range(first, first + CHUNK):
        try:
            Schedule(seed).run()
        except BaseException as exc:
            exc.add_note(f"replay: Schedule({seed}).run()")
            raise


def _crashing(seeds: range) -> int:
    """Run schedules; how many crashes they held (each compared with the law after its recovery)."""
    crashes = 0
    for seed in seeds:
        schedule = Schedule(seed)
        schedule.run()
        crashes += schedule.crashes
    return crashes


def test_case_01_a_delete_is_not_lost_when_the_position_passes_it_and_the_process_dies() -> None:
    assert _crashing(range(20_000, 20_100)) > 20


def test_case_02_changes_that_arrive_during_recovery_are_applied() -> None:
    for seed in range(20_100, 20_150):
        schedule = Schedule(seed)
        before = schedule._open

        def busy(schedule: Schedule = schedule, before: object = before) -> Orchestrator:
            schedule.upstream.change()
            loop = before()  # type: ignore[operator]
            schedule.upstream.change()
            return loop  # type: ignore[no-any-return]

        schedule._open = busy  # type: ignore[method-assign]
        schedule.run()


def test_case_03_a_finished_split_stays_finished_behind_an_unfinished_one() -> None:
    assert _crashing(range(20_200, 20_300)) > 20  # a split read twice fails the sink's plain insert


def test_case_19_a_death_before_the_first_checkpoint_begins_at_the_pin() -> None:
    schedule = Schedule(1)
    schedule._open()
    assert schedule.sink.rows == {}
    schedule.run()


def test_case_20_an_epoch_that_died_half_way_is_applied_once() -> None:
    assert _crashing(range(20_300, 20_400)) > 20


def test_case_21_nothing_is_lost_where_snapshot_and_log_meet() -> None:
    assert _crashing(range(20_400, 20_500)) > 20


def test_case_41_a_commit_of_a_runner_that_was_fenced_is_refused() -> None:
    schedule = Schedule(7)
    schedule.quiet = True
    old = schedule._open()
    while old.committing() is None:
        schedule._happen()
        old.step()
    late = old.committing()
    schedule._open()  # takes over: fences, then commits the prepared epoch itself
    rows = dict(schedule.sink.rows)
    while late is not None and not late.done():
        pass
    assert schedule.sink.rows == rows
