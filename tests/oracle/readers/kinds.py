"""Types of columns as a config's DDL names them, and what they can hold: told once, for all readers of changes.

A kind is a word ("bigint", "timestamp_ntz") or a tuple: ("decimal", digits, scale), ("array", kind),
("map", kind), whose keys are text, ("struct", ((name, kind), …)).
"""

import base64
import binascii
import datetime as dt
import math
import re
import struct
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from oracle import plain

Kind = Any

BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
DUCKDB = {
    "tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT", "float": "FLOAT",
    "double": "DOUBLE", "boolean": "BOOLEAN", "string": "VARCHAR", "binary": "BLOB", "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE", "timestamp_ntz": "TIMESTAMP",
}  # fmt: skip
SECONDS_9999 = 253402300800
"""Seconds since 1970 at which the year 10000 begins."""
SECONDS_0001 = -62135596800


class No(Exception):
    """There is no exact value; in words."""


Doubts = list[str]
"""Why refusing would be right too, where a value could be told."""


def ddl(kind: Kind) -> str:
    if isinstance(kind, str):
        return kind.upper()
    if kind[0] == "decimal":
        return f"DECIMAL({kind[1]},{kind[2]})"
    if kind[0] == "array":
        return f"ARRAY<{ddl(kind[1])}>"
    if kind[0] == "map":
        return f"MAP<STRING,{ddl(kind[1])}>"
    return "STRUCT<" + ",".join(f"{name}:{ddl(inner)}" for name, inner in kind[1]) + ">"


def ddl_of(columns: dict[str, Kind]) -> str:
    return ", ".join(f"`{name}` {ddl(kind)}" for name, kind in columns.items())


def integer(kind: str, text: str, doubts: Doubts) -> Any:
    """text: a JSON number."""
    number = number_of(text)
    if number != number.to_integral_value():
        raise No(f"{text} is not a whole number")
    value = int(number)
    limit = 1 << (BITS[kind] - 1)
    if not -limit <= value < limit:
        raise No(f"{text} does not fit {kind}")
    if not re.fullmatch(r"-?[0-9]+", text) or text == "-0":
        doubts.append("a whole number that is not written as one")
    return ("int", value)


def number_of(text: str) -> Decimal:
    """Raises No where an exponent is beyond all types."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise No(f"{text[:40]} is no number") from None
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or (number and abs(number.adjusted()) > 5000):
        raise No(f"{text[:40]} fits no type")
    return number


def double(text: str, doubts: Doubts) -> Any:
    """A zero written as a whole number has no sign."""
    value = float(text) if re.search("[.eE]", text) else float(text) + 0.0
    if math.isinf(value):
        raise No(f"{text} is more than a DOUBLE holds")
    if value == 0 and re.search("[1-9]", re.split("[eE]", text)[0]):
        doubts.append("so small that a DOUBLE holds 0")
    return plain.double(value)


def single(text: str, doubts: Doubts) -> Any:
    """A number is a DOUBLE first, as readers of JSON have it, then the FLOAT next to that; half-way is a doubt."""
    wide = struct.unpack(">d", bytes.fromhex(double(text, doubts)[1]))[0]
    try:
        bits = struct.unpack(">I", struct.pack(">f", wide))[0]
    except OverflowError:
        raise No(f"{text} is more than a FLOAT holds") from None
    if wide and struct.unpack(">Q", struct.pack(">d", wide))[0] & 0x1FFFFFFF == 0x10000000:
        doubts.append("half-way between two FLOATs, as a DOUBLE")
    if _float(bits) == 0 != wide or 0 < abs(wide) < 2**-126:
        doubts.append("so small that a FLOAT has fewer digits for it")
    return plain.single(_float(bits))


def _float(bits: int) -> float:
    return float(struct.unpack(">f", struct.pack(">I", bits))[0])


def decimal(digits: int, scale: int, number: Decimal) -> Any:
    scaled = Fraction(number) * 10**scale
    if scaled.denominator != 1:
        raise No(f"{number} has more than {scale} digits after the point")
    if abs(scaled.numerator) >= 10**digits:
        raise No(f"{number} has more than {digits} digits")
    digit = tuple(map(int, str(abs(scaled.numerator))))
    return plain.decimal(Decimal((int(scaled.numerator < 0), digit, -scale)), scale)


def text(value: str) -> Any:
    if any("\ud800" <= c <= "\udfff" for c in value):
        raise No("half of a surrogate pair is no text")
    return ("text", value)


def of_base64(value: str, doubts: Doubts) -> bytes:
    try:
        found = base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise No(f"{value[:40]!r} is no base64") from None
    if base64.b64encode(found).decode() != value:
        doubts.append("base64 in an unusual form")
    return found


def date(value: str, doubts: Doubts) -> Any:
    told = re.fullmatch(r"([+-]?[0-9]{4,7})-([0-9]{1,2})-([0-9]{1,2})", value)
    if told is None:
        raise No(f"{value[:40]!r} is no date")
    if len(value) != 10:
        doubts.append("a date with more or fewer digits")
    return ("day", _day(*map(int, told.groups()), doubts))


def _day(year: int, month: int, day: int, doubts: Doubts) -> int:
    """Days since 1970 in the calendar of today, also where Python's calendar ends: it repeats every 400 years."""
    if not 1 <= year <= 9999:
        doubts.append("a year that is not 1 to 9999")
    try:
        like = dt.date(year % 400 + 2000, month, day)
    except ValueError as exc:
        raise No(str(exc)) from None
    return like.toordinal() - plain.DAY + (year - like.year) // 400 * 146097


_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})([T ])([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,12}))?)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?"
)


def time(value: str, zoned: bool, doubts: Doubts) -> Any:
    """A time of day with its date, ISO 8601. zoned: an instant; its zone left out means UTC, and is a doubt."""
    told = _TIME.fullmatch(value)
    if told is None:
        raise No(f"{value[:40]!r} is no time")
    year, month, day, _, hour, minute, second, fraction, zone = told.groups()
    if int(hour) > 23 or int(minute) > 59 or int(second or 0) > 59:
        raise No(f"{value[:40]!r}: no such time of day")
    seconds = (
        _day(int(year), int(month), int(day), doubts) * 86400
        + int(hour) * 3600
        + int(minute) * 60
        + int(second or 0)
    )
    if (fraction or "")[6:].strip("0"):
        raise No(f"{value[:40]!r}: parts of a microsecond")
    if second is None or len(fraction or "") > 6:
        doubts.append("a time in an unusual form")
    if zone is None and zoned:
        doubts.append("an instant without its zone")
    if zone is not None and not zoned:
        raise No(f"{value[:40]!r} has a zone, and its column none")
    if zone not in (None, "Z"):
        if int(zone[1:3]) > 18 or int(zone[4:]) > 59:
            raise No(f"{value[:40]!r}: no such zone")
        seconds -= (1 if zone[0] == "+" else -1) * (int(zone[1:3]) * 3600 + int(zone[4:]) * 60)
    return moment(seconds * 10**6 + int((fraction or "0").ljust(6, "0")[:6]), zoned, doubts)


def moment(micros: int, zoned: bool, doubts: Doubts) -> Any:
    """Microseconds since 1970."""
    if not -(1 << 63) < micros < (1 << 63) - 1:
        raise No(f"{micros} microseconds are more than a timestamp holds")
    if not SECONDS_0001 * 10**6 <= micros < SECONDS_9999 * 10**6:
        doubts.append("a time beyond the years 1 to 9999")
    return ("at" if zoned else "wall", micros)
