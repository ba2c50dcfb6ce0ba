"""The order of steps in the barrier loop: what comes first, what waits for what, and what never happens."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_world import SETTINGS, World

from backfill_cli.contracts import SinkTable
from backfill_cli.engine.loop.orchestrator import Tick
from backfill_cli.engine.loop.ports import StagedEpoch
from backfill_cli.errors import BadData, Transient
from backfill_cli.model.job import Control, JobState, Phase, Verb
from backfill_cli.model.pace import Sizer
from backfill_cli.model.plan import EpochPlan, StagedTable
from backfill_cli.model.position import Position
from backfill_cli.strategies.snapshot import SnapshotState, SnapshotStrategy

DAY_MS = 86_400_000
CAUGHT_UP = replace(SETTINGS, until="caught-up")


# -- the order of one epoch, and pipelining ----------------------------------------------------------------------


def test_an_epoch_is_observed_staged_prepared_committed_and_only_then_acknowledged() -> None:
    world = World()
    world.step()
    assert world.seen() == ["observe", "stage", "prepare a1"]
    world.finish()
    assert world.seen() == ["commit a1"]
    world.step()
    assert world.seen()[:2] == ["acknowledge 0", "discard a1"]


def test_what_is_acknowledged_is_what_the_strategy_says_is_durable() -> None:
    """A log that is taken into a spool is acknowledged long before the sink has applied it."""

    class Spooling(SnapshotStrategy):
        def durable(self, state: SnapshotState) -> Position:
            return Position.of({"log": 7})

    world = World()
    world.strategy = Spooling(world.strategy.splits)
    world.open()
    world.step()
    world.finish()
    world.step()
    assert "acknowledge 7" in world.seen()


def test_while_an_epoch_commits_the_next_is_staged_and_none_further() -> None:
    world = World(rows=100)
    world.step()
    ticks = [world.step(1_000) for _ in range(10)]
    assert world.seen() == ["observe", "stage", "prepare a1", "observe", "stage"]
    assert set(ticks) == {Tick.WAITING}


def test_the_next_epoch_is_prepared_once_the_one_before_is_known_committed_and_marks_it_then() -> None:
    world = World(rows=100)
    world.step()
    world.step()
    first = world.store.prepared
    assert first is not None
    world.finish()
    world.seen()
    world.step()
    assert world.seen() == ["acknowledge 0", "discard a1", f"prepare a2 marks {first.epoch}"]


def test_an_epoch_is_known_committed_by_its_result_and_not_by_time() -> None:
    world = World(rows=10)
    world.step()
    for _ in range(5):
        world.step(60_000)
    assert world.store.committed.epoch == 0
    assert "acknowledge 0" not in world.trace


def test_case_38_a_commit_that_fails_for_good_ends_the_run_and_what_was_read_ahead_is_never_promised() -> None:
    world = World(rows=100)
    world.step()
    world.step()
    world.sink.failures = [BadData("key 7 twice")]
    world.finish()
    with pytest.raises(BadData):
        world.step()
    assert [e for e in world.trace if e.startswith(("prepare", "acknowledge", "mark"))] == ["prepare a1"]
    assert world.store.committed.epoch == 0
    world.open()
    world.steps(1)
    assert world.seen()[:3] == ["observe", "stage", "prepare a3"]


def test_case_37_a_commit_that_fails_in_passing_is_tried_again_as_the_same_attempt() -> None:
    world = World(rows=100)
    world.step()
    world.step()
    world.sink.failures = [Transient("the file is held by pid 7")]
    world.finish()
    assert world.step() == Tick.WAITING
    world.seen()
    assert world.loop.progress().limited_by == "waiting: the file is held by pid 7"
    assert world.step(199) == Tick.WAITING
    world.step(1)
    world.finish()
    world.step()
    assert [e for e in world.seen() if not e.startswith("discard")] == [
        "commit a1",
        "acknowledge 0",
        f"prepare a2 marks {world.store.committed.epoch}",
    ]


def test_new_columns_reach_the_sink_before_the_epoch_that_has_them_and_only_then() -> None:
    world = World(rows=100)
    world.steps(1)
    world.stager.sink_schemas = {"t": '{"new": 1}'}
    world.steps(4)
    columns_then_commits = [e for e in world.trace if e.startswith(("columns", "commit"))]
    assert columns_then_commits == ["commit a1", 'columns {"new": 1}', "commit a2", "commit a3"]


def test_the_ledger_has_a_line_an_epoch_with_what_it_read_and_how_long_it_took() -> None:
    world = World(rows=25, log=3)
    world.step()
    world.now_ms += 700
    world.finish()
    world.until(Tick.IDLE)
    lines = world.store.ledger
    assert [line.snapshot_rows for line in lines] == [10, 15, 0]
    assert [line.upstream_epochs for line in lines] == [0, 0, 3]
    assert [line.phase for line in lines] == [Phase.SNAPSHOT, Phase.SNAPSHOT, Phase.LOG_STORE]
    assert lines[2].changes_read == 3
    assert all(before.epoch == after.prev_ms for before, after in pairwise(lines))


@given(st.lists(st.sampled_from((-DAY_MS, -1, 0, 1, DAY_MS)), min_size=1, max_size=30), st.integers(0, 3))
def test_epochs_strictly_increase_whatever_the_clock_does_and_whoever_runs(steps: list[int], resumes: int) -> None:
    world = World(rows=300)
    seen: list[int] = []
    for i, step_ms in enumerate(steps):
        world.stepped_ms += step_ms
        if i % 10 == 9 and resumes:
            world.open()
        if i % 4 == 0:
            world.post(Verb.THROTTLE, rate=float(i))
        world.steps(1, i % 3)
        if world.store.last_epoch not in seen:
            seen.append(world.store.last_epoch)
    assert seen == sorted(seen)
    assert all(line.prev_ms < line.epoch for line in world.store.ledger)


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


# -- control -----------------------------------------------------------------------------------------------------


def test_a_command_acts_before_the_next_read_and_a_pause_is_reached_once_the_epoch_in_flight_is_there() -> None:
    world = World(rows=100)
    world.step()
    world.seen()
    world.post(Verb.PAUSE)
    world.step()
    assert world.seen() == ["take pause", "observe"]
    assert world.store.control == Control("ann", world.now_ms)
    assert world.store.state == JobState.PAUSING
    world.finish()
    world.step()
    assert "stage" not in world.seen()
    assert world.store.state == JobState.PAUSED


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


# -- failures that may pass --------------------------------------------------------------------------------------


def test_while_a_failure_waits_for_its_next_try_a_command_acts_and_nothing_is_read() -> None:
    world = World(rows=100)
    world.upstream.failures = [Transient("no answer")] * 20
    for _ in range(6):
        world.step(world.loop.wait_ms())
    world.seen()
    world.post(Verb.PAUSE)
    assert world.step() == Tick.WAITING
    assert world.seen() == ["take pause"]
    assert world.loop.state.control.paused
    world.post(Verb.STOP)
    assert world.step() == Tick.STOPPED


def test_a_command_during_a_failing_commit_throws_away_what_was_read_ahead() -> None:
    world = World(rows=100)
    world.step()
    world.step()
    world.sink.failures = [Transient("held")]
    world.finish()
    world.step()
    world.post(Verb.THROTTLE, rate=3.0)
    world.seen()
    world.step()
    assert world.seen() == ["discard a2", "take throttle"]
    world.steps(3, 1_000)
    assert [e for e in world.seen() if e.startswith("commit")] == ["commit a1", "commit a3", "commit a4"]
    assert [line.snapshot_rows for line in world.store.ledger] == [10, 3]


def test_rows_kept_aside_count_once_committed_and_not_where_what_was_read_ahead_is_thrown_away() -> None:
    world = World(rows=100)
    side = SinkTable("aside", "_backfill_quarantine_t", ("k",), "{}", side=True)
    world.job = replace(world.job, tables=(*world.job.tables, side))
    staged = world.stager.stage

    def stage(plan: EpochPlan, epoch: int, schemas: Mapping[str, str]) -> StagedEpoch:
        done = staged(plan, epoch, schemas)
        tables = {**done.staged.tables, "aside": StagedTable(rows=3)}
        return replace(done, staged=replace(done.staged, tables=tables))

    world.stager.stage = stage  # type: ignore[method-assign]
    world.loop = world.loop_from(world.store.load())
    world.step()
    world.step()
    assert world.loop.progress().quarantined == {}  # one is committing, one is read ahead
    world.sink.failures = [Transient("held")]
    world.finish()
    world.step()
    world.post(Verb.THROTTLE, rate=3.0)
    world.step()
    assert "discard a2" in world.seen()
    world.steps(6, 1_000)
    held = world.store.load()
    committed = [line for line in world.store.ledger if line.snapshot_rows]
    assert held.committed.quarantined == {"_backfill_quarantine_t": 3 * len(committed)}
    assert world.loop_from(held).progress().quarantined == held.committed.quarantined


def test_while_a_failure_waits_the_loop_is_looked_at_at_least_each_interval() -> None:
    world = World()
    world.upstream.failures = [Transient("no answer")] * 20
    for _ in range(9):
        world.step(world.loop._backoff.until_ms - world.now_ms if world.loop._backoff.tries else 0)
        assert 0 < world.loop.wait_ms() <= SETTINGS.interval_ms


def test_retries_end_at_the_limit_with_the_failure_itself() -> None:
    world = World()
    world.upstream.failures = [Transient("no answer")] * 99
    began_ms = world.now_ms
    with pytest.raises(Transient, match="no answer"):
        world.steps(1_000, 100)
    assert 60_000 <= world.now_ms - began_ms < 76_000


@pytest.mark.parametrize("where", ["upstream", "stager"])
def test_a_success_begins_the_count_of_failures_anew(where: str) -> None:
    world = World(rows=10_000)
    began_ms = world.now_ms
    for _ in range(5):
        getattr(world, where).failures = [Transient("no answer")] * 5
        world.steps(200, 100)
        assert world.loop._backoff.tries == 0
    assert world.now_ms - began_ms > SETTINGS.retry_limit_ms


def test_a_read_that_succeeds_ends_the_failures_of_reading() -> None:
    world = World(rows=100)
    world.upstream.failures = [Transient("no answer")] * 9
    while world.upstream.failures:
        world.step(100)
    world.steps(1, world.loop.wait_ms() + 1)
    while not world.store.prepared:
        world.step(1_000)
    world.now_ms += SETTINGS.retry_limit_ms
    world.sink.failures = [Transient("held")]
    world.finish()
    assert world.step() == Tick.WAITING


def test_reading_ahead_does_not_forget_that_the_commit_fails() -> None:
    world = World(rows=100)
    world.step()
    world.sink.failures = [Transient("held")] * 99
    world.finish()
    world.step()
    world.step(200)  # reads ahead while the commit is retried
    assert world.trace.count("stage") == 2
    world.finish()
    world.step()
    assert world.loop._backoff.tries == 2
    with pytest.raises(Transient, match="held"):
        world.steps(1_000, 100)


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
    said = f"no barrier for {patience_ms / 1000:.0f} s: the sink is still committing epoch {epoch}"
    assert world.loop.progress().waiting_for == said
    assert world.loop.progress().limited_by == f"waiting: {said}"
    world.steps(2, 1_000)
    world.steps(1, interval_ms)
    assert world.loop.progress().waiting_for is None


def test_a_runner_that_stages_for_long_says_that_and_not_that_it_waits_for_the_sink() -> None:
    world, told = World(rows=100), []
    world.step()
    stage = world.stager.stage

    def slow(plan: EpochPlan, epoch: int, schemas: Mapping[str, str]) -> StagedEpoch:
        world.now_ms += 60_000
        told.append(world.loop.progress())
        return stage(plan, epoch, schemas)

    world.stager.stage = slow  # type: ignore[method-assign]
    world.step(200)  # reads ahead while the sink commits
    (meanwhile,) = told
    assert (meanwhile.doing, meanwhile.waiting_for) == ("reading 1 split of the snapshot", None)
    assert meanwhile.limited_by == "upstream reads"
    assert str(world.loop.progress().waiting_for).startswith("no barrier for 60 s: the sink is still committing")


def test_a_commit_that_begins_after_a_long_staging_is_not_a_long_commit() -> None:
    world = World(rows=10)
    stage = world.stager.stage

    def slow(plan: EpochPlan, epoch: int, schemas: Mapping[str, str]) -> StagedEpoch:
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
    assert world.loop.progress().limited_by == "paused by ann; to continue: backfill resume j"


# -- caught up and done ------------------------------------------------------------------------------------------


def test_until_caught_up_it_is_done_with_the_last_epoch_marked() -> None:
    world = World(rows=30, log=4, settings=CAUGHT_UP)
    world.until(Tick.DONE)
    assert world.sink.rows == world.upstream.at(world.upstream.observe_all())
    assert world.store.prepared is None
    assert world.store.committed.epoch == world.sink.marker.epoch
    assert world.loop.progress().caught_up_ms is not None


def test_until_caught_up_it_ends_though_more_comes_while_each_epoch_commits() -> None:
    world = World(rows=5, settings=CAUGHT_UP)
    for _ in range(60):
        world.change()
        tick = world.step(world.settings.interval_ms)
        if tick == Tick.DONE:
            return
        if tick == Tick.WAITING:  # the next epoch may have been read ahead by now
            world.finish()
    raise AssertionError("a busy upstream kept it")


def test_forever_it_is_never_done_and_says_since_when_it_is_caught_up() -> None:
    world = World(rows=30, log=4)
    said = set()
    for _ in range(50):
        assert world.steps(1, 1_000) != [Tick.DONE]
        said.add(world.loop.progress().caught_up_ms)
    assert len(said - {None}) == 1


def test_what_changed_by_the_last_observation_is_in_the_sink_before_it_is_done() -> None:
    world = World(rows=10, log=1, settings=CAUGHT_UP)
    for _ in range(6):
        world.change()
        if Tick.DONE in world.steps(1):
            break
    world.until(Tick.DONE)
    done = world.loop.progress()
    assert done.pending_epochs == 0


def test_a_paused_job_is_not_done() -> None:
    world = World(rows=10, settings=CAUGHT_UP)
    world.post(Verb.PAUSE)
    assert Tick.DONE not in world.steps(20, 1_000)
    assert world.loop.progress().caught_up_ms is None


def test_a_pause_that_came_with_the_last_commit_is_obeyed_before_the_job_is_done() -> None:
    world = World(rows=10, settings=CAUGHT_UP)
    world.step()
    world.post(Verb.PAUSE)
    world.finish()
    assert Tick.DONE not in world.steps(5, 1_000)
    assert world.store.state == JobState.PAUSED
    world.post(Verb.RESUME)
    assert world.until(Tick.DONE)


def test_a_fuzzy_load_is_caught_up_once_its_end_is_passed_and_nothing_is_left() -> None:
    world = World(rows=5, per_epoch=1, fuzzy=3, settings=CAUGHT_UP)
    world.steps(20, 1_000)
    assert world.loop.progress().converging
    assert world.loop.progress().caught_up_ms is None
    world.change(25)
    pending = []
    while world.loop.progress().caught_up_ms is None:
        world.steps(1, 1_000)
        pending.append(world.loop.progress().pending_epochs)
    assert max(pending) > 0
    assert pending[-1] == 0
    assert world.sink.rows == world.upstream.at(world.upstream.observe_all())
