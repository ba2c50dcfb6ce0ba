"""The digest of model/digest.py computed in Spark, and Spark's own hash for columns without a word."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import SinkTable, own
from backfill_cli.formats.digests import DIALECT, digests, word
from backfill_cli.model.digest import (
    RANGES,
    Digest,
    DigestSpec,
    KeyRanges,
    range_sql,
    sampled_sql,
    word_of,
)
from backfill_cli.model.schema import columns_of
from backfill_cli.spark.names import backticked

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Times with microseconds, as to_json would truncate them to milliseconds. NULL fields are kept, to be compared.
_JSON_OPTIONS = (
    "map('ignoreNullFields', 'false', 'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\", "
    "'timestampNTZFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\")"
)


def spark_digest(
    rows: "DataFrame", table: SinkTable, groups: Sequence[Sequence[str]], part: str
) -> dict[int, Digest]:
    """By `part` (SQL, a BIGINT): row count, and Spark's hash of each group of columns together with the key."""
    from pyspark.sql import functions as F

    key = [comparable(table, name) for name in table.key]
    folded: list[Column] = []
    for group in groups:
        # xxhash64 skips NULLs: IS NULL is hashed too, so that a NULL moving from column to column is noticed.
        values = [sql for name in group for sql in (comparable(table, name), f"{backticked(name)} IS NULL")]
        folded.append(F.expr(f"bit_xor(xxhash64({', '.join([*key, *values])}))").alias(f"h{len(folded)}"))
    parted = rows.select(F.expr(part).alias(own.PART), "*").groupBy(own.PART)
    return digests(parted.agg(F.count(F.lit(1)).alias("n"), *folded).withColumnRenamed(own.PART, "part"))


def hashed_part(table: SinkTable) -> str:
    """SQL for the number of the part that a row belongs to, for keys without a word."""
    key = ", ".join(comparable(table, name) for name in table.key)
    return f"pmod(xxhash64({key}), {RANGES}L)"


def sampled(table: SinkTable, parts: int) -> str:
    """SQL for whether a row's key is in the sample of so many of PARTS.

    Does not depend on what the sink can hash of the key, which can change with its statistics at each verify.
    """
    columns = [word_of(_field(table, name), frozenset(table.key)) for name in table.key]
    words = [
        f"xxhash64({comparable(table, name)})" if column is None else word(column)
        for name, column in zip(table.key, columns, strict=True)
    ]
    return sampled_sql(parts, words, DIALECT)


def key_part(spec: DigestSpec, ranges: KeyRanges) -> str:
    return range_sql(ranges, DIALECT, word(spec.columns[0]))


def comparable(table: SinkTable, name: str) -> str:
    """SQL for a column as a value for which `=` and hashes differ exactly when it does: nested values as JSON."""
    field = _field(table, name)
    if not isinstance(field["type"], str):
        return f"to_json({backticked(name)}, {_JSON_OPTIONS})"
    if (field.get("metadata") or {}).get("logical") == "uuid":
        return f"lower({backticked(name)})"
    return backticked(name)


def shown(table: SinkTable, name: str, compared: str | None = None) -> str:
    """SQL for a column as text for display, at most 200 characters. compared: SQL of its comparable value."""
    binary = _field(table, name)["type"] == "binary"
    value = comparable(table, name) if compared is None else compared
    return f"substring({f'hex({value})' if binary else f'CAST({value} AS STRING)'}, 1, 200)"


def _field(table: SinkTable, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = columns_of(table.schema)[name]
    return found
