"""Generated schemas of Avro, values as fastavro writes them, and what a document and its columns have to be.

A value is as fastavro takes it: that of a union is (what fastavro calls the branch, value).
"""

import base64
import io
import math
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import fastavro
import pyarrow as pa

from backfill_cli.decode.tokens import Constant, Number, Token

Schema = Any
PRIMITIVES = ("boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL = (
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 0},
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "string", "logicalType": "date"},
    {"type": "int", "logicalType": "no-such"},
)
TEXTS = ("", "a", "ä€😀", "\0", "x" * 200, "null", '"', "é" * 70)
WHOLE = (0, 1, -1, 63, 64, -64, -65, 8191, 8192, 2**31 - 1, -(2**31))
LONG = (*WHOLE, 2**31, 2**53 + 1, 2**55, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 1e-45, 3.4028234663852886e38, 0.1)
DOUBLES = (*FLOATS, 5e-324, 1.7976931348623157e308, 1e16, 123456789.123456789)


@dataclass
class Drawn:
    """A record's schema, the types it names, and what was written of it."""

    schema: Schema
    named: dict[str, Schema]
    values: list[Any] = field(default_factory=list)
    written: list[bytes] = field(default_factory=list)


def drawn(chance: random.Random, values: int) -> Drawn:
    making = _Schemas(chance)
    found = Drawn(making.record(4), making.named)
    plain = fastavro.parse_schema(without_logical(found.schema))
    for _ in range(values):
        value = _Values(chance, found.named).value(found.schema, 0)
        into = io.BytesIO()
        fastavro.schemaless_writer(into, plain, value)
        found.values.append(value)
        found.written.append(into.getvalue())
    return found


def without_logical(schema: Schema) -> Schema:
    """The schema without logical types, which fastavro would turn into values of Python."""
    if isinstance(schema, list):
        return [without_logical(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: without_logical(one) for name, one in schema.items() if name not in ("logicalType", "precision")}


class _Schemas:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.named: dict[str, Schema] = {}
        self._open: list[str] = []

    def _name(self, what: str) -> str:
        return f"{self._chance.choice(['ns', 'other.ns'])}.{what}{len(self.named)}"

    def record(self, depth: int) -> Schema:
        name = self._name("R")
        made: Schema = {"type": "record", "name": name, "fields": []}
        self.named[name] = made
        self._open.append(name)
        for i in range(self._chance.randrange(0 if depth < 3 else 1, 6)):
            kind = self._recursive() if self._chance.random() < 0.06 else self.any(depth - 1)
            made["fields"].append({"name": f"f{i}" if i else "é", "type": kind})
        self._open.pop()
        return made

    def _recursive(self) -> Schema:
        name = self._chance.choice(self._open)
        forms = (["null", name], [name, "null"], {"type": "array", "items": name}, {"type": "map", "values": name})
        return self._chance.choice([*forms, ["null", name, "int"]])

    def any(self, depth: int, in_union: bool = False) -> Schema:
        kind = self._chance.random()
        if depth <= 0 or kind < 0.35:
            return self._leaf()
        if kind < 0.6 and not in_union:
            return self._union(depth)
        if kind < 0.75:
            return {"type": "array", "items": self.any(depth - 1)}
        if kind < 0.85:
            return {"type": "map", "values": self.any(depth - 1)}
        return self.record(depth - 1)

    def _leaf(self) -> Schema:
        chance = self._chance
        if chance.random() < 0.1 and (done := [one for one in self.named if one not in self._open]):
            return chance.choice(done)
        match chance.randrange(9):
            case 0 | 1 | 2 | 3:
                return chance.choice(PRIMITIVES)
            case 4 | 5:
                return dict(chance.choice(LOGICAL))
            case 6:
                symbols = [f"S{i}" for i in range(chance.randrange(1, 200))]
                return self._new({"type": "enum", "name": self._name("E"), "symbols": symbols})
            case 7:
                size = chance.choice((1, 3, 12, 16))
                more = {12: {"logicalType": "duration"}, 16: {"logicalType": "uuid"}}.get(size, {})
                if chance.random() < 0.4:
                    more = {"logicalType": "decimal", "precision": chance.choice((2, 40)), "scale": 1}
                return self._new({"type": "fixed", "name": self._name("F"), "size": size, **more})
        return "null"

    def _new(self, made: Schema) -> Schema:
        self.named[made["name"]] = made
        return made

    def _union(self, depth: int) -> Schema:
        chance = self._chance
        if chance.random() < 0.6:
            inner = self.any(depth - 1, in_union=True)
            inner = "int" if kind_of(inner, self.named) == "null" else inner
            return chance.choice([["null", inner], [inner, "null"], [inner]])
        parts: dict[str, Schema] = {}
        for _ in range(chance.randrange(1, 5)):
            one = self.any(depth - 1, in_union=True)
            parts.setdefault(called(one, self.named), one)
        return list(parts.values())


def kind_of(schema: Schema, named: Mapping[str, Schema]) -> str:
    if isinstance(schema, list):
        return "union"
    if isinstance(schema, str):
        return named[schema]["type"] if schema in named else schema
    return schema["type"]


def resolved(schema: Schema, named: Mapping[str, Schema]) -> Schema:
    found = named.get(schema, schema) if isinstance(schema, str) else schema
    return {"type": found} if isinstance(found, str) else found


def called(schema: Schema, named: Mapping[str, Schema]) -> str:
    """A branch's name, as fastavro has it."""
    found = resolved(schema, named)
    return found.get("name") or found["type"]


def logical(schema: Mapping[str, Any]) -> str:
    """The logical type, if it is one there."""
    name, kind = schema.get("logicalType", ""), schema["type"]
    if name == "decimal":
        if kind == "bytes":
            return name if schema["precision"] else ""
        most = math.floor(math.log10(2 ** (8 * schema["size"] - 1) - 1))
        return name if schema["precision"] <= most else ""
    return "" if name == "no-such" or (kind == "string" and name != "uuid") else name


class _Values:
    def __init__(self, chance: random.Random, named: Mapping[str, Schema]) -> None:
        self._chance, self._named = chance, named

    def value(self, schema: Schema, depth: int) -> Any:
        chance = self._chance
        if isinstance(schema, list):
            one = schema[0] if depth > 12 else chance.choice(schema)
            if depth > 12:
                one = next((one for one in schema if kind_of(one, self._named) == "null"), one)
            return (called(one, self._named), self.value(one, depth + 1))
        told = resolved(schema, self._named)
        match told["type"]:
            case "record":
                return {one["name"]: self.value(one["type"], depth + 1) for one in told["fields"]}
            case "array":
                if without_bytes(told["items"], self._named):
                    return []
                return [self.value(told["items"], depth + 1) for _ in range(self._count(depth))]
            case "map":
                return {
                    chance.choice(TEXTS) + str(i): self.value(told["values"], depth + 1)
                    for i in range(self._count(depth))
                }
            case "enum":
                return chance.choice(told["symbols"])
            case "fixed":
                return chance.choice([chance.randbytes(told["size"]), bytes(told["size"])])
            case "bytes":
                return chance.choice([b"", b"\0", b"\xff" * 70, chance.randbytes(5)])
            case "string":
                return chance.choice(TEXTS)
            case "boolean":
                return chance.random() < 0.5
            case "null":
                return None
            case "float":
                return chance.choice([struct.unpack("<f", struct.pack("<f", one))[0] for one in FLOATS])
            case "double":
                return chance.choice([*DOUBLES, chance.gauss(0, 1e9)])
        return chance.choice(WHOLE if told["type"] == "int" else (*LONG, chance.getrandbits(40)))

    def _count(self, depth: int) -> int:
        return 0 if depth > 8 else self._chance.choice([0, 0, 1, 1, 2, 3, 5 if depth < 3 else 0])


def without_bytes(schema: Schema, named: Mapping[str, Schema]) -> bool:
    told = resolved(schema, named) if not isinstance(schema, list) else {"type": "union"}
    return told["type"] == "null" or (
        told["type"] == "record" and all(without_bytes(one["type"], named) for one in told["fields"])
    )


def branches(schema: Sequence[Schema], named: Mapping[str, Schema]) -> dict[str, str]:
    """What Connect calls the branches that are not null, by fastavro's names."""
    full = [called(one, named) for one in schema]
    short = [one.rpartition(".")[2] for one in full]
    names = short if len(set(short)) == len(short) else full
    return {one: name for one, name in zip(full, names, strict=True) if one != "null"}


def token(schema: Schema, value: Any, named: Mapping[str, Schema]) -> Token:
    """A value as the token that it has to be."""
    if isinstance(schema, list):
        name, inner = value
        if name == "null":
            return None
        told = token(next(one for one in schema if called(one, named) == name), inner, named)
        names = branches(schema, named)
        return told if len(names) == 1 else {**dict.fromkeys(names.values()), names[name]: told}
    schema = resolved(schema, named)
    match schema["type"]:
        case "record":
            return {one["name"]: token(one["type"], value[one["name"]], named) for one in schema["fields"]}
        case "array":
            return [token(schema["items"], one, named) for one in value]
        case "map":
            return {name: token(schema["values"], one, named) for name, one in value.items()}
        case "bytes" | "fixed":
            return _bytes_token(schema, value)
        case "int" | "long":
            return Number(value)
        case "float" | "double":
            return Number(repr(value)) if math.isfinite(value) else Constant(_WORDS[repr(value)])
    return value


_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _bytes_token(schema: Mapping[str, Any], value: bytes) -> Token:
    if logical(schema) == "uuid":
        return f"{value[:4].hex()}-{value[4:6].hex()}-{value[6:8].hex()}-{value[8:10].hex()}-{value[10:].hex()}"
    if logical(schema) == "duration":
        return {name: Number(one) for name, one in _duration(value).items()}
    return base64.b64encode(value).decode()


def _duration(value: bytes) -> dict[str, int]:
    return dict(zip(("months", "days", "milliseconds"), struct.unpack("<III", value), strict=True))


def arrow(schema: Schema, of: Drawn, above: tuple[str, ...] = ()) -> pa.DataType | None:
    """What is asked for of a type; None for one of which nothing can be."""
    if isinstance(schema, list):
        names = branches(schema, of.named)
        inner = [
            (names[name], arrow(one, of, above)) for one in schema if (name := called(one, of.named)) in names
        ]
        parts = [(name, one) for name, one in inner if one is not None]
        return None if not parts else parts[0][1] if len(names) == 1 else pa.struct(parts)
    told = resolved(schema, of.named)
    match told["type"]:
        case "record":
            if told["name"] in above:
                return None
            kinds = [(one["name"], arrow(one["type"], of, (*above, told["name"]))) for one in told["fields"]]
            parts = [(name, kind) for name, kind in kinds if kind is not None]
            return pa.struct(parts) if parts else None
        case "array":
            inner_kind = arrow(told["items"], of, above)
            return None if inner_kind is None else pa.list_(inner_kind)
        case "map":
            inner_kind = arrow(told["values"], of, above)
            return None if inner_kind is None else pa.map_(pa.string(), inner_kind)
        case "fixed" if logical(told) == "uuid":
            return pa.string()
        case "fixed" if logical(told) == "duration":
            return pa.struct([(name, pa.int64()) for name in ("months", "days", "milliseconds")])
    return _LEAVES.get(told["type"])


_LEAVES = {
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "string": pa.string(),
    "enum": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
}


def cell(schema: Schema, value: Any, kind: pa.DataType, named: Mapping[str, Schema]) -> Any:
    """A value as what Python makes of Arrow's."""
    if isinstance(schema, list):
        name, inner = value
        if name == "null":
            return None
        names = branches(schema, named)
        one = next(one for one in schema if called(one, named) == name)
        if len(names) == 1:
            return cell(one, inner, kind, named)
        return {f.name: cell(one, inner, f.type, named) if f.name == names[name] else None for f in kind}
    told = resolved(schema, named)
    match told["type"]:
        case "record":
            types = {one["name"]: one["type"] for one in told["fields"]}
            return {f.name: cell(types[f.name], value[f.name], f.type, named) for f in kind}
        case "array":
            return [cell(told["items"], one, kind.value_type, named) for one in value]
        case "map":
            return [(name, cell(told["values"], one, kind.item_type, named)) for name, one in value.items()]
        case "fixed" if logical(told) == "duration":
            return _duration(value)
        case "fixed" if logical(told) == "uuid":
            return _bytes_token(told, value)
    return value


def plain(schema: Schema, told: Token, named: Mapping[str, Schema]) -> Any:
    """A token as fastavro returns the value when it reads it, without logical types."""
    if isinstance(schema, list):
        if told is None:
            return None
        names = branches(schema, named)
        by_name = {names[name]: one for one in schema if (name := called(one, named)) in names}
        if len(by_name) == 1:
            return plain(next(iter(by_name.values())), told, named)
        (name,) = [name for name, one in told.items() if one is not None] or [None]
        return None if name is None else plain(by_name[name], told[name], named)
    schema = resolved(schema, named)
    match schema["type"]:
        case "record":
            return {one["name"]: plain(one["type"], told[one["name"]], named) for one in schema["fields"]}
        case "array":
            return [plain(schema["items"], one, named) for one in told]
        case "map":
            return {name: plain(schema["values"], one, named) for name, one in told.items()}
        case "bytes" | "fixed":
            return _bytes_of(schema, told)
        case "int" | "long":
            return int(told)
        case "float" | "double":
            return float(told)
    return told


def _bytes_of(schema: Mapping[str, Any], told: Token) -> bytes:
    if logical(schema) == "uuid":
        return bytes.fromhex(told.replace("-", ""))
    if logical(schema) == "duration":
        return struct.pack("<III", *map(int, told.values()))
    return base64.b64decode(told)


def damaged(chance: random.Random, raw: bytes) -> bytes:
    """The record with something wrong in it, most often."""
    at = chance.randrange(len(raw) + 1)
    return chance.choice(_DAMAGES)(chance, raw, at)


_DAMAGES: tuple[Callable[[random.Random, bytes, int], bytes], ...] = (
    lambda chance, raw, at: raw[:at],
    lambda chance, raw, at: raw + chance.randbytes(chance.randrange(1, 4)),
    lambda chance, raw, at: raw[:at] + bytes([chance.randrange(256)]) + raw[at + 1 :],
    lambda chance, raw, at: (
        raw[:at] + bytes([(raw[at : at + 1] or b"\0")[0] ^ 1 << chance.randrange(8)]) + raw[at + 1 :]
    ),
    lambda chance, raw, at: raw[:at] + b"\xff" * chance.randrange(8, 12) + b"\x01" + raw[at:],
    lambda chance, raw, at: raw[:at] + b"\x01" + raw[at:],
    lambda chance, raw, at: raw[:at] + raw[at + 1 :],
)
