"""Failures that may pass, in the barrier loop: tried again, counted, and what was read ahead thrown away."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from loop_world import SETTINGS, World

from backfill_cli.contracts import SinkTable, StagedEpoch
from backfill_cli.engine.loop.orchestrator import Tick
from backfill_cli.errors import Transient
from backfill_cli.model.job import Verb
from backfill_cli.model.plan import EpochPlan, StagedTable


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


def test_failures_after_which_it_tries_again_are_counted_by_cause() -> None:
    world = World(rows=100)
    world.step()
    world.step()
    world.sink.failures = [Transient("no answer", code="57P01")]
    world.finish()
    world.step()
    world.upstream.failures = [Transient("no answer", code="57P01"), Transient("no answer")]
    world.steps(9, 1_000)
    assert world.loop.progress().failures == {"57P01": 2, "Transient": 1}


def test_the_failure_that_ends_the_run_is_its_reason_and_counts_no_more() -> None:
    world = World(rows=100)
    world.upstream.failures = [Transient("no answer")] * 1_000
    with pytest.raises(Transient):
        world.steps(100, SETTINGS.retry_limit_ms)
    assert world.loop.progress().failures == {"Transient": 1}


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


def test_rows_staged_for_a_table_that_the_sink_does_not_have_end_the_run_before_they_are_promised() -> None:
    world = World(rows=100)
    staged = world.stager.stage

    def stage(plan: EpochPlan, epoch: int, schemas: Mapping[str, str], unwanted: object) -> StagedEpoch:
        done = staged(plan, epoch, schemas)
        return replace(
            done, staged=replace(done.staged, tables={**done.staged.tables, "aside": StagedTable(rows=3)})
        )

    world.stager.stage = stage  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="rows were staged for aside, which is no table"):
        world.step()
    assert world.store.load().prepared is None


def test_rows_kept_aside_count_once_committed_and_not_where_what_was_read_ahead_is_thrown_away() -> None:
    world = World(rows=100)
    side = SinkTable("aside", "_backfill_quarantine_t", ("k",), "{}", side=True)
    world.job = replace(world.job, tables=(*world.job.tables, side))
    staged = world.stager.stage

    def stage(plan: EpochPlan, epoch: int, schemas: Mapping[str, str], unwanted: object) -> StagedEpoch:
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


@pytest.mark.parametrize("failures", [[], [Transient("no answer")], [Transient("no answer")] * 3])
def test_records_that_were_skipped_count_once_with_their_commit_whatever_is_committed_again(
    failures: list[Exception],
) -> None:
    world = World(rows=100)
    staged = world.stager.stage

    def stage(plan: EpochPlan, epoch: int, schemas: Mapping[str, str], unwanted: object) -> StagedEpoch:
        done = staged(plan, epoch, schemas)
        return replace(done, staged=replace(done.staged, skipped={"heartbeats": 2, "tombstones": epoch % 2}))

    world.stager.stage = stage  # type: ignore[method-assign]
    world.loop = world.loop_from(world.store.load())
    world.step()
    world.step()
    assert world.loop.progress().skipped == {}  # one is committing, one is read ahead
    promised = world.store.load().prepared
    assert promised is not None
    assert promised.skipped["heartbeats"] == 2
    world.sink.failures = list(failures)
    world.finish()
    world.step()
    world.post(Verb.THROTTLE, rate=3.0)
    world.steps(6, 1_000)
    held = world.store.load()
    committed = [line for line in world.store.ledger if line.snapshot_rows]
    assert held.committed.skipped["heartbeats"] == 2 * len(committed)
    assert held.committed.skipped.get("tombstones", 0) == sum(line.epoch % 2 for line in committed)
    assert world.loop_from(held).progress().skipped == held.committed.skipped


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
