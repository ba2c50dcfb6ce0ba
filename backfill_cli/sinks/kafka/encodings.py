"""How a table's rows become records: JSON objects; with a schema that is registered, or Avro, or Protobuf.

A record with a schema begins with the id that the registry gave it. Schemas are made of the table's columns, and
registered before the first record of a process is written: registering one again changes nothing.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from backfill_cli.contracts import SinkTable
from backfill_cli.contracts.refusals import IF_BEGUN
from backfill_cli.decode.documents import Documents
from backfill_cli.decode.json_documents import PLAIN
from backfill_cli.decode.registered import Registered
from backfill_cli.errors import BadData
from backfill_cli.formats.schemas import Unsupported
from backfill_cli.model.schema import Columns, SparkType, columns_of, field, schema_text, shown
from backfill_cli.schema_registry.registry import Schema, SchemaRegistry
from backfill_cli.sinks.kafka import KafkaSinkOptions, avro_records, protobuf_records
from backfill_cli.sinks.kafka.json_rows import objects

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
AT = "sink.encoding"


class Writes(Protocol):
    """What makes keys, or values, of rows. It is pickled. prefix: what stands before each record's own bytes."""

    @property
    def prefix(self) -> bytes: ...
    def of(self, batch: pa.RecordBatch) -> list[bytes]: ...


@dataclass(frozen=True, slots=True)
class JsonObjects:
    """Objects of these columns, after `prefix`."""

    names: tuple[str, ...]
    prefix: bytes = b""

    def of(self, batch: pa.RecordBatch) -> list[bytes]:
        told: list[bytes] = objects(batch, self.names).cast(pa.binary()).to_pylist()
        return [self.prefix + one for one in told] if self.prefix else told


@dataclass(frozen=True, slots=True)
class Records:
    """How a table's keys and values are written, and values read back."""

    keys: Writes
    values: Writes
    encoding: str = "json"
    registry: SchemaRegistry | None = None

    @property
    def binary(self) -> bool:
        """Whether a record is no text."""
        return self.encoding in ("avro", "protobuf")

    @property
    def documents(self) -> Documents:
        return Registered(self.registry, self.encoding, AT) if self.binary and self.registry else PLAIN

    def bare(self, records: Sequence[bytes | None]) -> list[bytes | None]:
        """As `documents` reads them: JSON without the id before it, if there is one."""
        if self.encoding != "json-schema" or self.registry is None:
            return list(records)
        length = self.registry.wire.length
        return [one[length:] if one is not None and one[:1] == b"\0" else one for one in records]

    def read_as(self, columns: Columns) -> Columns:
        """The columns that records have for these: see `again`."""
        if self.encoding != "protobuf":
            return columns
        return {name: field(name, protobuf_records.read_as(one["type"])) for name, one in columns.items()}

    def again(self, read: Mapping[str, pa.Array], columns: Columns) -> Mapping[str, pa.Array]:
        """These columns of those that records have. Raises ArrowInvalid for a value that is none of its type."""
        if self.encoding != "protobuf":
            return read
        return {name: protobuf_records.again(one, columns[name]["type"]) for name, one in read.items()}


def records_of(options: KafkaSinkOptions, table: SinkTable, topic: str) -> Records:
    """Registers the schemas of the table, if its encoding has some. Raises as `SchemaRegistry.register`."""
    columns = columns_of(table.schema)
    names, key = tuple(columns), table.key
    if options.registry is None or options.encoding == "json":
        return Records(JsonObjects(key), JsonObjects(names))
    registry = SchemaRegistry.of(options.registry, "sink.registry")
    parts: list[Writes] = []
    for part, of in (("key", {name: columns[name] for name in key}), ("value", columns)):
        full = f"{_full_name(topic)}.{part.capitalize()}"
        subject = {"topic": f"{topic}-{part}", "record": full, "topic-record": f"{topic}-{full}"}[options.subjects]
        parts.append(_registered(options.encoding, registry, subject, full, of, part == "value"))
    return Records(parts[0], parts[1], options.encoding, registry)


def _registered(
    encoding: str, registry: SchemaRegistry, subject: str, full: str, columns: Columns, nullable: bool
) -> Writes:
    """What writes records of these columns, by a schema of this full name, which is registered."""

    def prefix(kind: str, schema: str) -> bytes:
        return b"\0" + registry.register(subject, kind, schema).to_bytes(registry.wire.id_bytes, "big")

    if encoding == "avro":
        schema = avro_records.avro_schema(full, columns, nullable)
        return avro_records.AvroRecords(schema_text(columns), prefix("AVRO", schema), nullable)
    if encoding == "json-schema":
        return JsonObjects(tuple(columns), prefix("JSON", json_schema(full, columns, nullable)))
    message = protobuf_records.message_of(full, columns, _messages(registry.latest(subject)))
    schema = protobuf_records.schema_of(full.rpartition(".")[0], message, nullable)
    return protobuf_records.ProtobufRecords(message, prefix("PROTOBUF", schema) + b"\0", nullable)


def _messages(newest: Schema | None) -> protobuf_records.Messages:
    """The messages of a subject's newest schema."""
    if newest is None or newest.kind != "PROTOBUF":
        return {}
    from backfill_cli.decode.protobuf.schema import types_of

    try:
        return types_of(newest.text, {one.name: one.text for one in newest.references}).messages
    except Unsupported:  # of another program: the registry says whether ours is compatible
        return {}


def _full_name(topic: str) -> str:
    """A name as Avro allows it, for the schemas of a topic: `shop.orders`, as Debezium names them."""
    parts = [re.sub(r"[^A-Za-z0-9_]", "_", part) for part in topic.split(".") if part]
    return ".".join(part if _NAME.fullmatch(part) else f"_{part}" for part in parts)


def refuse_unwritable(encoding: str, table: SinkTable) -> None:
    """Raises BadData for a column that a record in this encoding cannot have."""
    if encoding not in _TITLES:
        return
    for name, column in columns_of(table.schema).items():
        for why in _faults(name, column["type"], _TITLES[encoding]):
            raise BadData(
                f"table {table.name!r}: column {name!r}: {why}",
                "rename or cast it in the transform's select, or leave it out" + IF_BEGUN,
            )


_TITLES = {"avro": "Avro", "protobuf": "Protobuf"}


def _faults(name: str, kind: SparkType, title: str) -> Iterator[str]:
    if not _NAME.fullmatch(name):
        yield f"{name!r} is no name in {title}, which allows letters, digits and '_'"
    if not isinstance(kind, dict):
        return
    match kind["type"]:
        case "array":
            yield from _faults("element", kind["elementType"], title)
        case "map":
            if kind["keyType"] != "string":
                yield f"a map by {shown(kind['keyType'])} has no counterpart in {title}"
            yield from _faults("value", kind["valueType"], title)
        case "struct":
            for one in kind["fields"]:
                yield from _faults(one["name"], one["type"], title)


# -- JSON Schema --------------------------------------------------------------------------------------------------

_JSON: dict[str, Any] = {
    **{kind: {"type": "integer"} for kind in ("byte", "short", "integer", "long")},
    **{kind: {"type": ["number", "string"]} for kind in ("float", "double")},
    "boolean": {"type": "boolean"},
    "string": {"type": "string"},
    "binary": {"type": "string", "contentEncoding": "base64"},
    "date": {"type": "string", "format": "date"},
    "timestamp": {"type": "string", "format": "date-time"},
    "timestamp_ntz": {"type": "string"},
}


def json_schema(full: str, columns: Columns, nullable: bool) -> str:
    """The schema of an object, as text."""
    told = {name: _of_json(one["type"], nullable) for name, one in columns.items()}
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": full, "type": "object"}
    return json.dumps({**schema, "properties": told, "required": [] if nullable else list(columns)})


def _of_json(kind: SparkType, nullable: bool) -> Any:
    if isinstance(kind, str):
        found = {"type": "number"} if kind.startswith("decimal") else _JSON[kind]
    elif kind["type"] == "array":
        found = {"type": "array", "items": _of_json(kind["elementType"], True)}
    elif kind["type"] == "map":
        found = {"type": "object", "additionalProperties": _of_json(kind["valueType"], True)}
    else:
        inner = {one["name"]: _of_json(one["type"], True) for one in kind["fields"]}
        found = {"type": "object", "properties": inner}
    return {"oneOf": [{"type": "null"}, found]} if nullable else found
