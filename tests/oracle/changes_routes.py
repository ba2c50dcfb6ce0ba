"""The ways of change files: all of a window at once, or window by window, over a load that is there before."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from backfill_cli.contracts import Source
from backfill_cli.model.plan import ChangeWindow, EpochPlan
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import Pin
from oracle.jobs import loaded, reads_of, spooled
from oracle.routes import Batch, route

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMS = ("debezium", "dms", "change-feed")
WAYS = (
    "contracts.source.read_log:changes",
    "contracts.source.read_log:change_batches",
    *(f"files.changes.format={name}" for name in FORMS),
    *(f"files.changes.file_format={name}" for name in ("avro", "csv", "json", "parquet")),
)


def plans(upstream: Source, pin: Pin, windows: int) -> Iterable[EpochPlan]:
    """The load, then the log in so many windows, and one more wherever the columns change."""
    reads = reads_of(pin)
    if reads:
        yield EpochPlan(reads=reads, closes_snapshot=("t",))
    pending = upstream.observe(pin.position, False).pending
    size = max(1, -(-len(pending) // windows))
    at, begun = pin.position, 0
    for i, epoch in enumerate(pending):
        last = i + 1 == len(pending)
        if last or i + 1 - begun == size or pending[i + 1].schema:
            up_to = Position.of(dict(at) | dict(epoch.cursors))
            window = ChangeWindow(at, up_to, 0, 0, i + 1 - begun, pending[begun].schema)
            yield EpochPlan(window=window)
            at, begun = up_to, i + 1


@route("changes, all at once", *FORMS, covers=WAYS, together=400, refusals=20)
def at_once(batch: Batch, spark: "SparkSession") -> None:
    loaded(batch.config, spark, lambda upstream, pin: plans(upstream, pin, 1))


@route("changes, window by window", *FORMS, covers=WAYS, together=400, refusals=5)
def by_windows(batch: Batch, spark: "SparkSession") -> None:
    loaded(batch.config, spark, lambda upstream, pin: plans(upstream, pin, 4))


SPOOLED = (
    "spool.upstream.scan:scan",
    "spool.upstream.batches:batches",
)


@route("changes, through a spool", *FORMS, covers=SPOOLED, together=400, refusals=5)
def through_a_spool(batch: Batch, spark: "SparkSession") -> None:
    spooled(batch.config, spark, lambda upstream, pin: plans(upstream, pin, 2))
