"""f(upstream at a checkpoint): what a sink must hold there, as `verify` compares it."""

import json
from typing import TYPE_CHECKING

from backfill_cli.contracts import SinkTable, Upstream
from backfill_cli.engine import transform
from backfill_cli.engine.spark_digest import backticked
from backfill_cli.engine.stage_partitions import aside
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Position
from backfill_cli.model.split import SplitStatus
from backfill_cli.model.upstream import Pin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from backfill_cli.config import JobConfig


def expected(
    spark: "SparkSession",
    upstream: Upstream,
    config: "JobConfig",
    pin: Pin,
    checkpoint: Checkpoint,
    table: SinkTable,
) -> "DataFrame":
    """f(upstream at the checkpoint) of one table: the sink's columns, unique by key."""
    held = _log if upstream.capabilities.partitioned else _snapshot_and_log
    return held(spark, upstream, config, pin, checkpoint, table).select(*_columns(table))


def _snapshot_and_log(
    spark: "SparkSession",
    upstream: Upstream,
    config: "JobConfig",
    pin: Pin,
    checkpoint: Checkpoint,
    table: SinkTable,
) -> "DataFrame":
    """The consumed prefix of each split, without the keys that the log changed up to the position, and with what
    the log made of them."""
    name = table.name
    shape = config.transform_of(name)
    reads = [
        SnapshotRead(name, split, 0, None if progress.status == SplitStatus.CONSUMED else progress.after)
        for (of, split), progress in checkpoint.splits.items()
        if of == name and progress.after > 0
    ]
    base = _empty(spark, table)
    if reads:
        base = transform.rows(upstream.scan(spark, name, reads).drop("_read"), shape)
    if checkpoint.position == pin.position:
        return base
    changes = upstream.changes(spark, name, pin.position, checkpoint.position, checkpoint.schemas[name])
    last = transform.net(changes, config.table(name).key, shape)
    untouched = base.join(last.select(*table.key), list(table.key), "left_anti")
    changed = last.where("_op = 'U'").select(*_columns(table))
    return untouched.unionByName(changed, allowMissingColumns=True)


def _log(
    spark: "SparkSession",
    upstream: Upstream,
    config: "JobConfig",
    pin: Pin,
    checkpoint: Checkpoint,
    table: SinkTable,
) -> "DataFrame":
    """Every partition from where the job took it up to the checkpoint's offset."""
    (source,) = config.tables
    begun = dict(pin.position)
    ranges = {
        split: (int(begun.get(split, progress.target or 0)), progress.after)
        for (_, split), progress in checkpoint.splits.items()
    }
    ranges = {split: (first, after) for split, (first, after) in ranges.items() if after > first}
    if not ranges:
        return _empty(spark, table)
    shape = config.transform_of(source.name)
    if upstream.capabilities.appends:
        reads = [SnapshotRead(source.name, split, first, after) for split, (first, after) in ranges.items()]
        frame = upstream.scan(spark, source.name, reads).drop("_read")
    else:
        after = Position.of({split: first for split, (first, _) in ranges.items()})
        up_to = Position.of({split: last for split, (_, last) in ranges.items()})
        frame = upstream.changes(spark, source.name, after, up_to, checkpoint.schemas[source.name])
    if table.side:
        return aside(frame, upstream)
    good = frame.where("_error IS NULL").drop("_error", "_raw")
    if upstream.capabilities.appends:
        return transform.rows(good, shape)
    return transform.net(good, source.key, shape).where("_op = 'U'")


def _columns(table: SinkTable) -> list[str]:
    return [backticked(field["name"]) for field in json.loads(table.schema)["fields"]]


def _empty(spark: "SparkSession", table: SinkTable) -> "DataFrame":
    from pyspark.sql.types import StructType

    return spark.createDataFrame([], StructType.fromJson(json.loads(table.schema)))
