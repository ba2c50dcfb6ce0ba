"""Recognizes Debezium's placeholders for values that did not change and that the database did not send.

Postgres omits large values from an update unless the table's replica identity is FULL; Debezium then writes
`__debezium_unavailable_value` in a form that fits the column's type: as itself, in base64 or hex, as a UUID of it,
as a map of it to itself, and for an array of numbers one element for each of its bytes.
"""

import base64
import hashlib
import struct
import uuid
from collections.abc import Sequence
from typing import Any

from backfill_cli.decode.encodings import Encoding
from backfill_cli.decode.tokens import Number, Token, written
from backfill_cli.model.schema import SparkType

UNAVAILABLE = "__debezium_unavailable_value"
NAMES: SparkType = {"type": "array", "elementType": "string", "containsNull": True}
"""The type of `own.UNSENT`."""
_BYTES = UNAVAILABLE.encode()


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _point(x: float, y: float) -> str:
    """Extended WKB, little-endian, with the SRID 4326."""
    return _base64(struct.pack("<BIIdd", 1, 0x20000001, 4326, x, y))


_BASE64 = (_base64(_BYTES), _point(-99999999, -99999999), _point(179.999999, 89.999999))
_MD5 = hashlib.md5(_BYTES, usedforsecurity=False).digest()
_TEXTS = (
    UNAVAILABLE,
    _BASE64[0],
    _BYTES.hex(),
    str(uuid.UUID(bytes=_MD5, version=3)),
    f'{{"{UNAVAILABLE}":"{UNAVAILABLE}"}}',
    f'{{"{UNAVAILABLE}": "{UNAVAILABLE}"}}',
)
_SINGLY = [_base64(bytes([byte])) for byte in _BYTES]
"""Each byte of the placeholder as a decimal's digits in base64."""
_NUMBERS = [float(byte) for byte in _BYTES]


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


def bytes_of(texts: Sequence[str]) -> list[bytes]:
    """Placeholders of a column of bytes as bytes; an encoding that has bytes writes them so."""
    return [base64.b64decode(text) for text in texts if text in _BASE64]


def is_placeholder(token: Token, how: Encoding, target: SparkType) -> bool:
    """Whether a value as a whole stands for one that was not sent."""
    match how.kind:
        case "array" if isinstance(token, list):
            inner = dict(how.inner)[""], _part_of(target, "elementType")
            return (len(token) == 1 and is_placeholder(token[0], *inner)) or _is_spelled(token, *inner)
        case "map" if isinstance(token, dict):
            return token == {UNAVAILABLE: UNAVAILABLE}
        case "struct" if isinstance(token, dict):
            return token.get("wkb") is not None and is_unsent(token, how, target)  # of a geometry
    return is_unsent(token, how, target)


def is_unsent(token: Token, how: Encoding, target: SparkType) -> bool:
    """Whether a value is or contains a placeholder."""
    inner = dict(how.inner)
    match how.kind:
        case "array" if isinstance(token, list):
            return _in_array(token, inner[""], _part_of(target, "elementType"))
        case "map" if isinstance(token, dict):
            of_value = _part_of(target, "valueType")
            return UNAVAILABLE in token or any(is_unsent(one, inner[""], of_value) for one in token.values())
        case "struct" if isinstance(token, dict):
            return any(
                is_unsent(token.get(f["name"]), inner[f["name"]], f["type"]) for f in _part_of(target, "fields")
            )
    text = written(token) if isinstance(token, dict) else token
    return isinstance(text, str) and text in placeholders(how, target)


def _in_array(tokens: list[Token], how: Encoding, element: SparkType) -> bool:
    """Whether one element is a placeholder, or there is an element for each of its bytes."""
    return any(is_unsent(one, how, element) for one in tokens) or _is_spelled(tokens, how, element)


def _is_spelled(tokens: list[Token], how: Encoding, element: SparkType) -> bool:
    """Whether there is an element for each byte of the placeholder."""
    if len(tokens) != len(_BYTES):
        return False
    match how.kind:
        case "plain" if element == "boolean":
            return all(one is True for one in tokens)
        case "plain" | "whole" | "double" | "days" | "units" if element != "string":
            return all(isinstance(one, Number) for one in tokens) and [float(one) for one in tokens] == _NUMBERS
        case "unscaled":
            return tokens == _SINGLY
        case "variable":
            return [one.get("value") if isinstance(one, dict) else None for one in tokens] == _SINGLY
    return False


def _part_of(target: SparkType, name: str) -> Any:
    assert isinstance(target, dict)
    return target[name]
