"""Sends staged Parquet files to the database, read batch by batch and sent as one binary COPY, and reads rows.

ADBC encodes a column by its Arrow type; the server decodes the bytes by the type of its own column. So dates and
times are sent as the integers that PostgreSQL stores, infinities included, which ADBC's own encoding refuses.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_cli.contracts import own
from backfill_cli.formats import schemas
from backfill_cli.formats.compute import pc
from backfill_cli.sinks.postgres.dialect import quoted
from backfill_cli.sinks.postgres.session import Connection
from backfill_cli.sinks.sql.dialect import Column, Target

BATCH_ROWS, BATCH_BYTES = 10_000, 16 << 20
"""At most this much at a time in this process, whatever the epoch's size: 10,000 rows of 100 bytes are 1 MB."""
ANALYZED_ROWS = 10_000
"""From this many rows on, a plan without statistics can cost more than collecting them (20 ms)."""
DAYS_TO_2000 = 10_957
MICROS_TO_2000 = DAYS_TO_2000 * 86_400_000_000
"""PostgreSQL counts from 2000, Spark and Parquet from 1970."""
ENDLESS_DAYS, ENDLESS_MICROS = 2**31 - 1, 2**63 - 1
"""Infinity as DuckDB and Parquet store it, negated for -infinity; PostgreSQL's -infinity is one less."""
UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"


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


# Values


class Refused(Exception):
    """A staged value that PostgreSQL cannot hold. row: its index among the rows of these files, from 0."""

    def __init__(self, row: int, column: str, what: str, paths: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.row, self.column, self.what, self.paths = row, column, what, paths


def arrow_type(column: Column) -> pa.DataType:
    """The Arrow type of the column's Spark type."""
    is_text = column.spark in ("uuid", "json") or "char(" in column.spark
    kind = schemas.arrow_type("string" if is_text else column.spark)
    return pa.list_(kind) if column.array else kind


def sent_schema(columns: tuple[Column, ...], extra: tuple[str, ...] = ()) -> pa.Schema:
    """The Arrow schema of what is sent: the columns, then those of `extra`, which only staged files have."""
    staged = {own.OP: pa.string(), own.UNSENT: pa.list_(pa.string())}
    fields = [(column.name, _sent_type(column)) for column in columns]
    return pa.schema([*fields, *((name, staged[name]) for name in extra)])


def _sent_type(column: Column) -> pa.DataType:
    if column.array:
        return pa.list_(pa.int16()) if column.spark == "byte" else arrow_type(column)
    raw = {
        "byte": pa.int16(),
        "date": pa.int32(),
        "timestamp": pa.int64(),
        "timestamp_ntz": pa.int64(),
        "uuid": pa.binary(),
    }
    return raw.get(column.spark) or arrow_type(column)


def sent(column: Column, values: pa.Array) -> pa.Array:
    """A staged column as it is sent. Raises Refused for a value that the type cannot hold, with its row there."""
    given = values.cast(arrow_type(column))
    if column.array:
        return given.cast(_sent_type(column))
    match column.spark:
        case "byte":
            return given.cast(pa.int16())
        case "date":
            return _since_2000(column, given.cast(pa.int32()), DAYS_TO_2000, ENDLESS_DAYS)
        case "timestamp" | "timestamp_ntz":
            return _since_2000(column, given.cast(pa.int64()), MICROS_TO_2000, ENDLESS_MICROS)
        case "uuid":
            return _uuids(column, given)
        case _:
            return given


def _since_2000(column: Column, given: pa.Array, shift: int, endless: int) -> pa.Array:
    if not len(given) or given.null_count == len(given):
        return given
    extremes = pc.min_max(given).as_py()
    if -endless + shift < extremes["min"] and extremes["max"] < endless:
        return pc.subtract(given, pa.scalar(shift, given.type))
    # Infinities are kept; a finite value that the subtraction cannot represent is out of PostgreSQL's range.
    ends = pc.or_(pc.equal(given, endless), pc.equal(given, -endless))
    outside = pc.and_(pc.less_equal(given, -endless + shift), pc.invert(ends))
    if pc.any(outside).as_py():
        row = pc.index(outside, True).as_py()
        raise Refused(
            row, column.name, f"{given[row].as_py()} since 1970 is before PostgreSQL's first {column.type}"
        )
    kept = pc.if_else(
        pc.equal(given, endless), pa.scalar(endless, given.type), pa.scalar(-endless - 1, given.type)
    )
    moved = pc.subtract(pc.if_else(ends, pa.scalar(shift, given.type), given), pa.scalar(shift, given.type))
    return pc.if_else(ends, kept, moved)


def _uuids(column: Column, given: pa.Array) -> pa.Array:
    plain = pc.match_substring_regex(given, UUID)
    if pc.any(pc.invert(plain)).as_py():
        row = pc.index(plain, False).as_py()
        raise Refused(row, column.name, f"{given[row].as_py()!r} is not a UUID")
    bare = pc.replace_substring(given, "-", "")
    return pa.array([None if text is None else bytes.fromhex(text) for text in bare.to_pylist()], pa.binary())


def selected(column: Column, of: str) -> str:
    """SQL that reads a column so that ADBC delivers it exactly to `received`: dates and times as numbers."""
    match column.spark:
        case "uuid" | "json":
            return f"{of}::text"
        case "date" | "timestamp" | "timestamp_ntz" if not column.array:
            return since_1970(column.spark, of)
        case spark if spark.startswith("decimal("):
            return f"{of}::text[]" if column.array else f"{of}::text"
        case _:
            return of


def since_1970(spark: str, of: str) -> str:
    """SQL of a date in days, or a timestamp in microseconds, since 1970; infinities as Parquet stores them."""
    if spark == "date":
        number, endless = f"({of} - DATE '1970-01-01')::bigint", ENDLESS_DAYS
    else:
        number, endless = f"(extract(epoch FROM {of}) * 1000000)::bigint", ENDLESS_MICROS
    ends = f"CASE WHEN {of} > '1970-01-01' THEN {endless} ELSE {-endless} END"
    return f"CASE WHEN pg_catalog.isfinite({of}) THEN {number} WHEN {of} IS NOT NULL THEN {ends} END"


def received(column: Column, values: Any) -> pa.Array:
    """What `selected` read, as Spark's type. Raises pyarrow's error for a value that no job can have written."""
    plain = values.storage if isinstance(values, pa.ExtensionArray) else values
    kind = arrow_type(column)
    if pa.types.is_date32(kind):
        return plain.cast(pa.int32()).cast(kind)
    return plain.cast(kind)
