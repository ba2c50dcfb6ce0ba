"""A hash of a table's rows that two SQL engines compute identically: `verify` compares 10 million rows in seconds.

Engines share no fast hash function, only integer arithmetic. So each column becomes a 64-bit integer (its *word*),
the words of a row are multiplied by odd constants and mixed, and the rows' hashes are folded with XOR, which is
independent of order. A difference goes unnoticed with a probability of about 2^-60; equal rows never differ. XOR
cannot tell three copies of a row from one: the row count can.

Everything here is plain SQL with `*`, `+`, `&`, `>>` and XOR, and stays within 63 bits, so that an engine that
checks for overflow (Spark in ANSI mode, DuckDB) does not fail.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from backfill_cli.model.balanced import balanced
from backfill_cli.model.schema import columns_of

RANGES = 64
PARTS = 2**30
"""The number of equal parts that keys are divided into by their hash; a sample is the first of these parts."""
_LOW31 = 2**31 - 1
_LOW33 = 2**33 - 1


class Word(StrEnum):
    """What a column's word is, by its Spark type.

    INTEGER: the value of a byte, short, integer or long. BOOLEAN: 0 or 1. DAYS: a date as days since 1970.
    MICROS: a timestamp as microseconds since 1970, a local one taken as UTC. UNSCALED: a decimal of at most 18
    digits without its point. TEXT: Spark's xxhash64 of a string.
    """

    INTEGER = "integer"
    BOOLEAN = "boolean"
    DAYS = "days"
    MICROS = "micros"
    UNSCALED = "unscaled"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class WordColumn:
    """scale: digits after the point, precision: all digits; for UNSCALED."""

    name: str
    word: Word
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """Equal parts of the first key column's words, `width` each, from `low`; the first and last are unbounded."""

    low: int
    width: int
    count: int

    @classmethod
    def between(cls, low: int, high: int) -> "KeyRanges":
        """At most RANGES parts, with bounds whose distance does not overflow."""
        low, high = max(low, -(2**61)), min(high, 2**61)
        width = max(high - low, 0) // RANGES + 1
        return cls(low, width, max(high - low, 0) // width + 1)

    @property
    def top(self) -> int:
        return self.low + self.width * self.count - 1


@dataclass(frozen=True, slots=True)
class DigestSpec:
    """The columns of a table that are compared by their words; key columns come first and all have a word.

    sample: how many of PARTS a row's key may fall into; None for all rows.
    """

    key: tuple[str, ...]
    columns: tuple[WordColumn, ...]
    sample: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True, slots=True)
class Digest:
    """Of one range: the row count, and a hash for all columns together, or for the key and each other column."""

    rows: int
    hashes: tuple[int, ...]


NO_ROWS = Digest(0, ())


@dataclass(frozen=True, slots=True)
class Dialect:
    """How an engine spells what is not common SQL.

    word: SQL of a column's word, BIGINT, NULL where it is NULL. level: what ends each nested SELECT, for an engine
    that would otherwise inline one into the next, and evaluate every expression that is used twice there twice.
    """

    word: Callable[[WordColumn], str]
    xor: Callable[[str, str], str]
    quotient: Callable[[str, int], str]
    level: str = ""


def spec_of(schema: str, key: Sequence[str], few: frozenset[str]) -> DigestSpec | None:
    """The columns of a Spark schema (JSON) with a word, strings only if in `few`. None if the key has none."""
    fields = columns_of(schema)
    words = {name: word for name, field in fields.items() if (word := word_of(field, few)) is not None}
    if any(name not in words for name in key):
        return None
    rest = [word for name, word in words.items() if name not in key]
    return DigestSpec(tuple(key), (*(words[name] for name in key), *rest))


def word_of(field: Mapping[str, Any], few: frozenset[str]) -> WordColumn | None:
    """The word of a column, for a string only if it is one of `few`; None if it has none."""
    name, kind = field["name"], field["type"]
    if not isinstance(kind, str) or (field.get("metadata") or {}).get("logical"):
        return None
    if kind in ("byte", "short", "integer", "long"):
        return WordColumn(name, Word.INTEGER)
    if kind in ("boolean", "date"):
        return WordColumn(name, Word.BOOLEAN if kind == "boolean" else Word.DAYS)
    if kind in ("timestamp", "timestamp_ntz"):
        return WordColumn(name, Word.MICROS)
    if kind == "string":
        return WordColumn(name, Word.TEXT) if name in few else None
    if kind.startswith("decimal("):
        precision, scale = (int(part) for part in kind[8:-1].split(","))
        return WordColumn(name, Word.UNSCALED, precision, scale) if precision <= 18 else None
    return None


def whole_sql(spec: DigestSpec, dialect: Dialect, source: str) -> str:
    """`(part BIGINT = 0, n BIGINT, h0 BIGINT)`: one row, the hash of all columns of all rows of `source`."""
    mixed = _mixed(spec, [range(len(spec.columns))], "0", dialect, source)
    return f"SELECT CAST(0 AS BIGINT) AS part, count(*) AS n, bit_xor(x0) AS h0 FROM ({mixed}) AS m"


def ranges_sql(spec: DigestSpec, ranges: KeyRanges, dialect: Dialect, source: str) -> str:
    """`(part BIGINT, n BIGINT, h0…)`: one row per range; the key's hash, and one for each other column.

    The hash of a column also covers the key, so that two values that changed places differ.
    """
    key = range(len(spec.key))
    groups = [key, *([*key, at] for at in range(len(spec.key), len(spec.columns)))]
    mixed = _mixed(spec, groups, range_sql(ranges, dialect), dialect, source)
    hashes = ", ".join(f"bit_xor(x{at}) AS h{at}" for at in range(len(groups)))
    return f"SELECT part, count(*) AS n, {hashes} FROM ({mixed}) AS m GROUP BY part"


def range_sql(ranges: KeyRanges, dialect: Dialect, word: str = "v0") -> str:
    """The number of the range that a row belongs to, 0 to count - 1, from the word of its first key column."""
    inside = f"least(greatest({word}, {ranges.low}), {ranges.top})"
    return f"CAST({dialect.quotient(f'({inside} - {ranges.low})', ranges.width)} AS BIGINT)"


def sample_parts(share: float) -> int:
    """How many of PARTS correspond to a share of the keys, at least one."""
    return max(1, round(share * PARTS))


def sampled_sql(parts: int, words: Sequence[str], dialect: Dialect) -> str:
    """Whether a row's key is in the sample of so many of PARTS; every engine gives the same answer for a key.

    words: SQL of the words of the key's columns. The middle bits of a product decide, as they depend on the low
    bits of all words.
    """
    spread = balanced(dialect.xor, (_spread(at, word, dialect) for at, word in enumerate(words)))
    low, high = (_splitmix64(5000 + half) % 2**29 | 2**29 | 1 for half in range(2))
    mixed = f"((({spread}) & {_LOW31}) * {low} + (({spread}) >> 31) * {high})"
    return f"((({dialect.xor(mixed, f'({mixed} >> 29)')}) >> 16) & {PARTS - 1}) < {parts}"


def and_sampled(spec: DigestSpec, dialect: Dialect) -> str:
    """Restricts a WHERE clause to rows of the sample; empty when all rows are wanted."""
    if spec.sample is None:
        return ""
    words = [dialect.word(column) for column in spec.columns[: len(spec.key)]]
    return f" AND {sampled_sql(spec.sample, words, dialect)}"


def _mixed(spec: DigestSpec, groups: Sequence[Sequence[int]], part: str, dialect: Dialect, source: str) -> str:
    """`(part, x0…)`: each row's hash of each group of columns, after three mixing rounds.

    Every round is a nested level, which keeps the text short. One fold after the first round breaks the structure
    that XOR and small differences share (tested with swapped and shifted values); more would only slow the
    engines' planners down.
    """
    together = (balanced(dialect.xor, (f"p{at}" for at in group)) for group in groups)
    joined = ", ".join(f"{sql} AS x{at}" for at, sql in enumerate(together))
    rows = f"SELECT part, {joined} FROM ({_products(spec, part, dialect, source)}{dialect.level}) AS p"
    for turn in range(3):
        low, high = (_splitmix64(3000 + 2 * turn + half) % 2**29 | 2**29 | 1 for half in range(2))
        sums = (f"(x{at} & {_LOW31}) * {low} + (x{at} >> 31) * {high} AS x{at}" for at in range(len(groups)))
        rows = f"SELECT part, {', '.join(sums)} FROM ({rows}{dialect.level}) AS r{turn}"
        if turn == 0:
            folds = (f"{dialect.xor(f'x{at}', f'(x{at} >> 29)')} AS x{at}" for at in range(len(groups)))
            rows = f"SELECT part, {', '.join(folds)} FROM ({rows}{dialect.level}) AS f"
    return rows


def _products(spec: DigestSpec, part: str, dialect: Dialect, source: str) -> str:
    """`(part, p0…)`: each column's word spread over 62 bits by its own constants; NULL has another constant."""
    values = ", ".join(f"{dialect.word(column)} AS v{at}" for at, column in enumerate(spec.columns))
    products = ", ".join(f"{_spread(at, f'v{at}', dialect)} AS p{at}" for at in range(len(spec.columns)))
    rows = f"SELECT {part} AS part, {products} FROM (SELECT {values} FROM {source}{dialect.level}) AS v"
    if spec.sample is None:
        return rows
    return f"{rows} WHERE {sampled_sql(spec.sample, [f'v{at}' for at in range(len(spec.key))], dialect)}"


def _spread(at: int, word: str, dialect: Dialect) -> str:
    low, high, null = _constants(at)
    spread = dialect.xor(f"({word} & {_LOW31}) * {low}", f"(({word} >> 31) & {_LOW33}) * {high}")
    return f"coalesce({spread}, {null})"


def _constants(at: int) -> tuple[int, int, int]:
    """Factors for the low 31 and the high 33 bits (31 and 29 bits, odd), and the value for NULL (62 bits)."""
    first, second, third = (_splitmix64(3 * at + turn) for turn in range(3))
    return first % 2**30 | 2**30 | 1, second % 2**28 | 2**28 | 1, third % 2**62


def _splitmix64(n: int) -> int:
    """The n-th number of Steele's SplitMix64: constants without structure, none typed by hand."""
    z = (n + 1) * 0x9E3779B97F4A7C15 % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


def xxhash64(data: bytes, seed: int = 42) -> int:
    """Spark's `xxhash64` of a string's UTF-8 bytes, signed, 64 bits; for short lists of distinct values."""
    at, hashed = _stripes(data, seed) if len(data) >= 32 else (0, seed + _P5)
    hashed = (hashed + len(data)) & _U64
    while at + 8 <= len(data):
        hashed = (_rotated(hashed ^ _round(0, _word(data, at, 8)), 27) * _P1 + _P4) & _U64
        at += 8
    if at + 4 <= len(data):
        hashed = (_rotated(hashed ^ (_word(data, at, 4) * _P1 & _U64), 23) * _P2 + _P3) & _U64
        at += 4
    for byte in data[at:]:
        hashed = _rotated(hashed ^ (byte * _P5 & _U64), 11) * _P1 & _U64
    hashed = (hashed ^ hashed >> 33) * _P2 & _U64
    hashed = (hashed ^ hashed >> 29) * _P3 & _U64
    hashed ^= hashed >> 32
    return hashed - 2**64 if hashed >> 63 else hashed


_U64 = 2**64 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _stripes(data: bytes, seed: int) -> tuple[int, int]:
    """(bytes consumed, hash) of the 32-byte stripes at the start."""
    lanes = [(seed + _P1 + _P2) & _U64, (seed + _P2) & _U64, seed, (seed - _P1) & _U64]
    end = len(data) - len(data) % 32
    for at in range(0, end, 8):
        lane = at // 8 % 4
        lanes[lane] = _round(lanes[lane], _word(data, at, 8))
    hashed = sum(_rotated(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True)) & _U64
    for lane_value in lanes:
        hashed = ((hashed ^ _round(0, lane_value)) * _P1 + _P4) & _U64
    return end, hashed


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _U64, 31) * _P1 & _U64


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _U64


def _word(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
