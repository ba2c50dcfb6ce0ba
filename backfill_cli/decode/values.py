"""A JSON value or a text as a value of a column's type, exactly as it is written, or `Unreadable`.

Results are in their stored form (stored.py). `reader` makes the function of a column once; it is called for each
record that Arrow's own parser cannot take, and the rules here are what that parser's results are held to.
"""

import datetime as dt
import math
import re
import struct
from binascii import Error as NoBase64
from binascii import a2b_base64
from collections.abc import Callable
from typing import Any, TypeGuard

from backfill_cli.contracts.decoder import Fault
from backfill_cli.decode.encodings import PER_SECOND, Encoding
from backfill_cli.decode.tokens import Constant, Number, Token, written
from backfill_cli.decode.unreadable import Misfit, Rounded, Unfit, Unreadable
from backfill_cli.model.schema import SparkType, decimal_of, shown

Reader = Callable[[Token], Any]
"""A value in its stored form, None for a JSON null. Raises Unreadable."""

BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}

FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31 as days since 1970: infinities and broken values lie outside."""

_MOST_PLACES = 1_000
"""No table holds a decimal of 38 digits with more places than this."""

_DAY_MICROS = 86_400_000_000

_DATE = r"([+-]?[0-9]{4,6})-([0-9]{2})-([0-9]{2})"
_TIME = r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.]([0-9]{1,6})0*)?)?"
_DAY = re.compile(_DATE)
_MOMENT = re.compile(rf"{_DATE}{_TIME}(Z|UTC|([+-])([0-9]{{2}})(?::?([0-9]{{2}})(?::?([0-9]{{2}}))?)?)?)?")
_DECIMAL = re.compile(r"([+-]?)([0-9]*)(?:[.]([0-9]*))?(?:[eE]([+-]?[0-9]{1,6}))?")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]+)?")
_WORD = re.compile(r"(?i:nan|[+-]?inf(?:inity)?)")
_JSON_WORDS = frozenset(("NaN", "+INF", "-INF", "Infinity", "+Infinity", "-Infinity"))
_BOOLEANS = {**dict.fromkeys(("true", "t", "1", "y"), True), **dict.fromkeys(("false", "f", "0", "n"), False)}
_PLAIN_NUMBER = re.compile(r"-?[0-9]+(?:[.][0-9]*[1-9])?")


def inexact(kind: SparkType) -> Unreadable:
    return Unreadable(f"not exactly {_a(kind)}")


def out_of_range(kind: SparkType) -> str:
    return f"out of range for {_a(kind)}"


def _a(kind: SparkType) -> str:
    name = shown(kind)
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


# Texts


def of_text(text: str, kind: str) -> Any:
    """A text as a value of a simple type. Raises Unreadable if it is not one, or would lose digits."""
    if kind == "string":
        return text
    if kind == "binary":
        return of_base64(text)
    if kind.startswith("decimal"):
        return of_decimal(text, kind)
    if kind == "date":
        return _date(text)
    if kind.startswith("timestamp"):
        return _moment(text, kind)
    if kind in BITS:
        if _WHOLE.fullmatch(text) is None:
            raise inexact(kind)
        if not _fits(value := _int(text), kind):
            raise Unreadable(out_of_range(kind))
        return value
    if kind == "boolean":
        if (found := _BOOLEANS.get(text.lower())) is None:
            raise inexact(kind)
        return found
    if _WORD.fullmatch(text):
        return float(text)
    if _FLOAT.fullmatch(text) is None:
        raise inexact(kind)
    return _finite(text, kind)


def _int(text: str) -> int:
    return int(text) if len(text) < 400 else 1 << 1000


def _fits(value: int, kind: str) -> bool:
    edge = 1 << (BITS[kind] - 1)
    return -edge <= value < edge


def of_base64(text: str) -> bytes:
    try:
        return a2b_base64("".join(text.split()), strict_mode=True)
    except (NoBase64, ValueError):
        raise inexact("binary") from None


def of_decimal(text: str, kind: str) -> int:
    """Exponents are allowed: Java writes 0.0000001 as 1E-7."""
    found = _DECIMAL.fullmatch(text)
    if found is None or not (found[2] or found[3]):
        raise Unfit("not a number")
    places = (found[3] or "").rstrip("0")
    digits = (found[2] + places).lstrip("0")
    if not digits:
        return 0
    if len(digits) > _MOST_PLACES:
        raise inexact(kind)
    return scaled(int(found[1] + digits), len(places) - int(found[4] or 0), kind)


def scaled(unscaled: int, scale: int, kind: str) -> int:
    """`unscaled` times ten to the minus `scale`, as a decimal. Raises Unreadable; Unfit if it is too large."""
    precision, places = decimal_of(kind)
    up = places - scale
    if unscaled and abs(up) > 2 * _MOST_PLACES:
        raise Unfit(out_of_range(kind)) if up > 0 else inexact(kind)
    if up >= 0:
        value = unscaled * 10**up if unscaled else 0
    else:
        value, rest = divmod(unscaled, 10**-up)
        if rest:
            raise inexact(kind)
    if abs(value) >= 10**precision:
        raise Unfit(out_of_range(kind))
    return value


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970 in the calendar of today, which repeats every 400 years. Raises ValueError."""
    cycles, within = divmod(year, 400)
    return dt.date(2000 + within, month, day).toordinal() - 719_163 + (cycles - 5) * 146_097


def _date(text: str) -> int:
    found = _DAY.fullmatch(text)
    try:
        if found is not None and abs(days := _days(int(found[1]), int(found[2]), int(found[3]))) < 2**31:
            return days
    except ValueError:
        pass
    raise inexact("date")


def _moment(text: str, kind: str) -> int:
    """Microseconds since 1970. Without a zone a time is in UTC."""
    found = _MOMENT.fullmatch(text)
    if found is None or (kind == "timestamp_ntz" and found[8]):
        raise inexact(kind)
    hour, minute, second = (int(part or 0) for part in found.group(4, 5, 6))
    try:
        days = _days(int(found[1]), int(found[2]), int(found[3]))
    except ValueError:
        raise inexact(kind) from None
    zone = [int(part or 0) for part in found.group(10, 11, 12)]
    offset = zone[0] * 3600 + zone[1] * 60 + zone[2]
    if hour > 23 or minute > 59 or second > 59 or offset > 18 * 3600 or zone[1] > 59 or zone[2] > 59:
        raise inexact(kind)
    seconds = hour * 3600 + minute * 60 + second - (-offset if found[9] == "-" else offset)
    micros = days * _DAY_MICROS + seconds * 10**6 + int((found[7] or "").ljust(6, "0"))
    if not -(2**63) <= micros < 2**63:
        raise Unreadable(out_of_range(kind))
    return micros


def _finite(text: str, kind: str) -> float:
    value = float(text)
    if kind == "double":
        if math.isinf(value):
            raise Unreadable(out_of_range(kind))
        return value
    single = to_single(value)
    if math.isinf(single):
        raise Unreadable(out_of_range(kind))
    if single != value and to_single(twin := 2 * value - single) == twin and len(text) >= 17:
        # halfway between two FLOATs as a DOUBLE, the number itself may be nearer to the other one
        raise inexact(kind)
    return single


def to_single(value: float) -> float:
    """The FLOAT nearest to a DOUBLE."""
    try:
        found: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return found


# Counts and encoded values


def of_days(days: int) -> int:
    if not FIRST_DAY <= days <= LAST_DAY:
        raise Unreadable("a date outside the years 1 to 9999 (days since 1970)")
    return days


def bounds_of(unit: str) -> tuple[int, int]:
    """The least and the largest count of a unit since 1970 in these years that a 64-bit integer holds."""
    a_day = 86_400 * PER_SECOND[unit]
    return max(FIRST_DAY * a_day, -(2**63)), min((LAST_DAY + 1) * a_day - 1, 2**63 - 1)


def of_units(count: int, unit: str) -> int:
    """Milli-, micro- or nanoseconds since 1970 as microseconds. Raises Unreadable beyond the years 1 to 9999."""
    micros, rest = divmod(count * 10**6, PER_SECOND[unit])
    if not FIRST_DAY * _DAY_MICROS <= micros < (LAST_DAY + 1) * _DAY_MICROS:
        raise Unreadable(f"a time outside the years 1 to 9999 ({unit} since 1970)")
    if rest:
        raise Unreadable("nanoseconds would be cut to microseconds")
    return micros


def of_unscaled(encoded: str, scale: int, kind: str) -> int:
    """Base64 of a big-endian two's complement integer, times ten to the minus `scale`."""
    try:
        raw = of_base64(encoded)
    except Unreadable:
        raw = b""
    return of_big_endian(raw, scale, kind)


def of_big_endian(raw: bytes, scale: int, kind: str) -> int:
    """The same of the integer's bytes."""
    if not 1 <= len(raw) <= 16 or abs(scale) > _MOST_PLACES:
        raise Unreadable("not a decimal of at most 38 digits in base64")
    return scaled(int.from_bytes(raw, "big", signed=True), scale, kind)


def of_double(value: float, kind: str) -> int:
    """The decimal of at most `encodings.DOUBLE_DIGITS` digits whose nearest double this is."""
    if not math.isfinite(value):
        raise inexact(kind)
    places = decimal_of(kind)[1]
    text = f"{value:.{places}f}"
    if float(text) != value:
        raise inexact(kind)
    return scaled(int(text.replace(".", "")), places, kind)


# JSON


def of_json(kind: SparkType, how: Encoding) -> Reader:
    """What reads a column of JSON objects. how: by `encodings.textual`."""
    return _reader(kind, how, _json_text, True)


def of_debezium(kind: SparkType, how: Encoding) -> Reader:
    """What reads a column of Debezium's rows. how: by the schema block or the options."""
    return _reader(kind, how, _debezium_text, False)


def _is_text(token: Token) -> TypeGuard[str]:
    return isinstance(token, str) and not isinstance(token, Number | Constant)


def _json_text(token: Token) -> str:
    """A text, or the JSON of another value, its members by name. Raises for numbers of many digits."""
    if _is_text(token):
        return token
    return written(_in_order(token))


def _in_order(token: Token) -> Token:
    if isinstance(token, Number):
        if _PLAIN_NUMBER.fullmatch(token) is None or sum(map(str.isdigit, token)) > 38:
            raise inexact("string")
        return Number("0") if token == "-0" else token
    if isinstance(token, Constant):
        raise inexact("string")
    if isinstance(token, list):
        return [_in_order(one) for one in token]
    if isinstance(token, dict):
        by_name = sorted(token, key=lambda name: name.encode("utf-16-be"))
        return {name: _in_order(token[name]) for name in by_name}
    return token


def _debezium_text(token: Token) -> str:
    """The same for a value of a row of Debezium, which writes texts as texts. Raises Rounded."""
    if _is_text(token):
        return token
    if _has_fraction(token):
        raise Rounded(f"not a text, or a whole number: {written(token)}")
    return written(token)


def _has_fraction(token: Token) -> bool:
    if isinstance(token, Number):
        return not token.is_whole or len(token) > 39
    if isinstance(token, list | dict):
        return any(map(_has_fraction, token.values() if isinstance(token, dict) else token))
    return isinstance(token, Constant)


def _reader(kind: SparkType, how: Encoding, text: Callable[[Token], str], is_json: bool) -> Reader:
    read = _present(kind, how, text, is_json)
    return lambda token: None if token is None else read(token)


def _present(kind: SparkType, how: Encoding, text: Callable[[Token], str], is_json: bool) -> Reader:
    """The reader of a column's values that are not null."""
    if isinstance(kind, dict) and how.kind in ("array", "map", "struct"):
        return _nested(kind, dict(how.inner), text, is_json)
    if how.kind == "variable":
        return _variable(str(kind))
    assert isinstance(kind, str)
    if how.kind == "plain":
        return text if kind == "string" else _native(kind)
    if how.kind == "whole":
        return _integer(kind)
    if how.kind == "days":
        return lambda token: of_days(_count(token, "days since 1970"))
    if how.kind == "units":
        unit = how.unit or "us"
        return lambda token: of_units(_count(token, _SINCE[unit]), unit)
    if how.kind == "instant":
        return _instant(kind, how.unit, text)
    if how.kind == "double":
        return lambda token: of_double(
            float(token) if isinstance(token, Number) else _floating(token, "double"), kind
        )
    if how.kind == "base64":
        return _base64
    if how.kind == "unscaled":
        return _unscaled(kind, how.scale, text)
    if how.kind == "number":
        return _json_decimal(kind)
    if is_json:
        return _json_decimal(kind) if kind.startswith("decimal") else lambda token: of_text(_raw(token), kind)
    return lambda token: of_text(text(token), kind)


_SINCE = {"ms": "milliseconds since 1970", "us": "microseconds since 1970", "ns": "nanoseconds since 1970"}


def _misfit(what: str, token: Token) -> Misfit:
    return Misfit(f"not {what}: {written(token)[:100]}")


def _too_large(kind: str, token: Token) -> Misfit:
    return Misfit(f"{out_of_range(kind)}: {written(token)[:100]}")


def _count(token: Token, of: str) -> int:
    value = _whole(token, f"a whole number of {of}")
    if not _fits(value, "long"):
        raise _too_large("long", token)
    return value


def _whole(token: Token, what: str) -> int:
    if not isinstance(token, Number) or not token.is_whole:
        raise _misfit(f"written as {what}" if isinstance(token, Number) else what, token)
    return _int(token)


def _native(kind: str) -> Reader:
    """Booleans and numbers, which JSON has itself."""
    if kind == "boolean":
        return _boolean
    if kind in ("float", "double"):
        return lambda token: _floating(token, kind)
    return _fitting(kind, lambda token: _whole(token, "a whole number"))


def _integer(kind: str) -> Reader:
    """Whole numbers as JSON Schema has them: whatever has no fraction, as 2.0 and 1e2 have none."""

    def whole(token: Token) -> int:
        if not isinstance(token, Number) or token.is_whole:
            return _whole(token, "a whole number")
        try:
            return of_decimal(token, _MOST_DIGITS)
        except Unfit:
            raise _too_large("long", token) from None
        except Unreadable:
            raise _misfit("a whole number", token) from None

    return _fitting(kind, whole)


_MOST_DIGITS = "decimal(38,0)"


def _fitting(kind: str, read: Callable[[Token], int]) -> Reader:
    wide = kind if kind == "long" else "integer"

    def whole(token: Token) -> int:
        value = read(token)
        if not _fits(value, wide):
            raise _too_large(wide, token)
        if not _fits(value, kind):
            raise Unreadable(out_of_range(kind))
        return value

    return whole


def _boolean(token: Token) -> bool:
    if not isinstance(token, bool):
        raise _misfit("true or false", token)
    return token


def _floating(token: Token, kind: str) -> float:
    if isinstance(token, Number):
        return (
            _finite(token, kind) if not token.is_whole else _finite(token, kind) + 0.0
        )  # no sign of a whole zero
    if isinstance(token, Constant) or (isinstance(token, str) and token in _JSON_WORDS):
        return float(token)
    raise _misfit("a number", token)


def _raw(token: Token) -> str:
    return str(token) if isinstance(token, str) else written(token)


def _base64(token: Token) -> bytes:
    if not _is_text(token):
        raise inexact("binary")
    return of_base64(token)


def _json_decimal(kind: str) -> Reader:
    def read(token: Token) -> int:
        if not isinstance(token, str) or isinstance(token, Constant):
            raise _misfit("a number", token)
        try:
            return of_decimal(token, kind)
        except Unfit as exc:
            raise Misfit(f"{exc.args[0]}: {token[:100]}") from None

    return read


def _instant(kind: str, unit: str | None, text: Callable[[Token], str]) -> Reader:
    def read(token: Token) -> int:
        said = text(token)
        if re.fullmatch("-?[0-9]+", said) is None:
            return _moment(said, kind)
        if unit is None:
            raise Unreadable("a time as a number of unknown unit", Fault.TIME_UNIT)
        return of_units(_int(said), unit)

    return read


def _unscaled(kind: str, scale: int | None, text: Callable[[Token], str]) -> Reader:
    """scale: None: only the options say that decimals are written so, and with the type's scale."""

    def read(token: Token) -> int:
        try:
            if isinstance(token, Number | Constant):  # its digits could be base64, too
                raise _misfit("a decimal in base64", token)
            return of_unscaled(text(token), decimal_of(kind)[1] if scale is None else scale, kind)
        except Unreadable as exc:
            exc.fault = Fault.DECIMAL_FORM if scale is None else None
            raise

    return read


def _variable(kind: str) -> Reader:
    def read(token: Token) -> int | None:
        if not isinstance(token, dict):
            raise _misfit("an object", token)
        scale, value = token.get("scale"), token.get("value")
        if scale is None or value is None:
            raise inexact(kind)
        if not _is_text(value):
            raise inexact(kind)
        return of_unscaled(value, _whole(scale, "a whole number"), kind)

    return read


def _nested(
    kind: dict[str, Any], inner: dict[str, Encoding], text: Callable[[Token], str], is_json: bool
) -> Reader:
    if kind["type"] == "array":
        element = _reader(kind["elementType"], inner[""], text, is_json)

        def array(token: Token) -> list[Any]:
            if not isinstance(token, list):
                raise _misfit("an array", token)
            return [element(one) for one in token]

        return array
    if kind["type"] == "map":
        value = _reader(kind["valueType"], inner[""], text, is_json)

        def mapped(token: Token) -> list[tuple[str, Any]]:
            if not isinstance(token, dict):
                raise _misfit("an object", token)
            return [(name, value(one)) for name, one in token.items()]

        return mapped
    fields = [(f["name"], _reader(f["type"], inner[f["name"]], text, is_json)) for f in kind["fields"]]

    def row(token: Token) -> tuple[Any, ...]:
        if not isinstance(token, dict):
            raise _misfit("an object", token)
        return tuple(_member(name, read, token.get(name)) for name, read in fields)

    return row


def _member(name: str, read: Reader, token: Token) -> Any:
    try:
        return read(token)
    except Unreadable as exc:
        exc.member = f".{name}{exc.member}"
        raise
