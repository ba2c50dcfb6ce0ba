"""Commands: none is missed, none is taken twice, and without a runner they are applied at once."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from catalog_builders import Clock, claimed, progress, record
from duckdb import DuckDBPyConnection
from hint_typed import typed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backfill_cli.api import posting
from backfill_cli.catalog import Catalog, Claim, inbox
from backfill_cli.catalog.store import Store
from backfill_cli.errors import Held, NoSuchJob, StateConflict
from backfill_cli.model.change import Change
from backfill_cli.model.checkpoint import EpochRecord
from backfill_cli.model.job import REDEFINES, Control, Hold, JobState, Phase, Verb
from backfill_cli.model.limit import Limit


def post(catalog: Catalog, verb: Verb = Verb.PAUSE, rate: float | None = None) -> int:
    return catalog.post("orders", verb, rate, "cli", 5)


def test_a_command_waits_for_the_runner_and_is_taken_once(catalog: Catalog, claim: Claim) -> None:
    claim.store.become(JobState.RUNNING, "")
    posted = post(catalog)
    waiting = claim.store.commands()
    assert [c.id for c in waiting] == [posted]
    assert catalog.taken("orders", posted) is None
    claim.store.take(waiting, Control("cli", 5), JobState.PAUSED, record(700, "pause"))
    assert claim.store.commands() == ()
    assert catalog.taken("orders", posted) == 700
    row = catalog.job("orders")
    assert (row.state, row.control) == (JobState.PAUSED, Control("cli", 5))
    assert catalog.ledger("orders", 1) == (record(700, "pause"),)


def test_a_command_that_was_seen_and_not_taken_is_seen_again(catalog: Catalog, claim: Claim) -> None:
    post(catalog)
    assert claim.store.commands() == claim.store.commands() != ()


def test_looking_again_opens_no_database(catalog: Catalog, claim: Claim) -> None:
    claim.store.commands()
    with patch.object(Store, "reading", side_effect=AssertionError("opened")):
        assert claim.store.commands() == ()
    posted = post(catalog)
    assert [c.id for c in claim.store.commands()] == [posted]


def test_a_command_that_comes_just_after_the_look_is_seen_at_the_next(catalog: Catalog, claim: Claim) -> None:
    """The stamp is read before the inbox: whatever comes after that changes it once more."""
    real = Store.reading

    @contextmanager
    def then_comes_a_command(store: Store) -> Iterator[DuckDBPyConnection]:
        with real(store) as db:
            yield db
        with patch.object(Store, "reading", real):
            post(catalog)

    with patch.object(Store, "reading", then_comes_a_command):
        assert claim.store.commands() == ()
    assert len(claim.store.commands()) == 1


def test_the_wake_file_is_touched_after_the_command_is_there(catalog: Catalog, claim: Claim) -> None:
    seen = []
    with patch.object(inbox, "touch", side_effect=lambda path: seen.append(catalog.job("orders").waiting)):
        post(catalog)
    assert [len(waiting) for waiting in seen] == [1]


def test_two_touches_in_one_tick_of_the_clock_differ(path: Path) -> None:
    stamps = []
    for _ in range(3):
        inbox.touch(path)
        os.utime(inbox.wake_file(path), ns=(5, 5))
        stamps.append(inbox.stamp(path))
    assert len(set(stamps)) == 3


def test_a_command_whose_writer_died_before_the_touch_is_seen_at_the_next_heartbeat(
    catalog: Catalog, claim: Claim, clock: Clock
) -> None:
    claim.store.commands()
    with patch.object(inbox, "touch", side_effect=lambda path: None):
        posted = post(catalog)
    assert claim.store.commands() == ()
    claim.store.heartbeat(clock(), progress())
    assert [c.id for c in claim.store.commands()] == [posted]


def test_a_take_that_fails_takes_nothing(catalog: Catalog, claim: Claim) -> None:
    post(catalog)
    waiting = claim.store.commands()
    with pytest.raises(StateConflict):
        claim.store.take(waiting, Control("cli", 5), JobState.STOPPED, record(700))
    assert claim.store.commands() == waiting


def test_an_epoch_number_is_not_used_twice_for_control(claim: Claim) -> None:
    claim.store.take((), Control(), JobState.STARTING, record(700))
    with pytest.raises(StateConflict, match="700 is not after commit 700"):
        claim.store.take((), Control(), JobState.STARTING, record(700))


def test_taken_commands_are_let_go_in_the_end(catalog: Catalog, claim: Claim) -> None:
    with patch.object(inbox, "KEPT_TAKEN", 3):
        for epoch in range(1, 7):
            posted = post(catalog)
            claim.store.take(claim.store.commands(), Control("cli", 5), JobState.STARTING, record(epoch))
    assert [catalog.taken("orders", n) for n in range(1, posted + 1)] == [None, None, None, 4, 5, 6]


def test_a_command_for_a_job_that_is_not_there_lists_those_that_are(catalog: Catalog) -> None:
    with pytest.raises(NoSuchJob, match="does not exist; did you mean orders"):
        catalog.post("order", Verb.PAUSE, None, "cli", 5)


def test_without_a_runner_a_pause_is_kept_for_the_next_one(catalog: Catalog, clock: Clock) -> None:
    posted = post(catalog)
    epoch = catalog.taken("orders", posted)
    assert epoch == 5
    assert catalog.ledger("orders", 1) == (EpochRecord(5, 0, Phase.SNAPSHOT, 5, mutations="pause"),)
    assert catalog.job("orders").control == Control("cli", epoch)
    with claimed(catalog, clock) as claim:
        assert claim.store.load().control == Control("cli", epoch)
        assert claim.store.commands() == ()


@pytest.mark.parametrize("ended", [JobState.STOPPED, JobState.FAILED, JobState.DONE])
def test_without_a_runner_an_ended_job_keeps_its_state(catalog: Catalog, path: Path, ended: JobState) -> None:
    with Store(path).writing() as db:
        db.execute("UPDATE jobs SET state = ?, reason = 'because'", [ended])
    with_payload = {*REDEFINES, Verb.REFILL, Verb.CANCEL_REFILL}
    for verb in [one for one in Verb if one not in with_payload]:
        post(catalog, verb, 3.0 if verb == Verb.THROTTLE else None)
    row = catalog.job("orders")
    assert (row.state, row.reason, row.control) == (ended, "because", Control(rate=3.0))


@pytest.mark.parametrize("state", [s for s in JobState if s not in {"stopped", "failed", "done"}])
def test_without_a_runner_a_stop_is_reached_at_once(catalog: Catalog, path: Path, state: JobState) -> None:
    with Store(path).writing() as db:
        db.execute("UPDATE jobs SET state = ?", [state])
    post(catalog, Verb.STOP)
    row = catalog.job("orders")
    assert (row.state, row.control.stop) == (JobState.STOPPED, False)


def test_what_a_dead_runner_left_waiting_is_applied_first(catalog: Catalog, clock: Clock) -> None:
    with claimed(catalog, clock):
        first = post(catalog, Verb.PAUSE)
        assert catalog.taken("orders", first) is None
    post(catalog, Verb.RESUME)
    assert catalog.taken("orders", first) == 5
    assert catalog.job("orders").control == Control()
    (line,) = catalog.ledger("orders", 9)
    assert (line.epoch, line.mutations) == (5, "pause, resume")


def test_a_stop_ends_with_the_runner_it_was_for(catalog: Catalog, clock: Clock) -> None:
    """It was taken, or still waited, when the runner died: the next runner runs."""
    with claimed(catalog, clock) as claim:
        claim.store.take((), Control("cli", 5, 9.0, stop=True), JobState.STOPPING, record(700))
        post(catalog, Verb.STOP)
        post(catalog, Verb.THROTTLE, 7.0)
    with claimed(catalog, clock) as claim:
        assert claim.store.load().control == Control("cli", 5, 9.0, stop=False)
        assert [c.verb for c in claim.store.commands()] == [Verb.THROTTLE]


def test_case_45_pause_and_limit_outlive_every_runner_and_phase(catalog: Catalog, clock: Clock) -> None:
    """A limit was lost after a reschedule, a pause missed a phase, 0 never resumed: control is in the catalog."""
    with claimed(catalog, clock) as claim:
        claim.store.become(JobState.RUNNING, "")
        claim.store.take((), Control("cli", 5, 0.0), JobState.PAUSED, record(700))
    with claimed(catalog, clock) as claim:
        assert claim.store.load().control == Control("cli", 5, 0.0)
        claim.store.become(JobState.STARTING, "")
        claim.store.become(JobState.PAUSED, "")
        later = record(800)
        claim.store.take((), claim.store.load().control, JobState.PAUSED, later)
        assert claim.store.load().control == Control("cli", 5, 0.0)
    post(catalog, Verb.RESUME)
    post(catalog, Verb.THROTTLE, 500.0)
    with claimed(catalog, clock) as claim:
        assert claim.store.load().control == Control(rate=500.0)
        assert claim.store.load().committed.phase == Phase.SNAPSHOT


def test_who_asks_how_a_job_is_is_told_of_once(catalog: Catalog, clock: Clock) -> None:
    with claimed(catalog, clock) as claim:
        claim.store.commands()
        claim.store.asked()
        assert (claim.store.commands(), claim.store.asked()) == ((), False)
        catalog.ask()
        assert (claim.store.commands(), claim.store.asked(), claim.store.asked()) == ((), True, False)
        claim.store.commands()
        assert not claim.store.asked()


ACTS = st.lists(st.sampled_from(["post", "post untouched", "look", "take", "beat"]), max_size=12)


@pytest.mark.seconds
@given(acts=ACTS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_command_is_missed_or_taken_twice(catalog: Catalog, clock: Clock, acts: list[str]) -> None:
    posted: list[int] = []
    taken: list[int] = []
    untouched = False
    with claimed(catalog, clock) as claim:
        taken += [c.id for c in claim.store.commands()]  # left by the example before
        posted += taken
        claim.store.take(claim.store.commands(), Control(), JobState.STARTING, record(clock()))
        for act in acts:
            clock.ms += 1
            match act:
                case "post":
                    posted.append(post(catalog))
                    untouched = False
                case "post untouched":
                    with patch.object(inbox, "touch", side_effect=lambda path: None):
                        posted.append(post(catalog))
                    untouched = True
                case "look":
                    seen = [c.id for c in claim.store.commands()]
                    assert untouched or seen == posted[len(taken) :]
                case "take":
                    waiting = claim.store.commands()
                    claim.store.take(waiting, Control(), JobState.STARTING, record(clock()))
                    taken += [c.id for c in waiting]
                    untouched = False
                case "beat":
                    claim.store.heartbeat(clock(), progress())
                    untouched = False
        claim.store.heartbeat(clock(), progress())
        assert taken + [c.id for c in claim.store.commands()] == posted
    clock.ms += 1


def test_what_a_guard_commands_and_who_overrides_it_outlive_every_runner(catalog: Catalog, path: Path) -> None:
    """As after a kill: without a runner each command is applied at once, and another process reads it."""
    by = "guard 'standbys': replication lag 45 s, over 30 s"
    held = catalog.post("orders", Verb.HOLD, None, by, 5, guard="standbys", lifts="lifted at 24 s or less")
    epoch = catalog.taken("orders", held)
    assert epoch is not None
    control = Catalog(path).job("orders").control
    assert control == Control(holds=(Hold("standbys", by, epoch, None, "lifted at 24 s or less"),))
    assert control.paused
    _, _, (taken,) = catalog.news("orders", 0)
    assert (taken.command.by, taken.command.guard) == (by, "standbys")
    post(catalog, Verb.RESUME)
    assert Catalog(path).job("orders").control == Control(overridden=("standbys",))
    catalog.post("orders", Verb.LIFT, None, by, 5, guard="standbys")
    assert Catalog(path).job("orders").control == Control()


def test_a_person_is_told_which_guards_a_command_overrides_and_which_stay(catalog: Catalog) -> None:
    for guard, rate in (("disk", None), ("load", 5.0)):
        catalog.post("orders", Verb.HOLD, rate, f"guard '{guard}': over", 5, guard=guard, lifts="lifted at 1")
    again = "it holds again once it was within its limit"
    throttled = posting.post(catalog, catalog.job("orders"), Verb.THROTTLE, 9.0, None)
    assert str(throttled.note) == (
        f"it overrides guard 'load': over; {again}\nthe job stays paused by guard 'disk': over; lifted at 1"
    )
    resumed = posting.post(catalog, catalog.job("orders"), Verb.RESUME, None, None)
    assert str(resumed.note) == f"it overrides guard 'disk': over; {again}"
    control = catalog.job("orders").control
    assert (control.rate, control.pace, control.holds, control.overridden) == (9.0, 9.0, (), ("load", "disk"))


CHANGE = Change('{"throttle": {"rate": 7.0}}', "/d/job.toml", keys=("throttle.rate",))


def redefine(catalog: Catalog, verb: Verb = Verb.SET, change: Change = CHANGE) -> int:
    return catalog.post("orders", verb, None, "cli", 5, payload=change.stored)


def test_without_a_runner_a_set_is_the_jobs_config_at_once(catalog: Catalog) -> None:
    posted = redefine(catalog)
    assert catalog.taken("orders", posted) is not None
    kept = catalog.definition("orders")
    assert (kept.config, kept.config_file) == (CHANGE.config, "/d/job.toml")
    assert catalog.job("orders").control.rate == 7.0


def test_a_table_joins_or_leaves_only_once_a_runner_takes_it(catalog: Catalog) -> None:
    before = catalog.definition("orders")
    for verb in (Verb.ADD, Verb.REMOVE):
        posted = redefine(catalog, verb, replace(CHANGE, table="refunds"))
        assert catalog.taken("orders", posted) is None
        assert catalog.definition("orders") == before
        with pytest.raises(Held, match=f"'orders': {verb} refunds waits, requested by cli") as held:
            redefine(catalog)
        with typed(held.value) as hint:
            assert hint.commands() == [["resume", "orders", "--detach"]]
            with catalog.claim("orders", "test", 5) as claim:
                (command,) = claim.store.commands()
                claim.store.refused(command, record(700 + posted, verb), Limit("it cannot be"))
        assert catalog.refusal("orders", posted) == Limit("it cannot be")
        assert catalog.definition("orders") == before


def test_beside_a_runner_the_first_of_two_redefinitions_is_waited_for(catalog: Catalog, claim: Claim) -> None:
    """A resume would end somebody's pause."""
    redefine(catalog, Verb.ADD, replace(CHANGE, table="refunds"))
    with pytest.raises(Held) as held:
        redefine(catalog)
    with typed(held.value) as hint:
        assert hint.commands() == [["status", "orders"]]
        (command,) = claim.store.commands()
        claim.store.refused(command, record(700, Verb.ADD), Limit("it cannot be"))
    redefine(catalog)


def test_a_later_set_takes_the_place_of_one_that_waits(catalog: Catalog, claim: Claim) -> None:
    first = redefine(catalog)
    second = redefine(catalog, change=replace(CHANGE, config="{}", keys=()))
    assert [one.id for one in claim.store.commands()] == [second]
    assert catalog.refusal("orders", first) == Limit("a later set took its place")


def test_a_redefinition_is_taken_and_the_definition_new_in_one_transaction(
    catalog: Catalog, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim.store.become(JobState.RUNNING, "")
    redefine(catalog)
    (command,) = claim.store.commands()
    before = catalog.definition("orders")
    after = replace(before, config=CHANGE.config, fingerprint='{"new": 1}', pin=replace(before.pin, shown="x"))

    def taken() -> None:
        claim.store.redefined(command, record(700, "set"), before, after, Control(rate=7.0))

    with monkeypatch.context() as patched:
        patched.setattr("backfill_cli.catalog.ledger.record", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            taken()
    assert (catalog.definition("orders"), claim.store.commands()) == (before, (command,))
    taken()
    assert catalog.definition("orders") == after
    assert (claim.store.commands(), catalog.job("orders").control.rate) == ((), 7.0)
    assert catalog.ledger("orders", 1) == (record(700, "set"),)
