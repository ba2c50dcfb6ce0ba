"""A text as a value of a type: what CSV fields and JSON strings mean, by docs/files.md and docs/config.md."""

import base64
import binascii
import datetime as dt
import re
from decimal import Context, Decimal, Inexact, InvalidOperation
from fractions import Fraction

from oracle import plain
from oracle.ddl import Type


class No(Exception):
    """There is no exact value. args[0]: why."""


class Doubt:
    """Reasons why a refusal is right though there is a value."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def __str__(self) -> str:
        return "; ".join(dict.fromkeys(self.reasons))


LARGEST = "3.4028234663852886e38"
RANGES = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}

_DATE = re.compile(r"([+-]?\d{4,7})-(\d{2})-(\d{2})")
_TIME = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,}))?)?(Z|[+-]\d{2}:\d{2})?")


def whole(value: Decimal, kind: Type) -> plain.Value:
    if not value.is_finite() or value != value.to_integral_value():
        raise No("not a whole number")
    bits = RANGES[kind.name] - 1
    if not -(2**bits) <= value < 2**bits:
        raise No(f"beyond {kind.name}")
    return ("int", int(value))


def fixed(value: Decimal, kind: Type) -> plain.Value:
    if not value.is_finite():
        raise No("not a number")
    exact = Context(prec=kind.precision, Emax=10**9, Emin=-(10**9), traps=[Inexact, InvalidOperation])
    try:
        fitted = exact.quantize(value, Decimal(1).scaleb(-kind.scale))
    except (Inexact, InvalidOperation):
        raise No(f"more digits than {kind.duckdb} has") from None
    return plain.decimal(fitted, kind.scale)


def floating(text: str, kind: Type, doubt: Doubt) -> plain.Value:
    """text: a number. The nearest value; refused where that would be an infinity."""
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise No(f"beyond {kind.name}")
    if kind.name == "DOUBLE":
        return plain.double(value)
    nearest = to_single(Decimal(text))
    if nearest is None:
        raise No("beyond FLOAT")
    if to_single(Decimal(value)) != nearest:
        doubt.reasons.append("a FLOAT that is another by way of DOUBLE")
    if abs(Decimal(text)) > Decimal(LARGEST):
        doubt.reasons.append("beyond the largest FLOAT, though it is the nearest")
    return plain.single(nearest)


def to_single(value: Decimal) -> float | None:
    """The FLOAT nearest to a number, ties to even; None where that is an infinity. Rounded once, not twice."""
    if value == 0:
        return -0.0 if value.is_signed() else 0.0
    if value.adjusted() > 40:
        return None
    sign = -1 if value < 0 else 1
    exact = abs(Fraction(value))
    exponent = max(exact.numerator.bit_length() - exact.denominator.bit_length() - 24, -149)
    while True:
        scaled = exact / Fraction(2) ** exponent
        if scaled >= 2**24:
            exponent += 1
        elif scaled < 2**23 and exponent > -149:
            exponent -= 1
        else:
            break
    found = float(round(scaled) * Fraction(2) ** exponent)
    return None if found > float(LARGEST) else sign * found


def day(text: str, doubt: Doubt) -> plain.Value:
    told = _DATE.fullmatch(text)
    if told is None:
        raise No("no date")
    return ("day", _days(*map(int, told.groups()), doubt))


def moment(text: str, kind: Type, doubt: Doubt) -> plain.Value:
    """A time in UTC, or a wall time; fractions of a microsecond only where they are zero."""
    told = _TIME.fullmatch(text)
    if told is None:
        raise No("no timestamp")
    year, month, of_month, hour, minute, second, fraction, zone = told.groups()
    if (fraction or "")[6:].strip("0"):
        raise No("finer than a microsecond")
    if zone and kind.name == "TIMESTAMP_NTZ":
        raise No("a time zone in a column without one")
    hours, minutes, seconds = (int(one or 0) for one in (hour, minute, second))
    if hours > 23 or minutes > 59 or seconds > 59:
        raise No("no timestamp")
    days = _days(int(year), int(month), int(of_month), doubt)
    micros = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    micros = micros * 1_000_000 + int((fraction or "")[:6].ljust(6, "0"))
    if zone and zone != "Z":
        hours, minutes = int(zone[1:3]), int(zone[4:])
        if hours > 18 or minutes > 59 or (hours == 18 and minutes):
            raise No("no time zone")
        micros -= (1 if zone[0] == "+" else -1) * (hours * 60 + minutes) * 60_000_000
    if not -(2**63) < micros < 2**63 - 1:
        raise No("beyond TIMESTAMP")
    return ("wall" if kind.name == "TIMESTAMP_NTZ" else "at", micros)


def _days(year: int, month: int, of_month: int, doubt: Doubt) -> int:
    """Days since 1970 in the calendar of today, carried back and forth; year 0 is the one before year 1."""
    periods, within = divmod(year - 2000, 400)
    try:
        days = dt.date(2000 + within, month, of_month).toordinal() - plain.DAY + periods * 146_097
    except ValueError as exc:
        raise No(f"no date: {exc}") from None
    if not 1 <= year <= 9999:
        doubt.reasons.append("a year before 1 or after 9999")
    if not -5_877_641 <= days <= 2_147_483_646:
        raise No("beyond DATE")
    return days


def encoded(text: str) -> plain.Value:
    try:
        return ("bytes", base64.b64decode(text, validate=True).hex())
    except (binascii.Error, ValueError) as exc:
        raise No(f"no base64: {exc}") from None


_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_ODD = {"NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "-Infinity": "-inf"}


def number(text: str, kind: Type, doubt: Doubt) -> plain.Value:
    """A number written as text. Doubtful: a form that not every reader of numbers takes."""
    floats = kind.name in ("FLOAT", "DOUBLE")
    if floats and text in _ODD:
        value = float(_ODD[text])
        doubt.reasons.append("NaN or an infinity, in words")
        return plain.double(value) if kind.name == "DOUBLE" else plain.single(value)
    if text != text.strip():
        doubt.reasons.append("a number with blanks around it")
        text = text.strip()
    if not _NUMBER.fullmatch(text) or not text.isascii():
        raise No(f"{text!r} is no {kind.name}")
    if kind.name in RANGES:
        if not re.fullmatch(r"-?\d+", text):
            doubt.reasons.append("a whole number with a plus, a point or an exponent")
        return whole(Decimal(text), kind)
    if kind.name == "DECIMAL":
        if not re.fullmatch(rf"-?\d+(\.\d{{0,{kind.scale}}})?", text):
            doubt.reasons.append("a decimal with more digits than its type, a plus or an exponent")
        return fixed(Decimal(text), kind)
    if floats:
        return floating(text, kind, doubt)
    raise No(f"{text!r} is no {kind.name}")
