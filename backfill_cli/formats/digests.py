"""Computes the digest of model/digest.py in Spark: of an upstream, and of a sink in Spark."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from backfill_cli.contracts import own
from backfill_cli.model.digest import (
    Dialect,
    Digest,
    DigestSpec,
    KeyRanges,
    Word,
    WordColumn,
    ranges_sql,
    whole_sql,
)
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.names import backticked

_ANSI = "spark.sql.ansi.enabled"


def word(column: WordColumn) -> str:
    name = backticked(column.name)
    match column.word:
        case Word.DAYS:
            return f"CAST(unix_date({name}) AS BIGINT)"
        case Word.MICROS:
            # The session is in UTC: the cast does not shift a local time. timestampdiff took three times as long.
            return f"unix_micros(CAST({name} AS TIMESTAMP))"
        case Word.UNSCALED if column.precision <= 15:
            # Exact: a double holds 15 digits, the product is off by less than a half. Decimals take twice as long.
            return f"CAST(rint(CAST({name} AS DOUBLE) * {10**column.scale}D) AS BIGINT)"
        case Word.UNSCALED:
            return f"CAST({name} * CAST({10**column.scale} AS DECIMAL(19, 0)) AS BIGINT)"
        case Word.TEXT:
            return f"CASE WHEN {name} IS NOT NULL THEN xxhash64({name}) END"  # xxhash64 of NULL is 42
        case _:
            return f"CAST({name} AS BIGINT)"


DIALECT = Dialect(
    word=word,
    xor=lambda a, b: f"({a} ^ {b})",
    quotient=lambda value, by: f"({value} div {by}L)",
)


def words_digest(rows: DataFrame, spec: DigestSpec, ranges: KeyRanges | None) -> dict[int, Digest]:
    """Like `SinkCopy.digest`, of a frame."""
    spark = rows.sparkSession  # whose view it is; another can be the process's own
    view = f"{own.PREFIX}verify_{uuid.uuid4().hex}"
    rows.createOrReplaceTempView(view)
    try:
        sql = whole_sql(spec, DIALECT, view) if ranges is None else ranges_sql(spec, ranges, DIALECT, view)
        with _unchecked(spark):
            digest = spark.sql(sql)
        return digests(digest)
    finally:
        spark.catalog.dropTempView(view)


@contextmanager
def _unchecked(spark: SparkSession) -> Iterator[None]:
    """Turns off overflow checks for the arithmetic written here: it cannot overflow, and checks cost a fifth.

    What the frame itself computes keeps its checks.
    """
    before = spark.conf.get(_ANSI)
    spark.conf.set(_ANSI, "false")
    try:
        yield
    finally:
        spark.conf.set(_ANSI, before or "true")


def digests(frame: DataFrame) -> dict[int, Digest]:
    """The digest of each range, one row per range: a handful, whatever the table's size."""
    found = frame.toArrow().to_pylist()
    return {row.pop("part"): Digest(row.pop("n"), tuple(row.values())) for row in found}
