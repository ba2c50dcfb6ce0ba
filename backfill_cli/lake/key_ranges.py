"""Plans key ranges of a lake table from its files' statistics: which rows form a split, and where a slice ends.

The rows of several reads are one Spark frame; the rest is pure. Ranges cover every possible key, also NULL:
statistics only decide where to cut, never which rows exist. A key is a point that can be calculated with: a whole
number (numbers; decimals unscaled; dates as days, timestamps as microseconds since 1970), or a text, ordered by
code points, which is the order of Spark's bytes.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_FLOOR, Context, Decimal
from itertools import pairwise

from backfill_cli.contracts import own
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.spark.api import DataFrame, F
from backfill_cli.spark.names import backticked

Point = int | str

WHOLE = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}
_EPOCH = datetime(1970, 1, 1)
_FIRST, _LAST = ((at - _EPOCH) // timedelta(microseconds=1) for at in (datetime.min, datetime.max))
"""Times without a zone that can be written as a literal; a file's statistics can be outside this range."""
_EXACT = Context(prec=80)  # Spark's decimals have 38 digits at most

RANGE_ROWS = 1_000_000
"""Rows of a range, if files allow it. Ranges can be large: resume and throttle cut inside them."""

MOST_READS = 4.0
"""Most reads per row that files reaching over cuts may cause; to stay below, ranges are made fewer and larger."""

SLICED_READS = 2.0
"""Up to this many reads per row a range is worth slicing: each slice reads all files that reach into it."""


@dataclass(frozen=True, slots=True)
class FileKeys:
    """What metadata says about a file's first key column.

    low, high: bounds of all keys, inclusive; None: unknown. rows: live ones, exactly or nearly.
    """

    low: Point | None
    high: Point | None
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The rows with `low <= key < high`; None is open-ended, and a range without `low` holds the NULL keys.

    least, most: of the keys in it by statistics, None if unknown. rows, size_bytes: estimated; over all ranges
    they add up to the table's. sliced: whether parts of it can be read.
    """

    low: Point | None = None
    high: Point | None = None
    least: Point | None = None
    most: Point | None = None
    rows: int = 0
    size_bytes: int = 0
    sliced: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def of_json(cls, text: str) -> "KeyRange":
        return cls(**json.loads(text))


def planned(files: Sequence[FileKeys], range_rows: int = RANGE_ROWS) -> list[KeyRange]:
    """Ranges in the order of keys, at least one; every key is in exactly one.

    Cuts are where no file reaches over them, so that each file is read once; within overlapping files there are as
    many as MOST_READS allows. There is one range if the keys of a file with rows are unknown.
    """
    known, points = _spans(files)
    if not known:
        rows, size = sum(file.rows for file in files), sum(file.size_bytes for file in files)
        return [KeyRange(rows=rows, size_bytes=size)]
    groups = list(
        _merged([part for cluster in _clusters(known) for part in _cut(cluster, range_rows)], range_rows)
    )
    if points:
        groups = [_in_points(group, points) for group in groups]
    cuts = [None, *(group.least for group in groups[1:]), None]
    return [replace(group, low=a, high=b) for group, (a, b) in zip(groups, pairwise(cuts), strict=True)]


@dataclass(frozen=True, slots=True)
class _Span:
    """A file's keys as whole numbers: points, or for texts their rank among all texts in the metadata."""

    low: int
    high: int
    rows: int
    size_bytes: int


def _spans(files: Sequence[FileKeys]) -> tuple[list[_Span], list[str]]:
    """Spans ordered by low, and the texts whose ranks they are. Both empty if the keys of a file are unknown."""
    told = [file for file in files if file.rows or file.size_bytes]
    numbers: list[_Span] = []
    texts = sorted({p for file in told for p in (file.low, file.high) if isinstance(p, str)})
    ranks = {text: rank for rank, text in enumerate(texts)}
    for file in told:
        if file.low is None or file.high is None:
            return [], []
        low = ranks[file.low] if isinstance(file.low, str) else file.low
        high = ranks[file.high] if isinstance(file.high, str) else file.high
        numbers.append(_Span(low, max(low, high), file.rows, file.size_bytes))
    return sorted(numbers, key=lambda span: (span.low, span.high)), texts


def _in_points(group: KeyRange, texts: Sequence[str]) -> KeyRange:
    """A range of ranks as one of texts: a text halfway between two cannot be computed, so it is read whole."""
    assert isinstance(group.least, int)
    assert isinstance(group.most, int)
    return replace(group, least=texts[group.least], most=texts[group.most], sliced=False)


def _clusters(spans: Sequence[_Span]) -> Iterator[list[_Span]]:
    """Groups of files that overlap, directly or through others, in the order of keys."""
    cluster: list[_Span] = []
    reach = 0
    for span in spans:
        if cluster and reach < span.low:
            yield cluster
            cluster = []
        reach = max(reach, span.high) if cluster else span.high
        cluster.append(span)
    yield cluster


def _cut(cluster: Sequence[_Span], range_rows: int) -> list[KeyRange]:
    """Ranges of overlapping files: as many as their rows require and their overlap allows."""
    spread = _Spread(cluster)
    parts = 1 if len(cluster) == 1 else -(-spread.rows // max(range_rows, 1))
    cuts = spread.cuts(parts)
    while cuts and spread.reads(cuts) > MOST_READS:
        parts //= 2
        cuts = spread.cuts(parts)
    small = spread.rows <= range_rows or len(cluster) == 1
    sliced = small or spread.reads(cuts or spread.cuts(8)) <= SLICED_READS
    return list(spread.ranges(cuts, sliced))


class _Spread:
    """How the rows of overlapping files are distributed over their keys, each file's rows assumed to be even."""

    def __init__(self, cluster: Sequence[_Span]) -> None:
        self._cluster = cluster
        self.least, self.most = cluster[0].low, max(span.high for span in cluster)
        self.rows = sum(span.rows for span in cluster)
        self._size = sum(span.size_bytes for span in cluster)
        self._lows = [span.low for span in cluster]
        self._edges, self._below = self._cumulated()

    def _cumulated(self) -> tuple[list[int], list[float]]:
        """Keys where a file begins or ends, in order, and how many rows are below each."""
        steps: dict[int, float] = {}
        for span in self._cluster:
            density = span.rows / (span.high + 1 - span.low)
            steps[span.low] = steps.get(span.low, 0.0) + density
            steps[span.high + 1] = steps.get(span.high + 1, 0.0) - density
        edges = sorted(steps)
        below, density = [0.0], 0.0
        for begin, end in pairwise(edges):
            density += steps[begin]
            below.append(below[-1] + max(density, 0.0) * (end - begin))
        return edges, below

    def cuts(self, parts: int) -> list[int]:
        """Up to `parts - 1` keys, in order, all above the least one, with about as many rows between each two."""
        found: list[int] = []
        for n in range(1, parts):
            wanted = self._below[-1] * n / parts
            at = min(bisect_right(self._below, wanted), len(self._edges) - 1)
            low, high = self._below[at - 1], self._below[at]
            share = (wanted - low) / (high - low) if high > low else 0.0
            cut = self._edges[at - 1] + int((self._edges[at] - self._edges[at - 1]) * share)
            if (found[-1] if found else self.least) < cut <= self.most:
                found.append(cut)
        return found

    def reads(self, cuts: Sequence[int]) -> float:
        """How often a row is read on average, if each range reads all files that reach into it."""
        read = 0
        for span in self._cluster:
            read += span.rows * (1 + bisect_right(cuts, span.high) - bisect_right(cuts, span.low))
        return read / max(self.rows, 1)

    def ranges(self, cuts: Sequence[int], sliced: bool) -> Iterator[KeyRange]:
        rows = size = 0
        for low, high in pairwise([self.least, *cuts, self.most + 1]):
            rows_to, size_to = self._up_to(high)
            yield KeyRange(None, None, low, high - 1, rows_to - rows, size_to - size, sliced)
            rows, size = rows_to, size_to

    def _up_to(self, key: int) -> tuple[int, int]:
        """Rows and bytes below a key; all of them at the end."""
        if key > self.most:
            return self.rows, self._size
        at = bisect_right(self._edges, key)
        begin, end = self._edges[at - 1], self._edges[at]
        share = (key - begin) / (end - begin)
        below = self._below[at - 1] + (self._below[at] - self._below[at - 1]) * share
        part = min(1.0, below / self._below[-1]) if self._below[-1] else 0.0
        return int(self.rows * part), int(self._size * part)


def _merged(groups: Sequence[KeyRange], range_rows: int) -> Iterator[KeyRange]:
    """Adjacent ranges joined as long as they have no more rows than `range_rows`."""
    current = groups[0]
    for group in groups[1:]:
        if current.rows + group.rows > range_rows:
            yield current
            current = group
        else:
            current = replace(
                current,
                most=group.most,
                rows=current.rows + group.rows,
                size_bytes=current.size_bytes + group.size_bytes,
                sliced=current.sliced and group.sliced,
            )
    yield current


def slice_end(of: KeyRange, after: Point | None, limit_rows: int) -> Point | None:
    """The end of about `limit_rows` rows from `after` on (None: from the range's start); None: the range's end.

    Interpolated between least and most, so nothing is read. It is above `after`, and slices of any limit reach the
    end.
    """
    if not of.sliced or not isinstance(of.least, int) or not isinstance(of.most, int):
        return None
    start = of.least if after is None else int(after)
    span, rest = of.most + 1 - of.least, of.most + 1 - start
    step = max(1, -(-span * max(limit_rows, 1) // max(of.rows, 1)))
    return start + step if step < rest else None


@dataclass(frozen=True, slots=True)
class KeyRead:
    """A closed read and its range."""

    read: SnapshotRead
    range: KeyRange

    @property
    def low(self) -> Point | None:
        return self.range.low if self.read.after is None else self.read.after

    @property
    def high(self) -> Point | None:
        return self.range.high if self.read.up_to is None else self.read.up_to


def closed_read(read: SnapshotRead, of: KeyRange) -> SnapshotRead:
    """The read with its end: a key inside the range, or the range's end. Nothing is read for it."""
    if read.limit_rows is None:
        return read
    return replace(read, up_to=slice_end(of, read.after, read.limit_rows), limit_rows=None)


def frame_of(table: DataFrame, key: str, key_type: str, reads: Sequence[KeyRead]) -> DataFrame:
    """The rows of these reads, and `own.READ INT`. Adjacent reads share a condition: one scan reads them."""
    column = backticked(key)
    bounds = [predicate(column, key_type, one.low, one.high) for one in reads]
    if len(reads) == 1:
        kept = table if bounds[0] is None else table.where(bounds[0])
        return kept.withColumn(own.READ, F.lit(0))
    wanted = [predicate(column, key_type, low, high) for low, high in _joined(reads)]
    if None not in wanted:
        table = table.where(" OR ".join(one for one in wanted if one is not None))
    read = "CASE " + " ".join(f"WHEN {bound} THEN {n}" for n, bound in enumerate(bounds)) + " END"
    return table.withColumn(own.READ, F.expr(read))


def _joined(reads: Sequence[KeyRead]) -> list[tuple[Point | None, Point | None]]:
    """The ranges of these reads in the order of keys, with adjacent ones joined."""
    first = [one for one in reads if one.low is None]
    rest = sorted((one for one in reads if one.low is not None), key=lambda one: one.low)  # type: ignore[arg-type,return-value]
    joined: list[tuple[Point | None, Point | None]] = []
    for one in (*first, *rest):
        if joined and joined[-1][1] is not None and joined[-1][1] == one.low:
            joined[-1] = (joined[-1][0], one.high)
        else:
            joined.append((one.low, one.high))
    return joined


def predicate(column: str, spark_type: str, low: Point | None, high: Point | None) -> str | None:
    """Spark's condition for the rows with `low <= key < high`; without `low` also for NULL keys. None: all rows.

    column: as SQL. spark_type: of that column, as Spark writes it in a schema. Spark folds the bounds to literals
    of that type, and the column is plain, so that statistics can skip files and row groups.
    """
    above = None if low is None else f"{column} >= {point_sql(low, spark_type)}"
    below = None if high is None else f"{column} < {point_sql(high, spark_type)}"
    if below is None:
        return above
    return f"({column} IS NULL OR {below})" if above is None else f"({above} AND {below})"


def point_sql(point: Point, spark_type: str) -> str:
    """The key at a point, as SQL that Spark folds to a literal."""
    if isinstance(point, str):
        return f"CAST(X'{point.encode().hex()}' AS STRING)"
    if spark_type == "date":
        return f"DATE_FROM_UNIX_DATE({point})"
    if spark_type == "timestamp":
        return f"TIMESTAMP_MICROS({point}L)"
    if spark_type == "timestamp_ntz":
        return f"TIMESTAMP_NTZ'{_EPOCH + timedelta(microseconds=point)}'"
    if (scale := _scale(spark_type)) is not None:
        return f"CAST('{Decimal(point).scaleb(-scale, _EXACT):f}' AS {spark_type})"
    return f"CAST('{point}' AS {WHOLE[spark_type]})"


def point_of(value: object, spark_type: str) -> Point | None:
    """A statistic as a point; None if there is none, or if keys of its type are not cut.

    value: in Python's type; dates and timestamps can be numbers already. Keys are not cut if they are binary or
    boolean (not all writers keep statistics), float (no agreed place for NaN) or collated (order unknown here).
    """
    if value is None or isinstance(value, bool):
        return None
    if spark_type in WHOLE and isinstance(value, int):
        return value
    if spark_type == "string" and isinstance(value, str):
        return value
    if spark_type in ("date", "timestamp", "timestamp_ntz"):
        point = _moment(value)
        return point if point is None or spark_type != "timestamp_ntz" or _FIRST <= point <= _LAST else None
    scale = _scale(spark_type)
    if scale is not None and isinstance(value, Decimal | int | str):
        return int(Decimal(value).scaleb(scale, _EXACT).to_integral_value(ROUND_FLOOR, _EXACT))
    return None


def _scale(spark_type: str) -> int | None:
    found = re.fullmatch(r"decimal\((\d+),\s*(-?\d+)\)", spark_type)
    return int(found[2]) if found else None


def _moment(value: object) -> int | None:
    if isinstance(value, int):
        return value
    if isinstance(value, datetime):
        since = value.astimezone(UTC).replace(tzinfo=None) - _EPOCH if value.tzinfo else value - _EPOCH
        return since // timedelta(microseconds=1)
    return (value - _EPOCH.date()).days if isinstance(value, date) else None
