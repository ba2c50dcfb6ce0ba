"""The order of steps in the barrier loop: what comes first, what waits for what, and what never happens."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_world import World

from backfill_cli.engine.loop.orchestrator import Tick
from backfill_cli.errors import BadData, Transient
from backfill_cli.model.job import Phase, Verb

DAY_MS = 86_400_000


def test_an_epoch_is_observed_staged_prepared_committed_and_only_then_acknowledged() -> None:
    world = World()
    world.step()
    assert world.seen() == ["observe", "stage", "prepare a1"]
    world.finish()
    assert world.seen() == ["commit a1"]
    world.step()
    assert world.seen()[:2] == ["acknowledge 0", "discard a1"]


def test_the_last_commit_is_recorded_once_the_ledger_has_it() -> None:
    world = World(rows=1)
    world.step()
    prepared = world.store.prepared
    assert prepared is not None
    world.finish()
    seen = [world.loop.recorded]
    for _ in range(3):
        world.step(1_000)
        seen.append(world.loop.recorded)
    assert seen[0] == 0
    assert seen[-1] == prepared.epoch
    assert world.store.ledger[-1].epoch == prepared.epoch


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
    assert str(world.loop.progress().limited_by) == "waiting: the file is held by pid 7"
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
    rows = world.loop.progress().written
    assert rows == {"t": {"snapshot": 25, "log-store": lines[2].rows_written}}
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
