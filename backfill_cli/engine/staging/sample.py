"""A sample of what a new job will read, staged and discarded before its sink has a row.

The oldest and newest pending changes, a snapshot file whose types are declared in the config, or both ends of a
topic's partitions are processed as an epoch's rows are: what would stop the job hours later, after reading a
snapshot in vain, stops it before it is created.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.contracts import TakingUpstream, Upstream
from backfill_cli.engine.staging.files import nothing_left
from backfill_cli.engine.staging.schemas import evolved
from backfill_cli.engine.staging.stage import SparkStager
from backfill_cli.errors import Transient
from backfill_cli.model.plan import ChangeWindow, EpochPlan, SnapshotRead
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin, UpstreamEpoch, UpstreamView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backfill_cli.config import JobConfig
    from backfill_cli.config.sections import Table

_BYTES = 64 << 20
"""Larger files are not read for a sample: this much takes seconds."""

_OFFSETS, _PARTITIONS = 100, 16
"""This many offsets at each end of this many partitions, the fullest ones."""

_EPOCH = 0
"""Belongs to no job: jobs begin later."""


def require_readable(
    session: "Callable[[], SparkSession]", upstream: Upstream, config: "JobConfig", pin: Pin
) -> None:
    """A sample of what a new job will read can be read and transformed.

    Raises what staging raises: BadData naming file and line, or partition and offset. A log that can only be
    consumed is not sampled, since its system provides the types; nor is a log that is unavailable now, for which
    the job waits.
    """
    if isinstance(upstream, TakingUpstream):
        return
    try:
        view = upstream.observe(pin.position, snapshot_open=True)
    except Transient:
        return
    partitioned = upstream.capabilities.partitioned
    plans = _of_partitions(pin, view) if partitioned else chain(_of_snapshot(pin), _of_changes(pin, view))
    with nothing_left(Path(config.job.staging, config.job.name)):
        for plan, schemas in plans:
            stager = SparkStager(session, upstream, replace(config, tables=_moved(config, plan)))
            staged = stager.stage(plan, _EPOCH, schemas)
            stager.discard(_EPOCH, staged.staged.attempt)


def _moved(config: "JobConfig", plan: EpochPlan) -> "tuple[Table, ...]":
    """The tables that the plan can have rows of: if each table has its own log, those whose log advances."""
    names = {table.name for table in config.tables}
    window = plan.window
    if window is None or not {log for log, _ in window.up_to} <= names:
        return config.tables
    moved = {log for log, cursor in window.up_to if window.after.get(log) != cursor}
    return tuple(table for table in config.tables if table.name in moved)


def _of_snapshot(pin: Pin) -> Iterator[tuple[EpochPlan, Mapping[str, str]]]:
    """For each table, the first text file that is not too large: it is read whole."""
    for table in pin.schema:
        of_table = (s for s in pin.splits if s.table == table and s.rows is None and not s.cuttable)
        first = next((split for split in of_table if split.size_bytes <= _BYTES), None)
        if first is not None:
            yield EpochPlan(reads=(SnapshotRead(table, first.id, None, None),)), pin.schema


def _of_partitions(pin: Pin, view: UpstreamView) -> Iterator[tuple[EpochPlan, Mapping[str, str]]]:
    held = [(split, *_held(split, view)) for split in pin.splits]
    fullest = sorted((one for one in held if one[2] > one[1]), key=lambda one: one[1] - one[2])[:_PARTITIONS]
    oldest = tuple(_range(s, begin, min(end, begin + _OFFSETS)) for s, begin, end in fullest)
    newest = tuple(
        _range(s, max(begin + _OFFSETS, end - _OFFSETS), end)
        for s, begin, end in fullest
        if end > begin + _OFFSETS
    )
    for reads in (oldest, newest):
        if reads:
            yield EpochPlan(reads=reads), pin.schema


def _held(split: Split, view: UpstreamView) -> tuple[int, int]:
    """The range of offsets that the log holds of a partition, within the partition's history."""
    oldest = int(view.oldest.get(split.id) or 0) if view.oldest is not None else 0
    return max(split.first or 0, oldest), int(view.latest.get(split.id) or 0)


def _range(split: Split, begin: int, end: int) -> SnapshotRead:
    return SnapshotRead(split.table, split.id, begin, end)


def _of_changes(pin: Pin, view: UpstreamView) -> Iterator[tuple[EpochPlan, Mapping[str, str]]]:
    """The first upstream epoch of each log that has one, and the last of those that have several."""
    of_log: dict[str, list[UpstreamEpoch]] = {}
    for epoch in view.pending:
        for log, _ in epoch.cursors:
            of_log.setdefault(log, []).append(epoch)
    first = {log: epochs[:1] for log, epochs in of_log.items()}
    yield from _window(pin, {log: pin.position.get(log) for log in first}, first, pin.schema)
    last = {log: epochs[-1:] for log, epochs in of_log.items() if len(epochs) > 1}
    before = {log: dict(of_log[log][-2].cursors)[log] for log in last}
    schemas = dict(pin.schema)
    for epoch in view.pending[:-1]:
        schemas = evolved(schemas, dict(epoch.schema))
    yield from _window(pin, before, last, schemas)


def _window(
    pin: Pin,
    after: Mapping[str, Cursor | None],
    sampled: Mapping[str, Sequence[UpstreamEpoch]],
    schemas: Mapping[str, str],
) -> Iterator[tuple[EpochPlan, Mapping[str, str]]]:
    """The window of these epochs, each after `after` in its log; nothing if the epochs are too large."""
    epochs = list({id(one): one for found in sampled.values() for one in found}.values())
    if not epochs or sum(one.size_bytes for one in epochs) > _BYTES:
        return
    begin = {**dict(pin.position), **{log: cursor for log, cursor in after.items() if cursor is not None}}
    end = begin | {log: dict(found[-1].cursors)[log] for log, found in sampled.items()}
    schema = tuple(one for epoch in epochs for one in epoch.schema)
    window = ChangeWindow(Position.of(begin), Position.of(end), epochs[0].ms, epochs[-1].ms, len(epochs), schema)
    yield EpochPlan(window=window), schemas
