"""Commands in the barrier loop: they act between the reads, and are reached once the epoch in flight is there."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_world import World

from backfill_cli.contracts import StagedEpoch
from backfill_cli.engine.loop.orchestrator import Tick
from backfill_cli.errors import Transient
from backfill_cli.model.job import Control, JobState, Verb
from backfill_cli.model.plan import EpochPlan
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import UpstreamView


def test_a_command_acts_before_the_next_read_and_a_pause_is_reached_once_the_epoch_in_flight_is_there() -> None:
    world = World(rows=100)
    world.step()
    world.seen()
    world.post(Verb.PAUSE)
    world.step()
    assert world.seen() == ["take pause", "observe"]
    assert world.store.control == Control("ann", world.loop._last_epoch)
    assert world.store.state == JobState.PAUSING
    world.finish()
    world.step()
    assert "stage" not in world.seen()
    assert world.store.state == JobState.PAUSED


def test_a_command_does_not_wait_for_a_long_commit_with_the_next_epoch_already_staged() -> None:
    world = World(rows=1_000)
    world.step()
    world.step(200)  # one epoch is being committed, the next one is staged
    world.seen()
    world.post(Verb.PAUSE)
    assert world.step(100) == Tick.WAITING
    assert world.seen() == ["discard a2", "take pause"]
    assert world.store.state == JobState.PAUSING
    world.finish()
    world.step()
    assert world.store.state == JobState.PAUSED
    assert len(world.sink.rows) == 10


def test_what_is_staged_stays_if_the_commit_before_it_has_ended_meanwhile() -> None:
    world = World(rows=1_000)
    world.step()
    loop, stage = world.loop, world.stager.stage

    def ends_meanwhile(plan: EpochPlan, epoch: int, schemas: Mapping[str, str], _: object) -> StagedEpoch:
        world.finish()
        world.post(Verb.THROTTLE, rate=1_000.0)
        return stage(plan, epoch, schemas)

    world.stager.stage = ends_meanwhile  # type: ignore[method-assign]
    assert loop.step() == Tick.WAITING
    world.stager.stage = stage  # type: ignore[method-assign]
    world.seen()
    world.step()
    assert [one for one in world.seen() if one.startswith(("prepare", "discard a2"))] == [
        f"prepare a2 marks {world.store.committed.epoch}"
    ]


def test_what_was_thrown_away_for_a_command_is_read_again_under_it() -> None:
    world = World(rows=1_000)
    world.step()
    world.step(200)
    world.post(Verb.THROTTLE, rate=50.0)
    world.step(100)
    world.post(Verb.THROTTLE, rate=None)
    world.steps(12, 1_000)
    assert world.sink.rows == dict(world.upstream.splits[0])


def test_a_signal_does_not_commit_what_was_staged_behind_a_commit_in_progress() -> None:
    world = World(rows=1_000)
    world.step()
    world.step(200)
    world.loop.ask_stop()
    assert world.step(100) == Tick.WAITING
    world.finish()
    assert world.step(100) == Tick.STOPPED
    assert len(world.sink.rows) == 10


def test_a_resume_overtakes_a_stop_that_waits_for_the_epoch_in_flight() -> None:
    world = World(rows=100)
    world.step()
    world.post(Verb.STOP)
    world.step()
    world.post(Verb.RESUME)
    world.step()
    assert world.store.state == JobState.RUNNING
    world.finish()
    assert world.steps(3)[-1] != Tick.STOPPED


def test_a_stop_ends_the_run_once_the_epoch_in_flight_is_marked() -> None:
    world = World(rows=100)
    world.step()
    world.post(Verb.STOP)
    assert world.step() == Tick.WAITING
    assert world.store.state == JobState.STOPPING
    world.finish()
    world.seen()
    assert world.step() == Tick.STOPPED
    assert f"mark {world.store.committed.epoch}" in world.seen()


def test_a_command_never_lands_between_the_reads_of_one_epoch() -> None:
    world = World(rows=100)
    world.step()
    world.step()  # read ahead under the previous control
    world.post(Verb.PAUSE)
    world.finish()
    world.steps(4)
    taken = world.trace.index("take pause")
    assert "stage" not in world.trace[taken:]
    assert world.sink.rows == dict(world.upstream.splits[0][: len(world.sink.rows)])


def test_the_catalog_has_the_control_before_it_acts() -> None:
    world = World(rows=100)
    world.post(Verb.PAUSE)
    world.store.failures = [Transient("the catalog is locked")]
    assert world.step() == Tick.WAITING
    assert not world.loop.state.control.paused
    assert world.trace == ["take pause"]
    world.step(200)
    assert world.loop.state.control.paused


def test_case_45_a_paused_job_has_barriers_that_read_nothing_until_it_is_resumed() -> None:
    world = World(rows=100, log=5)
    world.post(Verb.PAUSE)
    world.steps(20, 1_000)
    assert world.trace.count("stage") == 0
    assert world.trace.count("observe") == 20
    world.post(Verb.RESUME)
    world.steps(2, 1_000)
    assert world.store.states == [JobState.PAUSED, JobState.RUNNING]
    assert "stage" in world.trace


def test_case_45_a_takeover_stays_paused_and_a_throttle_does_not_unpause() -> None:
    world = World(rows=100)
    world.post(Verb.PAUSE)
    world.steps(2, 1_000)
    world.open()
    world.post(Verb.THROTTLE, rate=7.0)
    world.steps(3, 1_000)
    assert world.trace.count("stage") == 0
    assert world.store.control.paused
    assert world.store.control.rate == 7.0
    assert world.store.states == [JobState.PAUSED, JobState.PAUSED]


def test_commands_of_one_look_are_one_barrier_in_their_order() -> None:
    world = World(rows=100)
    for verb in (Verb.PAUSE, Verb.THROTTLE, Verb.RESUME):
        world.post(verb, rate=3.0)
    world.steps(1)
    assert world.trace[0] == "take pause, throttle, resume"
    assert world.store.control == Control(rate=3.0)


def test_a_stop_ends_the_loop_at_its_barrier_with_everything_marked() -> None:
    world = World(rows=100)
    world.steps(3)
    world.post(Verb.STOP)
    assert world.until(Tick.STOPPED)
    assert world.store.state == JobState.STOPPING
    assert world.store.prepared is None
    assert world.store.committed.epoch == world.sink.marker.epoch


def test_a_signal_commits_what_was_staged_and_reads_no_more() -> None:
    world = World(rows=100)
    world.step()
    world.step()
    world.loop.ask_stop()
    world.seen()
    world.finish()
    ticks = world.steps(3)
    assert ticks[-1] == Tick.STOPPED
    assert [e for e in world.seen() if e.startswith(("commit", "stage", "observe"))] == ["commit a1", "commit a2"]
    assert world.store.committed.attempt == "a2"


def test_a_stop_that_a_resume_took_back_does_not_stop() -> None:
    world = World(rows=100)
    world.post(Verb.STOP)
    world.post(Verb.RESUME)
    assert Tick.STOPPED not in world.steps(3)
    assert world.store.states == [JobState.RUNNING]


def test_what_the_sink_commits_is_pending_until_it_is_there_and_so_is_what_a_live_job_leaves_unread() -> None:
    world = World(rows=0, log=3, per_epoch=10)
    world.until(Tick.IDLE)
    world.change(2)
    world.step(1000)
    assert world.loop.progress().pending_epochs == 2
    world.change(7)
    for _ in range(2):
        assert world.step(1000) == Tick.WAITING
    assert world.loop.progress().pending_epochs == 2 + 7
    world.until(Tick.IDLE)
    assert world.loop.progress().pending_epochs == 0


@given(st.lists(st.sampled_from(["step", "finish", "change", "pause", "resume"]), max_size=40))
def test_what_is_pending_is_what_the_sink_lacked_at_the_last_observation(acts: list[str]) -> None:
    """The sink's own rows tell what it lacks: one epoch is one change."""
    world = World(rows=0, log=3, per_epoch=2)
    observed, observe = 0, world.upstream.observe

    def counted(position: Position, snapshot_open: bool) -> UpstreamView:
        nonlocal observed
        observed = len(world.upstream.log)
        return observe(position, snapshot_open)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.upstream, "observe", counted)
        for act in acts:
            match act:
                case "step":
                    world.step(1000)
                case "change":
                    world.change()
                case "finish" if world.commits and not world.commits[-1].done():
                    world.finish()
                case "pause" | "resume":
                    world.post(Verb(act))
            applied = dict(world.loop._committed_state.position).get("log", 0)
            assert world.loop.progress().pending_epochs == max(0, observed - int(applied))


def test_what_is_thrown_away_is_pending_again() -> None:
    world = World(rows=0, log=40, per_epoch=2)
    while world.loop._ahead is None:
        world.step(200)
    flying = world.loop._flight.epoch
    assert flying is not None
    assert world.loop.progress().pending_epochs == 40
    world.loop.ask_stop()
    world.step(100)
    assert world.loop.progress().pending_epochs == 40
    world.finish()
    world.step(100)
    assert world.loop.progress().pending_epochs == 40 - flying.record.upstream_epochs


def test_what_was_read_and_is_not_committed_is_in_hand_and_no_row_is_told_twice() -> None:
    world = World(rows=40, per_epoch=5)
    told = []
    for step in range(60):
        world.step(200)
        if step % 3 == 2 and world.commits and not world.commits[-1].done():
            world.finish()
        now = world.loop.progress()
        told.append((now.rows_read, now.rows_in_hand))
    assert (0, 5) in told, "nothing is committed"
    read = [rows + in_hand for rows, in_hand in told]
    assert read == sorted(read)
    assert told[-1] == (40, 0)


def test_a_command_that_redefines_the_job_waits_for_the_commit_in_flight_and_stays_in_the_inbox() -> None:
    world = World(rows=1_000)
    world.step()
    world.step(200)  # one epoch is being committed, the next one is staged
    world.seen()
    world.post(Verb.THROTTLE, rate=10.0)
    world.post(Verb.SET)
    world.post(Verb.PAUSE)
    assert world.step(100) == Tick.WAITING
    assert world.seen() == ["discard a2", "take throttle"], "what came before it acts at once"
    assert world.step(1_000) == Tick.WAITING
    world.finish()
    assert world.step(1_000) == Tick.REDEFINED
    assert f"mark {world.store.committed.epoch}" in world.seen()
    assert [one.verb for one in world.store.inbox] == [Verb.SET, Verb.PAUSE], "what came after it waits for it"
    assert world.step(1_000) == Tick.REDEFINED


def test_a_job_is_redefined_while_a_failure_waits_for_its_next_try() -> None:
    world = World(rows=20)
    world.upstream.failures = [Transient("the upstream is away")]
    assert world.step() == Tick.WAITING
    world.post(Verb.SET)
    assert world.step(1) == Tick.REDEFINED


def test_a_job_is_redefined_while_the_sink_refuses_what_is_promised_for_now() -> None:
    """Recovery keeps the promise, with the sink of the new definition."""
    world = World(rows=20)
    world.sink.failures = [Transient("the sink's password has changed")]
    world.step()
    world.post(Verb.SET)
    assert world.step(10) == Tick.WAITING, "its commit still runs"
    world.finish()
    assert world.step(10) == Tick.WAITING
    assert world.step(10) == Tick.REDEFINED
    assert world.store.prepared is not None
    world.open()
    assert len(world.sink.rows) == 10


def test_a_stop_overtakes_no_redefinition_that_was_asked_for_first_and_a_signal_does() -> None:
    world = World(rows=0)
    world.post(Verb.SET)
    world.post(Verb.STOP)
    assert world.step(1_000) == Tick.REDEFINED
    world.loop.ask_stop()
    assert world.step(1_000) == Tick.STOPPED
    assert [one.verb for one in world.store.inbox] == [Verb.SET, Verb.STOP]
