"""The ways of a snapshot's rows: Parquet, JSON lines and CSV."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa

from backfill_cli.contracts import Source
from backfill_cli.model.plan import EpochPlan, SnapshotRead
from backfill_cli.model.upstream import Pin
from backfill_cli.spark import arrow_tasks
from oracle.jobs import loaded, whole
from oracle.routes import Batch, route

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Make = Callable[[Any], Iterator[pa.RecordBatch]]

TRANSFORM = {"transform": {"where": "id IS NOT NULL"}}
"""Takes every row as it is, and cannot be done without Spark."""

TEXT = ("files.snapshot.format=json", "files.snapshot.format=csv")
PARQUET = ("files.snapshot.format=parquet",)


@route(
    "text", "json", "csv", covers=(*TEXT, "staging.stage._by_spark:scan"), together=1000, refusals=55, at_once=4
)
def text(batch: Batch, spark: "SparkSession") -> None:
    loaded(batch.config, spark, whole)


@route("text, transform", "json", "csv", covers=TEXT, together=1000, refusals=8, at_once=4)
def text_with_a_transform(batch: Batch, spark: "SparkSession") -> None:
    loaded({**batch.config, **TRANSFORM}, spark, whole)


@route(
    "workers",
    "parquet, all types",
    covers=(*PARQUET, "staging.stage._rows_of:made_in_workers", "staging.workers.made_in_workers:batches"),
    refusals=6,
)
def workers(batch: Batch, spark: "SparkSession") -> None:
    loaded(batch.config, spark, whole)


@route("workers, slices", "parquet, all types", covers=PARQUET)
def slices(batch: Batch, spark: "SparkSession") -> None:
    loaded(batch.config, spark, _thirds)


@route("workers' code alone", "parquet", "parquet, all types", covers=PARQUET, together=50)
def workers_alone(batch: Batch, spark: "SparkSession") -> None:
    """What workers run, here: Spark only carries it to them and its answer back."""
    with mock.patch.object(arrow_tasks, "frame", _Here):
        loaded(batch.config, spark, _thirds)


@route("Spark", "parquet, all types", covers=PARQUET, refusals=6)
def by_spark(batch: Batch, spark: "SparkSession") -> None:
    """As on a cluster whose executors lack this package."""
    with mock.patch.object(arrow_tasks, "workers_know_us", return_value=False):
        loaded(batch.config, spark, whole)


@route("Spark, transform", "parquet, all types", covers=PARQUET, refusals=6)
def by_spark_with_a_transform(batch: Batch, spark: "SparkSession") -> None:
    loaded({**batch.config, **TRANSFORM}, spark, whole)


def _thirds(upstream: Source, pin: Pin) -> Iterable[EpochPlan]:
    """Three epochs: of every split its first row, the next two, the rest."""
    cuts = [(s, sorted({0, 1, min(3, s.rows or 0), s.rows or 0})) for s in pin.splits]
    for turn in range(3):
        reads = tuple(
            SnapshotRead(s.table, s.id, at[turn], at[turn + 1]) for s, at in cuts if turn + 1 < len(at) and s.rows
        )
        yield EpochPlan(reads=reads, closes_snapshot=("t",) if turn == 2 else ())


class _Here:
    """As `arrow_tasks.frame`, of tasks that run in this process."""

    def __init__(
        self, spark: Any, make: Callable[[Any], Iterator[pa.RecordBatch]], parts: Sequence[Any], _: Any
    ) -> None:
        self._made = (batch for part in parts for batch in make(part))

    def toArrow(self) -> pa.Table:
        return pa.Table.from_batches(self._made)
