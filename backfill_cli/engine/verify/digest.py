"""The digest of model/digest.py as Spark computes it, and Spark's own hash for columns that have no word."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import SinkTable
from backfill_cli.model.digest import (
    RANGES,
    Dialect,
    Digest,
    DigestSpec,
    KeyRanges,
    Word,
    WordColumn,
    range_sql,
    ranges_sql,
    sampled_sql,
    whole_sql,
    word_of,
)
from backfill_cli.model.schema import columns_of
from backfill_cli.spark.names import backticked

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Times with microseconds: to_json would else cut them to milliseconds. NULL fields stay, so that they are seen.
_JSON_OPTIONS = (
    "map('ignoreNullFields', 'false', 'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\", "
    "'timestampNTZFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\")"
)

_PART = "_backfill_part"
_ANSI = "spark.sql.ansi.enabled"


def _word(column: WordColumn) -> str:
    name = backticked(column.name)
    match column.word:
        case Word.DAYS:
            return f"CAST(unix_date({name}) AS BIGINT)"
        case Word.MICROS:
            # The session is in UTC, so a local time's word is its own. timestampdiff took three times as long.
            return f"unix_micros(CAST({name} AS TIMESTAMP))"
        case Word.UNSCALED if column.precision <= 15:
            # Exact: a double holds 15 digits, the product is off by less than a half. Decimals take twice as long.
            return f"CAST(rint(CAST({name} AS DOUBLE) * {10**column.scale}D) AS BIGINT)"
        case Word.UNSCALED:
            return f"CAST({name} * CAST({10**column.scale} AS DECIMAL(19, 0)) AS BIGINT)"
        case Word.TEXT:
            return f"CASE WHEN {name} IS NOT NULL THEN xxhash64({name}) END"  # of NULL it is 42
        case _:
            return f"CAST({name} AS BIGINT)"


DIALECT = Dialect(
    word=_word,
    xor=lambda a, b: f"({a} ^ {b})",
    quotient=lambda value, by: f"({value} div {by}L)",
)


def words_digest(
    spark: "SparkSession", rows: "DataFrame", spec: DigestSpec, ranges: KeyRanges | None
) -> dict[int, Digest]:
    """As `SinkCopy.digest`, of a frame."""
    view = f"_backfill_verify_{uuid.uuid4().hex}"
    rows.createOrReplaceTempView(view)
    try:
        sql = whole_sql(spec, DIALECT, view) if ranges is None else ranges_sql(spec, ranges, DIALECT, view)
        with _unchecked(spark):
            digest = spark.sql(sql)
        return _digests(digest)
    finally:
        spark.catalog.dropTempView(view)


@contextmanager
def _unchecked(spark: "SparkSession") -> Iterator[None]:
    """Arithmetic that is written here is not checked for overflow: it cannot, and the checks cost a fifth.

    What the frame computes below keeps the checks that it was written with.
    """
    before = spark.conf.get(_ANSI)
    spark.conf.set(_ANSI, "false")
    try:
        yield
    finally:
        spark.conf.set(_ANSI, before or "true")


def spark_digest(
    rows: "DataFrame", table: SinkTable, groups: Sequence[Sequence[str]], part: str
) -> dict[int, Digest]:
    """By `part` (SQL, a BIGINT): rows, and Spark's hash of each group of columns together with the key."""
    from pyspark.sql import functions as F

    key = [comparable(table, name) for name in table.key]
    folded: list[Column] = []
    for group in groups:
        # xxhash64 skips NULLs: whether one is there is hashed too, so that it cannot move from column to column.
        values = [sql for name in group for sql in (comparable(table, name), f"{backticked(name)} IS NULL")]
        folded.append(F.expr(f"bit_xor(xxhash64({', '.join([*key, *values])}))").alias(f"h{len(folded)}"))
    parted = rows.select(F.expr(part).alias(_PART), "*").groupBy(_PART)
    return _digests(parted.agg(F.count(F.lit(1)).alias("n"), *folded).withColumnRenamed(_PART, "part"))


def hashed_part(table: SinkTable) -> str:
    """The number of the part that a row is in where the key has no word."""
    key = ", ".join(comparable(table, name) for name in table.key)
    return f"pmod(xxhash64({key}), {RANGES}L)"


def sampled(table: SinkTable, parts: int) -> str:
    """SQL of whether a row's key is in the sample of so many of PARTS.

    The same whatever a sink can hash of the key by itself, which its statistics say anew at each verify.
    """
    columns = [word_of(_field(table, name), frozenset(table.key)) for name in table.key]
    words = [
        f"xxhash64({comparable(table, name)})" if column is None else _word(column)
        for name, column in zip(table.key, columns, strict=True)
    ]
    return sampled_sql(parts, words, DIALECT)


def key_part(spec: DigestSpec, ranges: KeyRanges) -> str:
    return range_sql(ranges, DIALECT, _word(spec.columns[0]))


def comparable(table: SinkTable, name: str) -> str:
    """SQL of a column as a value that `=` and hashes tell apart exactly when it differs: nested ones as JSON."""
    field = _field(table, name)
    if not isinstance(field["type"], str):
        return f"to_json({backticked(name)}, {_JSON_OPTIONS})"
    if (field.get("metadata") or {}).get("logical") == "uuid":
        return f"lower({backticked(name)})"
    return backticked(name)


def shown(table: SinkTable, name: str, compared: str | None = None) -> str:
    """SQL of a column as text for people, at most 200 characters. compared: where its comparable value stands."""
    binary = _field(table, name)["type"] == "binary"
    value = comparable(table, name) if compared is None else compared
    return f"substring({f'hex({value})' if binary else f'CAST({value} AS STRING)'}, 1, 200)"


def _field(table: SinkTable, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = columns_of(table.schema)[name]
    return found


def _digests(frame: "DataFrame") -> dict[int, Digest]:
    """One row a range: a handful, whatever the table's size."""
    found = frame.toArrow().to_pylist()
    return {row.pop("part"): Digest(row.pop("n"), tuple(row.values())) for row in found}
