"""Curves in a terminal: what their cells say is what the ledger says, and their scales are round."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from backfill_cli.model.checkpoint import EpochRecord
from backfill_cli.model.job import Phase
from backfill_cli.model.units import spell_duration
from backfill_cli.view.plot import AROUND, Plot, between, rates, round_number, round_time

BEGIN_MS = 1_763_692_800_000


@st.composite
def ledgers(draw: st.DrawFn) -> list[EpochRecord]:
    """Commits within the minute after BEGIN_MS, each begun after the one before."""
    made, at_ms = [], BEGIN_MS + 1_000
    for took_ms, idle_ms, rows in draw(st.lists(st.tuples(*[st.integers(1, 2_000)] * 3), min_size=1, max_size=12)):
        begun_ms, at_ms = at_ms + idle_ms, at_ms + idle_ms + took_ms
        made.append(EpochRecord(begun_ms, begun_ms - 1_000, Phase.UPSTREAM, at_ms, changes_read=rows))
    return made


@given(ledgers(), st.integers(1, 200))
def test_all_that_was_read_is_in_the_cells(ledger: list[EpochRecord], cells: int) -> None:
    told = rates(ledger, BEGIN_MS, BEGIN_MS + 60_000, cells)
    read = sum(one or 0 for one in told) * 60 / cells
    assert read == pytest.approx(sum(one.changes_read for one in ledger))
    assert len(told) == cells


def test_a_steady_rate_is_that_rate_in_each_cell_and_nothing_is_said_of_before() -> None:
    steady = [
        EpochRecord(at - 100, at - 1_000, Phase.SNAPSHOT, at, snapshot_rows=500)
        for at in range(BEGIN_MS + 31_000, BEGIN_MS + 60_001, 1_000)
    ]
    told = rates(steady, BEGIN_MS, BEGIN_MS + 60_000, 66)
    assert told[:30] == [None] * 30
    assert told[35:] == [pytest.approx(500)] * 31
    assert rates([], BEGIN_MS, BEGIN_MS + 1, 3) == [None] * 3


def test_between_two_commits_the_lag_is_on_a_line() -> None:
    points = [(BEGIN_MS + 10_000, 2.0), (BEGIN_MS + 20_000, 4.0)]
    assert between(points, BEGIN_MS, BEGIN_MS + 30_000, 6) == [None, 2.0, 3.0, 4.0, None, None]
    assert between([], BEGIN_MS, BEGIN_MS + 1, 2) == [None, None]


@given(st.floats(1e-3, 1e12))
def test_the_top_of_a_scale_and_its_half_are_round(least: float) -> None:
    top = round_number(least)
    assert max(2, least * 0.999) <= top <= 2.6 * max(2, least)
    assert (top / 2).is_integer(), "half is shown without a point"
    assert f"{top:.0f}".rstrip("0") in ("1", "2", "4")
    time_s = round_time(least)
    assert time_s >= least * 0.999
    for told in (time_s, time_s / 2):
        assert len(spell_duration(told).split()) == 2, "one number and one unit"


@given(st.integers(20, 120), st.floats(0.2, 1e8), st.sampled_from(["now", "12:00:00", "2025-11-20 23:59:59"]))
def test_a_plot_has_as_many_lines_as_it_says_at_any_width(width: int, seconds: float, end: str) -> None:
    plot = Plot("rows per second", lambda cells: [1.0] * cells, round_number, "{:,.0f}".format, seconds, end, 4)
    assert len(Console(width=width).render_lines(plot)) == 4 + AROUND
