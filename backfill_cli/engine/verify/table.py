"""`verify` of one table: first a hash over all rows; if it differs, by key range and column; then the rows.

The hash is that of model/digest.py, computed in Spark, and Spark's own for columns without a word.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from operator import or_
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from backfill_cli.contracts import SinkCopy, SinkTable, Survey, own
from backfill_cli.engine.staging.files import observed, write_changes
from backfill_cli.engine.staging.quarantine import without_reason
from backfill_cli.engine.verify.progress import Steps
from backfill_cli.errors import BadData
from backfill_cli.formats.digests import DIALECT, digests, word, words_digest
from backfill_cli.model.balanced import balanced
from backfill_cli.model.digest import (
    NO_ROWS,
    RANGES,
    Digest,
    DigestSpec,
    KeyRanges,
    Word,
    range_sql,
    sample_parts,
    sampled_sql,
    spec_of,
    word_of,
)
from backfill_cli.model.plan import StagedTable
from backfill_cli.model.schema import columns_of, names_of
from backfill_cli.model.units import spell_count
from backfill_cli.model.verify import DifferentRange, DifferentRow, TableVerdict
from backfill_cli.spark.names import backticked, quoted

EVERY_KEY = KeyRanges(0, 1, 1)
"""One range that contains all keys."""

Digests = Mapping[int, Digest]


def compare(
    spark: SparkSession,
    expected: DataFrame,
    copy: SinkCopy,
    table: SinkTable,
    limit: int,
    sample: float | None,
    steps: Steps,
) -> "Compared":
    """Whether the sink's table holds exactly the rows of `expected`; of the differences, `limit` are listed.

    expected: the table's columns, unique by key. Differing hashes alone are no verdict: rows are compared before
    anything is called different. sample: the share of the keys that is compared, on both sides. Why a row was
    quarantined is not compared, see `without_reason`.
    """
    compared = without_reason(table)
    with steps.work(f"comparing table {table.target}"):
        comparison = _Comparison.of(spark, expected, copy, compared, sample)
        upstream, sink = comparison.digests(None)
    rows = (_rows(upstream), _rows(sink))
    if upstream == sink:
        return Compared(TableVerdict(table.name, table.target, True, *rows), comparison, ())
    ranges = comparison.ranges
    with steps.work(f"comparing table {table.target}: it differs, finding the ranges", further=True):
        upstream, sink = comparison.digests(ranges)
    parts = tuple(part for part in sorted({*upstream, *sink}) if upstream.get(part) != sink.get(part))
    with steps.work(
        f"comparing table {table.target}: rows of {len(parts)} of {_count(ranges)} ranges", further=True
    ):
        found = differences(*comparison.rows_in(ranges, parts), compared, limit, comparison.part(ranges))
    described = (comparison.described(ranges, part, upstream, sink, found.columns[part]) for part in parts)
    verdict = TableVerdict(
        table.name,
        table.target,
        not found,
        *rows,
        _count(ranges),
        tuple(described) if found else (),
        found.rows,
        found.missing,
        found.extra,
        found.changed,
    )
    return Compared(verdict, replace(comparison, table=table), parts)


@dataclass(frozen=True)
class Compared:
    """A table's verdict, and the comparison behind it. parts: the ranges whose hashes differ."""

    verdict: TableVerdict
    _comparison: "_Comparison"
    _parts: tuple[int, ...]

    def changes(self) -> DataFrame:
        """What makes the sink's table equal, as net changes `(own.OP, row…)`; reads both sides again."""
        comparison = self._comparison
        return changes(*comparison.rows_in(comparison.ranges, self._parts), comparison.table)


@dataclass(frozen=True)
class _Comparison:
    """Which columns both engines hash (spec), which Spark hashes for both sides (rest), and the key ranges.

    spec is None if the key has no word: then Spark hashes everything, in parts by the key's hash.
    sample: SQL for the rows that count, in Spark; the sink's own hashes use the spec's sample.
    """

    spark: SparkSession
    expected: DataFrame
    copy: SinkCopy
    table: SinkTable
    spec: DigestSpec | None
    rest: tuple[str, ...]
    ranges: KeyRanges | None
    sample: str | None

    @classmethod
    def of(
        cls, spark: SparkSession, expected: DataFrame, copy: SinkCopy, table: SinkTable, share: float | None
    ) -> "_Comparison":
        survey = copy.survey(table)
        spec = spec_of(table.schema, table.key, survey.few)
        names = names_of(table.schema)
        rest = tuple(name for name in names if name not in (spec.names if spec else table.key))
        rows, sample = expected, None
        if share is not None:
            parts = sample_parts(share)
            spec = None if spec is None else replace(spec, sample=parts)
            sample = sampled(table, parts)
            rows = rows.where(sample)
        return cls(spark, rows, copy, table, spec, rest, _ranges(spec, survey), sample)

    def digests(self, ranges: KeyRanges | None) -> tuple[Digests, Digests]:
        """(upstream's, sink's), computed in parallel; without ranges, one hash for all rows in range 0."""
        whole = ranges is None and self.spec is not None
        groups = self._groups(whole)
        with ThreadPoolExecutor(1, "verify-sink") as pool:
            sink = pool.submit(self._sink, ranges, groups)
            upstream = [spark_digest(self.expected, self.table, groups, self.part(ranges))] if groups else []
            if self.spec is not None:
                spec = replace(self.spec, sample=None)  # `expected` holds only the sample
                upstream.insert(0, words_digest(self.expected, spec, ranges))
            return _merged(upstream), _merged(sink.result())

    def _sink(self, ranges: KeyRanges | None, groups: Sequence[Sequence[str]]) -> list[Digests]:
        found: list[Digests] = []
        if self.spec is not None:
            found.append(self.copy.digest(self.table, self.spec, ranges))
        if groups:
            held = self._held([*self.table.key, *self.rest], None, ())
            found.append(spark_digest(held, self.table, groups, self.part(ranges)))
        return found

    def _groups(self, whole: bool) -> list[tuple[str, ...]]:
        """The columns that Spark hashes together; a group without columns stands for the key."""
        if whole:
            return [self.rest] if self.rest else []
        key: list[tuple[str, ...]] = [()] if self.spec is None else []
        return key + [(name,) for name in self.rest]

    def part(self, ranges: KeyRanges | None) -> str:
        """SQL for the number of a row's range."""
        if self.spec is None:
            return hashed_part(self.table)
        return "0L" if ranges is None else range_sql(ranges, DIALECT, word(self.spec.columns[0]))

    def rows_in(self, ranges: KeyRanges | None, parts: Sequence[int]) -> tuple[DataFrame, DataFrame]:
        """The rows of some ranges: (upstream's, sink's)."""
        names = names_of(self.table.schema)
        wanted = f"{self.part(ranges)} IN ({', '.join(str(part) for part in parts)})"
        held = self._held(names, ranges, parts)
        return self.expected.where(wanted), held.where(wanted) if self.spec is None or ranges is None else held

    def _held(self, columns: Sequence[str], ranges: KeyRanges | None, parts: Sequence[int]) -> DataFrame:
        """Columns of the sink's rows, restricted to some ranges (if these are by words) and to the sample."""
        only = None
        if self.spec is not None and (ranges is not None or self.sample is not None):
            key = replace(self.spec, columns=self.spec.columns[: len(self.spec.key)])
            only = (key, EVERY_KEY, [0]) if ranges is None else (key, ranges, parts)
        held = self.copy.frame(self.spark, self.table, columns, only)
        return held if self.sample is None else held.where(self.sample)

    def described(
        self, ranges: KeyRanges | None, part: int, upstream: Digests, sink: Digests, columns: tuple[str, ...]
    ) -> DifferentRange:
        ours, theirs = upstream.get(part, NO_ROWS), sink.get(part, NO_ROWS)
        return DifferentRange(self._range_name(ranges, part), ours.rows, theirs.rows, columns)

    def _range_name(self, ranges: KeyRanges | None, part: int) -> str:
        first = self.spec.columns[0] if self.spec else None
        if ranges is None or first is None or first.word is Word.TEXT:
            return f"part {part + 1} of {_count(ranges)} by hash of {', '.join(self.table.key)}"
        if first.word is not Word.INTEGER:
            return f"part {part + 1} of {ranges.count} by {first.name}"
        low = ranges.low + part * ranges.width
        start = f"from {low}" if part else "from the first"
        return f"{first.name} {start} to {low + ranges.width - 1 if part + 1 < ranges.count else 'the last'}"


def _ranges(spec: DigestSpec | None, survey: Survey) -> KeyRanges | None:
    if spec is None:
        return None
    if spec.columns[0].word is Word.TEXT:
        return KeyRanges.between(-(2**61), 2**61)
    return KeyRanges.between(survey.low or 0, survey.high or 0)


def _count(ranges: KeyRanges | None) -> int:
    return ranges.count if ranges is not None else RANGES


def _merged(sides: Sequence[Digests]) -> Digests:
    """Combines the hashes of two sources for the same rows; a range without rows is treated as absent."""
    first, *more = sides
    return {
        part: Digest(digest.rows, sum((other[part].hashes for other in more if part in other), digest.hashes))
        for part, digest in first.items()
        if digest.rows
    }


def _rows(digests: Digests) -> int:
    return sum(digest.rows for digest in digests.values())


@dataclass(frozen=True, slots=True)
class Differences:
    """missing, extra, changed: as in TableVerdict. rows: the first of them.

    columns: by range, those that differ in rows that both sides have once.
    """

    missing: int
    extra: int
    changed: int
    rows: tuple[DifferentRow, ...]
    columns: Mapping[int, tuple[str, ...]]

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.changed)


def differences(expected: DataFrame, held: DataFrame, table: SinkTable, limit: int, part: str) -> Differences:
    """All differences counted, at most `limit` listed: first rows not occurring once on each side, then values.

    One pass over both sides: rows are grouped by key, and the row of each side is compared per key. Each in key
    order. The job that finds the first ones also counts them. part: SQL for a row's range, of which
    there are at most 64: for each column, the ranges in which it differs are the bits of a number.
    """
    seen = Observation()
    more = F.col("upstream") - F.col("sink")
    counted = {
        "missing": F.sum(F.greatest(more, F.lit(0))),
        "extra": F.sum(F.greatest(-more, F.lit(0))),
        "changed": F.sum(F.when(more == 0, 1).otherwise(0)),
    }
    names = names_of(table.schema)
    bit = F.expr("shiftleft(1L, CAST(part AS INT))")
    for at in range(len(names)):
        counted[f"c{at}"] = F.bit_or(F.when((more == 0) & _differs(at), bit))
    keys = [F.col(f"k{at}") for at in range(len(table.key))]
    first = (
        _different(expected, held, table, part)
        .observe(seen, *(count.alias(name) for name, count in counted.items()))
        .orderBy(more == 0, *keys)
        .limit(limit)
        .select(
            *(F.expr(shown(table, name, f"k{at}")).alias(f"t{at}") for at, name in enumerate(table.key)),
            "upstream",
            "sink",
            *(_pair(at, table, name) for at, name in enumerate(names)),
        )
    )
    found = [row for one in first.toArrow().to_pylist() for row in _named(one, table, names)]
    told = seen.get
    missing, extra, changed, *bits = (int(told.get(name) or 0) for name in counted)
    columns = {at: tuple(n for n, b in zip(names, bits, strict=True) if b >> at & 1) for at in range(RANGES)}
    return Differences(missing, extra, changed, tuple(found[:limit]), columns)


def changes(expected: DataFrame, held: DataFrame, table: SinkTable) -> DataFrame:
    """What makes the sink's rows those of `expected`: `(own.OP 'U'|'D', own.COUNT, row…)`, unique by key.

    own.COUNT: how many rows of the key the sink has. All rows of a duplicate key are deleted, and one is written.
    """
    names = names_of(table.schema)
    there = F.col("upstream") > 0
    row, key = F.col("row"), F.col("key")
    columns = [
        F.when(there, row.getField(name)).otherwise(key.getField(name)).alias(name)
        if name in table.key
        else row.getField(name).alias(name)
        for name in names
    ]
    op = F.when(there, "U").otherwise("D").alias(own.OP)
    return _different(expected, held, table, "0L").select(op, F.col("sink").alias(own.COUNT), *columns)


def write_difference(
    difference: DataFrame, table: SinkTable, path: Path, folder: Path
) -> tuple[StagedTable, Mapping[str, int]]:
    """What `changes` found is in files, as net changes; and how many rows are inserted, replaced and removed.

    Raises BadData for a sink row with a NULL key, which cannot be removed by key.
    """
    put, there, nameless = F.col(own.OP) == "U", F.col(own.COUNT) > 0, F.lit(False)
    for name in table.key:
        nameless = nameless | quoted(name).isNull()
    counts = {"inserted": put & ~there, "replaced": put & there, "removed": ~put, "nameless": nameless}
    rows, seen = observed(difference, {name: F.when(which, 1) for name, which in counts.items()})
    done, _ = write_changes(rows.drop(own.COUNT), path, folder)
    told = seen()
    if told["nameless"]:
        raise BadData(
            f"table {table.target!r} of the sink: the key ({', '.join(table.key)}) is NULL in "
            f"{spell_count(told['nameless'], 'row')}: a fix changes rows by key",
            "delete them there with SQL, then verify again",
        )
    return done, told


def _different(expected: DataFrame, held: DataFrame, table: SinkTable, part: str) -> DataFrame:
    """The keys that differ, one row each: `(k…, part, upstream, sink, ours, theirs, row, key)`.

    part: the key's range, by the given SQL. upstream, sink: row counts. ours, theirs: a row of each in comparable
    form. row: the upstream's, unchanged. key: the sink's.
    """
    keys = [F.expr(comparable(table, name)).alias(f"k{at}") for at, name in enumerate(table.key)]
    names = names_of(table.schema)
    compared = F.struct(*(F.expr(comparable(table, name)).alias(f"c{at}") for at, name in enumerate(names)))
    row = F.struct(*(F.col(backticked(name)) for name in names))
    key = F.struct(*(F.col(backticked(name)) for name in table.key))
    keys.append(F.expr(part).alias("part"))
    ours = expected.select(*keys, compared.alias("ours"), row.alias("row"))
    theirs = held.select(*keys, compared.alias("theirs"), key.alias("key"))
    together = (
        ours.unionByName(theirs, allowMissingColumns=True)
        .groupBy(*(f"k{at}" for at in range(len(table.key))))
        .agg(
            F.count("ours").alias("upstream"),
            F.count("theirs").alias("sink"),
            *(F.first(name, ignorenulls=True).alias(name) for name in ("part", "ours", "theirs", "row", "key")),
        )
    )
    return together.where(balanced(or_, [F.col("upstream") != F.col("sink"), *map(_differs, range(len(names)))]))


def _differs(at: int) -> Column:
    """Whether a value differs. Done per column: single columns can be comparable when whole rows are not."""
    return ~F.col(f"ours.c{at}").eqNullSafe(F.col(f"theirs.c{at}"))


def _pair(at: int, table: SinkTable, name: str) -> Column:
    """`v<at>`: whether a value differs, and both as text."""
    ours, theirs = (F.expr(shown(table, name, f"{side}.c{at}")) for side in ("ours", "theirs"))
    return F.struct(_differs(at).alias("differs"), ours.alias("upstream"), theirs.alias("sink")).alias(f"v{at}")


def _named(found: dict[str, Any], table: SinkTable, names: list[str]) -> Iterator[DifferentRow]:
    """The differences of one key."""
    key = tuple((name, found[f"t{at}"]) for at, name in enumerate(table.key))
    if found["upstream"] != found["sink"]:
        yield DifferentRow(key, None, _spell_rows(found["upstream"]), _spell_rows(found["sink"]))
        return
    for at, name in enumerate(names):
        pair = found[f"v{at}"]
        if pair["differs"]:
            yield DifferentRow(key, name, pair["upstream"], pair["sink"])


def _spell_rows(rows: int) -> str:
    return f"{rows} row{'' if rows == 1 else 's'}"


# Times with microseconds, as to_json would truncate them to milliseconds. NULL fields are kept, to be compared.
_JSON_OPTIONS = (
    "map('ignoreNullFields', 'false', 'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\", "
    "'timestampNTZFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\")"
)


def spark_digest(
    rows: DataFrame, table: SinkTable, groups: Sequence[Sequence[str]], part: str
) -> dict[int, Digest]:
    """By `part` (SQL, a BIGINT): row count, and Spark's hash of each group of columns together with the key."""
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
