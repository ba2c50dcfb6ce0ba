"""What terminals and pipes are shown."""

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.live_render import LiveRender
from view_builders import GROUPS, drawn, ledger, progress, row

from backfill_cli.catalog import Lease, SplitGroup
from backfill_cli.catalog.job_rows import read_progress
from backfill_cli.errors import Hint, command, shell
from backfill_cli.model.checkpoint import PartitionProgress, Progress, Written, by_table
from backfill_cli.model.codec import encode
from backfill_cli.model.deadline import Outlook
from backfill_cli.model.headroom import Headroom, Unread
from backfill_cli.model.job import Control, JobState, Phase
from backfill_cli.model.limit import Kind, Limit
from backfill_cli.model.position import START
from backfill_cli.model.split import SplitStatus
from backfill_cli.model.units import spell_moment
from backfill_cli.view.console import shown, shown_lines
from backfill_cli.view.lines import below_table, job_details, jobs_table, spell_progress
from backfill_cli.view.model import JobView, job_view
from backfill_cli.view.picture import Jobs, Picture, beginning_picture, live_picture
from backfill_cli.view.status import Lines

FULL = job_view(row(), GROUPS, ledger([1000, 3000, 2000]))
FULL_OF_SPLITS = job_view(row(), tuple(SplitGroup(f"splits {n}", 4, 1, 10, 40, 0.25) for n in range(6)))
STRANGE = ["a[/b]", "x[red]y", "\x1b[31mred\x1b[0m", "\x9b31m", "a\rb", "\u202egnp.exe", "a\\", "[bold", "\ud800"]


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_picture_keeps_to_the_width(width: int) -> None:
    text = drawn(Picture(FULL), width)
    assert max(map(len, text.splitlines())) <= width
    for expected in (
        "orders  running",
        "● snapshot (copying) ─── ○ log-store (catching up) ─── ○ upstream (live)",
        "42.1%  84,200 of 200,000 rows",
        "splits 5–8",
        "25.0%",
        "6.2 s to 9.4 s",
        "14 upstream commits",
        "limited by   rate 20000 rows/s",
        "to change    backfill throttle orders --rate none",
    ):
        assert expected in text


def test_bars_can_be_told_apart_without_colour() -> None:
    line = next(line for line in drawn(Picture(FULL)).splitlines() if "42.1%" in line)
    filled, rest = line.count("━"), line.count("─")
    assert filled / (filled + rest) == pytest.approx(0.42, abs=0.05)


def test_phases_gone_through_are_ticked() -> None:
    view = job_view(row(progress=progress(phase=Phase.LOG_STORE)))
    assert "✓ snapshot (copying) ─── ● log-store (catching up) ─── ○ upstream (live)" in drawn(Picture(view))
    done = job_view(row(state=JobState.DONE, live=False, progress=progress(phase=Phase.UPSTREAM)))
    assert "✓ snapshot (copying) ─── ✓ log-store (catching up) ─── ✓ upstream (live)" in drawn(Picture(done))
    assert "running for" not in drawn(Picture(done))


def test_a_job_whose_runner_died_does_not_look_well() -> None:
    text = drawn(Picture(job_view(row(live=False))))
    assert "orders  dead  " in text
    ended = row(live=False, state=JobState.PAUSED, lease=Lease(3))
    assert "paused, no runner" in drawn(Picture(job_view(ended)))
    assert "to continue  backfill resume orders" in text


def test_a_paused_job_says_by_whom_and_how_to_go_on() -> None:
    text = drawn(Picture(job_view(row(state=JobState.PAUSED, control=Control("me@box", 5)))))
    assert "paused       by me@box since" in text
    assert "to continue  backfill resume orders" in text


def test_a_live_job_tells_apart_what_it_writes() -> None:
    live = progress(
        phase=Phase.UPSTREAM,
        written_per_s=Written(0.0, 1_200.4, 0.5),
        limited_by=Limit("a commit every 1 s", Kind.FOLLOWING),
    )
    view = job_view(row(progress=live))
    assert "writes       1,200 rows/s upserted, 0.5 rows/s deleted" in drawn(Picture(view))
    assert "writes:          1,200 rows/s upserted, 0.5 rows/s deleted" in job_details(view)
    still = replace(live, written_per_s=Written(0.0, 0.0, 0.0))
    assert "writes       none" in drawn(Picture(job_view(row(progress=still))))
    assert job_view(row(progress=live, live=False)).written_per_s is None


def test_one_pending_epoch_is_one_and_a_reason_is_not_a_limit() -> None:
    one = progress(pending_epochs=1, limited_by=Limit("1 upstream epoch left", Kind.CATCHING_UP))
    assert spell_progress(job_view(row(progress=one))).split("; ")[3:] == [
        "6.2 s to 9.4 s left",
        "1 upstream commit not applied yet",
        "last commit 1763692800123 (2025-11-21 02:40:00 UTC)",
        "catching up: 1 upstream epoch left",
    ]
    begun = spell_progress(job_view(row(epoch=0, progress=replace(one, epoch=0))))
    assert "no commit yet" in begun
    assert "last commit" not in begun
    paused = spell_progress(job_view(row(state=JobState.PAUSED, control=Control("me@box", 5))))
    assert "limited by" not in paused
    assert "; paused by me@box since" in paused


def test_an_estimate_of_rows_is_shown_as_one_and_not_at_all_once_it_is_too_low() -> None:
    part = SplitGroup("split 1", 1, 0, 90, 80, 0.999)
    view = job_view(
        row(progress=progress(rows_estimated=True)), (part, replace(part, label="split 2", rows_read=9))
    )
    for told in (job_details(view), drawn(Picture(view))):
        assert "84,200 of about 200,000 rows" in told
        assert "9 of about 80 rows" in told
        assert "90 of" not in told
        assert " 90 rows" in told


def test_an_empty_catalog_and_several_jobs_can_be_watched() -> None:
    assert "no jobs yet" in drawn(live_picture([], "Ctrl-C leaves", "no jobs yet in x"))
    two = drawn(live_picture([FULL, job_view(row(name="shop"))], "Ctrl-C leaves"))
    assert [name in two for name in ("orders", "shop", "Ctrl-C leaves")] == [True, True, True]


@pytest.mark.parametrize("name", STRANGE)
def test_case_48_names_and_values_cannot_command_the_terminal(name: str) -> None:
    changes = {
        "name": name,
        "why": Limit(name),
        "strategy": name,
        "control": Control(name, 5),
        "state": JobState.FAILED,
    }
    view = job_view(row(**changes), (SplitGroup(name, 1, 0, 0, 1, 0.0), *GROUPS))
    for text in (drawn(Picture(view), 200), drawn(Jobs([view]), 200), shown_lines(job_details(view))):
        assert shown(name) in text
        assert [char for char in text if not char.isprintable() and char != "\n"] == []


@given(st.text())
def test_case_48_shown_text_is_one_printable_line_and_shown_again_the_same(text: str) -> None:
    once = shown(text)
    assert shown(once) == once
    assert "\n" not in once
    assert all(char.isprintable() or char.isspace() or not once.isascii() for char in once)
    assert not set(once) & {"\x1b", "\x07", "\x08", "\r", "\x9b", "\x7f", "\u202e"}
    once.encode("utf-8")


def test_plain_lines_are_aligned_and_never_cut_off() -> None:
    long = job_view(row(name="a-job-with-a-long-name", state=JobState.FAILED, why=Limit("x" * 200)))
    first, second, third = jobs_table([FULL, long]).splitlines()
    below = below_table([FULL, long]).splitlines()
    assert first.index("STATE") == second.index("running") == third.index("failed")
    assert below[:3] == ["", "orders: to change:", "  backfill throttle orders --rate none"]
    assert below[3:] == [
        "",
        f"a-job-with-a-long-name: failed: {'x' * 200}",
        "to continue:",
        "  backfill resume a-job-with-a-long-name",
    ]


def test_details_say_all_that_is_known() -> None:
    text = job_details(FULL)
    for fact in ("42.1%, 84,200 of 200,000 rows", "1 being read", "1.2 s", "6.2 s to 9.4 s", "pid 4711 on box"):
        assert fact in text


def test_a_log_gets_a_line_every_ten_seconds_and_at_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, 1.0, 9.9, 10.0, 11.0, 12.0])
    caught_up = job_view(row(progress=progress(phase=Phase.UPSTREAM)))
    Lines(lambda: next(clock)).tell([FULL, FULL, FULL, FULL, caught_up, caught_up])
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 3
    assert told[0] == f"orders: {spell_progress(FULL)}"
    assert "orders: running, upstream (live); lag 1.2 s" in told[2]


def test_what_holds_a_job_up_is_told_whole_with_the_command_below() -> None:
    held = "/home/me/warehouse/warehouse.duckdb is held by /usr/bin/python3.11 (PID 12345)"
    close = "close what holds it: " + shell("lsof /home/me/warehouse/warehouse.duckdb")
    waiting = Limit(held, Kind.WAITING, close)
    view = job_view(row(progress=progress(waiting_for=waiting, limited_by=waiting)))
    lines = [line.strip() for line in drawn(Picture(view)).splitlines()]
    start = next(number for number, line in enumerate(lines) if line.startswith("waiting"))
    assert " ".join(lines[start : start + 2]) == f"waiting      {held}"
    assert lines[start + 2] == "to continue  close what holds it: lsof /home/me/warehouse/warehouse.duckdb"


@pytest.mark.parametrize("name", ["a; to z.json", "a; to continue: z.json"])
def test_a_path_that_looks_like_a_way_on_is_not_taken_for_one(name: str) -> None:
    why = Limit(f"{name}: it was changed", hint=Hint.of("restore it"))
    view = job_view(row(state=JobState.FAILED, live=False, why=why))
    lines = [" ".join(line.split()) for line in drawn(Picture(view)).splitlines()]
    start = lines.index(f"ended failed: {name}: it was changed")
    assert lines[start + 1] == "to continue restore it"
    assert view.reason == f"{name}: it was changed"


def test_a_start_that_is_not_in_the_catalog_yet_tells_what_it_does() -> None:
    text = drawn(
        beginning_picture("orders", Limit("it is held", Kind.WAITING, shell("lsof it")), "Ctrl-C ends it")
    )
    assert [" ".join(line.split()) for line in text.splitlines() if line.strip()] == [
        "orders starting",
        "waiting: it is held",
        "to continue: lsof it",
        "Ctrl-C ends it",
    ]


LONG = "a-job-whose-name-is-as-long-as-a-name-may-be-in-this-catalog-abc"[:63]
REASON = (
    "failed: file:///srv/landing/orders/2026/11/23/part-00017-of-00200.parquet: it was changed since it was pinned"
)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_what_limits_a_job_is_never_cut_off_in_a_list(width: int) -> None:
    failed = job_view(
        row(name=LONG, state=JobState.FAILED, live=False, why=Limit(REASON.removeprefix("failed: ")))
    )
    behind = progress(phase=Phase.LOG_STORE, limited_by=Limit("12,345 upstream epochs left", Kind.CATCHING_UP))
    several = [failed, job_view(row(progress=behind))]
    for picture in (Jobs(several), live_picture(several, "Ctrl-C leaves")):
        text = drawn(picture, width)
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= width
        whole = "".join(text.split())
        for told in (LONG, REASON, "backfill resume " + LONG, "12,345 upstream epochs left", "failed", "42.1%"):
            assert "".join(told.split()) in whole, told


def test_a_list_that_fits_is_a_table() -> None:
    first, second = drawn(Jobs([job_view(row())]), 160).splitlines()
    assert first.split() == ["job", "state", "phase", "copied", "reads", "lag", "limited", "by"]
    assert first.index("limited by") == second.index("rate 20000")


@pytest.mark.parametrize("width", [60, 80])
def test_a_job_in_full_cuts_nothing_off(width: int) -> None:
    many = progress(pending_epochs=1_234_567, eta_s=(345_600.0, 777_600.0), phase=Phase.SNAPSHOT)
    told = row(
        name=LONG, state=JobState.FAILED, live=False, why=Limit(REASON.removeprefix("failed: ")), progress=many
    )
    text = drawn(Picture(job_view(told)), width)
    assert "…" not in text
    whole = "".join(text.split())
    for said in (LONG, "failed", REASON, "1,234,567", "until stopped"):
        assert "".join(said.split()) in whole, said


def test_a_live_view_of_a_job_says_what_limits_it_on_a_screen_of_24_lines() -> None:
    told = progress(
        converging=True,
        held_bytes=1 << 30,
        limited_by=Limit("x" * 150, Kind.WAITING, command("resume orders")),
    )
    view = job_view(row(progress=told), FULL_OF_SPLITS.groups, ledger([1000, 3000, 2000]))
    console = Console(file=io.StringIO(), width=80, height=24, color_system=None, highlight=False)
    console.print(LiveRender(live_picture([view], "Ctrl-C leaves this view")))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert len(text.splitlines()) <= 24
    for said in ("42.1%", "backfill resume orders", "Ctrl-C leaves", "the upstream keeps 1.0 GB"):
        assert said in text, text
    assert "splits 3" in drawn(live_picture([FULL_OF_SPLITS], ""), 80)


HOUR = Headroom.of_age(Unread(START, False, 5), None, 3_600_000, "retention.ms (1 h)", "topic 't'")


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (progress(headroom=HOUR, looked_ms=5), "1 h, by retention.ms (1 h): topic 't'"),
        (
            progress(headroom=HOUR, looked_ms=5, eta_s=(60.0, 4000.0)),
            "1 h, less than the job needs, by retention.ms",
        ),
        (progress(headroom=Headroom.unbounded("it has no retention")), "unbounded: it has no retention"),
        (progress(headroom=Headroom.unknown("it is not told")), "N/A: it is not told"),
    ],
)
def test_the_headroom_is_one_line_and_marked_when_it_is_small(told: Progress, said: str) -> None:
    view = job_view(row(progress=told))
    for text in (job_details(view), drawn(Picture(view), 100)):
        assert said in text
        assert sum("headroom" in line for line in text.splitlines()) == 1


MOMENT = spell_moment(7_205_000)


@pytest.mark.parametrize(
    ("outlook", "said"),
    [
        (Outlook(7_205_000, 500.0), f"{MOMENT}, in 2 h: in time"),
        (
            Outlook(7_205_000, None, True, 2_400.0, Limit("upstream reads")),
            "in 2 h: cannot be met, about 40 m late",
        ),
        (Outlook(7_205_000, None, True, None, Limit("by ann", Kind.PAUSED)), "cannot be met; paused by ann"),
        (Outlook(4_000, 500.0), "which has passed: cannot be met"),
    ],
)
def test_a_deadline_is_one_line_with_what_is_in_its_way(outlook: Outlook, said: str) -> None:
    view = job_view(row(progress=progress(deadline=outlook, looked_ms=5_000)))
    for text in (job_details(view), drawn(Picture(view), 140)):
        assert said in text
        assert sum("finish by" in line for line in text.splitlines()) == 1
    assert row(progress=progress(deadline=outlook)) == row(
        progress=read_progress(encode(progress(deadline=outlook)))
    )


def test_a_partition_that_is_followed_is_live_and_keeps_its_name_in_json() -> None:
    partition = PartitionProgress("0", "finished", 60, 50, 0)
    view = job_view(row(progress=progress(partitions=(partition,), splits={"finished": 3, "backfilling": 1})))
    assert view.partitions[0].state == "finished"
    assert view.splits["finished"] == 3
    for text in (job_details(view), drawn(Picture(view))):
        assert "live" in text
        assert "finished" not in text


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from(["finished", "backfilling"]), st.none() | st.integers(0, 9)
        ),
        max_size=20,
    )
)
def test_partitions_of_several_tables_are_told_together_and_none_is_lost(
    told: list[tuple[str, str, int | None]],
) -> None:
    each = [
        PartitionProgress(f"{t}/{n}", SplitStatus(state), 9, 9, lag, t) for n, (t, state, lag) in enumerate(told)
    ]
    tables = by_table(each)
    assert bool(tables) == (len({one.table for one in each}) > 1)
    for one in tables:
        mine = [p for p in each if p.table == one.table]
        lags = {int(p.partition.split("/")[1]): p.lag for p in mine if p.lag is not None}
        assert (one.partitions, one.live) == (len(mine), sum(p.state == "finished" for p in mine))
        assert one.lag == (sum(lags.values()) if lags else None)
        assert (
            one.furthest is None if not one.lag else lags[one.furthest[0]] == one.furthest[1] == max(lags.values())
        )
    assert [one.lag or 0 for one in tables] == sorted((one.lag or 0 for one in tables), reverse=True)


def test_fifty_partitions_of_fifty_tables_fit_a_screen_and_the_furthest_behind_is_named() -> None:
    each = [
        PartitionProgress(
            f"t{n % 50}/{n // 50}", SplitStatus.FINISHED, 9, 9, (n == 7 and 1_200) or 0, f"t{n % 50}"
        )
        for n in range(2_500)
    ]
    shown = progress(partitions=tuple(each[:64]), tables=by_table(each), splits={"finished": 2_500})
    view = job_view(row(progress=shown))
    for text in (job_details(view), drawn(Picture(view))):
        assert len(text.splitlines()) < 60
        assert "t7" in text
        assert "partition 0" in text
        assert "1,200" in text
        assert "less behind" in text


def test_phases_and_epochs_are_told_in_words_and_times() -> None:
    for phase, said in ((Phase.LOG_STORE, "log-store (catching up)"), (Phase.UPSTREAM, "upstream (live)")):
        view = job_view(row(progress=progress(phase=phase)))
        assert view.phase == phase.value
        for text in (job_details(view), jobs_table([view]), drawn(Jobs([view]), 80), drawn(Jobs([view]), 200)):
            assert said in text
    assert "1763692800123 (2025-11-21 02:40:00 UTC)" in job_details(FULL)
    assert "last commit  2025-11-21 02:40:00 UTC" in drawn(Picture(FULL))


def test_the_last_commit_has_the_time_of_its_event() -> None:
    (made,) = ledger([1000])
    told = replace(made, epoch=row().epoch, committed_ms=row().epoch + 2_000)
    assert "last commit  2025-11-21 02:40:02 UTC" in drawn(Picture(job_view(row(), GROUPS, [told])))


def test_the_lag_of_a_job_that_is_done_ends_at_none() -> None:
    """Its last commit applied changes that were a minute old, and left none."""
    told = row(state=JobState.DONE, live=False, progress=progress(phase=Phase.UPSTREAM, lag_ms=0, oldest_ms=None))
    commits = [replace(one, committed_ms=20_000 * one.epoch) for one in ledger([60_000, 60_000, 60_000])]
    lines = drawn(Picture(job_view(told, (), commits)), 140).splitlines()
    (below,) = (at for at, line in enumerate(lines) if line.count("└") == 2)
    curve = lines[below - 1].rpartition("│")[2]
    assert curve.rstrip().endswith("█")
    assert len(curve.rstrip()) == len(curve) - 1


def test_a_job_that_has_ended_is_not_limited_by_its_end() -> None:
    limit = Limit("done: caught up", Kind.ENDED, command("start"), "follow")
    ended = replace(FULL, state="done", limited_by=limit)
    assert spell_progress(ended).endswith("; done: caught up; to follow: backfill start")
    assert "ended:" in job_details(ended)
    assert "limited by" not in job_details(ended)
    assert spell_progress(FULL).endswith(f"; limited by {FULL.limited_by}")


TABLES = tuple(SplitGroup(f"table_{n}", 4, int(n == 0) * 4, 10, 40, 1.0 if n == 0 else 0.25) for n in range(6))


def on_screen(view: JobView, height: int = 24) -> list[str]:
    console = Console(file=io.StringIO(), width=80, height=height, color_system=None, highlight=False)
    console.print(LiveRender(live_picture([view], "Ctrl-C leaves this view")))
    lines: list[str] = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) <= height
    return lines


def test_the_bars_of_tables_stay_while_a_job_is_pausing() -> None:
    told = progress(converging=True, doing="reading 9,000 rows", doing_ms=5, held_bytes=1 << 30)
    pausing = row(state=JobState.PAUSING, control=Control("me@box", 5), progress=told)
    text = "\n".join(on_screen(job_view(pausing, TABLES, ledger([1000, 3000, 2000]))))
    for said in (*(one.label for one in TABLES), "42.1%", "backfill resume orders", "Ctrl-C leaves", "pausing"):
        assert said in text, text


@pytest.mark.parametrize("height", range(9, 40))
def test_of_bars_that_do_not_fit_those_of_what_is_still_read_stay_and_the_others_are_counted(height: int) -> None:
    groups = tuple(replace(TABLES[n % 2], label=f"t{n:02}") for n in range(30))
    lines = on_screen(job_view(row(), groups), height)
    shown_labels = [
        line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in {g.label for g in groups}
    ]
    left = len(groups) - len(shown_labels)
    if shown_labels:
        assert shown_labels == sorted(shown_labels)
        assert any(f"and {left} more" in line for line in lines) == bool(left)
        unread = [label for label in shown_labels if int(label[1:]) % 2]
        assert len(unread) == min(15, len(shown_labels))
    assert bool(shown_labels) == (height >= 10)
    assert any("rate 20000 rows/s" in line for line in lines)


def test_a_command_that_fits_on_the_screen_is_on_one_line_of_it() -> None:
    fix = command("verify orders --fix --confirm orders --catalog /srv/o/catalog.duckdb"[:67])
    for way_on in ("restore the file; then: " + fix, fix):
        view = job_view(row(state=JobState.FAILED, live=False, why=Limit("it is gone", hint=way_on)))
        for picture in (Picture(view), Jobs([view])):
            lines = [line.strip() for line in drawn(picture, 80).splitlines()]
            assert str(fix) in lines, lines
