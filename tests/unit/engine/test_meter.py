"""What the meter reports about a job over a partitioned log: offsets, partitions, what limits it."""

from dataclasses import replace

import pytest

from backfill_cli.engine.loop.meter import PARTITIONS_SHOWN, InHand, Meter
from backfill_cli.errors import sql
from backfill_cli.model.checkpoint import EpochRecord, PartitionProgress, Progress, Written
from backfill_cli.model.committing import Committing
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.limit import Kind, Limit
from backfill_cli.model.plan import ChangeWindow, EpochPlan
from backfill_cli.model.position import START, Position
from backfill_cli.model.split import Split, SplitProgress, SplitStatus
from backfill_cli.model.upstream import Incomplete, Pin, UpstreamEpoch, UpstreamView
from backfill_cli.strategies.snapshot import SnapshotState, SnapshotStrategy
from backfill_cli.strategies.source import SourceState, SourceStrategy

SPLITS = (Split("t", "0", 100, 0, first=50), Split("t", "1", 0, 0, first=9), Split("t", "2", 300, 0))
STRATEGY = SourceStrategy(SPLITS)


def state(*progress: SplitProgress, control: Control | None = None, reported_ms: int | None = None) -> SourceState:
    splits = {("t", str(i)): p for i, p in enumerate(progress)}
    return SourceState(control or Control(), splits, snapshot_finished_ms=reported_ms)


def meter(latest: dict[str, int] | None = None, rows: int = 30) -> Meter:
    """A meter that saw some epochs of `rows` history rows, a second apart, and the log's end."""
    made = Meter("job", 1000)
    for at in range(1000, 6000, 1000):
        made.committed(EpochRecord(at, at - 1000, Phase.SNAPSHOT, at, snapshot_rows=rows), at, at + 900)
    if latest is not None:
        made.observed(EpochPlan(latest=Position.of(latest)), 2000, UpstreamView("{}", START))
    return made


HALF = state(
    SplitProgress(SplitStatus.BACKFILLING, 100, 10, 1, 150),
    SplitProgress(SplitStatus.FINISHED, 40, 0, 1, 9),
    SplitProgress(SplitStatus.BACKFILLING, 150, 50, 1, 300),
    SplitProgress(SplitStatus.FINISHED, 7, 0, 1),
)
"""Two partitions half-way, one without history, one newer than the pin."""


def test_a_job_without_a_change_side_is_not_said_to_follow() -> None:
    made = Meter("job", 1000)
    assert str(follows(made, Phase.UPSTREAM).limited_by) == "looking for changes upstream"
    made.observed(EpochPlan(), 1_000, UpstreamView("{}", START))
    assert str(follows(made, Phase.UPSTREAM).limited_by) == "following: a commit every 1 s"
    alone = str(follows(Meter("job", 1000, follows=False), Phase.UPSTREAM).limited_by)
    assert alone == "nothing to follow: the config names no changes; to end it: backfill stop job"


def test_partitions_that_were_added_are_told_once_they_are_observed() -> None:
    made, view = Meter("job", 1000), UpstreamView("{}", START)
    assert told(HALF, made).partitions_added is None
    made.observed(EpochPlan(), 1_000, replace(view, added=2))
    assert told(HALF, made).partitions_added == 2


def test_a_change_is_lacking_until_the_epoch_that_holds_it_has_landed() -> None:
    made, view = Meter("job", 1000), UpstreamView("{}", START)
    window = ChangeWindow(START, Position.of({"0": 5}), 100, 200, 1)
    made.observed(EpochPlan(window=window), 1_000, view)
    assert told(HALF, made).oldest_ms == 100
    made.flying(0)
    made.observed(EpochPlan(), 2_000, view)  # nothing new, and the sink does not have it yet
    assert told(HALF, made).oldest_ms == 100
    made.landed()
    assert told(HALF, made).oldest_ms is None
    made.observed(EpochPlan(window=window, oldest_pending_ms=300), 3_000, view)
    made.flying(0)
    made.landed()
    assert told(HALF, made).oldest_ms == 300
    made.observed(EpochPlan(window=window), 4_000, replace(view, oldest_ms=7))
    assert (told(HALF, made).oldest_ms, made.lag_ms(EpochPlan(window=window), 1_007)) == (7, 1_000)


def test_a_commit_of_the_upstream_that_is_not_whole_is_lacking_and_limits_a_job_that_has_all_else() -> None:
    made, newest = Meter("job", 1000), Incomplete("tx", 5, ("tiny",), 700)
    view = UpstreamView("{}", START, incomplete=newest)
    window = ChangeWindow(START, Position.of({"0": 5}), 100, 200, 1)
    made.observed(EpochPlan(window=window), 1_000, view)
    assert (told(HALF, made).oldest_ms, told(HALF, made).pending_epochs) == (100, 2)
    made.flying(0)
    made.landed()
    now = follows(made, Phase.UPSTREAM)
    assert (now.oldest_ms, now.lag_ms, now.pending_epochs, now.incomplete) == (700, 300, 1, newest)
    assert now.limited_by == newest.limit(converging=False)
    said = "tx = 5 is not applied yet: no row with it has landed for table tiny, nor a later one for any"
    assert str(now.limited_by) == f"waiting: {said}"
    made.observed(EpochPlan(pending_after=1, oldest_pending_ms=600), 1_000, view)
    assert (told(HALF, made).oldest_ms, told(HALF, made).pending_epochs) == (600, 2)
    assert follows(made, Phase.UPSTREAM).limited_by.kind is Kind.CATCHING_UP
    made.observed(EpochPlan(), 2_000, UpstreamView("{}", START))
    now = follows(made, Phase.UPSTREAM)
    assert (now.oldest_ms, now.pending_epochs, now.incomplete) == (None, 0, None)


def test_a_value_of_a_commit_that_is_not_whole_makes_no_line_of_its_own_and_three_tables_are_named() -> None:
    newest = Incomplete("tx", "a\n2026-01-01 done\x1b[31m", tuple(f"t{n}" for n in range(999)), 700)
    assert newest.text.isprintable()
    assert "for tables t0, t1, t2 and 996 more, nor" in newest.text
    assert "tx = '' is not applied yet" in Incomplete("tx", "", ("t",), 7).text


def test_that_a_commit_is_not_whole_is_news_once_it_was_so_twice() -> None:
    made = Meter("job", 1000)
    for lacking in (("a", "b"), ("b",)):
        made.observed(EpochPlan(), 1_000, UpstreamView("{}", START, incomplete=Incomplete("tx", 5, lacking, 1)))
        assert not made.untold(0)
    made.observed(EpochPlan(), 1_000, UpstreamView("{}", START, incomplete=Incomplete("tx", 5, ("b",), 1)))
    assert made.untold(0)
    told(HALF, made)
    assert not made.untold(0)


def test_what_came_since_people_were_told_that_nothing_is_lacking_is_news() -> None:
    made, view = Meter("job", 1000), UpstreamView("{}", START)
    made.observed(EpochPlan(), 1_000, view)
    assert told(HALF, made).oldest_ms is None
    assert not made.lag_untold
    made.observed(EpochPlan(oldest_pending_ms=1_500), 2_000, view)
    assert made.lag_untold
    assert told(HALF, made).oldest_ms == 1_500
    assert not made.lag_untold


def told(of: SourceState, made: Meter) -> Progress:
    return made.progress(STRATEGY, of, 1, None, None)


def test_the_share_of_a_history_is_that_of_its_offsets() -> None:
    progress = told(HALF, meter())
    assert progress.share == 0.5  # 50 of 100 and 150 of 300, whatever rows they held; live offsets do not count
    assert (progress.rows_read, progress.rows_total) == (60, None)


def test_states_are_counted_partitions_newer_than_the_pin_too() -> None:
    counted = {"not started": 0, "backfilling": 2, "awaiting live": 0, "finished": 2}
    assert told(HALF, meter()).splits == counted


def test_a_job_without_history_has_read_all_of_it() -> None:
    made = Meter("job", 1000)
    progress = made.progress(
        SourceStrategy(SPLITS[1:2]),
        SourceState(Control(), {("t", "1"): SplitProgress(SplitStatus.FINISHED, 9, target=9)}),
        1,
        None,
        None,
    )
    assert progress.share == 1.0
    assert progress.phase == Phase.UPSTREAM


def test_the_time_left_is_that_of_the_history_with_rows_as_dense_as_before() -> None:
    progress = told(HALF, meter())
    assert progress.eta_s == (2.0, 2.0)  # 200 offsets left, 60 rows in the 200 before them, 30 rows a second


def test_a_rate_bounds_the_time_left_before_anything_is_measured() -> None:
    fresh = state(
        *(
            SplitProgress(SplitStatus.NOT_STARTED, s.first or 0, target=(s.first or 0) + (s.rows or 0))
            for s in SPLITS
        )
    )
    slow = SourceState(Control(rate=4.0), fresh.splits)
    assert Meter("job", 1000).progress(STRATEGY, slow, 1, None, None).eta_s == (100.0, 100.0)


def test_a_target_that_was_raised_counts() -> None:
    raised = SplitProgress(SplitStatus.BACKFILLING, 100, 10, 1, 250)
    rest = list(HALF.splits.values())[1:]
    assert told(state(raised, *rest), meter()).share == pytest.approx(200 / 500)


def test_each_partition_tells_where_it_is_those_furthest_behind_first() -> None:
    lines = told(HALF, meter({"0": 160, "1": 140, "2": 300, "3": 7})).partitions
    assert lines == (
        PartitionProgress("2", "backfilling", 150, 300, 150, "t"),
        PartitionProgress("1", "finished", 40, 9, 100, "t"),
        PartitionProgress("0", "backfilling", 100, 150, 60, "t"),
        PartitionProgress("3", "finished", 7, None, 0, "t"),
    )


def test_lag_is_not_known_before_the_first_look() -> None:
    assert {line.lag for line in told(HALF, meter()).partitions} == {None}


def test_only_the_partitions_furthest_behind_are_listed() -> None:
    many = {("t", str(i)): SplitProgress(SplitStatus.FINISHED, 0, target=0) for i in range(200)}
    made = Meter("job", 1000)
    strategy = SourceStrategy(tuple(Split("t", str(i), 0, 0) for i in range(200)))
    made.observed(EpochPlan(latest=Position.of({str(i): i for i in range(200)})), 1, UpstreamView("{}", START))
    lines = made.progress(strategy, SourceState(Control(), many), 1, None, None).partitions
    assert [line.lag for line in lines] == list(range(199, 199 - PARTITIONS_SHOWN, -1))


def test_where_the_log_comes_first_it_is_what_limits_a_snapshot() -> None:
    made = meter()
    assert str(told(HALF, made).limited_by) == "upstream reads"
    pending = (UpstreamEpoch((("slot", 5),), 1, None, 3_000_000_000),)
    made.observed(EpochPlan(), 2_000, UpstreamView("{}", START, pending, log_first=True))
    said = "the change log comes first, 2.8 GB of it: rows are read again after that"
    assert str(told(HALF, made).limited_by) == said
    waits = Limit("the transaction of process 7", hint=sql("SELECT pg_terminate_backend(7)"))
    made.observed(EpochPlan(), 2_000, UpstreamView("{}", START, pending, log_first=True, waits=waits))
    limit = told(HALF, made).limited_by
    assert limit.text == "rows are read once an older transaction has ended: the transaction of process 7"
    assert limit.hint == waits.hint
    limited = replace(HALF, control=Control(rate=0.0))
    assert str(told(limited, made).limited_by).startswith("rate 0: ")


def test_a_log_that_comes_first_and_does_not_become_shorter_is_not_converging() -> None:
    made = meter()

    def left(*sizes: int) -> Progress:
        for size in sizes:
            pending = (UpstreamEpoch((("slot", 5),), 1, None, size),)
            made.observed(EpochPlan(), 2_000, UpstreamView("{}", START, pending, log_first=True))
            made.committed(EpochRecord(1, 0, Phase.SNAPSHOT, 1), 0, 100)
        return told(HALF, made)

    gib, mib = 1 << 30, 1 << 20
    assert left(*(9 * gib - n * mib * 50 for n in range(20))).not_converging is None
    never = left(*(2 * gib + n * mib * 50 for n in range(20)))
    assert never.limited_by == never.not_converging
    assert never.limited_by.kind is Kind.NOT_CONVERGING
    assert str(never.limited_by).startswith(
        "not converging: 2.9 GB of the change log come before rows are read, and as much arrives as is applied; "
    )
    made.observed(EpochPlan(), 2_000, UpstreamView("{}", START))
    made.committed(EpochRecord(1, 0, Phase.SNAPSHOT, 1), 0, 100)
    assert told(HALF, made).not_converging is None

    small = (UpstreamEpoch((("slot", 5),), 1, None, 8_192),)
    waits = UpstreamView("{}", START, small, log_first=True, waits=Limit("a session's transaction"))
    for _ in range(20):  # however much arrives meanwhile
        made.observed(EpochPlan(), 2_000, waits)
        made.committed(EpochRecord(1, 0, Phase.SNAPSHOT, 1), 0, 100)
    assert told(HALF, made).not_converging is None
    assert (
        str(told(HALF, made).limited_by)
        == "rows are read once an older transaction has ended: a session's transaction"
    )


def test_waiting_for_live_is_said() -> None:
    awaiting = state(
        SplitProgress(SplitStatus.AWAITING_LIVE, 150, 10, 1, 150),
        SplitProgress(SplitStatus.FINISHED, 40, 0, 1, 9),
        SplitProgress(SplitStatus.AWAITING_LIVE, 300, 50, 1, 300),
        reported_ms=5,
    )
    progress = told(awaiting, meter())
    assert str(progress.limited_by).startswith("awaiting live")
    assert (progress.snapshot_finished_ms, progress.phase, progress.share) == (5, Phase.SNAPSHOT, 1.0)


def test_files_are_counted_in_their_own_states() -> None:
    strategy = SnapshotStrategy((Split("t", "a", 10, 0), Split("t", "b", 10, 0)))
    splits = {("t", "a"): SplitProgress(SplitStatus.CONSUMING, 4, 4, 1)}
    files = replace(strategy.start(Pin(Position(), None, None, strategy.splits), Control()), splits=splits)
    progress = Meter("job", 1000).progress(strategy, files, 1, None, None)
    assert progress.splits == {"not started": 1, "consuming": 1, "consumed": 0}
    assert (progress.rows_read, progress.rows_total, progress.share, progress.partitions) == (4, 20, None, ())


SNAPSHOT = SnapshotStrategy(())
LOG_STORE = SnapshotState(Control(), Phase.LOG_STORE, START, None, None, {})


def applied(*epochs: tuple[int, int, int]) -> Meter:
    """(upstream epochs taken, pending after it, changes) a second, each committed at its end."""
    made = Meter("job", 1000)
    for n, (taken, pending, changes) in enumerate(epochs):
        record = EpochRecord(n, n - 1, Phase.LOG_STORE, 1000 * (n + 1), changes_read=changes)
        record = replace(record, upstream_epochs=taken, pending_epochs=pending)
        made.committed(record, 1000 * n, 1000 * (n + 1))
    made.observed(EpochPlan(pending_after=epochs[-1][1]), 1000 * len(epochs), UpstreamView("{}", START))
    return made


def follows(made: Meter, phase: Phase = Phase.LOG_STORE, steady_ms: int = 0) -> Progress:
    return made.progress(SNAPSHOT, replace(LOG_STORE, phase=phase), 1, None, None, steady_ms)


def keeping(kept_ms: dict[str, int], phase: Phase = Phase.UPSTREAM, pending: int = 9) -> Limit:
    """What limits a job whose commits took a second each, of which this to keep derived tables."""
    made = Meter("job", 1000)
    for at in range(1000, 4000, 1000):
        record = EpochRecord(at, at - 1000, phase, at, changes_read=5, stage_ms=200, commit_ms=800)
        made.committed(record, at, at + 900, kept_ms)
    made.observed(EpochPlan(pending_after=pending), 4000, UpstreamView("{}", START))
    return follows(made, phase).limited_by


@pytest.mark.parametrize("phase", [Phase.UPSTREAM, Phase.LOG_STORE])
def test_a_derived_table_limits_a_job_that_is_behind_where_keeping_it_takes_most_of_the_time(phase: Phase) -> None:
    limit = keeping({"small": 20, "revenue": 700}, phase)
    assert limit.kind is Kind.LIMITED
    assert {"revenue:", "70%"} <= set(limit.text.split())
    assert "small" not in limit.text


def test_a_derived_table_limits_nothing_that_keeps_up_or_spends_its_time_elsewhere() -> None:
    assert keeping({"revenue": 700}, pending=0).kind is Kind.FOLLOWING
    assert keeping({"revenue": 500}).kind is Kind.CATCHING_UP  # half of it is not most of it
    assert keeping({}).kind is Kind.CATCHING_UP


def test_while_catching_up_the_time_left_goes_by_what_is_applied_and_what_arrives() -> None:
    assert follows(applied((10, 90, 1), (10, 80, 1), (10, 70, 1))).eta_s == (7.0, 7.0)  # nothing arrives
    arriving = follows(applied((10, 90, 1), (10, 84, 1), (10, 78, 1))).eta_s
    assert arriving is not None
    assert arriving == (pytest.approx(7.8), pytest.approx(78 / (10 - 8 / 3)))
    assert follows(applied((10, 90, 1), (10, 95, 1), (10, 100, 1))).eta_s is None, "it falls behind"
    assert follows(applied((10, 90, 1), (10, 80, 1)), Phase.UPSTREAM).eta_s is None


def test_how_long_catching_up_takes_is_said_where_it_is_slow_and_never_beside_that_it_does_not_converge() -> None:
    quick = follows(applied((10, 90, 1), (10, 80, 1), (10, 70, 1)))
    assert str(quick.limited_by) == "catching up: 70 upstream commits left"
    made = applied((10, 90, 1), (10, 88, 1), (10, 86, 1))
    slow = follows(made)
    assert str(slow.limited_by) == "catching up: slowly, about 18 s: 86 upstream commits left"
    assert slow.not_converging is None
    never = made.progress(SNAPSHOT, LOG_STORE, 1, None, None, not_converging=True)
    assert never.eta_s is None
    assert never.limited_by == never.not_converging
    assert str(never.limited_by).startswith(
        "not converging: as much arrives as is applied; a larger barrier.target"
    )
    behind = applied((10, 90, 1), (10, 99, 1), (10, 109, 1)).progress(
        SNAPSHOT, LOG_STORE, 1, None, None, not_converging=True
    )
    assert " arrive, 10 upstream commits/s are applied; " in str(behind.limited_by)


def test_what_holds_a_job_up_is_said_before_that_it_does_not_converge() -> None:
    made = applied((10, 90, 1), (10, 95, 1))
    waits = made.progress(SNAPSHOT, LOG_STORE, 1, Limit("the broker is away"), None, not_converging=True)
    assert str(waits.limited_by) == "waiting: the broker is away"
    paused = replace(LOG_STORE, control=Control("ann", 1))
    assert made.progress(SNAPSHOT, paused, 1, None, None, not_converging=True).limited_by.kind is Kind.PAUSED


def test_changes_a_second_are_those_of_the_recent_epochs_and_none_of_a_quiet_while() -> None:
    made = applied((1, 0, 500), (1, 0, 1500), (1, 0, 1000))
    assert follows(made, Phase.UPSTREAM).changes_per_s == 1000.0
    assert follows(made, Phase.UPSTREAM, 3000 + 5_001).changes_per_s == 0.0
    assert told(HALF, meter()).changes_per_s is None, "the snapshot is read"


def test_rows_written_a_second_are_told_apart_by_what_the_sink_does_with_them() -> None:
    made = Meter("job", 1000)
    for n in range(3):
        record = EpochRecord(n, n - 1, Phase.UPSTREAM, n, changes_read=70)
        record = replace(record, rows_written=60, rows_inserted=0, rows_upserted=40, rows_deleted=20)
        made.committed(record, 1000 * n, 1000 * (n + 1))
    assert follows(made, Phase.UPSTREAM).written_per_s == Written(0.0, 40.0, 20.0)
    assert follows(made, Phase.UPSTREAM, 3000 + 5_001).written_per_s == Written(0.0, 0.0, 0.0)
    assert told(HALF, meter()).written_per_s is None, "the snapshot is read"


def test_a_live_job_with_work_in_hand_is_not_limited_by_nothing() -> None:
    made = Meter("job", 1000)
    made.observed(EpochPlan(), 900, UpstreamView("{}", START))
    with made.busy("reading 15 upstream commits", 1_000, 0):
        assert str(follows(made, Phase.UPSTREAM, 999).limited_by).startswith("following: a commit")
        staging = str(follows(made, Phase.UPSTREAM, 1_000).limited_by)
    assert staging == "the current commit: reading 15 upstream commits"
    made.flying(2_000)
    committing = str(follows(made, Phase.UPSTREAM, 3_000).limited_by)
    assert committing == "the current commit: the sink is writing it"
    made.writing(Committing(7, ("a", "b"), ("c", "d")), 2_000, 2_000)
    committing = str(follows(made, Phase.UPSTREAM, 3_000).limited_by)
    assert committing == "2 of 4 tables have it, now c"
    made.landed()
    made.observed(EpochPlan(pending_after=15), 3_000, UpstreamView("{}", START))
    assert str(follows(made, Phase.UPSTREAM).limited_by) == "catching up: 15 upstream commits left"


def test_how_far_the_sink_is_with_a_commit_of_several_tables_is_told_and_over_with_it() -> None:
    made = Meter("job", 1000)
    made.observed(EpochPlan(), 900, UpstreamView("{}", START))
    made.flying(2_000, 52_000, 12)
    at = Committing(7, ("a",), ("b", "d"))
    made.writing(at, 52_500, 2_500)
    assert not made.untold(2_999), "short commits are not told"
    assert made.untold(3_000)
    told = follows(made, Phase.UPSTREAM, 3_000)
    assert (told.committing, told.doing_ms) == (at, 52_000)
    assert told.doing == "writing 12 rows to the sink: 1 of 3 tables have it, now b"
    assert not made.untold(4_000)
    made.writing(Committing(7, ("a", "b"), ("d",), (2, 5)), 60_000, 10_000)
    assert made.untold(11_000)
    told = follows(made, Phase.UPSTREAM, 11_000)
    assert (told.doing, told.doing_ms) == ("filling d: 2 of 5 derived tables", 60_000)
    made.landed()
    assert (follows(made, Phase.UPSTREAM).committing, made.where) == (None, None)


def test_how_far_a_long_epoch_is_read_is_told_each_second_and_a_short_one_says_nothing() -> None:
    made = Meter("job", 1000)

    def tells(steady_ms: int, rows: int) -> bool:
        in_hand = InHand(rows, 0, rows)
        untold = made.untold(steady_ms, in_hand)
        if untold:
            made.progress(STRATEGY, HALF, 1, None, None, steady_ms, in_hand)
        return untold

    with made.busy("reading 1 part of the snapshot", 1_000, 0):
        at = [(500, 10), (1_000, 20), (1_500, 30), (2_000, 40), (3_000, 40), (3_500, 50)]
        assert [ms for ms, rows in at if tells(ms, rows)] == [1_000, 2_000, 3_500]
        told = made.progress(STRATEGY, HALF, 1, None, None, 4_000, InHand(60, 3, 60))
        assert (told.rows_in_hand, told.changes_in_hand, told.rows_per_s) == (60, 3, 15.0)
        other = made.progress(STRATEGY, HALF, 1, None, None, 4_000, InHand(100, 0, 60))
        assert other.rows_per_s is None, "those of other epochs were read before"
    assert tells(4_500, 60), "it is over"
    made.flying(5_000, 77_000, 1)
    assert not made.untold(5_900)
    assert tells(6_000, 60)
    told = made.progress(STRATEGY, HALF, 1, None, None, 6_000)
    assert (told.doing, told.doing_ms, told.rows_per_s) == ("writing 1 row to the sink", 77_000, None)


def test_a_sink_that_has_everything_does_not_lag_by_what_it_lacked_before() -> None:
    made = Meter("job", 1000)
    window = ChangeWindow(START, Position.of({"0": 5}), 1_000, 2_000, 1)
    made.observed(EpochPlan(window=window), 34_000, UpstreamView("{}", START))
    assert told(HALF, made).lag_ms == 33_000
    made.flying(0)
    assert told(HALF, made).lag_ms == 33_000
    made.landed()
    made.observed(EpochPlan(), 35_000, UpstreamView("{}", START))
    assert told(HALF, made).lag_ms == 0


def test_a_rate_of_0_says_what_is_not_read_and_how_to_lift_it() -> None:
    unread = replace(HALF, control=Control(rate=0.0))
    said = "rate 0: no row of the snapshot is read; to read it: backfill throttle job --rate none"
    assert str(told(unread, Meter("job", 1000)).limited_by) == said


def test_what_lasts_is_news_once_and_what_is_quick_never() -> None:
    made = Meter("job", 1000)
    with made.busy("reading", 1_000, 70):
        assert not made.untold(1_069)
        assert made.untold(1_070)
        assert (told(HALF, made).doing, told(HALF, made).doing_ms) == ("reading", 1_000)
        assert not made.untold(9_000)
    assert made.untold(9_000), "it is over, and people were told that it lasts"
    assert told(HALF, made).doing is None
    assert not made.untold(9_000)


def test_rates_and_the_time_left_are_not_known_in_the_first_seconds() -> None:
    made = Meter("job", 1000)
    shown = []
    for at, rows in ((0, 1), (5_000, 30), (6_000, 30), (7_000, 30), (8_000, 30)):  # the first one starts workers
        made.committed(EpochRecord(at, at - 1, Phase.SNAPSHOT, at, snapshot_rows=rows), at, at + 900)
        progress = told(HALF, made)
        shown.append((progress.rows_per_s, progress.eta_s))
    assert shown == [(None, None)] * 4 + [(30.0, (2.0, 2.0))]


def test_a_first_change_after_a_while_is_no_rate_yet_and_then_one_over_more_than_its_epoch() -> None:
    made = Meter("job", 1000)
    made.committed(EpochRecord(1, 0, Phase.UPSTREAM, 1, changes_read=6), 600_000, 600_100)
    at = {ms: follows(made, Phase.UPSTREAM, ms).changes_per_s for ms in (600_100, 602_999, 603_000, 605_101)}
    assert at == {600_100: None, 602_999: None, 603_000: 2.0, 605_101: 0.0}


def test_the_time_left_to_catch_up_is_not_told_from_one_short_epoch() -> None:
    assert follows(applied((10, 90, 1))).eta_s is None
    assert follows(applied((10, 90, 1), (10, 80, 1))).eta_s is None


@pytest.mark.parametrize("interval_ms", [50, 200, 1000])
def test_rates_are_known_however_short_the_interval(interval_ms: int) -> None:
    history, log = Meter("job", interval_ms), Meter("job", interval_ms)
    for at in range(0, 20_000, interval_ms):
        read = EpochRecord(at, at - 1, Phase.SNAPSHOT, at, snapshot_rows=interval_ms)
        history.committed(read, at, at + interval_ms // 2)
        log.committed(replace(read, phase=Phase.UPSTREAM, changes_read=interval_ms), at, at + interval_ms // 2)
    assert history.progress(STRATEGY, HALF, 1, None, None, 20_000).rows_per_s == pytest.approx(1000)
    told_live = follows(log, Phase.UPSTREAM, 20_000)
    assert told_live.changes_per_s == pytest.approx(1000, rel=0.2)
