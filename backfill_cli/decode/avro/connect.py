"""What Kafka Connect calls the types of Avro: its own schema of a document, as decode/connect.py reads it.

A type that Connect (Debezium) wrote says itself which one it was: `connect.name`, `connect.parameters`,
`connect.type`. Logical types without a counterpart there have the names `avro.…`.
"""

import base64
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from backfill_cli.decode.avro.schema import Field, Type
from backfill_cli.decode.connect import DECIMAL, RECURSIVE, Connect
from backfill_cli.decode.tokens import Constant, Number, Token

_TYPES = {
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "enum": "string",
    "bytes": "bytes",
    "fixed": "bytes",
    "null": "null",
}
DURATION = ("months", "days", "milliseconds")
"""Members of an Avro duration, each a whole number of 32 bits without a sign."""


class _NoDefault(Exception):
    """A default that is no value of its field's type."""


def connect(kind: Type, above: tuple[Type, ...] = ()) -> Connect:
    """The schema of a type; `{"type": "recursive"}` where a record contains itself."""
    if kind.kind == "record":
        if kind in above:
            return {"type": RECURSIVE, "name": kind.name}
        fields = [_field(one, (*above, kind)) for one in kind.fields]
        return {"type": "struct", "fields": fields, **_attributes(kind, kind.name)}
    if kind.kind == "union":
        return _union(kind, above)
    if kind.kind == "array":
        return {"type": "array", "items": connect(kind.parts[0], above), **_attributes(kind)}
    if kind.kind == "map":
        keys = {"type": "string"}
        return {"type": "map", "keys": keys, "values": connect(kind.parts[0], above), **_attributes(kind)}
    return _leaf(kind)


def _union(kind: Type, above: tuple[Type, ...]) -> Connect:
    optional = {"optional": True} if len(kind.branches) < len(kind.parts) else {}
    if not kind.branches:
        return {"type": "null", **optional}
    if len(kind.branches) == 1:
        return {**connect(kind.branches[0][2], above), **optional}
    fields = [{**connect(one, above), "optional": True, "field": name} for _, name, one in kind.branches]
    return {"type": "struct", "fields": fields, **optional}


def _leaf(kind: Type) -> Connect:
    if kind.logical == "duration":
        return {"type": "struct", "fields": [{"type": "int64", "field": name} for name in DURATION]}
    if kind.logical == "uuid":
        return {"type": "string", **_attributes(kind, "avro.uuid")}
    if kind.logical == "decimal":
        scale, precision = kind.told.get("scale", 0), kind.told["precision"]
        digits = {"scale": str(scale), "connect.decimal.precision": str(precision)}
        found = _attributes(kind, DECIMAL)
        return {
            "type": "bytes",
            **found,
            "parameters": digits | found.get("parameters", {}) | {"scale": str(scale)},
        }
    told = kind.told.get("connect.type")
    attributes = _attributes(kind, f"avro.{kind.logical}" if kind.logical else None)
    if kind.kind == "int" and told in ("int8", "int16"):
        return {"type": told, **attributes}
    named = _TYPES[kind.kind]
    word = {} if named == kind.kind else {"written": kind.kind}
    return {"type": named, **word, **attributes}


def _attributes(kind: Type, name: str | None = None) -> dict[str, Any]:
    """The name, as Connect wrote it if it did, and the parameters."""
    told = kind.told.get("connect.name")
    parameters = kind.told.get("connect.parameters")
    parameters = parameters if isinstance(parameters, Mapping) else None
    found = {"name": told if isinstance(told, str) else name, "parameters": parameters}
    return {key: value for key, value in found.items() if value}


def _field(of: Field, above: tuple[Type, ...]) -> Connect:
    found = {**connect(of.type, above), "field": of.name}
    aliases = of.told.get("aliases")
    aliases = [one for one in aliases if isinstance(one, str)] if isinstance(aliases, list) else []
    if aliases:
        found["aliases"] = aliases
    if "default" in of.told:
        with suppress(_NoDefault, RecursionError):
            found["default"] = default_of(of.type, of.told["default"])
    return found


def default_of(kind: Type, told: Any) -> Token:
    """A default in a schema as the token of such a value. Raises _NoDefault for one that is none."""
    if kind.kind == "union":
        return _union_default(kind, told)
    if kind.kind == "record" and isinstance(told, Mapping):
        return {one.name: default_of(one.type, _member(told, one)) for one in kind.fields}
    if kind.kind == "array" and isinstance(told, list):
        return [default_of(kind.parts[0], one) for one in told]
    if kind.kind == "map" and isinstance(told, Mapping):
        return {name: default_of(kind.parts[0], one) for name, one in told.items()}
    read = _DEFAULTS.get(kind.kind)
    if read is None:
        raise _NoDefault
    return read(kind, told)


def _member(told: Mapping[str, Any], of: Field) -> Any:
    if of.name not in told and "default" not in of.told:
        raise _NoDefault
    return told.get(of.name, of.told.get("default"))


def _union_default(kind: Type, told: Any) -> Token:
    if told is None and any(one.kind == "null" for one in kind.parts):
        return None
    names = [name for _, name, _ in kind.branches]
    for _, name, one in kind.branches:
        try:
            found = default_of(one, told)
        except _NoDefault:
            continue
        return found if len(names) == 1 else {**dict.fromkeys(names), name: found}
    raise _NoDefault


def _null(kind: Type, told: Any) -> Token:
    if told is not None:
        raise _NoDefault
    return None


def _boolean(kind: Type, told: Any) -> Token:
    if not isinstance(told, bool):
        raise _NoDefault
    return told


def _whole(kind: Type, told: Any) -> Token:
    bits = 31 if kind.kind == "int" else 63
    if not isinstance(told, int) or isinstance(told, bool) or not -(1 << bits) <= told < 1 << bits:
        raise _NoDefault
    return Number(told)


def _floating(kind: Type, told: Any) -> Token:
    if isinstance(told, bool) or not isinstance(told, int | float | str):
        raise _NoDefault
    if isinstance(told, str) and told not in ("NaN", "Infinity", "-Infinity"):
        raise _NoDefault
    try:
        return floating(float(told))
    except OverflowError:
        raise _NoDefault from None


def _text(kind: Type, told: Any) -> Token:
    if not isinstance(told, str) or (kind.kind == "enum" and told not in kind.symbols):
        raise _NoDefault
    return told


def _bytes(kind: Type, told: Any) -> Token:
    """Each character of such a default stands for a byte."""
    try:
        raw = str(told).encode("latin-1")
    except UnicodeEncodeError:
        raise _NoDefault from None
    if not isinstance(told, str) or (kind.kind == "fixed" and len(raw) != kind.size):
        raise _NoDefault
    return binary(kind, raw)


_DEFAULTS: dict[str, Callable[[Type, Any], Token]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _whole,
    "long": _whole,
    "float": _floating,
    "double": _floating,
    "string": _text,
    "enum": _text,
    "bytes": _bytes,
    "fixed": _bytes,
}


def floating(value: float) -> Token:
    """A float or a double: the digits that identify it, or a word."""
    if value != value or value in (float("inf"), float("-inf")):
        return Constant("NaN" if value != value else "Infinity" if value > 0 else "-Infinity")
    return Number(repr(value))


def binary(kind: Type, raw: bytes) -> Token:
    """A value of bytes or fixed: base64, or what its logical type has instead."""
    if kind.logical == "duration":
        return {name: Number(int.from_bytes(raw[4 * i : 4 * i + 4], "little")) for i, name in enumerate(DURATION)}
    if kind.logical == "uuid":
        told = raw.hex()
        return "-".join((told[:8], told[8:12], told[12:16], told[16:20], told[20:]))
    return base64.b64encode(raw).decode()
