"""`verify` of one table: first a hash over all rows; if it differs, by key range and column; then the rows."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from backfill_cli.contracts import SinkCopy, SinkTable, Survey
from backfill_cli.engine.verify.digest import hashed_part, key_part, sampled, spark_digest
from backfill_cli.engine.verify.progress import Steps
from backfill_cli.engine.verify.rows import changes, differences
from backfill_cli.formats.digests import words_digest
from backfill_cli.model.digest import (
    NO_ROWS,
    RANGES,
    Digest,
    DigestSpec,
    KeyRanges,
    Word,
    sample_parts,
    spec_of,
)
from backfill_cli.model.schema import names_of
from backfill_cli.model.verify import DifferentRange, TableVerdict
from backfill_cli.spark.names import backticked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVERY_KEY = KeyRanges(0, 1, 1)
"""One range that contains all keys."""

Digests = Mapping[int, Digest]


def compare(
    spark: "SparkSession",
    expected: "DataFrame",
    copy: SinkCopy,
    table: SinkTable,
    limit: int,
    sample: float | None = None,
    steps: Steps | None = None,
) -> "Compared":
    """Whether the sink's table holds exactly the rows of `expected`; of the differences, `limit` are listed.

    expected: the table's columns, unique by key. Differing hashes alone are no verdict: rows are compared before
    anything is called different. sample: the share of the keys that is compared, on both sides.
    """
    steps = steps or Steps.untold()
    with steps.work(f"comparing table {table.target}"):
        comparison = _Comparison.of(spark, expected, copy, table, sample)
        upstream, sink = comparison.digests(None)
    rows = (_rows(upstream), _rows(sink))
    if upstream == sink:
        return Compared(TableVerdict(table.name, table.target, True, *rows), comparison, ())
    ranges = comparison.ranges
    with steps.further(f"comparing table {table.target}: it differs, finding the ranges"):
        upstream, sink = comparison.digests(ranges)
    parts = tuple(part for part in sorted({*upstream, *sink}) if upstream.get(part) != sink.get(part))
    with steps.further(f"comparing table {table.target}: rows of {len(parts)} of {_count(ranges)} ranges"):
        found = differences(*comparison.rows_in(ranges, parts), table, limit, comparison.part(ranges))
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
    return Compared(verdict, comparison, parts)


@dataclass(frozen=True)
class Compared:
    """A table's verdict, and the comparison behind it. parts: the ranges whose hashes differ."""

    verdict: TableVerdict
    _comparison: "_Comparison"
    _parts: tuple[int, ...]

    def changes(self) -> "DataFrame":
        """What makes the sink's table equal, as net changes `(own.OP, row…)`; reads both sides again."""
        comparison = self._comparison
        return changes(*comparison.rows_in(comparison.ranges, self._parts), comparison.table)


@dataclass(frozen=True)
class _Comparison:
    """Which columns both engines hash (spec), which Spark hashes for both sides (rest), and the key ranges.

    spec is None if the key has no word: then Spark hashes everything, in parts by the key's hash.
    sample: SQL for the rows that count, in Spark; the sink's own hashes use the spec's sample.
    """

    spark: "SparkSession"
    expected: "DataFrame"
    copy: SinkCopy
    table: SinkTable
    spec: DigestSpec | None
    rest: tuple[str, ...]
    ranges: KeyRanges | None
    sample: str | None

    @classmethod
    def of(
        cls, spark: "SparkSession", expected: "DataFrame", copy: SinkCopy, table: SinkTable, share: float | None
    ) -> "_Comparison":
        survey = copy.survey(table)
        spec = spec_of(table.schema, table.key, survey.few)
        names = names_of(table.schema)
        rest = tuple(name for name in names if name not in (spec.names if spec else table.key))
        rows = expected.select(*map(backticked, names))
        sample = None
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
                upstream.insert(0, words_digest(self.spark, self.expected, spec, ranges))
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
        return "0L" if ranges is None else key_part(self.spec, ranges)

    def rows_in(self, ranges: KeyRanges | None, parts: Sequence[int]) -> "tuple[DataFrame, DataFrame]":
        """The rows of some ranges: (upstream's, sink's)."""
        names = names_of(self.table.schema)
        wanted = f"{self.part(ranges)} IN ({', '.join(str(part) for part in parts)})"
        held = self._held(names, ranges, parts)
        return self.expected.where(wanted), held.where(wanted) if self.spec is None or ranges is None else held

    def _held(self, columns: Sequence[str], ranges: KeyRanges | None, parts: Sequence[int]) -> "DataFrame":
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
