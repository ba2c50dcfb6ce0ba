"""Positions: a partial order over the cursors of several logs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.model.position import START, Cursor, Position

LOGS = ("a", "b", "c")
# One type a log: offsets, offsets, file names.
CURSORS: dict[str, st.SearchStrategy[Cursor]] = {
    "a": st.integers(0, 3),
    "b": st.integers(0, 2**70),
    "c": st.sampled_from(("f-1", "f-10", "f-2")),
}
positions = st.fixed_dictionaries({}, optional=CURSORS).map(Position.of)


@given(positions, positions, positions)
def test_positions_are_partially_ordered(a: Position, b: Position, c: Position) -> None:
    assert a <= a
    if a <= b and b <= a:
        assert a == b
    if a <= b and b <= c:
        assert a <= c


@given(positions, positions, positions)
def test_a_join_is_the_least_position_at_or_after_both(a: Position, b: Position, c: Position) -> None:
    both = a.join(b)
    assert a <= both
    assert b <= both
    if a <= c and b <= c:
        assert both <= c
    assert both == b.join(a)


@given(positions)
def test_the_start_is_before_everything_and_changes_no_join(a: Position) -> None:
    start = Position()
    assert start <= a
    assert START.join(a) == a.join(START) == a


@given(positions, st.sampled_from(LOGS), st.data())
def test_a_cursor_is_covered_when_its_position_is_at_or_before(a: Position, log: str, data: st.DataObject) -> None:
    cursor = data.draw(CURSORS[log])
    assert a.covers(log, cursor) == (Position.of({log: cursor}) <= a)


def test_two_logs_that_passed_each_other_have_no_order() -> None:
    a, b = Position.of({"x": 1, "y": 2}), Position.of({"x": 2, "y": 1})
    assert not a <= b
    assert not b <= a


def test_offsets_and_the_numbers_in_names_are_compared_as_numbers() -> None:
    assert Position.of({"x": 9}) <= Position.of({"x": 10})
    assert Position.of({"x": "c-9"}) <= Position.of({"x": "c-10"})


def test_the_order_that_cursors_are_given_in_does_not_matter() -> None:
    assert Position.of({"b": 1, "a": 2}) == Position.of({"a": 2, "b": 1})


def test_cursors_of_two_types_in_one_log_are_refused() -> None:
    with pytest.raises(TypeError, match="the same type"):
        _ = Position.of({"x": 1}) <= Position.of({"x": "1"})
