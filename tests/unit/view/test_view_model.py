"""The read model: what is told, and when it is not told."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from view_builders import GROUPS, ROW, drawn, ledger, progress, row

from backfill_cli.catalog import Lease
from backfill_cli.catalog.verified import Verified
from backfill_cli.errors import Hint
from backfill_cli.model.change import Change
from backfill_cli.model.checkpoint import EpochRecord, PartitionProgress
from backfill_cli.model.committing import Committing
from backfill_cli.model.derived import Derived, Filling
from backfill_cli.model.job import Command, Control, JobState, Phase, Verb
from backfill_cli.model.limit import Kind, Limit
from backfill_cli.model.refill import Extent, Refill, RefillState
from backfill_cli.model.skipped import Skipped
from backfill_cli.model.units import spell_moment
from backfill_cli.model.upstream import Incomplete
from backfill_cli.view.lines import job_details, spell_finished
from backfill_cli.view.model import (
    DerivedView,
    RefillView,
    committed_epoch,
    job_view,
    refill_view,
    refills_of,
    spell_derived,
    spell_eta,
    spell_half_written,
    spell_share,
    spell_skipped,
)
from backfill_cli.view.picture import Picture


def test_numbers_are_in_the_units_that_their_names_say() -> None:
    view = job_view(row(), GROUPS, ledger([500, None, 1500]))
    assert (view.lag_s, view.rows_per_s, view.eta_s, view.rate) == (1.2, 18_204.4, (6.2, 9.4), 20_000)
    assert view.recent_lag_s == (0.5, 1.5)
    assert view.share == pytest.approx(0.421)


def test_partitions_stand_in_the_place_of_splits_in_order_with_their_share() -> None:
    listed = (
        PartitionProgress("10", "backfilling", 5, 50, 45),
        PartitionProgress("2", "finished", 60, 50, None),
    )
    view = job_view(row(progress=progress(share=0.25, rows_total=None, partitions=listed)), GROUPS)
    assert (view.share, [p.partition for p in view.partitions], view.groups) == (0.25, ["2", "10"], ())
    told = job_details(view)
    assert "partition 10:" in told
    assert "backfilling, next offset 5 of 50; 45 behind" in told
    assert "live, next offset 60\n" in told
    assert "backfilling" in drawn(Picture(view))


@given(read=st.integers(0, 10**9), total=st.integers(0, 10**9), size=st.integers(0, 10**6), known=st.booleans())
def test_the_share_is_between_none_and_all(read: int, total: int, size: int, known: bool) -> None:
    told = progress(rows_read=read, rows_total=total if known else None, bytes_read=read, bytes_total=size)
    share = job_view(row(progress=told)).share
    assert share is None or 0 <= share <= 1


@given(st.floats(0, 1))
def test_a_spelled_share_says_100_only_when_all_is_read(share: float) -> None:
    assert (spell_share(share) == "100%") == (share == 1)
    assert float(spell_share(share).rstrip("%")) < 100 or share == 1
    assert (spell_share(0.99999), spell_share(None)) == ("99.9%", "N/A")


@given(st.integers(0, 200_000))
def test_there_is_no_eta_under_one_percent(read: int) -> None:
    view = job_view(row(progress=progress(rows_read=read)))
    assert (view.eta_s is None) == (read < 2_000)
    assert spell_eta(view.eta_s) == ("N/A" if read < 2_000 else "6.2 s to 9.4 s")


@pytest.mark.parametrize("changes", [{"live": False}, {"control": Control("cli", 5)}])
def test_a_job_that_does_not_read_has_neither_rate_nor_eta(changes: dict[str, object]) -> None:
    view = job_view(row(**changes))
    assert (view.rows_per_s, view.eta_s) == (None, None)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "rate 20000 rows/s; to change: backfill throttle orders --rate none"),
        (
            {"control": Control("me@box", 5_000)},
            "paused by me@box since 1970-01-01 00:00:05 UTC; to continue: backfill resume orders",
        ),
        (
            {"live": False},
            "no runner: the last one, pid 4711 on box, is gone (last seen 1970-01-01 00:00:00 UTC); "
            "to continue: backfill resume orders",
        ),
        ({"state": JobState.STOPPED, "live": False}, "stopped; to continue: backfill resume orders"),
        (
            {"state": JobState.FAILED, "why": Limit("part-7: changed"), "live": False},
            "failed: part-7: changed; to continue: backfill resume orders",
        ),
        (
            {"state": JobState.FAILED, "why": Limit("a key twice", hint=Hint.of("drop the job")), "live": False},
            "failed: a key twice; to continue: drop the job",
        ),
        (
            {"state": JobState.DONE, "why": Limit("caught up"), "live": False},
            "done: caught up; to follow: backfill resume orders --until forever",
        ),
        (
            {
                "state": JobState.DONE,
                "why": Limit("caught up"),
                "live": False,
                "control": Control("me@box", 5_000),
            },
            "done: caught up, paused by me@box: the next run will wait; to continue: backfill resume orders",
        ),
        (
            {"progress": progress(limited_by=Limit("1/s against 2/s", Kind.NOT_CONVERGING))},
            "not converging: 1/s against 2/s",
        ),
        ({"progress": None}, "starting"),
        ({"state": JobState.STARTING, "why": Limit("starting Spark")}, "starting Spark"),
        (
            {"state": JobState.STARTING, "why": Limit("a.duckdb is held", Kind.WAITING)},
            "waiting: a.duckdb is held",
        ),
    ],
)
def test_what_limits_the_job_is_always_said(changes: dict[str, object], told: str) -> None:
    assert str(job_view(row(**changes)).limited_by) == told


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "running"),
        ({"live": False}, "dead"),
        ({"live": False, "lease": Lease(3)}, "running"),  # it let go of the job, and has not said more
        ({"live": False, "state": JobState.PAUSED}, "dead"),
        ({"live": False, "state": JobState.PAUSED, "lease": Lease(3)}, "paused"),
        ({"live": False, "state": JobState.DONE}, "done"),
    ],
)
def test_a_runner_that_went_without_a_word_is_dead(changes: dict[str, object], state: str) -> None:
    assert job_view(row(**changes)).state == state


@given(
    looked_ms=st.integers(0, 10**6),
    oldest_ms=st.none() | st.integers(0, 10**6),
    later_ms=st.integers(0, 10**6),
    live=st.booleans(),
)
def test_lag_is_the_age_of_the_oldest_change_that_the_sink_lacks_now(
    looked_ms: int, oldest_ms: int | None, later_ms: int, live: bool
) -> None:
    told = progress(looked_ms=looked_ms, oldest_ms=oldest_ms, lag_ms=7, interval_ms=3_000)
    now_ms = looked_ms + later_ms
    lag_s = job_view(row(progress=told, live=live), now_ms=now_ms).lag_s
    if oldest_ms is not None:
        assert lag_s == max(0, now_ms - oldest_ms) / 1000
    else:
        fresh = live and later_ms < 18_000
        assert lag_s == (0 if fresh else later_ms / 1000)  # nobody looked since: at most that
    done = row(progress=told, live=False, state=JobState.DONE)
    assert job_view(done, now_ms=now_ms).lag_s == 0.007


def test_numbers_that_are_old_say_of_when_they_are() -> None:
    told = row(progress=progress(looked_ms=60_000))
    fresh, old = job_view(told, now_ms=70_000), job_view(told, now_ms=360_000)
    assert "numbers" not in job_details(fresh) + drawn(Picture(fresh))
    assert "numbers:" in job_details(old)
    for text in (job_details(old), drawn(Picture(old))):
        assert "as of 1970-01-01 00:01:00 UTC, 5 m ago" in text


def test_a_command_not_yet_taken_shows_in_the_state() -> None:
    view = job_view(row(waiting=(Command(1, Verb.PAUSE, "cli", 5),)))
    assert (view.state, view.pending_commands) == ("pausing", ("pause",))


def test_commands_that_wait_are_told_with_what_they_are_of() -> None:
    gone, more = Change("", derived=("per_land", "best")), Change("{}", table="refunds")
    waiting = (
        Command(1, Verb.REMOVE, "cli", 5, payload=gone.stored),
        Command(2, Verb.ADD, "cli", 6, payload=more.stored),
    )
    view = job_view(row(waiting=waiting))
    assert view.pending_commands == (Verb.REMOVE, Verb.ADD)
    for text in (job_details(view), drawn(Picture(view))):
        assert "remove --derived per_land --derived best, add refunds" in text


def test_what_the_last_verify_found_is_one_line_of_a_job() -> None:
    hour = 3_600_000
    same = Verified("orders", 7, 2 * hour, None, 0, 0, 0, True)
    other = Verified("lines", 7, 2 * hour, None, 30, 7, 400, False)

    def said(*tables: Verified, now_ms: int | None = 4 * hour) -> str:
        view = job_view(row(verified=tables), now_ms=now_ms)
        assert drawn(Picture(view), 80).count("verified") == len(tables[:1])
        return next((line for line in job_details(view).splitlines() if line.startswith("verified:")), "")

    assert said() == ""
    assert said(same).endswith(" equal at commit 7, 2 h ago")
    assert said(same, now_ms=None).endswith(" equal at commit 7, 1970-01-01 02:00:00 UTC")
    assert said(same, other).endswith(" different at commit 7: 30 missing, 7 extra, 400 changed, 2 h ago")
    assert said(replace(same, share=0.01)).endswith(" equal at commit 7, in a sample of 1% of the keys, 2 h ago")
    busy = (replace(same, not_compared=14_690), replace(same, table="lines", not_compared=10))
    assert said(*busy).endswith(
        " equal at commit 7, 14,700 keys that changed meanwhile were not compared, 2 h ago"
    )
    assert said(replace(same, not_compared=1)).endswith(", 1 key that changed meanwhile was not compared, 2 h ago")


def test_the_epoch_is_the_newest_that_the_sink_has_by_its_own_runner() -> None:
    newer = progress(epoch=ROW.epoch + 5, token=ROW.lease.token)
    assert job_view(row(progress=newer)).epoch == ROW.epoch + 5
    assert job_view(row(progress=replace(newer, token=1))).epoch == ROW.epoch, "said by a runner before"
    assert job_view(row(progress=None)).epoch == ROW.epoch


@pytest.mark.parametrize(("state", "said"), [(JobState.FAILED, "N/A"), (JobState.DONE, "0 upstream commits")])
def test_nothing_pending_is_not_said_of_a_job_that_nobody_looks_for(state: JobState, said: str) -> None:
    told = replace(progress(), pending_epochs=0)
    view = job_view(row(state=state, progress=told, live=False))
    (line,) = [one for one in job_details(view).splitlines() if one.startswith("not applied yet")]
    assert line.split(": ")[1].strip() == said


def test_a_commit_that_waits_for_more_of_it_is_told_once_past_the_snapshot() -> None:
    newest = Incomplete("tx", 5, ("tiny",), 700)
    live = progress(phase=Phase.UPSTREAM, incomplete=newest, limited_by=newest.limit(converging=False))
    done = row(state=JobState.DONE, progress=live, live=False)
    copying = row(progress=progress(incomplete=newest))
    told = [job_details(job_view(one)) for one in (row(progress=live), done, copying)]
    assert [one.count(newest.text) for one in told] == [1, 1, 0]
    assert any(one.split() == ["incomplete:", *newest.text.split()] for one in told[1].splitlines())
    assert newest.text in " ".join(drawn(Picture(job_view(done))).replace("│", " ").split())


def test_a_runner_that_died_was_last_seen_at_its_last_commit() -> None:
    committed_ms = 1_763_692_900_000
    record = EpochRecord(committed_ms - 1_000, 0, Phase.SNAPSHOT, committed_ms)
    told = job_view(row(live=False), (), [record]).limited_by.text
    assert told.endswith(f"(last seen {spell_moment(committed_ms)})")


def test_failures_are_told_by_cause_the_most_frequent_first() -> None:
    by = {"ECONNREFUSED": 2, "57P01": 1_000, "others": 7, **{f"Class{n}": 1 for n in range(6)}}
    view = job_view(row(progress=progress(failures=by)))
    told = "57P01 (1,000), ECONNREFUSED (2), Class0 (1), Class1 (1), Class2 (1), Class3 (1), others (9)"
    assert f"failures: 1,015 tried again: {told}" in [
        " ".join(one.split()) for one in job_details(view).splitlines()
    ]
    assert "failures:" not in job_details(job_view(row(progress=progress())))


def test_partitions_that_were_added_are_told_if_there_are_any() -> None:
    told = [job_details(job_view(row(progress=progress(partitions_added=n)))) for n in (None, 0, 2)]
    assert ["added:" in one for one in told] == [False, False, True]
    assert "2 partitions since the job began" in told[2]


def test_each_kind_of_record_that_is_skipped_has_words_for_one_and_for_many() -> None:
    assert spell_skipped({}) == ""
    assert spell_skipped({"tombstones": 1, "heartbeats": 1_200}) == "1,200 heartbeats, 1 tombstone after a delete"
    for one in Skipped:
        assert spell_skipped({one: 1}).startswith("1 ")
        assert spell_skipped({one: 2}).startswith("2 ")
    view = job_view(row(progress=progress(skipped={"heartbeats": 3})))
    assert ["skipped:", "3 heartbeats"] in [line.split(None, 1) for line in job_details(view).splitlines()]


@pytest.mark.parametrize("follows", [True, False])
def test_a_job_that_is_done_can_be_followed_where_something_follows(follows: bool) -> None:
    told = progress(phase=Phase.UPSTREAM, follows=follows)
    limit = job_view(row(state=JobState.DONE, live=False, progress=told)).limited_by
    assert limit.kind is Kind.ENDED
    assert bool(limit.hint) == follows


def test_when_snapshot_and_log_were_finished_is_said_where_the_strategy_has_a_phase_for_it() -> None:
    done = {"snapshot_finished_ms": 1_763_692_700_000, "log_store_finished_ms": 1_763_692_760_000}
    view = job_view(row(progress=progress(**done)))
    both = "snapshot 2025-11-21 02:38:20 UTC, log 2025-11-21 02:39:20 UTC"
    assert spell_finished(replace(view, strategy="snapshot")) == both
    assert spell_finished(replace(view, strategy="arrangement")) == "snapshot 2025-11-21 02:38:20 UTC"
    assert spell_finished(job_view(row())) == ""


def test_rows_written_are_told_by_phase_and_of_several_tables_table_by_table() -> None:
    def told(written: dict[str, dict[str, int]]) -> list[str]:
        lines = job_details(job_view(row(progress=progress(written=written)))).splitlines()
        begin = next((at for at, line in enumerate(lines) if line.startswith("written:")), len(lines))
        end = next((at for at, line in enumerate(lines) if line.startswith("time left:")), len(lines))
        return [" ".join(line.split()) for line in lines[begin:end]]

    assert told({}) == []
    one = {"upstream": 40, "snapshot": 12_300, "log-store": 1}
    assert told({"t": one}) == ["written: 12,300 rows in the snapshot, 1 in the log store, 40 live"]
    assert told({"t": {"upstream": 1}}) == ["written: 1 row live"]
    many = {f"t{n}": {"snapshot": n} for n in range(1, 23)}
    lines = told(many)
    assert lines[:2] == ["written: 253 rows", "t22: 22 rows in the snapshot"]
    assert (len(lines), lines[-1]) == (22, "others: 2 tables, fewer rows")


def test_the_refill_that_goes_on_stands_above_those_that_ended() -> None:
    def refill(number: int, state: RefillState, ended_ms: int | None = None) -> RefillView:
        told = Refill(number, f"t{number}", Extent(), "cli", 1, state, since=1, ended_ms=ended_ms)
        return refill_view(told, row())

    ended = refill(1, RefillState.CANCELLED, 20), refill(2, RefillState.DONE, 30)
    view = replace(job_view(row()), refills=(*ended, refill(3, RefillState.COMPARING)))
    for text in (job_details(view), drawn(Picture(view))):
        assert re.findall(r"refill:? +(\w+)", text) == ["t3", "t2", "t1"]


def test_a_refill_that_failed_says_so_until_a_later_one_has_done_all_of_the_table() -> None:
    def refill(number: int, state: RefillState, table: str = "t", extent: Extent = Extent()) -> RefillView:  # noqa: B008
        return refill_view(Refill(number, table, extent, "cli", 1, state, since=1, ended_ms=number), row())

    failed, other = refill(1, RefillState.FAILED), refill(2, RefillState.FAILED, "u")
    part = refill(3, RefillState.DONE, extent=Extent(where="v > 1"))
    pending, done = refill(4, RefillState.COMPARING), refill(4, RefillState.DONE)
    for last, told in ((part, [3, 2, 1]), (pending, [4, 2, 1]), (done, [4, 2])):
        view = replace(job_view(row()), refills=(failed, other, last))
        assert [one.id for one in refills_of(view)] == told


FIRST = "not filled yet, the first commit past the snapshot fills it"
NEXT = "not filled yet, one of the next commits fills it"
FILLED = "equals its SELECT at each commit"


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ({"phase": Phase.SNAPSHOT}, FIRST),
        ({"phase": Phase.SNAPSHOT, "unfilled": ("d",)}, FIRST),
        ({"phase": Phase.SNAPSHOT, "beside": True}, FILLED),
        ({"phase": Phase.SNAPSHOT, "beside": True, "unfilled": ("d",)}, NEXT),
        ({"phase": Phase.UPSTREAM}, FILLED),
        ({"phase": Phase.UPSTREAM, "unfilled": ("d",)}, NEXT),
        ({"phase": Phase.SNAPSHOT, "unfilled": ()}, FILLED),
        ({"phase": Phase.SNAPSHOT, "beside": True, "unfilled": ("other",)}, FILLED),
    ],
)
def test_a_derived_table_is_filled_as_its_marker_says_or_once_the_snapshot_is_past(
    at: dict[str, Any], said: str
) -> None:
    derived = (Derived("d", "main.d", ("k",), "SELECT 1"),)
    job = row(progress=progress(**at), derived=derived)
    (one,) = job_view(job).derived
    waits, epoch = said == FIRST, committed_epoch(job) if said == FILLED else None
    assert one == DerivedView("d", "main.d", ("k",), said == FILLED, waits_for_snapshot=waits, epoch=epoch)
    assert spell_derived(one, live=True) == f"d → main.d: {said}"
    ended = spell_derived(one, live=False)
    assert (
        ended
        == f"d → main.d: {f'equalled its SELECT at commit {epoch}, the last one' if said == FILLED else said}"
    )


def test_a_commit_that_not_all_tables_have_is_said_of_each_derived_table_and_after_a_kill_of_the_job() -> None:
    derived = tuple(Derived(name, name, ("k",), "SELECT 1") for name in ("new", "old", "first"))
    job = row(derived=derived)
    last, at = committed_epoch(job), committed_epoch(job) + 1
    half = Committing(at, ("t", "new", "first"), ("old",))
    told = progress(phase=Phase.UPSTREAM, unfilled=("first",), committing=half)

    def said(live: bool) -> list[str]:
        return [
            spell_derived(one, live) for one in job_view(row(progress=told, derived=derived, live=live)).derived
        ]

    assert said(live=True) == [
        f"new: equals its SELECT at commit {at}, which is being written",
        f"old: equals its SELECT at commit {last}; commit {at} is being written",
        f"first: equals its SELECT at commit {at}, which is being written",
    ]
    assert said(live=False)[0] == f"new: equalled its SELECT at commit {at}, which is half written"
    assert said(live=False)[1] == f"old: equalled its SELECT at commit {last}; commit {at} is half written"
    died = job_details(job_view(row(progress=told, derived=derived, live=False)))
    line = f"commit {at}: t, new, first have it; old was being written; the next run finishes it"
    assert line in " ".join(died.split())
    assert line in " ".join(drawn(Picture(job_view(row(progress=told, derived=derived, live=False)))).split())
    assert "half written" not in job_details(job_view(row(progress=told, derived=derived)))

    many = Committing(at, tuple("abcdefg"), ("old",))
    assert spell_half_written(many).startswith(f"commit {at}: a, b, c, d, e and 2 others have it; old was being")
    few = Committing(at, ("a",), ("new", "old"))
    line = f"commit {at}: a has it; new was being written, old was not; the next run finishes it"
    assert spell_half_written(few) == line
    finished = row(progress=told, derived=derived, live=False, epoch=at)
    assert job_view(finished).committing is None
    nothing = progress(committing=Committing(at, (), ("t", "old")))
    assert job_view(row(progress=nothing, live=False)).committing is None
    assert job_view(row(progress=nothing)).committing is not None


def test_one_that_cannot_be_computed_says_why_it_is_not_filled() -> None:
    derived = tuple(Derived(name, name, ("k",), "SELECT 1") for name in ("bad", "done"))
    for hint, way_on in (("correct the rows", "; correct the rows"), ("", "")):
        why = Limit("bad cannot be computed: division by zero", hint=hint)
        at = progress(phase=Phase.UPSTREAM, unfilled=("bad",), uncomputed=why)
        bad, done = job_view(row(progress=at, derived=derived)).derived
        assert spell_derived(bad, True) == f"bad: not filled: bad cannot be computed: division by zero{way_on}"
        assert done.uncomputed is None


def test_a_derived_table_that_is_filled_after_others_names_those_that_are_being_filled() -> None:
    derived = tuple(Derived(name, name, ("k",), "SELECT 1") for name in ("large", "wide", "small", "done"))
    how = Filling("t", 3, 16, 160)

    def told(*filling: str) -> tuple[DerivedView, ...]:
        unfilled = ("large", "wide", "small")
        at = progress(phase=Phase.UPSTREAM, unfilled=unfilled, filling=dict.fromkeys(filling, how))
        return job_view(row(progress=at, derived=derived)).derived

    large, wide, small, done = told("large")
    assert [one.waits_for for one in (large, wide, small, done)] == [(), ("large",), ("large",), ()]
    assert spell_derived(small, True) == "small: not filled yet, it waits for large, which is being filled"
    assert spell_derived(large, True) == "large: being filled: 3 of 16 ranges, about 30 of 160 rows of t"
    small = told("large", "wide", "left")[2]
    assert small.waits_for == ("large", "wide"), "one that has left the job is not waited for"
    assert spell_derived(small, True) == "small: not filled yet, it waits for large, wide, which are being filled"
