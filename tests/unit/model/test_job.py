"""States, commands and barriers: which arrow exists, and that control folds the same way every time."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.model.job import (
    ENDED,
    TRANSITIONS,
    Barrier,
    Command,
    Control,
    JobState,
    Mutations,
    Verb,
    apply_command,
    may_become,
    of_table,
    reads_less,
)

S = JobState

# Written out once more, by what may follow each state: a slip in the table is seen here.
MAY_FOLLOW = {
    S.STARTING: {S.STARTING, S.RUNNING, S.PAUSED, S.STOPPING, S.FAILED},
    S.RUNNING: {S.RUNNING, S.STARTING, S.PAUSING, S.PAUSED, S.STOPPING, S.DONE, S.FAILED},
    S.PAUSING: {S.PAUSING, S.STARTING, S.PAUSED, S.RUNNING, S.STOPPING, S.FAILED},
    S.PAUSED: {S.PAUSED, S.STARTING, S.RUNNING, S.STOPPING, S.FAILED},
    S.STOPPING: {S.STOPPING, S.STARTING, S.RUNNING, S.STOPPED, S.FAILED},
    S.STOPPED: {S.STOPPED, S.STARTING},
    S.FAILED: {S.FAILED, S.STARTING},
    S.DONE: {S.DONE, S.STARTING},
}

commands = st.builds(
    Command,
    id=st.integers(1, 99),
    verb=st.sampled_from(Verb),
    by=st.sampled_from(("ann", "bob")),
    at_ms=st.integers(0, 9),
    rate=st.sampled_from((None, 0.0, 500.0)),
)
of_a_table = st.builds(
    Command,
    id=st.integers(1, 99),
    verb=st.just(Verb.THROTTLE),
    by=st.just("ann"),
    at_ms=st.just(1),
    rate=st.sampled_from((None, 0.0, 500.0)),
    payload=st.sampled_from("ab").map(of_table),
)
controls = st.lists(commands, max_size=4).map(lambda many: fold(Control(), many))


def fold(control: Control, many: list[Command]) -> Control:
    for at_ms, command in enumerate(many, 100):
        control = apply_command(control, command, at_ms)
    return control


@pytest.mark.parametrize(("now", "then"), list(product(S, S)))
def test_an_arrow_exists_only_where_the_table_has_it(now: JobState, then: JobState) -> None:
    assert may_become(now, then) == (then in MAY_FOLLOW[now])


def test_every_arrow_has_a_reason() -> None:
    assert all(len(reason) > 10 for reason in TRANSITIONS.values())


def test_a_job_that_ended_goes_on_only_by_starting_again() -> None:
    assert {then for now, then in TRANSITIONS if now in ENDED} == {S.STARTING}


def test_a_runner_that_died_in_any_state_can_be_followed_by_another() -> None:
    assert all(may_become(state, S.STARTING) for state in S)


@given(controls, commands, st.integers(), st.integers())
def test_a_repeated_command_changes_nothing(
    control: Control, command: Command, first_ms: int, again_ms: int
) -> None:
    once = apply_command(control, command, first_ms)
    assert apply_command(once, replace(command, by="another"), again_ms) == once


@given(controls, commands)
def test_only_pause_pauses_and_only_resume_ends_it(control: Control, command: Command) -> None:
    paused = apply_command(control, command, 5).paused
    match command.verb:
        case Verb.PAUSE | Verb.PAUSE_ALL:
            assert paused
        case Verb.RESUME:
            assert not paused
        case Verb.HOLD | Verb.LIFT:  # what guards command: tests/unit/model/test_guard.py
            assert apply_command(control, command, 5).paused_by == control.paused_by
        case _:
            assert paused == control.paused


@given(controls, commands)
def test_only_throttle_moves_the_rate(control: Control, command: Command) -> None:
    after = apply_command(control, command, 5)
    assert after.rate == (command.rate if command.verb == Verb.THROTTLE else control.rate)


@given(controls, of_a_table, commands)
def test_a_throttle_of_a_table_moves_its_rate_alone_and_nothing_else_does(
    control: Control, command: Command, other: Command
) -> None:
    before = apply_command(control, replace(command, rate=7.0), 5)
    after = apply_command(before, command, 6)
    assert after.rates == ({} if command.rate is None else {command.table: command.rate})
    assert replace(after, tables=()) == control
    assert apply_command(after, other, 7).tables == after.tables


@given(of_a_table, of_a_table)
def test_less_is_read_once_one_table_may_be_read_more_slowly(first: Command, then: Command) -> None:
    before = apply_command(Control(), first, 1)
    after = apply_command(before, then, 2)
    rate = before.rates.get(then.table)
    assert reads_less(before, after) == (then.rate is not None and (rate is None or then.rate < rate))


@given(controls, commands)
def test_only_resume_takes_a_stop_back(control: Control, command: Command) -> None:
    after = apply_command(control, command, 5)
    assert after.stop == (command.verb == Verb.STOP or (control.stop and command.verb != Verb.RESUME))


@given(controls)
def test_who_paused_and_since_when_are_known_exactly_while_paused(control: Control) -> None:
    assert control.paused == (control.since_ms is not None) == (control.pauser is not None)


@given(st.lists(commands, max_size=6))
def test_a_fold_depends_on_the_last_command_of_each_kind(many: list[Command]) -> None:
    last_of = {c.verb: c for c in many}
    kept = [c for c in many if c.verb != Verb.THROTTLE or c is last_of[Verb.THROTTLE]]
    assert fold(Control(), many).rate == fold(Control(), kept).rate


@given(st.integers(0, 2**50), st.lists(st.integers(-5000, 5000), max_size=20))
def test_epochs_strictly_increase_whatever_the_clock_does(start_ms: int, steps: list[int]) -> None:
    epoch, now_ms = start_ms, start_ms
    for step in steps:
        now_ms += step
        barrier = Barrier.next(epoch, now_ms, Mutations(Control()))
        assert barrier.prev_ms == epoch < barrier.epoch
        assert barrier.epoch == max(now_ms, epoch + 1)
        epoch = barrier.epoch
