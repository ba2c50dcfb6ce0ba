"""Sends staged Parquet files to the database: read batch by batch, sent as one binary COPY."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backfill_cli.contracts import own
from backfill_cli.sinks.postgres.dialect import quoted
from backfill_cli.sinks.postgres.session import Connection
from backfill_cli.sinks.postgres.values import Refused, sent, sent_schema
from backfill_cli.sinks.sql.dialect import Column, Target

BATCH_ROWS, BATCH_BYTES = 10_000, 16 << 20
"""At most this much at a time in this process, whatever the epoch's size: 10,000 rows of 100 bytes are 1 MB."""
ANALYZED_ROWS = 10_000
"""From this many rows on, a plan without statistics can cost more than collecting them (20 ms)."""


def batches(paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The files' rows as staged, in order."""
    for path in paths:
        with pq.ParquetFile(path) as file:
            held = file.metadata
            size = sum(held.row_group(at).total_byte_size for at in range(held.num_row_groups))
            fitting = BATCH_BYTES * held.num_rows // max(size, 1)
            yield from file.iter_batches(max(1, min(BATCH_ROWS, fitting)))


def copy(con: Connection, into: Target | str, columns: tuple[Column, ...], paths: Sequence[str]) -> int:
    """The files' rows are in the table, in this transaction; returns their number. A str names a temporary table.

    Raises Refused for a value that does not fit, before it is sent to the server.
    """
    extra = (own.OP, own.UNSENT) if isinstance(into, str) else ()
    schema = sent_schema(columns, extra)
    wrong: list[Exception] = []
    told = {"temporary": True} if isinstance(into, str) else {"db_schema_name": into.schema}
    try:
        with con.cursor() as cursor:
            reader = pa.RecordBatchReader.from_batches(schema, _sent(paths, columns, schema, wrong))
            name = into if isinstance(into, str) else into.table
            rows: int = cursor.adbc_ingest(name, reader, mode="append", **told)
    except Exception as exc:
        # An exception of our own generator passes through C and arrives as an error of the driver.
        if wrong:
            raise wrong[0] from exc
        raise
    return rows


def _sent(
    paths: Sequence[str], columns: tuple[Column, ...], schema: pa.Schema, wrong: list[Exception]
) -> Iterator[pa.RecordBatch]:
    before = 0
    try:
        for batch in batches(paths):
            yield pa.RecordBatch.from_arrays(
                [
                    *(sent(column, batch.column(column.name)) for column in columns),
                    *(_own(batch, schema.field(at)) for at in range(len(columns), len(schema))),
                ],
                schema=schema,
            )
            before += batch.num_rows
    except Exception as exc:
        if isinstance(exc, Refused):
            exc.row, exc.paths = before + exc.row, paths
        wrong.append(exc)
        raise


def _own(batch: pa.RecordBatch, field: Any) -> pa.Array:
    """A column that only staged files have, NULL if this one lacks it: inserts have no op."""
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    return batch.column(field.name).cast(field.type)


def stage(con: Connection, name: str, columns: tuple[Column, ...], paths: Sequence[str]) -> None:
    """A temporary table `name`, dropped at commit, holds the files' rows: `(row…, own.OP, own.UNSENT)`."""
    kinds = [*((column.name, column.type) for column in columns), (own.OP, "text"), (own.UNSENT, "text[]")]
    con.run(
        f"CREATE TEMPORARY TABLE {quoted(name)} ({', '.join(f'{quoted(c)} {kind}' for c, kind in kinds)}) "
        "ON COMMIT DROP",
    )
    if copy(con, name, columns, paths) >= ANALYZED_ROWS:
        con.run(f"ANALYZE pg_temp.{quoted(name)}")


def rows_where(
    paths: Sequence[str], test: Callable[[pa.RecordBatch], pa.Array], limit: int
) -> list[dict[str, Any]]:
    """The first staged rows for which the test is true; for errors."""
    found: list[dict[str, Any]] = []
    for batch in batches(paths):
        if len(found) < limit:
            found += _plain(batch.filter(test(batch)).slice(0, limit - len(found)))
    return found


def row_at(paths: Sequence[str], number: int) -> dict[str, Any] | None:
    """The row that was sent as number `number`, from 0; for errors."""
    before = 0
    for batch in batches(paths):
        if number < before + batch.num_rows:
            return _plain(batch.slice(number - before, 1))[0]
        before += batch.num_rows
    return None


def longest(paths: Sequence[str], columns: Sequence[str]) -> tuple[str, int, dict[str, Any]]:
    """The longest text or bytes in these columns: its column, its length in bytes, and its row; for errors."""
    found: tuple[str, int, dict[str, Any]] = ("", 0, {})
    for batch in batches(paths):
        for name in filter(batch.schema.names.__contains__, columns):
            column = batch.column(name)
            if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
                continue
            sizes = pc.binary_length(column)
            size = pc.max(sizes).as_py() or 0
            if size > found[1]:
                found = name, size, _plain(batch.slice(pc.index(sizes, size).as_py(), 1))[0]
    return found


def _plain(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows as Python values; a column with a time that Python cannot represent, as numbers since 1970."""
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            columns[name] = column.to_pylist()
        except (OverflowError, ValueError):
            columns[name] = _numbers(column)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _numbers(column: pa.Array) -> list[Any]:
    def number(kind: pa.DataType) -> pa.DataType:
        return pa.int32() if pa.types.is_date32(kind) else pa.int64()

    kind = pa.list_(number(column.type.value_type)) if pa.types.is_list(column.type) else number(column.type)
    values: list[Any] = column.cast(kind).to_pylist()
    return values
