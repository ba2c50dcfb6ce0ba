"""Rows as Avro records: the schema of a table's columns, and records of Arrow batches, by columns."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from backfill_cli.model.schema import Columns, SparkType, columns_of, decimal_of
from backfill_cli.sinks.kafka.binary_values import Parts, days, floats, micros, spans, unscaled, varint
from backfill_cli.sinks.kafka.years import refuse_far

# -- schemas ------------------------------------------------------------------------------------------------------

_PLAIN: dict[str, Any] = {
    # an Avro number has 32 bits or 64: the shorter ones say so as Kafka Connect's converter does
    "byte": {"type": "int", "connect.type": "int8"},
    "short": {"type": "int", "connect.type": "int16"},
    "integer": "int",
    **{name: name for name in ("long", "float", "double", "boolean", "string")},
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}


def avro_schema(full: str, columns: Columns, nullable: bool) -> str:
    """The schema of a record, as text. nullable: whether its fields can be null, which is then their default."""
    taken = {full}
    fields = [_field(name, _avro(one["type"], f"{full}_{name}", taken), nullable) for name, one in columns.items()]
    space, _, name = full.rpartition(".")
    return json.dumps({"type": "record", "name": name, "namespace": space, "fields": fields})


def _field(name: str, kind: Any, nullable: bool) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None} if nullable else {"name": name, "type": kind}


def _avro(kind: SparkType, full: str, taken: set[str]) -> Any:
    """full: the name of a record, if it is one and no other has it. taken: those of all others."""
    if isinstance(kind, str):
        if kind.startswith("decimal"):
            precision, scale = decimal_of(kind)
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        return _PLAIN[kind]
    match kind["type"]:
        case "array":
            return {"type": "array", "items": ["null", _avro(kind["elementType"], f"{full}_element", taken)]}
        case "map":
            return {"type": "map", "values": ["null", _avro(kind["valueType"], f"{full}_value", taken)]}
    while full in taken:  # of columns a and a_b: the field b of a struct in a, and a struct in a_b
        full += "_"
    taken.add(full)
    inner = [
        _field(one["name"], _avro(one["type"], f"{full}_{one['name']}", taken), True) for one in kind["fields"]
    ]
    space, _, name = full.rpartition(".")
    return {"type": "record", "name": name, "namespace": space, "fields": inner}


# -- records ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AvroRecords:
    """Records of these columns, a Spark schema. prefix: the schema's id. nullable: as of `avro_schema`."""

    schema: str
    prefix: bytes
    nullable: bool

    def of(self, batch: pa.RecordBatch) -> list[bytes]:
        columns = columns_of(self.schema)
        refuse_far(columns, batch, "Avro")
        write = _optional if self.nullable else _written
        parts = [write(batch.column(name), one["type"]) for name, one in columns.items()]
        prefix = self.prefix
        return [prefix + b"".join(row) for row in zip(*parts, strict=True)]


def _optional(column: pa.Array, kind: SparkType) -> list[bytes]:
    """Of the union of null and a type: which of them it is, then the value."""
    return [b"\0" if one is None else b"\2" + one for one in _written(column, kind)]


def _written(column: pa.Array, kind: SparkType) -> Any:
    """Each row's value; None where it is NULL."""
    if isinstance(kind, str):
        return _decimals(column) if kind.startswith("decimal") else _WRITERS[kind](column)
    if kind["type"] == "struct":
        fields = enumerate(kind["fields"])
        parts = [_optional(column.field(i), one["type"]) for i, one in fields]
        told = [b"".join(row) for row in zip(*parts, strict=True)] if parts else [b""] * len(column)
    else:
        told = _many(column, kind)
    return [one if valid else None for one, valid in zip(told, column.is_valid().to_pylist(), strict=True)]


def _many(column: pa.Array, kind: dict[str, Any]) -> list[bytes]:
    """A block of all items, or entries, and the end; the end alone where there are none."""
    held, each = spans(column)
    if kind["type"] == "array":
        items = _optional(column.values[held], kind["elementType"])
    else:
        values = _optional(column.items[held], kind["valueType"])
        items = [(key or b"\0") + one for key, one in zip(_texts(column.keys[held]), values, strict=True)]
    return [b"".join((_whole_number(b - a), *items[a:b], b"\0")) if a < b else b"\0" for a, b in each]


def _whole_number(number: int) -> bytes:
    """Zigzag: small ones are short whatever their sign."""
    return varint(number << 1 ^ number >> 63)


def _numbers(values: list[int | None]) -> Parts:
    return [None if value is None else varint(value << 1 ^ value >> 63) for value in values]


def _whole(column: pa.Array) -> Parts:
    return _numbers(column.to_pylist())


def _booleans(column: pa.Array) -> Parts:
    return [None if value is None else b"\1" if value else b"\0" for value in column.to_pylist()]


def _sized(values: Parts) -> Parts:
    return [None if value is None else varint(len(value) << 1) + value for value in values]


def _texts(column: pa.Array) -> Parts:
    return _sized(column.cast(pa.binary()).to_pylist())


def _bytes(column: pa.Array) -> Parts:
    return _sized(column.to_pylist())


def _decimals(column: pa.Array) -> Parts:
    return _sized(unscaled(column))


_WRITERS: dict[str, Callable[[pa.Array], Parts]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), _whole),
    "boolean": _booleans,
    "float": floats("<f"),
    "double": floats("<d"),
    "string": _texts,
    "binary": _bytes,
    "date": lambda column: _numbers(days(column)),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), lambda column: _numbers(micros(column))),
}
