"""A job's life: phases without a gap, pauses and gaps as they were, rates that lose no row, the lag down to 0."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.catalog import Run, Taken
from backfill_cli.model.checkpoint import EpochRecord
from backfill_cli.model.job import Command, Control, Phase, Verb, apply_command
from backfill_cli.view.past import (
    DEAD,
    STOPPED,
    Span,
    binned,
    events,
    gaps,
    lag_line,
    pauses,
    phase_spans,
    thinned,
)

NOW_MS = 1_763_700_000_000
TOLD = st.lists(
    st.tuples(st.integers(0, 10**7), st.integers(0, 1_000), st.none() | st.integers(0, 10**6)), min_size=1
)
"""When an epoch was committed, its rows, its lag."""


@given(TOLD, st.integers(1, 50), st.integers(0, 10**7))
def test_binning_loses_no_row_and_no_peak(
    told: list[tuple[int, int, int | None]], points: int, begin_ms: int
) -> None:
    records = [EpochRecord(at, at, Phase.UPSTREAM, at, n, 2 * n, 0, 0, n, 3, lag) for at, n, lag in told]
    bins = binned(records, points, begin_ms, 10**7)
    assert 1 <= len(bins) <= points
    assert bins[0].begin_ms <= begin_ms
    assert bins[-1].end_ms > 10**7
    span_s = (bins[0].end_ms - bins[0].begin_ms) / 1000
    assert sum(one.rows_per_s for one in bins) * span_s == pytest.approx(sum(one[1] for one in told))
    assert sum(one.changes_per_s for one in bins) * span_s == pytest.approx(2 * sum(one[1] for one in told))
    assert all(one.end_ms == after.begin_ms for one, after in pairwise(bins))
    assert max(one.stage_s for one in bins) == max(one[1] for one in told) / 1000


def test_a_limited_rate_has_no_peak_above_it() -> None:
    """6,000 rows each 3 s, which are read in a second and written in half of one."""
    ends_ms = range(NOW_MS, NOW_MS + 60_000, 3_000)
    records = [EpochRecord(at - 1_500, 0, Phase.SNAPSHOT, at, 6_000, 0, 6_000, 0, 1_000, 500) for at in ends_ms]
    bins = binned(records, 400, NOW_MS, NOW_MS + 57_000)
    assert max(one.rows_per_s for one in bins[3:]) == pytest.approx(2_000)
    assert max(one.rows_per_s for one in bins) <= 4_000, "the first one took a second and a half"


def test_a_job_that_became_live_at_an_idle_barrier_was_not_catching_up_since() -> None:
    """Its last epochs were of the log store; since then it is live, and nothing changed for ten minutes."""
    caught_ms = NOW_MS - 600_000
    records = [EpochRecord(caught_ms - n, 0, Phase.LOG_STORE, caught_ms - n, 0, 1, 1) for n in (2_000, 1_000)]
    ends = {Phase.SNAPSHOT: caught_ms - 5_000, Phase.LOG_STORE: caught_ms}
    begin_ms = caught_ms - 2_500
    log, live = phase_spans(records, Phase.UPSTREAM, ends, begin_ms, NOW_MS)
    assert log == Span(Phase.LOG_STORE, begin_ms, caught_ms)
    assert live == Span(Phase.UPSTREAM, caught_ms, NOW_MS)
    later = EpochRecord(NOW_MS, 0, Phase.UPSTREAM, NOW_MS, 0, 1, 1)
    assert phase_spans([*records, later], Phase.UPSTREAM, ends, begin_ms, NOW_MS) == (log, live)


def test_a_phase_ends_with_its_last_rows_though_a_command_came_before_they_were_recovered() -> None:
    """A runner promised rows at 2 s, took a command at 3 s, and died; the next one committed them at 50 s."""
    records = [
        EpochRecord(1_000, 0, Phase.SNAPSHOT, 1_000, 10),
        EpochRecord(2_000, 1_000, Phase.SNAPSHOT, 50_000, 10, mutations="recovered"),
        EpochRecord(3_000, 2_000, Phase.LOG_STORE, 3_000, mutations="throttle"),
        EpochRecord(60_000, 3_000, Phase.LOG_STORE, 60_000, 0, 5),
    ]
    spans = phase_spans(records, Phase.LOG_STORE, {Phase.SNAPSHOT: 2_000}, 0, 70_000)
    assert spans == (Span(Phase.SNAPSHOT, 0, 50_000), Span(Phase.LOG_STORE, 50_000, 70_000))


PHASES = st.lists(st.tuples(st.sampled_from(Phase), st.integers(0, 1_000)), max_size=9)


@given(PHASES, st.sampled_from(Phase), st.dictionaries(st.sampled_from(Phase), st.integers(0, 1_000)))
def test_phases_follow_each_other_without_a_gap(
    told: list[tuple[Phase, int]], now: Phase, ends: dict[Phase, int]
) -> None:
    records = [EpochRecord(at, at, phase, at, 1) for phase, at in told]
    spans = phase_spans(records, now, ends, 0, 1_000)
    assert all(one.end_ms == after.begin_ms and one.what != after.what for one, after in pairwise(spans))
    assert (spans[0].begin_ms, spans[-1].end_ms, spans[-1].what) == (0, 1_000, now)
    assert all(one.begin_ms <= one.end_ms for one in spans)


COMMANDS = st.lists(st.tuples(st.sampled_from(Verb), st.integers(1, 20)), max_size=12)


@given(COMMANDS)
def test_a_job_was_paused_when_its_control_was(told: list[tuple[Verb, int]]) -> None:
    at_ms, taken = 0, []
    for number, (verb, later) in enumerate(told):
        at_ms += later
        taken.append(Taken(Command(number, verb, "me", at_ms), at_ms))
    spans = pauses(taken, at_ms + 5)
    for moment in range(at_ms + 5):
        control = Control()
        for one in taken:
            if one.epoch <= moment:
                control = apply_command(control, one.command, one.epoch)
        assert any(one.begin_ms <= moment < one.end_ms for one in spans) == control.paused


def test_between_two_runners_the_job_had_none_and_it_is_known_why() -> None:
    runs = [Run(0, 10, died=True), Run(15, 40, died=False), Run(60, None, died=False)]
    assert gaps(runs) == (Span(DEAD, 10, 15), Span(STOPPED, 40, 60))
    assert [(one.at_ms, one.what) for one in events([], runs, [])] == [
        (0, "runner started"),
        (10, "runner died"),
        (15, "runner started"),
        (40, "runner ended"),
        (60, "runner started"),
    ]


def test_commands_are_told_as_they_were_typed_and_once() -> None:
    throttle = Command(1, Verb.THROTTLE, "me@box", 4, 12_000.0)
    line = EpochRecord(5, 1, Phase.SNAPSHOT, 5, mutations="throttle, recovered")
    told = events([Taken(throttle, 5)], [], [line])
    assert [(one.what, one.by) for one in told] == [("throttle to 12,000 rows/s", "me@box"), ("recovered", "")]


@given(st.lists(st.tuples(st.integers(1, 50_000), st.integers(0, 90_000)), max_size=30))
def test_the_lag_is_that_of_each_commit_and_grows_by_a_second_a_second(told: list[tuple[int, int]]) -> None:
    at_ms, records = 10**6, []
    for later, lag_ms in told:
        at_ms += later
        records.append(EpochRecord(at_ms, 0, Phase.UPSTREAM, at_ms, lag_ms=lag_ms))
    line = lag_line(records, None)
    assert set(line) >= {(one.committed_ms, (one.lag_ms or 0) / 1000) for one in records}
    assert all(lag_s >= 0 for _, lag_s in line)
    assert all(before[0] <= after[0] for before, after in pairwise(line))
    for (begin_ms, low_s), (end_ms, high_s) in pairwise(line):
        if low_s == 0:
            assert high_s == 0 or high_s * 1000 >= end_ms - begin_ms - 1
    short = thinned(line, 10**6, at_ms, 5)
    assert len(short) <= 3 * 6
    assert set(short) <= set(line)
    assert max((lag for _, lag in short), default=0) == max((lag for _, lag in line), default=0)


def test_an_idle_job_has_no_lag() -> None:
    """It applied a change after 2 s, had nothing to do, then one after 3 s."""
    records = [
        EpochRecord(at, 0, Phase.UPSTREAM, at, lag_ms=lag) for at, lag in ((10_000, 2_000), (60_000, 3_000))
    ]
    line = lag_line(records, (90_000, 0.0))
    assert line == [
        (10_000, 2.0),
        (10_000, 0.0),
        (57_000, 0.0),
        (60_000, 3.0),
        (60_000, 0.0),
        (90_000, 0.0),
        (90_000, 0.0),
    ]


def test_a_commit_leaves_the_lag_of_what_came_before_its_end() -> None:
    """It stopped when all but a change of a second before was applied; the next run came half a minute later."""
    told = ((10_000, 8_000), (40_000, 31_000))
    records = [EpochRecord(at, 0, Phase.UPSTREAM, at, lag_ms=lag) for at, lag in told]
    assert lag_line(records, None) == [(10_000, 8.0), (10_000, 1.0), (40_000, 31.0)]
