"""When the barrier loop has a barrier, and what it says if it had none for long."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pytest
from loop_world import SETTINGS, TABLE, Sink, World

from backfill_cli.contracts import EpochCommit, StagedEpoch
from backfill_cli.engine.loop.orchestrator import Tick
from backfill_cli.errors import Transient
from backfill_cli.model.checkpoint import Progress
from backfill_cli.model.committing import Committing
from backfill_cli.model.job import Control, Verb, of_table
from backfill_cli.model.pace import Sizer
from backfill_cli.model.plan import EpochPlan

# -- when --------------------------------------------------------------------------------------------------------


def test_behind_a_barrier_follows_as_soon_as_its_epoch_is_staged() -> None:
    world = World(rows=1_000)
    world.steps(6)
    assert [e for e in world.trace if e == "stage"] == ["stage"] * 4  # 10 rows, then four times as many each
    assert len(world.sink.rows) == 1_000


def test_with_a_rate_barriers_keep_the_interval() -> None:
    world = World(rows=100)
    world.post(Verb.THROTTLE, rate=10.0)
    world.steps(1)
    world.seen()
    world.steps(9, 100)
    assert world.trace.count("observe") == 0
    world.steps(2, 100)
    assert world.trace.count("observe") == 1
    assert world.loop.wait_ms() <= 1_000


def test_live_an_idle_barrier_comes_at_the_interval_and_only_looks_at_the_upstream() -> None:
    world = World(rows=10)
    world.until(Tick.IDLE)
    world.steps(1, 1_000)
    world.seen()
    ticks = world.steps(1_000, 100)
    assert set(ticks) == {Tick.IDLE}
    assert world.trace == ["observe"] * 100


def test_live_a_change_is_committed_at_the_next_barrier() -> None:
    world = World(rows=10)
    world.until(Tick.IDLE)
    world.change(5)
    world.seen()
    world.steps(2, 1_000)
    assert world.seen()[:3] == ["observe", "stage", "prepare a2"]
    assert world.sink.rows == world.upstream.at(world.upstream.observe_all())


def test_live_nothing_is_read_while_the_sink_commits_and_then_all_that_came_meanwhile() -> None:
    world = World(rows=10)
    world.until(Tick.IDLE)
    world.change(5)
    world.seen()
    world.step(1_000)
    assert world.seen() == ["observe", "stage", "prepare a2"]
    world.change(3)
    assert [world.step(100) for _ in range(95)] == [Tick.WAITING] * 95
    assert world.seen() == ["observe"] * 9, "what is pending, and what the upstream keeps, is looked at"
    world.change(4)
    world.finish()
    world.step()
    assert [one for one in world.seen() if one in ("observe", "stage")] == ["observe", "stage"]
    world.finish()
    world.step()
    assert world.sink.rows == world.upstream.at(world.upstream.observe_all())


def test_live_a_command_acts_while_the_sink_commits() -> None:
    world = World(rows=10)
    world.until(Tick.IDLE)
    world.change(5)
    world.step(1_000)
    world.post(Verb.PAUSE)
    world.step(1_000)
    assert world.loop.state.control.paused


def test_an_idle_barrier_marks_what_was_committed_before_it() -> None:
    world = World(rows=10)
    world.until(Tick.IDLE)
    assert world.store.prepared is None
    assert world.store.committed.epoch == world.sink.marker.epoch


def test_a_throttled_epoch_says_nothing_about_the_size() -> None:
    world = World(rows=1_000)
    world.post(Verb.THROTTLE, rate=50.0)
    world.steps(6, 1_000)
    assert world.loop._sizes.snapshot == Sizer(10)


def test_where_only_throttled_tables_are_left_barriers_wait_for_the_interval_and_their_rate_is_the_limit() -> None:
    world = World(rows=1_000)
    world.post(Verb.THROTTLE, 50.0, of_table(TABLE))
    world.steps(6, 1_000)
    assert world.loop._sizes.snapshot == Sizer(10)
    assert not world.loop._rhythm.behind
    told = world.loop.progress()
    lift = f"to change: backfill throttle j --table {TABLE} --rate none"
    assert str(told.limited_by) == f"rate 50 rows/s of table {TABLE}; {lift}"
    assert told.eta_s is not None
    left_s = (1_000 - len(world.sink.rows)) / 50
    assert told.eta_s[0] >= left_s
    world.open()
    world.post(Verb.THROTTLE, 0.0, of_table(TABLE))
    world.steps(3, 1_000)
    told = world.loop.progress()
    assert told.limited_by.text == f"rate 0 of table {TABLE}: no row of it is read"
    assert told.eta_s is None
    read = len(world.sink.rows)
    world.steps(20, 1_000)
    assert len(world.sink.rows) == read < 1_000
    world.post(Verb.THROTTLE, None, of_table(TABLE))
    world.until(Tick.IDLE)
    assert len(world.sink.rows) == 1_000


def test_a_rate_of_a_table_that_has_left_meanwhile_is_not_kept() -> None:
    world = World(rows=1_000)
    world.post(Verb.THROTTLE, 50.0, of_table("gone"))
    world.steps(2, 1_000)
    assert world.store.control == Control()


def test_what_a_commit_of_changes_takes_is_learnt_once_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backfill_cli.engine.loop.pace.LEAST_CHANGES", 1)
    world = World(rows=10, log=8)
    world.until(Tick.IDLE)
    (rows, took_ms), changes = world.loop._sizes.commits.last or (0, 0), 8
    assert 0 < rows <= changes
    assert took_ms == 1


# -- self-pause --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("interval_ms", "target_ms"), [(1_000, 5_000), (9_000, 5_000)])
@pytest.mark.parametrize("more_to_read", [True, False])
def test_without_a_barrier_for_six_times_the_longer_of_interval_and_target_it_says_what_it_waits_for(
    interval_ms: int, target_ms: int, more_to_read: bool
) -> None:
    settings = replace(SETTINGS, interval_ms=interval_ms, target_ms=target_ms)
    world = World(rows=100 if more_to_read else 10, settings=settings)
    world.step()
    last_ms = world.now_ms
    world.step()
    patience_ms = 6 * max(interval_ms, target_ms)
    while world.now_ms < last_ms + patience_ms:
        world.step(500)
    assert world.loop.progress().waiting_for is None
    world.step(500)
    epoch = world.store.prepared.epoch  # type: ignore[union-attr]
    said = f"no commit for {patience_ms / 1000:.0f} s: the sink is still writing commit {epoch}"
    assert str(world.loop.progress().waiting_for) == said
    assert str(world.loop.progress().limited_by) == f"waiting: {said}"
    world.loop._committing(Committing(epoch, ("a",), ("b",)))
    told = world.loop.progress()
    assert (told.waiting_for, told.doing) == (None, "writing 10 rows to the sink: 1 of 2 tables have it, now b")
    world.steps(2, 1_000)
    world.steps(1, interval_ms)
    assert (world.loop.progress().waiting_for, world.loop.progress().committing) == (None, None)


def test_a_runner_that_stages_for_long_says_that_and_not_that_it_waits_for_the_sink() -> None:
    world, told = World(rows=100), []
    world.step()
    stage = world.stager.stage

    def slow(plan: EpochPlan, epoch: int, schemas: Mapping[str, str], _: object) -> StagedEpoch:
        world.now_ms += 60_000
        told.append(world.loop.progress())
        return stage(plan, epoch, schemas)

    world.stager.stage = slow  # type: ignore[method-assign]
    world.step(200)  # reads ahead while the sink commits
    (meanwhile,) = told
    assert (meanwhile.doing, meanwhile.waiting_for) == ("reading 1 part of the snapshot", None)
    assert str(meanwhile.limited_by) == "upstream reads"
    assert str(world.loop.progress().waiting_for).startswith("no commit for 1 m: the sink is still writing")
    world.finish()  # which may be long ago: the loop knows it at its next step
    assert world.loop.progress().waiting_for is None


def test_a_commit_that_begins_after_a_long_staging_is_not_a_long_commit() -> None:
    world = World(rows=10)
    stage = world.stager.stage

    def slow(plan: EpochPlan, epoch: int, schemas: Mapping[str, str], _: object) -> StagedEpoch:
        world.now_ms += 60_000
        return stage(plan, epoch, schemas)

    world.stager.stage = slow  # type: ignore[method-assign]
    world.step()
    assert world.loop._flight.epoch is not None
    assert world.loop.waiting_for() is None


def test_a_commanded_pause_outranks_a_self_pause() -> None:
    world = World(rows=100)
    world.step()
    world.step()
    world.sink.failures = [Transient("held")] * 50
    world.finish()
    world.step()
    world.post(Verb.PAUSE)
    world.step()
    world.now_ms += 40_000
    assert str(world.loop.progress().limited_by) == "paused by ann; to continue: backfill resume j"


def test_staging_beside_a_first_commit_that_has_not_ended_may_take_as_long() -> None:
    world = World(rows=0, log=100, per_epoch=2)
    while world.loop._flight.epoch is None:
        world.step(1000)
    world.now_ms += 9_000
    assert world.loop._flight.commit_ms == 0
    assert world.loop._flight.takes_ms >= 9_000


def test_a_commit_of_several_tables_says_how_far_it_is_until_it_ends() -> None:
    told: list[Progress] = []
    world, commit = World(rows=10), Sink.commit
    at = Committing(7, ("a",), ("b",))

    def table_by_table(sink: Sink, one: EpochCommit) -> None:
        one.tell(at)
        told.append(world.loop.progress())
        commit(sink, one)

    world.sink.commit = partial(table_by_table, world.sink)  # type: ignore[method-assign]
    world.steps(2)
    assert [one.committing for one in told] == [at]
    assert world.loop.progress().committing is None
