"""Groups of splits, as people see them: shares by rows, by bytes, by offsets."""

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
    with_job,
)

from backfill_cli.catalog import Catalog, SplitGroup, SplitRow
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Control
from backfill_cli.model.split import SplitProgress, SplitStatus


def _groups(catalog: Catalog, clock: Clock, moved: Checkpoint) -> tuple[SplitGroup, ...]:
    with claimed(catalog, clock) as claim:
        claim.store.prepare(moved, None, progress())
        claim.store.mark(record(moved.epoch), progress())
    return catalog.close_look("orders", 3, 1)[1]


def test_files_are_grouped_in_their_order(path: Path, clock: Clock) -> None:
    groups = _groups(with_job(path, clock, splits=4), clock, checkpoint(100, consumed(0, 100) | consumed(3, 100)))
    assert groups == (
        SplitGroup("parts 1–2", 2, 1, 10, 20, 0.5),
        SplitGroup("part 3", 1, 0, 0, 10, 0.0),
        SplitGroup("part 4", 1, 1, 10, 10, 1.0),
    )


def test_a_partition_is_as_far_as_its_offset_is_in_its_history(path: Path, clock: Clock) -> None:
    catalog = Catalog(path, clock)
    catalog.create_job(partitioned(), Control(), FIRST)
    groups = _groups(catalog, clock, checkpoint(100, PARTITIONS))
    empty, half = groups
    assert empty == SplitGroup("part 1", 1, 1, 0, 0, 1.0)
    assert (half.splits_read, half.rows_read, half.rows_total) == (0, 12, 100)
    assert half.share == pytest.approx(0.3)  # 70 of 40 to 140, although only 12 of those offsets hold a row


def test_each_split_is_told_in_the_order_of_the_pin_and_then_partitions_that_were_added(
    path: Path, clock: Clock
) -> None:
    catalog = Catalog(path, clock)
    catalog.create_job(partitioned(), Control(), FIRST)
    _groups(catalog, clock, checkpoint(100, PARTITIONS))
    told = [(one.split, one.status, one.rows_read, one.rows_total, one.next) for one in catalog.splits("orders")]
    assert told == [
        ("0", SplitStatus.NOT_STARTED, 0, 0, None),
        ("1", SplitStatus.BACKFILLING, 12, 100, "70"),
        ("2", SplitStatus.FINISHED, 0, None, "200"),
        ("10", SplitStatus.FINISHED, 0, None, "5"),
    ]


def test_a_split_that_no_commit_has_moved_is_told_as_not_started(path: Path, clock: Clock) -> None:
    (one, two) = with_job(path, clock, splits=2).splits("orders")
    assert one == SplitRow("orders", split_id(0), SplitStatus.NOT_STARTED, 0, 10, 1000, None, None, None)
    assert two.split == split_id(1)


def test_a_file_of_which_bytes_are_read_is_as_far_as_these(path: Path, clock: Clock) -> None:
    job = definition(splits=1)
    whole, cut = (replace(job.pin.splits[0], id=name, rows=None, size_bytes=1_000) for name in ("whole", "cut"))
    catalog = Catalog(path, clock)
    pin = replace(job.pin, splits=(whole, replace(cut, cuttable=True, first=0)))
    catalog.create_job(replace(job, pin=pin), Control(), FIRST)
    moved = {("orders", "cut"): SplitProgress(SplitStatus.CONSUMING, 250, 12, 100)}
    groups = _groups(catalog, clock, checkpoint(100, moved))
    assert [(one.rows_read, one.rows_total, one.share) for one in groups] == [(0, None, 0.0), (12, None, 0.25)]
