"""One task takes a window of the log and writes the files; a Spark task returns its answer as JSON."""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from backfill_cli.model.codec import decode, encode
from backfill_cli.model.plan import ChangeWindow
from backfill_cli.spark import arrow_tasks, own_worker
from backfill_cli.spark.api import SparkSession
from backfill_cli.upstreams.postgres.options import PostgresOptions
from backfill_cli.upstreams.postgres.pending import position_of
from backfill_cli.upstreams.postgres.tables import PgTable
from backfill_cli.upstreams.postgres.take import take
from backfill_cli.upstreams.postgres.types import Column
from backfill_cli.upstreams.postgres.window import LogTable, Taken, TakeRequest

if TYPE_CHECKING:
    import pyarrow as pa


def in_worker(spark: SparkSession, request: TakeRequest) -> Taken:
    """The request is carried out in another process: our own worker in local mode, otherwise a task of Spark's.

    A BackfillError comes through Spark as text.
    """
    if arrow_tasks.is_local(spark):
        return own_worker.run(take, request)
    told = arrow_tasks.frame(spark, _take, (request,), "taken STRING").toArrow()["taken"].to_pylist()
    return decode(Taken, told[0])


def _take(request: TakeRequest) -> "Iterator[pa.RecordBatch]":
    """Runs in a worker."""
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"taken": [encode(take(request))]})


def nothing(up_to: int) -> Taken:
    """The answer for a window that is known to hold nothing."""
    return Taken(up_to, None, None, 0, (), {}, {})


def log_tables(tables: Mapping[str, PgTable], in_force: Mapping[str, tuple[Column, ...]]) -> tuple[LogTable, ...]:
    """The tables with the columns that their changes have had so far."""
    return tuple(
        LogTable(name, table.oid, in_force[name], tuple(column.name for column in table.key))
        for name, table in tables.items()
    )


def request(
    options: PostgresOptions,
    after: int,
    up_to: int,
    tables: tuple[LogTable, ...],
    folder: str,
    limit: int | None,
    covered: Mapping[str, str | None],
    widens: bool,
) -> TakeRequest:
    """A request whose files have names of their own. covered, widens: see TakeRequest."""
    return TakeRequest(
        dsn=options.dsn,
        slot=options.slot,
        publication=options.publication,
        after=after,
        up_to=up_to,
        tables=tables,
        folder=folder,
        attempt=uuid.uuid4().hex,
        limit=limit,
        covered=covered,
        widens=widens,
    )


def closed(window: ChangeWindow, taken: Taken) -> ChangeWindow:
    """The window as it was taken: where it ends, its times, and how many transactions it has."""
    return replace(
        window,
        up_to=position_of(taken.up_to),
        up_to_ms=window.up_to_ms if taken.up_to_ms is None else taken.up_to_ms,
        from_ms=window.from_ms if taken.from_ms is None else taken.from_ms,
        epochs=max(taken.transactions, window.epochs),
    )
