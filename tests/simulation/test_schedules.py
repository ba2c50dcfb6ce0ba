"""The laws of the strategies under seeded schedules; a failing seed is named and replays alone."""

import os

import pytest

from backfill_cli.engine.loop.orchestrator import Orchestrator
from backfill_cli.strategies.partitions import PartitionLog

from .schedule import Schedule, run_all
from .schedule_kinds import SnapshotSchedule, SourceSchedule

SCHEDULES = int(os.environ.get("BACKFILL_SCHEDULES", "7000"))  # half of them over each strategy
CHUNK = 250
KINDS = (SnapshotSchedule, SourceSchedule)


@pytest.mark.parametrize("first", range(0, SCHEDULES // 2, CHUNK))
@pytest.mark.parametrize("kind", KINDS)
def test_every_schedule_keeps_the_laws(kind: type[Schedule], first: int) -> None:
    run_all(kind, range(first, first + CHUNK))


def test_case_01_a_delete_is_not_lost_when_the_position_passes_it_and_the_process_dies() -> None:
    assert run_all(SnapshotSchedule, range(20_000, 20_100))["crash"] > 20


def test_case_02_changes_that_arrive_during_recovery_are_applied() -> None:
    for seed in range(20_100, 20_150):
        schedule = SnapshotSchedule(seed)
        before = schedule._open

        def busy(schedule: Schedule = schedule, before: object = before) -> Orchestrator:
            schedule.upstream.change()
            loop = before()  # type: ignore[operator]
            schedule.upstream.change()
            return loop  # type: ignore[no-any-return]

        schedule._open = busy  # type: ignore[method-assign]
        schedule.run()


@pytest.mark.parametrize("kind", KINDS)
def test_case_03_a_finished_split_stays_finished_behind_an_unfinished_one(kind: type[Schedule]) -> None:
    assert run_all(kind, range(20_200, 20_250))["crash"] > 10  # a split read twice fails the sink's plain insert


@pytest.mark.parametrize("kind", KINDS)
def test_case_19_a_death_before_the_first_checkpoint_begins_at_the_pin(kind: type[Schedule]) -> None:
    schedule = kind(1)
    schedule._open()
    assert schedule.sink.rows == {}
    schedule.run()


@pytest.mark.parametrize("kind", KINDS)
def test_case_20_an_epoch_that_died_half_way_is_applied_once(kind: type[Schedule]) -> None:
    assert run_all(kind, range(20_300, 20_350))["crash"] > 10


@pytest.mark.parametrize("kind", KINDS)
def test_case_21_nothing_is_lost_where_snapshot_and_log_meet(kind: type[Schedule]) -> None:
    assert run_all(kind, range(20_400, 20_450))["crash"] > 10


@pytest.mark.parametrize("kind", KINDS)
def test_case_31_history_that_is_gone_stops_the_job_and_keeps_its_state(kind: type[Schedule]) -> None:
    assert run_all(kind, range(20_500, 20_600))["history gone"] > 5


@pytest.mark.parametrize("kind", KINDS)
def test_case_36_a_catalog_or_a_sink_that_was_restored_is_refused(kind: type[Schedule]) -> None:
    assert run_all(kind, range(20_700, 20_800))["restored"] > 5


@pytest.mark.parametrize("kind", KINDS)
def test_case_42_an_epoch_whose_staged_files_are_gone_is_planned_anew(kind: type[Schedule]) -> None:
    assert run_all(kind, range(20_900, 21_100))["dropped"] > 5


@pytest.mark.seconds
def test_case_42_an_epoch_that_one_table_has_and_no_file_is_left_of_stops_naming_it() -> None:
    assert run_all(SnapshotSchedule, range(21_100, 21_600))["damaged"] > 5


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_that_the_sink_can_never_take_is_taken_back(kind: type[Schedule]) -> None:
    assert run_all(kind, range(22_100, 22_300))["refused"] > 5


@pytest.mark.seconds
def test_an_epoch_that_one_table_has_and_another_can_never_take_stops_naming_both() -> None:
    assert run_all(SnapshotSchedule, range(22_300, 22_800))["half refused"] > 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_clock_that_is_set_a_day_ahead_or_back_neither_deafens_nor_ends_the_loop(kind: type[Schedule]) -> None:
    seen = run_all(kind, range(23_300, 23_400))
    assert seen["set"] > 30
    assert seen["command in time"] > 200


def test_what_the_upstream_had_when_a_loop_says_that_it_is_in_the_sink_is_there() -> None:
    assert run_all(SnapshotSchedule, range(23_700, 23_900))["settled"] > 500


@pytest.mark.parametrize("kind", KINDS)
def test_a_runner_that_lives_on_after_another_host_took_over_writes_nothing(kind: type[Schedule]) -> None:
    assert run_all(kind, range(23_500, 23_700))["taken over"] > 10


def test_a_seed_that_fails_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rule taken out: live goes on although the log no longer has the next offset."""
    monkeypatch.setattr(PartitionLog, "_require", lambda self, needed, end: None)
    with pytest.raises(AssertionError) as failed:
        run_all(SourceSchedule, range(500))
    (note,) = failed.value.__notes__
    assert note.startswith("replay: SourceSchedule(")
    with pytest.raises(AssertionError):
        SourceSchedule(int(note.removeprefix("replay: SourceSchedule(").removesuffix(").run()"))).run()


def test_case_41_a_commit_of_a_runner_that_was_fenced_is_refused() -> None:
    schedule = SnapshotSchedule(7)
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
