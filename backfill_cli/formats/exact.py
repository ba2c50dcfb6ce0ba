"""Converts text and numbers to typed columns exactly, or raises: Spark expressions that name file and column.

Spark's own parsers silently round decimals and cut fractions of a second; such values are refused here.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from backfill_cli.errors import Hint
from backfill_cli.model.schema import SparkType, shown
from backfill_cli.spark.api import Column, F
from backfill_cli.spark.failures import MARK, ROW, ending

SHOWN = 200
"""Characters of a value that an error shows."""

_SECONDS_A_DAY = 86_400
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31 as days since 1970: infinities and broken values lie outside."""

PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}

MOST_PLACES = 1_000
"""No table holds a decimal of 38 digits with more places than this."""

DOUBLE_DIGITS = 15
"""A decimal of up to this many digits is identified by its nearest double."""

_DATE = r"[+-]?[0-9]{4,6}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6}0*)?)?"
_ZONE = r"(Z|UTC|[+-][0-9]{2}(:?[0-9]{2}(:?[0-9]{2})?)?)"
_PATTERNS = {
    "date": rf"^{_DATE}$",
    "timestamp": rf"^{_DATE}([T ]{_TIME}{_ZONE}?)?$",
    "timestamp_ntz": rf"^{_DATE}([T ]{_TIME})?$",
    "boolean": r"^(?i:true|false|t|f|1|0|y|n)$",
    **dict.fromkeys(("byte", "short", "integer", "long"), r"^[+-]?[0-9]+$"),
    **dict.fromkeys(
        ("float", "double"), r"^(?i:[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)(e[+-]?[0-9]+)?|nan|[+-]?inf(inity)?)$"
    ),
}


@dataclass(frozen=True, slots=True)
class Named:
    """What an error names: the column that holds the file's name, and the table's column (dotted if nested).

    hint: of the error.
    """

    file: Column
    column: str
    hint: Hint | str = ""

    def inner(self, name: str) -> "Named":
        return replace(self, column=f"{self.column}.{name}")


def once(value: Column, of: Callable[[Column], Column]) -> Column:
    """`of(value)`, with the value computed once: otherwise each use in `of` would copy its whole expression.

    Nested copies made the plan of one base64 decimal 544,000 characters long, from which each task generated code.
    """
    return F.get(F.transform(F.array(value), of), F.lit(0))


def failing(named: Named, what: str, value: Column, hint: Hint | str = "") -> Column:
    """An expression that raises when it is evaluated: `file: column 'c': what: value`."""
    return refused(named.file, f"column '{named.column}': {what}", value, hint or named.hint)


def of_text(text: Column, kind: SparkType, named: Named) -> Column:
    """Text as a simple type; NULL stays NULL. Text that is not such a value, or would lose digits, raises."""
    assert isinstance(kind, str), "nested types have no text"
    if kind == "string":
        return text
    if kind == "binary":
        value, good = F.try_to_binary(text, F.lit("base64")), F.lit(True)
    elif kind.startswith("decimal"):
        value, good = text.try_cast(kind), _decimal_fits(text, kind)
    else:
        # only six digits of a fraction of a second are kept, so zeros after them are removed first
        clean = F.regexp_replace(text, r"([.][0-9]{6})0+", "$1") if kind.startswith("timestamp") else text
        value, good = clean.try_cast(kind), text.rlike(_PATTERNS[kind])
        if kind in ("float", "double"):
            # a number too large for the type becomes infinity, which is accepted only if written as a word
            good &= (F.abs(value) != F.lit(float("inf")).cast(kind)) | text.rlike("(?i:inf)")
    bad = text.isNotNull() & (value.isNull() | ~good)
    return F.when(bad, failing(named, f"not exactly {article(shown(kind))}", text)).otherwise(value)


def _decimal_fits(text: Column, kind: str) -> Column:
    """Whether no digit is beyond the type's last place. Exponents are allowed: Java writes 0.0000001 as 1E-7."""
    scale = decimal_of(kind)[1]
    digits = rf"[.][0-9]{{0,{scale}}}0*" if scale else r"[.]0*"
    raised = r"^[+-]?([0-9]*)[.]?([0-9]*)[eE]([+-]?[0-9]{1,3})$"
    whole, places, exponent = (F.regexp_extract(text, raised, group) for group in (1, 2, 3))
    ending = F.length(F.regexp_extract(F.concat(whole, places), "(0*)$", 1))
    last = F.length(places) - ending - exponent.try_cast("int")
    zero = text.rlike(r"^[+-]?0*([.]0*)?[eE][+-]?[0-9]+$")
    return text.rlike(rf"^[+-]?[0-9]*({digits})?$") | zero | (text.rlike(raised) & (last <= scale))


@cache
def decimal_of(kind: str) -> tuple[int, int]:
    """(precision, scale) of `decimal(p,s)`."""
    precision, scale = kind[len("decimal(") : -1].split(",")
    return int(precision), int(scale)


def of_double(number: Column, kind: SparkType, named: Named) -> Column:
    """The decimal of at most DOUBLE_DIGITS digits whose nearest double this is."""
    value = number.try_cast(str(kind))
    bad = number.isNotNull() & (value.isNull() | (value.cast("double") != number))
    return F.when(bad, failing(named, f"not exactly {article(shown(kind))}", number)).otherwise(value)


def of_days(days: Column, named: Named) -> Column:
    """Days since 1970 as a date."""
    good = days.between(FIRST_DAY, LAST_DAY)
    outside = failing(named, "a date outside the years 1 to 9999 (days since 1970)", days)
    return F.when(~good, outside).otherwise(F.date_from_unix_date(days.cast("int")))


def bounds_of(unit: str) -> tuple[int, int]:
    """The least and the largest count of a unit since 1970 in these years that a 64-bit integer holds."""
    a_day = _SECONDS_A_DAY * PER_SECOND[unit]
    return max(FIRST_DAY * a_day, -(2**63)), min((LAST_DAY + 1) * a_day - 1, 2**63 - 1)


def of_units(count: Column, unit: str, kind: SparkType, named: Named) -> Column:
    """Milli-, micro- or nanoseconds since 1970 (`ms`, `us`, `ns`) as a timestamp with or without zone."""
    good = count.between(*bounds_of(unit))
    outside = failing(named, f"a timestamp outside the years 1 to 9999 ({unit} since 1970)", count)
    checked = F.when(~good, outside)
    if unit == "ns":
        checked = checked.when(
            count % 1000 != 0, failing(named, "nanoseconds would be cut to microseconds", count)
        )
    checked = checked.otherwise(count)
    if kind == "timestamp" and unit != "ns":
        return F.timestamp_millis(checked) if unit == "ms" else F.timestamp_micros(checked)
    seconds = (checked.cast("decimal(20,0)") / F.lit(PER_SECOND[unit])).cast("decimal(18,6)")
    if kind == "timestamp":
        return F.timestamp_seconds(seconds)
    # computed from 1970, not cast from an instant: a cast would use the session's time zone
    return F.lit("1970-01-01 00:00:00").cast("timestamp_ntz") + F.make_dt_interval(secs=seconds)


def of_unscaled(
    encoded: Column, scale: Column | int, kind: SparkType, named: Named, hint: Hint | str = ""
) -> Column:
    """Base64 of a big-endian two's complement integer, times ten to the minus `scale`, as a decimal."""
    # unbase64 skips characters that are not base64: it would take the text 1.234 for a number
    raw = F.hex(F.try_to_binary(encoded, F.lit("base64")))
    text = once(raw, lambda bits: _pointed(bits, F.lit(scale) if isinstance(scale, int) else scale))

    def checked(said: Column) -> Column:
        shown = encoded if isinstance(scale, int) else F.concat(encoded, F.lit(" of scale "), scale.cast("string"))
        broken = failing(named, "not a decimal of at most 38 digits in base64", shown, hint)
        return F.when(encoded.isNotNull() & said.isNull(), broken).otherwise(of_text(said, kind, named))

    return once(text, checked)


def _pointed(bits: Column, scale: Column) -> Column:
    """A two's complement integer in hex, times ten to the minus `scale`, as text.

    NULL beyond 38 digits, and for an absurd scale, whose zeros alone could fill the memory.
    """
    negative = F.substr(bits, F.lit(1), F.lit(1)) >= "8"
    inverted = F.translate(F.lpad(bits, 32, "F"), "0123456789ABCDEF", "FEDCBA9876543210")
    size = once(F.when(negative, inverted).otherwise(F.lpad(bits, 32, "0")), _whole)
    # two's complement: the inverted digits are one less than the magnitude of a negative number
    digits = F.try_add(size, F.when(negative, 1).otherwise(0).cast("decimal(1,0)")).cast("string")
    padded = once(digits, lambda d: F.lpad(d, F.greatest(F.length(d), scale + 1), F.lit("0")))
    padded = F.concat(padded, F.repeat(F.lit("0"), -scale))

    def split(d: Column) -> Column:
        places = F.concat(F.left(d, F.length(d) - scale), F.lit("."), F.right(d, scale))
        return F.when(scale > 0, places).otherwise(d)

    told = F.concat(F.when(negative, "-").otherwise(""), once(padded, split))
    return F.when(F.length(bits).between(1, 32) & scale.between(-MOST_PLACES, MOST_PLACES), told)


def _whole(bits: Column) -> Column:
    """32 hex digits as a number; NULL beyond 38 decimal digits."""
    total = F.lit(0).cast("decimal(38,0)")
    for start in (1, 9, 17, 25):
        part = F.conv(F.substr(bits, F.lit(start), F.lit(8)), 16, 10).cast("decimal(10,0)")
        total = F.try_add(F.try_multiply(total, F.lit(1 << 32).cast("decimal(10,0)")).cast("decimal(38,0)"), part)
        total = total.cast("decimal(38,0)")
    return total


def article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def row_of(file: Column, row: Column, line: Column | None = None) -> Column:
    """What an error names instead of the file if the row's place in it is known: see failures.BadRow."""
    crc = [] if line is None else [F.lit(" of "), F.crc32(line).cast("string")]
    return F.concat(file, F.lit(ROW), row.cast("string"), *crc)


def refused(file: Column, what: str | Column, value: Column, hint: Hint | str = "") -> Column:
    """An expression that raises when it is evaluated: `file: what: value`."""
    seen = F.coalesce(F.left(value.cast("string"), F.lit(SHOWN)), F.lit("NULL"))
    said = F.lit(what) if isinstance(what, str) else what
    return F.raise_error(
        F.concat(F.lit(f"{MARK} "), file, F.lit(": "), said, F.lit(": "), seen, F.lit(ending(hint)))
    )
