"""Prepared is a promise: what it changes is kept apart until the sink has it; numbers are never used twice."""

from dataclasses import replace
from pathlib import Path

import pytest
from catalog_builders import (
    FIRST,
    PARTITIONS,
    Clock,
    checkpoint,
    claimed,
    consumed,
    definition,
    partitioned,
    progress,
    record,
    split_id,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backfill_cli.catalog import Catalog, Claim
from backfill_cli.catalog.store import Store
from backfill_cli.errors import StateConflict
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Control, JobState
from backfill_cli.model.split import SplitKey, SplitProgress, SplitStatus


def test_a_new_job_recovers_with_all_its_splits_not_started(claim: Claim) -> None:
    recovered = claim.store.load()
    assert list(recovered.committed.splits) == [("orders", split_id(i)) for i in range(3)]
    assert set(recovered.committed.splits.values()) == {SplitProgress()}
    assert (recovered.committed.state, recovered.prepared, recovered.last_epoch) == (FIRST.state, None, 0)


def test_a_first_checkpoint_may_name_every_split(path: Path, clock: Clock) -> None:
    splits: dict[SplitKey, SplitProgress] = {("orders", split_id(i)): SplitProgress() for i in range(3)}
    splits |= consumed(1, 0)
    catalog = Catalog(path, clock)
    first = Checkpoint(0, 0, 0, "", FIRST.state, FIRST.phase, FIRST.position, splits)
    catalog.create_job(definition(), Control(), first)
    with claimed(catalog, clock) as claim:
        assert claim.store.load().committed == first


def test_partitions_newer_than_the_pin_stay_after_those_of_it(path: Path, clock: Clock) -> None:
    catalog = Catalog(path, clock)
    catalog.create_job(partitioned(), Control(), FIRST)
    assert catalog.definition("orders") == partitioned()
    with claimed(catalog, clock) as claim:
        claim.store.prepare(checkpoint(100, PARTITIONS), None, progress())
        promised = claim.store.load().prepared
        assert promised is not None
        assert promised.splits == PARTITIONS
        assert list(claim.store.load().committed.splits) == [("orders", "0"), ("orders", "1")]
        claim.store.mark(record(100), progress())
        splits = claim.store.load().committed.splits
    assert splits == {("orders", "0"): SplitProgress(), **PARTITIONS}
    assert list(splits) == [("orders", "0"), *PARTITIONS]


def test_a_partition_that_moved_to_where_a_split_not_started_stands_is_kept(path: Path, clock: Clock) -> None:
    """Only a split without progress means `SplitProgress()`: it has no cursor, where no partition begins."""
    moved: dict[SplitKey, SplitProgress] = {("orders", "1"): SplitProgress(cursor=40, target=140)}
    catalog = Catalog(path, clock)
    catalog.create_job(partitioned(), Control(), replace(FIRST, splits=moved))
    with claimed(catalog, clock) as claim:
        assert claim.store.load().committed.splits["orders", "1"] == SplitProgress(cursor=40, target=140)


def test_a_prepared_epoch_changes_no_committed_split(claim: Claim) -> None:
    promised = checkpoint(100, consumed(1, 100))
    claim.store.prepare(promised, None, progress())
    recovered = claim.store.load()
    assert recovered.prepared == promised
    assert recovered.committed.epoch == 0
    assert set(recovered.committed.splits.values()) == {SplitProgress()}
    assert recovered.last_epoch == 100


def test_a_marked_epoch_is_the_committed_one_without_its_plan(catalog: Catalog, claim: Claim) -> None:
    claim.store.prepare(checkpoint(100, consumed(1, 100)), None, progress())
    claim.store.mark(record(100), progress(10))
    recovered = claim.store.load()
    assert recovered.prepared is None
    assert recovered.committed.epoch == 100
    assert recovered.committed.state == checkpoint(100).state
    assert (recovered.committed.plan, recovered.committed.staged) == (None, None)
    assert recovered.committed.splits["orders", split_id(1)] == consumed(1, 100)["orders", split_id(1)]
    row = catalog.job("orders")
    assert (row.epoch, row.progress) == (100, progress(10))
    assert catalog.ledger("orders", 5) == (record(100),)


def test_recovery_marks_without_new_numbers(catalog: Catalog, claim: Claim) -> None:
    claim.store.prepare(checkpoint(100), None, progress(7))
    claim.store.mark(record(100), None)
    assert catalog.job("orders").progress == progress(7)


def test_the_next_promise_marks_the_one_before(catalog: Catalog, claim: Claim) -> None:
    claim.store.prepare(checkpoint(100, consumed(1, 100)), None, progress())
    claim.store.prepare(checkpoint(200, consumed(2, 200)), record(100), progress())
    recovered = claim.store.load()
    assert recovered.prepared == checkpoint(200, consumed(2, 200))
    assert recovered.committed.epoch == 100
    assert catalog.ledger("orders", 5) == (record(100),)


def test_a_second_promise_must_wait(claim: Claim) -> None:
    claim.store.prepare(checkpoint(100), None, progress())
    with pytest.raises(StateConflict, match="commit 100 is not finished"):
        claim.store.prepare(checkpoint(200), None, progress())


def test_only_what_was_promised_can_be_marked_or_dropped(claim: Claim) -> None:
    claim.store.prepare(checkpoint(100), None, progress())
    with pytest.raises(StateConflict, match="150 cannot be finished: the one begun is 100"):
        claim.store.mark(record(150), progress())
    with pytest.raises(StateConflict, match="commit 150 was not begun"):
        claim.store.unprepare(150)
    assert claim.store.load().prepared == checkpoint(100)


def test_a_repeat_after_a_lost_answer_changes_nothing(catalog: Catalog, claim: Claim) -> None:
    claim.store.prepare(checkpoint(100, consumed(0, 100)), None, progress())
    for _ in range(2):
        claim.store.prepare(checkpoint(200, consumed(1, 200)), record(100), progress())
    for _ in range(2):
        claim.store.mark(record(200), progress())
    assert claim.store.load().committed.epoch == 200
    assert catalog.ledger("orders", 5) == (record(100), record(200))


def test_a_dropped_number_is_not_used_again(claim: Claim) -> None:
    claim.store.prepare(checkpoint(100), None, progress())
    claim.store.unprepare(100)
    assert (claim.store.load().prepared, claim.store.load().last_epoch) == (None, 100)
    for epoch in (50, 100):
        with pytest.raises(StateConflict, match=f"{epoch} is not after commit 100"):
            claim.store.prepare(checkpoint(epoch), None, progress())


def test_a_barrier_may_take_a_command_and_promise_rows(catalog: Catalog, claim: Claim) -> None:
    claim.store.take((), Control(rate=5.0), JobState.STARTING, record(100, "throttle"))
    assert claim.store.load().last_epoch == 100
    claim.store.prepare(checkpoint(100), None, progress())
    claim.store.mark(record(100), progress())
    assert catalog.ledger("orders", 5) == (record(100, "throttle"),)


def test_numbers_of_barriers_that_carried_only_control_are_used_too(claim: Claim) -> None:
    claim.store.take((), Control(), JobState.STARTING, record(300))
    with pytest.raises(StateConflict, match="200 is not after commit 300"):
        claim.store.prepare(checkpoint(200), None, progress())


def test_only_changed_splits_are_written(path: Path, clock: Clock) -> None:
    catalog = Catalog(path, clock)
    catalog.create_job(definition(splits=50), Control(), FIRST)
    with claimed(catalog, clock) as claim:
        for epoch in (100, 200, 300):
            claim.store.prepare(checkpoint(epoch, consumed(4, epoch) | consumed(7, epoch)), None, progress())
            claim.store.mark(record(epoch), progress())
    with Store(path).reading() as db:
        assert db.execute("SELECT split_id, epoch FROM split_progress ORDER BY split_id").fetchall() == [
            (split_id(4), 300),
            (split_id(7), 300),
        ]


def test_two_jobs_with_equal_splits_are_kept_apart(catalog: Catalog, clock: Clock) -> None:
    catalog.create_job(definition("other"), Control(), FIRST)
    with claimed(catalog, clock) as claim, claimed(catalog, clock, "other") as other:
        claim.store.prepare(checkpoint(100, consumed(1, 100)), None, progress())
        claim.store.mark(record(100), progress())
        assert claim.store.load().committed.splits["orders", split_id(1)].rows == 10
        assert set(other.store.load().committed.splits.values()) == {SplitProgress()}
        assert other.store.load().last_epoch == 0


MOVES = st.dictionaries(
    st.integers(0, 2).map(lambda i: ("orders", split_id(i))),
    st.builds(
        SplitProgress, st.sampled_from(SplitStatus), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)
    ),
)
STEPS = st.lists(st.tuples(MOVES, st.sampled_from(["mark", "next", "drop", "restart"])), max_size=8)


@pytest.mark.seconds
@given(steps=STEPS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_recovery_is_the_last_committed_state_and_the_open_promise(
    catalog: Catalog, clock: Clock, steps: list[tuple[dict[SplitKey, SplitProgress], str]]
) -> None:
    claim = claimed(catalog, clock)
    expected = dict(claim.store.load().committed.splits)
    promised: Checkpoint | None = None
    for moved, step in steps:
        clock.ms += 1
        epoch = clock()
        match step:
            case "next":
                claim.store.prepare(checkpoint(epoch, moved), promised and record(promised.epoch), progress())
                expected |= promised.splits if promised else {}
                promised = checkpoint(epoch, moved)
            case "mark" if promised:
                claim.store.mark(record(promised.epoch), progress())
                expected, promised = expected | dict(promised.splits), None
            case "drop" if promised:
                claim.store.unprepare(promised.epoch)
                promised = None
            case "restart":
                with claim:
                    pass
                claim = claimed(catalog, clock)
        recovered = claim.store.load()
        assert recovered.committed.splits == expected
        assert recovered.prepared == promised
    if promised:
        claim.store.unprepare(promised.epoch)
    with claim:
        clock.ms += 1
