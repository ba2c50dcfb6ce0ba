"""The watch view on terminals of all sizes: nothing is wider or higher than they are, and no number is cut."""

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, RenderableType
from view_builders import PROGRESS, ROW

from backfill_cli.catalog import Lease, SplitGroup, Taken
from backfill_cli.errors import Hint, command
from backfill_cli.model.checkpoint import EpochRecord, PartitionProgress, Written, by_table
from backfill_cli.model.job import Command, Control, JobState, Phase, Verb
from backfill_cli.model.limit import Kind, Limit
from backfill_cli.model.skipped import Skipped
from backfill_cli.model.split import SplitStatus
from backfill_cli.view.console import shortened
from backfill_cli.view.lines import (
    LIMIT_CELL,
    below_table,
    job_details,
    jobs_table,
    lag_of,
    limit_of,
    spell_lag_in_full,
    spell_progress,
    spell_read,
)
from backfill_cli.view.model import JobView, job_view, phases_of, spell_share
from backfill_cli.view.picture import Picture, live_picture

NOW_MS = 1_763_692_800_000
FOOTER = "Ctrl-C leaves this view, and changes nothing."
NUMBER = re.compile(r"\d[\d,.:]*")

words = st.lists(st.text("abcxyz09", min_size=1, max_size=12), min_size=1, max_size=30).map(" ".join)
counts = st.integers(0, 10**10)
names = st.text("abc-_ü漢0", min_size=1, max_size=30)


@st.composite
def ledgers(draw: st.DrawFn) -> tuple[EpochRecord, ...]:
    made, at_ms = [], NOW_MS - draw(st.integers(0, 10**9))
    for _ in range(draw(st.integers(0, 12))):
        before_ms, at_ms = at_ms, at_ms + draw(st.integers(1, 10**6))
        rows, lag_ms = draw(counts), draw(st.none() | st.integers(0, 10**8))
        phase = draw(st.sampled_from(list(Phase)))
        made.append(EpochRecord(at_ms, before_ms, phase, at_ms + draw(st.integers(0, 9_000)), rows, lag_ms=lag_ms))
    return tuple(made)


def _taken(record: EpochRecord) -> Taken:
    return Taken(Command(1, Verb.THROTTLE, "me@box", record.epoch, 500.0), record.epoch)


@st.composite
def views(draw: st.DrawFn) -> JobView:
    """Jobs in any state that the catalog can tell, and in some that it never does."""
    hint = draw(st.sampled_from([Hint(), command("resume orders"), "first: " + command("throttle a --rate none")]))
    limit = Limit(draw(words), draw(st.sampled_from(list(Kind))), hint)
    total = draw(st.none() | counts)
    strategy = draw(st.sampled_from(["snapshot", "chain", "source", "arrangement"]))
    some = st.none() | counts
    places = draw(st.lists(st.tuples(st.sampled_from(list(SplitStatus)), counts, some, some), max_size=9))
    tables = draw(st.integers(1, 12))
    partitions = tuple(
        PartitionProgress(f"t{n % tables}/{n}", *at, f"t{n % tables}") for n, at in enumerate(places)
    )
    told = replace(
        PROGRESS,
        phase=draw(st.sampled_from(phases_of(strategy))),
        rows_read=draw(counts),
        rows_total=total,
        bytes_read=draw(counts),
        bytes_total=draw(counts),
        pending_epochs=draw(counts),
        rows_per_s=draw(st.none() | st.floats(0, 1e9)),
        changes_per_s=draw(st.none() | st.floats(0, 1e9)),
        written_per_s=draw(st.none() | st.builds(Written, *[st.floats(0, 1e7)] * 3)),
        eta_s=draw(st.none() | st.tuples(st.floats(0, 1e7), st.floats(0, 1e7))),
        limited_by=limit,
        waiting_for=draw(st.none() | st.just(limit)),
        converging=draw(st.booleans()),
        held_bytes=draw(st.none() | counts),
        looked_ms=draw(st.none() | st.integers(NOW_MS - 10**7, NOW_MS)),
        oldest_ms=draw(st.none() | st.integers(NOW_MS - 10**9, NOW_MS)),
        partitions=partitions,
        tables=by_table(partitions),
        quarantined=draw(st.dictionaries(st.just("quarantine_orders"), counts, max_size=1)),
        skipped=draw(st.dictionaries(st.sampled_from(Skipped), counts)),
        partitions_added=draw(st.none() | counts),
        failures=draw(st.dictionaries(words, counts)),
        doing=draw(st.none() | words),
        doing_ms=draw(st.integers(0, NOW_MS)),
        rows_in_hand=draw(counts),
        changes_in_hand=draw(counts),
    )
    ledger = draw(ledgers())
    row = replace(
        ROW,
        name=draw(names),
        state=draw(st.sampled_from(list(JobState))),
        why=limit,
        progress=draw(st.none() | st.just(told)),
        control=draw(st.sampled_from([Control(), Control("me@box", NOW_MS - 90_000), Control(rate=500.0)])),
        strategy=strategy,
        lease=draw(st.sampled_from([Lease(3, "cli", "box", 4711, NOW_MS - 9_000, NOW_MS), Lease(3)])),
        live=draw(st.booleans()),
        created=draw(st.booleans()),
    )
    groups = tuple(
        SplitGroup(f"part {n}", 4, draw(st.integers(0, 4)), draw(counts), draw(st.none() | counts), 0.25)
        for n in range(draw(st.integers(0, 9)))
    )
    return job_view(row, groups, ledger, tuple(map(_taken, ledger[:2])), now_ms=NOW_MS)


def drawn(picture: RenderableType, width: int, height: int, **console: Any) -> list[str]:
    out = io.StringIO()
    screen = Console(file=out, width=width, height=height, color_system=None, highlight=False, **console)
    screen.print(picture)
    assert out.getvalue().endswith("\n"), "the prompt of the shell follows"
    return out.getvalue().split("\n")[:-1]


@given(view=views(), width=st.integers(20, 230), height=st.integers(3, 60))
def test_a_job_fits_every_terminal(view: JobView, width: int, height: int) -> None:
    lines = drawn(live_picture([view], FOOTER), width, height)
    assert len(lines) <= height
    assert max(map(cell_len, lines)) <= width, lines


@given(view=views(), width=st.integers(20, 89), height=st.integers(3, 60))
def test_a_number_is_whole_or_not_there(view: JobView, width: int, height: int) -> None:
    whole = set(NUMBER.findall("\n".join(drawn(Picture(view, FOOTER), 89, 500))))
    lines = drawn(live_picture([view], FOOTER), width, height)
    shown = set(NUMBER.findall("\n".join(line for line in lines if " more" not in line)))
    assert shown <= whole, lines


@given(view=views(), width=st.integers(60, 230), height=st.integers(15, 60))
def test_what_matters_is_on_every_screen_of_60_by_15(view: JobView, width: int, height: int) -> None:
    text = "\n".join(drawn(live_picture([view], FOOTER), width, height))
    told = [limit_of(view)[1].split()[0], *map(str, view.limited_by.hint.commands)]
    if view.created:
        told += [view.phase, spell_share(view.share), "reads", "lag", lag_of(view)]
    for said in told:
        assert said in text, said


@given(several=st.lists(views(), min_size=2, max_size=9), width=st.integers(40, 230), height=st.integers(3, 60))
def test_jobs_that_do_not_fit_are_counted(several: list[JobView], width: int, height: int) -> None:
    lines = drawn(live_picture(several, FOOTER), width, height)
    assert len(lines) <= height
    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.FAILED])
def test_a_long_reason_leaves_room_for_what_to_type(state: JobState) -> None:
    limit = Limit("word " * 300, hint=command("resume orders"))
    row = replace(ROW, state=state, why=limit, live=state is JobState.RUNNING)
    view = job_view(replace(row, progress=replace(PROGRESS, limited_by=limit)), now_ms=NOW_MS)
    lines = drawn(live_picture([view], FOOTER), 60, 15)
    assert any("backfill resume orders" in line for line in lines)
    assert any(line.rstrip().endswith("word …") for line in lines)


def ledger_of(commits: int) -> tuple[EpochRecord, ...]:
    """One a second, 1,000 rows each."""
    times = [NOW_MS - (commits - n) * 1_000 for n in range(commits)]
    return tuple(EpochRecord(t - 900, t - 1_900, Phase.SNAPSHOT, t, 1_000, lag_ms=2_000) for t in times)


def test_a_wide_terminal_has_curves_and_events_and_a_small_one_has_not() -> None:
    ledger = ledger_of(30)
    view = job_view(ROW, (), ledger, (_taken(ledger[3]),), now_ms=NOW_MS)
    wide = "\n".join(drawn(live_picture([view], FOOTER), 140, 40))
    for said in ("reads, rows per second", "1,000 ┤", "500 ┤", "1 m ago", "now", "last events", "throttle to 500"):
        assert said in wide, said
    small = "\n".join(drawn(live_picture([view], FOOTER), 80, 24))
    assert "┤" not in small
    assert "last events" not in small


@given(views())
def test_a_table_in_a_pipe_is_narrow_and_each_command_begins_its_line(view: JobView) -> None:
    heads, row = jobs_table([view]).splitlines()
    below = below_table([view]).splitlines()
    limit = view.limited_by
    assert len(row) <= heads.index("LIMITED BY") + LIMIT_CELL
    said = shortened(limit.said, LIMIT_CELL)
    assert row.endswith(said)
    assert said == limit.said or f"{view.name}: {limit.said}" in below
    for one in limit.hint.said:
        assert isinstance(one, str) or any(line.startswith(f"  {one}") for line in below)


@given(views(), st.sampled_from([60, 80, 120]))
def test_rows_that_are_read_and_rows_that_are_committed_are_told_apart(view: JobView, width: int) -> None:
    if view.created and view.rows_in_hand:
        assert " committed" in spell_read(view)
        for text in (job_details(view), "\n".join(drawn(Picture(view, FOOTER), width, 500))):
            assert "committed" in text


@given(views())
def test_a_lag_is_only_told_as_one_once_the_log_is_applied(view: JobView) -> None:
    waits = view.phase == Phase.SNAPSHOT and view.strategy in ("snapshot", "chain")
    assert (lag_of(view) == "N/A") == (waits or view.lag_s is None)
    assert ("; lag " in spell_progress(view)) == (not waits and view.lag_s is not None)
    assert spell_lag_in_full(view).startswith("not known before the snapshot is read") == waits
