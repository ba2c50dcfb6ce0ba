"""Recognizes Debezium's placeholders for values that did not change and that the database did not send.

Postgres omits large values from an update unless the table's replica identity is FULL; Debezium then writes
`__debezium_unavailable_value` in a form that fits the column's type: as itself, in base64 or hex, as a UUID of it,
as a map of it to itself, and for an array of numbers one element for each of its bytes.
"""

import base64
import hashlib
import struct
import uuid
from collections.abc import Callable
from operator import or_
from typing import Any

from backfill_cli.formats.values import Encoding
from backfill_cli.model.balanced import balanced
from backfill_cli.model.schema import SparkType
from backfill_cli.spark.api import Column, F

UNAVAILABLE = "__debezium_unavailable_value"
BYTES = UNAVAILABLE.encode()


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _point(x: float, y: float) -> str:
    """Extended WKB, little-endian, with the SRID 4326."""
    return _base64(struct.pack("<BIIdd", 1, 0x20000001, 4326, x, y))


_BASE64 = (_base64(BYTES), _point(-99999999, -99999999), _point(179.999999, 89.999999))
_MD5 = hashlib.md5(BYTES, usedforsecurity=False).digest()
_TEXTS = (
    UNAVAILABLE,
    _BASE64[0],
    BYTES.hex(),
    str(uuid.UUID(bytes=_MD5, version=3)),
    f'{{"{UNAVAILABLE}":"{UNAVAILABLE}"}}',
    f'{{"{UNAVAILABLE}": "{UNAVAILABLE}"}}',
)
SINGLY = [_base64(bytes([byte])) for byte in BYTES]
"""Each byte of the placeholder as a decimal's digits in base64."""


def placeholders(how: Encoding, target: SparkType) -> tuple[str, ...]:
    """The texts that stand for a value of a simple type that was not sent; none if such a value always is."""
    match how.kind:
        case "base64":
            return _BASE64
        case "text" | "instant" | "unscaled":
            return UNAVAILABLE, _BASE64[0]
        case "plain" if target == "string":
            return _TEXTS
        case _:
            return ()


def unsent(raw: Column, how: Encoding, target: SparkType) -> Column | None:
    """Whether a value, as parsed (values.raw_type), is or contains a placeholder; never NULL.

    None for a type without a placeholder: a single number, time or boolean always fits into its row and is sent.
    """
    match how.kind:
        case "array":
            found = _in_array(raw, dict(how.inner)[""], part_of(target, "elementType"))
        case "map":
            of_value = _inner(dict(how.inner)[""], part_of(target, "valueType"))
            found = F.array_contains(F.map_keys(raw), UNAVAILABLE)
            if of_value is not None:
                found |= F.exists(F.map_values(raw), of_value)
        case "struct":
            inner = dict(how.inner)
            parts = [
                unsent(raw.getField(f["name"]), inner[f["name"]], f["type"]) for f in part_of(target, "fields")
            ]
            told = [part for part in parts if part is not None]
            return balanced(or_, told) if told else None
        case _:
            texts = placeholders(how, target)
            if not texts:
                return None
            found = raw.isin(*texts)
    return F.coalesce(found, F.lit(False))


def _in_array(raw: Column, how: Encoding, element: SparkType) -> Column:
    """Whether one element is a placeholder, or there is an element for each of its bytes."""
    of_element = _inner(how, element)
    found = F.exists(raw, of_element) if of_element is not None else F.lit(False)
    match how.kind:
        case "plain" if element == "boolean":
            return found | (raw == F.array(*(F.lit(True) for _ in BYTES)))
        case "plain" if isinstance(element, str) and element != "string":
            return found | (raw == F.array(*(F.lit(byte).cast(element) for byte in BYTES)))
        case "double":
            return found | (raw == F.array(*(F.lit(byte).cast("double") for byte in BYTES)))
        case "days" | "units":
            return found | (raw == F.array(*(F.lit(byte).cast("long") for byte in BYTES)))
        case "unscaled":
            return found | (raw == F.array(*map(F.lit, SINGLY)))
        case "variable":
            return found | (F.transform(raw, lambda one: one["value"]) == F.array(*map(F.lit, SINGLY)))
    return found


def _inner(how: Encoding, target: SparkType) -> Callable[[Column], Column] | None:
    """`unsent` as a function of one element or value; None if it cannot be a placeholder."""
    if unsent(F.lit(None), how, target) is None:
        return None

    def holds(one: Column) -> Column:
        found = unsent(one, how, target)
        assert found is not None
        return found

    return holds


def part_of(target: SparkType, name: str) -> Any:
    assert isinstance(target, dict)
    return target[name]
