"""A run's lines and events: each thing that happens is said once, and nothing of the run before."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from view_builders import progress, row

from backfill_cli.catalog import Taken
from backfill_cli.errors import Hint, StoppedEarly, Transient, command
from backfill_cli.model.checkpoint import Totals
from backfill_cli.model.deadline import Outlook
from backfill_cli.model.headroom import Headroom, Kept
from backfill_cli.model.job import Command, Control, JobState, Phase, Verb
from backfill_cli.model.limit import Kind, Limit
from backfill_cli.model.refill import Extent, Refill, RefillState
from backfill_cli.model.upstream import Incomplete
from backfill_cli.view.journal import NOTHING, REBUILT, Entry, Journal, Known, News, Weight, event_json, stamped
from backfill_cli.view.model import job_view

SIDE = "_backfill_quarantine_orders"
OURS, BEFORE = 7, 6


def seen(
    totals: Totals | None = None,
    taken: Sequence[Taken] = (),
    token: int = OURS,
    caught_up: bool = False,
    told: dict[str, Any] | None = None,
    **changes: Any,
) -> News:
    view = job_view(row(progress=progress(**(told or {})), **changes))
    return News(view, totals or Totals(), taken, token, caught_up, True)


def journal(every_s: float = 10.0, step_s: float = 1.0) -> Journal:
    """One whose clock goes on with each look at it."""
    clock = count(0.0, step_s)
    return Journal(Known(Totals(), 0, {}, BEFORE), every_s, lambda: next(clock))


def texts(entries: Sequence[Entry]) -> list[str]:
    return [entry.text for entry in entries if entry.text]


def events(entries: Sequence[Entry]) -> list[str]:
    return [entry.event.name for entry in entries if entry.event is not None]


def test_why_a_run_failed_is_told_once_at_its_end() -> None:
    one, news = journal(), seen(state=JobState.FAILED, why=Limit("b.json is gone", hint=Hint.of("put it back")))
    (line,) = texts(list(one.look(news)))
    assert line.startswith("failed, ")
    assert "b.json" not in line
    assert texts(list(one.ended(news, Transient("b.json is gone", "put it back")))) == [
        "failed: b.json is gone; to continue: put it back"
    ]


def test_a_command_is_told_with_who_posted_it_and_its_epoch() -> None:
    taken = (
        Taken(Command(1, Verb.PAUSE, "ann@box", 5), 70),
        Taken(Command(2, Verb.THROTTLE, "bob@box", 6, 500.0), 70),
        Taken(Command(3, Verb.THROTTLE, "bob@box", 7), 71),
    )
    one = journal()
    assert texts(list(one.look(seen(taken=taken))))[:3] == [
        "pause by ann@box, at commit 70",
        "throttle to 500 rows/s by bob@box, at commit 70",
        "throttle to no limit by bob@box, at commit 71",
    ]
    assert one.known.epoch >= 71


def test_how_a_refill_ended_is_told_once_and_nothing_of_those_before() -> None:
    before = Refill(1, "orders", Extent(), "me", 1, RefillState.DONE)
    done = Refill(2, "orders", Extent(first="1"), "me", 1, RefillState.DONE, epoch=9, inserted=3)
    failed = Refill(3, "lines", Extent(), "me", 1, RefillState.FAILED, why=Limit("the log is gone"))
    pending = replace(done, state=RefillState.COMPARING, epoch=None)
    one = journal()
    assert not [text for text in texts(list(one.look(seen(refills=(before, pending))))) if "refill" in text]
    told = [entry for entry in one.look(seen(refills=(before, done, failed))) if "refill" in entry.text]
    assert [(entry.text, entry.weight) for entry in told] == [
        ("refill of orders, keys 1..: done, 3 inserted, 0 replaced, 0 removed, commit 9", Weight.INFO),
        ("refill of lines: failed: the log is gone", Weight.WARNING),
    ]
    assert not [text for text in texts(list(one.look(seen(refills=(done, failed))))) if "refill" in text]


def test_a_line_of_progress_says_what_was_committed_since_the_line_before() -> None:
    one = journal(every_s=3.0, step_s=0.9)  # two looks at the clock a look at the job
    said = []
    for commits in (1, 2, 3, 4):
        total = Totals(commits, 100 * commits, 7 * commits, 107 * commits, commits, 1_000 * commits, 200 * commits)
        said += texts(list(one.look(seen(total))))
    assert len(said) == 2
    assert "; 1 commit: 100 rows and 7 changes read, staging 1 s, sink 0.2 s; " in said[0]
    assert "; 2 commits: 200 rows and 14 changes read, staging 2 s, sink 0.4 s; " in said[1]
    due_in_s = one.due_in_s()
    assert due_in_s is not None
    assert 0 < due_in_s < 3
    list(one.look(seen(total, state=JobState.DONE, live=False)))  # a change of state is told at once
    assert one.due_in_s() is None


def test_the_times_of_a_commit_that_a_recovery_finished_are_not_known_and_left_out() -> None:
    said = texts(list(journal().look(seen(Totals(1, 40_860, 0, 40_860, 1)))))
    assert "; 1 commit: 40,860 rows and 0 changes read; last commit " in said[0]


def test_a_wait_is_told_when_it_begins_and_ends_not_each_second() -> None:
    one = journal(every_s=4.0)
    held = [Limit(f"self-paused, no barrier for {n} s: the sink") for n in range(4)]
    said = []
    for waiting in (None, *held, None, None):
        said += list(one.look(seen(told={"waiting_for": waiting, "phase": Phase.UPSTREAM})))
    waits = [entry for entry in said if entry.text.startswith(("waiting", "continues"))]
    assert [entry.text for entry in waits] == [
        f"waiting: {held[0]}",
        f"waiting: {held[2]}",
        "continues: the wait is over",
    ]
    assert [entry.weight for entry in waits] == [Weight.WARNING, Weight.WARNING, Weight.INFO]


def test_a_commit_of_the_upstream_that_waits_for_more_is_told_where_nothing_else_happens() -> None:
    newest = Incomplete("tx", 5, ("tiny",), 700)
    idle = {"phase": Phase.UPSTREAM, "lag_ms": 0, "pending_epochs": 0, "limited_by": Limit("a commit every 1 s")}
    waits = idle | {"pending_epochs": 1, "limited_by": newest.limit(converging=False), "incomplete": newest}
    one = journal(every_s=3.0)
    assert len(texts(list(one.look(seen(told=idle))))) == 1
    assert one.due_in_s() is None
    said = list(one.look(seen(told=waits)))
    assert one.due_in_s() is not None
    said += [line for _ in range(2) for line in one.look(seen(told=waits))]
    (line,) = texts(said)
    assert line.endswith(f"waiting: {newest.text}")
    assert line.count(newest.text) == 1
    assert one.due_in_s() is None


def test_a_run_that_ends_caught_up_names_the_commit_that_it_did_not_apply() -> None:
    newest = Incomplete("tx", 5, ("tiny",), 700)
    told = {"phase": Phase.UPSTREAM, "incomplete": newest}
    done = seen(caught_up=True, told=told, state=JobState.DONE, why=Limit("caught up"), live=False)
    line, caught_up = texts(list(journal().look(done)))
    assert newest.text in line
    assert caught_up == f"caught up with its upstream; {newest.text}"


def test_rows_that_are_quarantined_are_told_as_they_come() -> None:
    one = journal()
    said = []
    for rows in (2, 2, 5):
        said += list(one.look(seen(told={"quarantined": {SIDE: rows}})))
    warned = [entry for entry in said if entry.weight is Weight.WARNING]
    assert [entry.text for entry in warned] == [
        f"quarantined, because they could not be read: 2 rows in {SIDE}",
        f"quarantined, because they could not be read: 3 rows in {SIDE}; 5 rows in {SIDE} since the job began",
    ]
    assert events(warned) == ["quarantined", "quarantined"]
    assert warned[0].event is not None
    assert f"SELECT * FROM {SIDE} LIMIT 20" in str(warned[0].event.hint)


def test_those_of_earlier_runs_are_not_told_again() -> None:
    one = Journal(Known(Totals(), 0, {SIDE: 2}, BEFORE), 10.0, lambda: 0.0)
    assert events(list(one.look(seen(told={"quarantined": {SIDE: 2}})))) == []


def test_those_that_a_sink_remembers_for_a_lost_catalog_are_of_earlier_runs() -> None:
    one = Journal(REBUILT, 10.0, lambda: 0.0)
    silent = replace(seen(token=1), told=False)
    assert events(list(one.look(silent))) == []
    assert events(list(one.look(seen(told={"quarantined": {SIDE: 2}})))) == []
    assert one.before.quarantined == {SIDE: 2}
    assert events(list(one.look(seen(told={"quarantined": {SIDE: 3}})))) == ["quarantined"]


def test_events_come_once_each_and_in_order() -> None:
    one = journal()
    paused = {"state": JobState.PAUSED, "control": Control("cli", 5)}
    happened = []
    for news in (
        seen(),
        seen(**paused),
        seen(**paused),
        seen(),
        seen(caught_up=True),
        seen(caught_up=True),
    ):
        happened += events(list(one.look(news)))
    last = seen(caught_up=True, state=JobState.DONE, live=False)
    happened += events(list(one.look(last))) + events(list(one.ended(last, None)))
    assert happened == ["paused", "resumed", "caught-up", "done"]


def test_a_job_is_lagging_once_and_again_only_after_its_lag_was_within_the_limit() -> None:
    one = Journal(Known(Totals(), 0, {}, BEFORE), 10.0, lambda: 0.0, max_lag_s=300.0)
    said = []
    for lag_s in (300, 301, 900, 301, 300, 360):
        entries = list(one.look(seen(told={"lag_ms": 1_000 * lag_s, "looked_ms": 10})))
        said += [(lag_s, entry.text, entry.event) for entry in entries if entry.event is not None]
    assert [(lag_s, text) for lag_s, text, _ in said] == [
        (301, "lagging: lag 5 m 01 s, more than 5 m"),
        (360, "lagging: lag 6 m, more than 5 m"),
    ]
    event = event_json(said[0][2], 0)
    assert (event["event"], event["lag_s"]) == ("lagging", 301.0)
    assert event["hint"]["text"] == "backfill throttle orders --rate none"
    assert one.due_in_s() == 10.0, "the lag grows while nothing happens"


def test_a_headroom_is_low_once_and_again_only_after_it_was_not() -> None:
    one = Journal(Known(Totals(), 0, {}, BEFORE), 10.0, lambda: 0.0, min_headroom_s=7_200.0)
    said = []
    for left_s in (7_200, 7_199, 60, 7_199, None, 7_200, 0):
        left = None if left_s is None else Headroom(Kept.UNTIL, "retention.ms (7 d)", "t", 10 + left_s * 1000)
        entries = list(one.look(seen(told={"headroom": left, "looked_ms": 10})))
        said += [(left_s, entry.text, entry.event) for entry in entries if entry.event is not None]
    assert [(left_s, text) for left_s, text, _ in said] == [
        (7_199, "low headroom: 1 h 59 m, by retention.ms (7 d): t; less than 2 h"),
        (0, "low headroom: 0 s, less than the job needs, by retention.ms (7 d): t; less than 2 h"),
    ]
    event = event_json(said[0][2], 0)
    assert (event["event"], event["headroom_s"]) == ("low-headroom", 7_199.0)
    assert one.due_in_s() == 10.0, "it shrinks while nothing happens"


def test_a_deadline_is_at_risk_once_and_again_only_after_it_could_be_met() -> None:
    one = Journal(Known(Totals(), 0, {}, BEFORE), 10.0, lambda: 0.0)
    assert one.due_in_s() is None
    cause, said = Limit("rate 5 rows/s", hint=command("throttle orders --rate none")), []
    for n, late in enumerate((False, True, True, False, True)):
        outlook = Outlook(10_000_010, None, late, 60.0 if late else None, cause if late else None)
        entries = list(one.look(seen(told={"deadline": outlook, "looked_ms": 10})))
        said += [(n, entry.text, entry.event) for entry in entries if entry.event is not None]
    assert [n for n, _, _ in said] == [1, 4]
    assert said[0][1].startswith("deadline at risk: ")
    assert said[0][1].endswith("in 2 h 46 m: cannot be met, about 1 m late; rate 5 rows/s")
    event = event_json(said[0][2], 0)
    assert (event["event"], event["hint"]["text"]) == ("deadline-at-risk", "backfill throttle orders --rate none")
    assert one.due_in_s() == 10.0, "time passes while nothing happens"


def test_a_lag_that_this_run_did_not_observe_is_no_event() -> None:
    one = Journal(Known(Totals(), 0, {}, BEFORE), 10.0, lambda: 0.0, max_lag_s=300.0)
    claimed = replace(seen().view.runner, claimed_ms=1_000)
    for looked_ms, expected in ((999, []), (1_000, ["lagging"])):
        news = seen(told={"lag_ms": 900_000, "looked_ms": looked_ms})
        assert events(list(one.look(replace(news, view=replace(news.view, runner=claimed))))) == expected
    silent = journal()
    assert events(list(silent.look(seen(told={"lag_ms": 900_000, "looked_ms": 10})))) == []


def test_what_the_runner_before_left_is_no_event() -> None:
    for state in (JobState.PAUSED, JobState.DONE, JobState.STOPPED, JobState.FAILED):
        one = journal()
        left = seen(token=BEFORE, caught_up=True, state=state, live=False)
        assert events(list(one.look(left))) == []
        assert events(list(one.ended(left, None))) == []
        assert events(list(one.ended(left, Transient("it was refused")))) == []


def test_a_failure_is_told_with_the_way_on_and_is_an_event_of_the_job_that_failed() -> None:
    error = Transient("the sink is held", "close it")
    failed = seen(state=JobState.FAILED, why=Limit("the sink is held", hint=Hint.of("close it")), live=False)
    (entry,) = journal().ended(failed, error)
    assert (entry.text, entry.weight) == ("failed: the sink is held; to continue: close it", Weight.ERROR)
    assert entry.event is not None
    assert (entry.event.name, entry.event.reason, str(entry.event.hint)) == (
        "failed",
        "the sink is held",
        "close it",
    )
    (entry,) = journal().ended(None, error)
    assert entry.event is None
    (entry,) = journal().ended(None, ValueError("first\nlast"))
    assert entry.text == "failed: ValueError: last"


def test_a_run_that_was_stopped_early_did_not_fail() -> None:
    stopped = seen(state=JobState.STOPPED, why=Limit("a stop was asked for"), live=False)
    (entry,) = journal().ended(stopped, StoppedEarly("it was stopped before it was caught up", "resume it"))
    assert entry.text == "it was stopped before it was caught up; to continue: resume it"
    assert entry.event is not None
    assert entry.event.name == "stopped"


def test_a_job_with_changes_says_that_spark_starts_and_then_for_how_long() -> None:
    now_s = 0.0
    one = Journal(Known(Totals(), 0, {}, BEFORE), 10.0, lambda: now_s)
    follows = seen(told={"phase": Phase.UPSTREAM})
    starts = {"limited_by": Limit("starting Spark", Kind.NOW), "doing": "starting Spark", "doing_ms": 0}
    opening = seen(told={"phase": Phase.UPSTREAM, **starts})
    assert texts(list(one.look(follows)))
    now_s = 1.0
    (line,) = texts(list(one.look(opening)))
    assert line.endswith("; starting Spark for 0 s")
    assert one.due_in_s() == 10.0, "it is looked at again, although nothing was committed"
    now_s = 10.0
    assert texts(list(one.look(opening))) == []
    now_s = 11.0
    assert len(texts(list(one.look(opening)))) == 1
    now_s = 12.0
    assert texts(list(one.look(follows))) == [], "its end is no line of its own"
    assert one.due_in_s() is None


def test_a_start_that_takes_long_says_so_until_there_is_progress() -> None:
    now_s = 0.0
    one = Journal(Known(Totals(), 0, {}, BEFORE), 10.0, lambda: now_s)
    assert one.due_in_s() is None
    assert texts(list(one.doing(Limit("starting Spark")))) == ["starting Spark"]
    said = []
    for later_s in (4.0, 10.0, 15.0, 20.0):
        now_s = later_s
        said += texts(list(one.still()))
    assert said == ["starting Spark, 10 s", "starting Spark, 20 s"]
    now_s = 21.0
    assert one.due_in_s() == 9.0
    assert texts(list(one.look(seen())))
    now_s = 40.0
    assert texts(list(one.still())) == []


def test_a_start_says_what_it_does_once_and_what_it_waits_for_as_a_warning() -> None:
    one = Journal(NOTHING, 10.0, lambda: 0.0)
    start = Limit("starting Spark")
    said = [entry for what in (start, start, Limit("it is held", Kind.WAITING)) for entry in one.doing(what)]
    assert [(entry.text, entry.weight) for entry in said] == [
        ("starting Spark", Weight.INFO),
        ("waiting: it is held", Weight.WARNING),
    ]


def test_each_line_has_the_time_and_the_job_and_no_control_codes() -> None:
    told = stamped("orders", "first\nsecond \x1b[31mred", 1_763_692_800_123)
    assert told == "2025-11-21T02:40:00.123Z orders: first\n2025-11-21T02:40:00.123Z orders: second [31mred"


def test_what_a_run_finished_is_an_event_once_and_what_an_earlier_one_did_is_none() -> None:
    one, happened = journal(), []
    claimed_ms = seen().view.runner.claimed_ms or 0
    for snapshot_ms, log_ms in (
        (None, None),
        (claimed_ms + 1, None),
        (claimed_ms + 1, claimed_ms + 5),
        (claimed_ms + 1, claimed_ms + 5),
    ):
        news = seen(told={"snapshot_finished_ms": snapshot_ms, "log_store_finished_ms": log_ms})
        happened.append(events(list(one.look(news))))
    assert happened == [[], ["snapshot-read"], ["log-applied"], []]
    before = seen(told={"snapshot_finished_ms": claimed_ms - 1, "log_store_finished_ms": claimed_ms - 1})
    assert events(list(journal().look(before))) == []
