"""The same logs in container files of Avro: a line's block becomes the schema, as Kafka Connect does it.

fastavro writes them. A tombstone is no record there.
"""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro

from oracle.debezium_inputs import ROW_BLOCK, DebeziumLog

Field = Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class AvroLog(DebeziumLog):
    """A log whose manner is that with blocks."""

    @property
    def options(self) -> Mapping[str, Any]:
        told = super().options
        upstream = {**told["upstream"], "changes": {**told["upstream"]["changes"], "file_format": "avro"}}
        return {**told, "upstream": upstream}

    def files(self, number: int) -> dict[str, bytes]:
        found = dict(super().files(number))
        for name in [one for one in found if one.startswith("changes/")]:
            found[name.replace(".json", ".avro")] = written(found.pop(name).decode().split("\n"))
        return found


def of(log: DebeziumLog) -> AvroLog:
    return AvroLog(log.load, log.steps, log.manner, log.transformed)


def written(lines: Sequence[str]) -> bytes:
    """The envelopes in these lines as a container file."""
    payloads = [one["payload"] for line in lines if line.strip() and (one := json.loads(line)) is not None]
    row = {"type": "record", "name": "Value", "fields": [_field(one) for one in ROW_BLOCK]}
    names = ("connector", "schema", "table")
    source = {"type": "record", "name": "Source", "fields": [{"name": name, "type": "string"} for name in names]}
    source["fields"].append({"name": "ts_ms", "type": "long"})
    fields = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": source},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ]
    schema = {"type": "record", "name": "Envelope", "namespace": "server.public.t", "fields": fields}
    records = [{**one, **{image: _row(one[image]) for image in ("before", "after")}} for one in payloads]
    into = io.BytesIO()
    fastavro.writer(into, fastavro.parse_schema(schema), records, codec="deflate")
    return into.getvalue()


def _field(told: Field) -> dict[str, Any]:
    return {"name": told["field"], "type": ["null", _type(told, told["field"])], "default": None}


def _type(told: Field, name: str) -> Any:
    more = {"connect.name": told["name"]} if "name" in told else {}
    if "parameters" in told:
        more |= {"connect.parameters": told["parameters"], "connect.version": told["version"]}
    match told["type"]:
        case "struct":
            return {"type": "record", "name": f"of_{name}", "fields": [_field(one) for one in told["fields"]]}
        case "array":
            return {"type": "array", "items": ["null", _type(told["items"], name)]}
        case "map":
            return {"type": "map", "values": ["null", _type(told["values"], name)]}
        case "int16":
            return {"type": "int", "connect.type": "int16"}
    kinds = {"int32": "int", "int64": "long", "float": "float", "double": "double"}
    return {"type": kinds.get(told["type"], told["type"]), **more}


def _row(image: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if image is None else {one["field"]: _value(one, image[one["field"]]) for one in ROW_BLOCK}


def _value(told: Field, found: Any) -> Any:
    if found is None:
        return None
    match told["type"]:
        case "struct":
            return {one["field"]: _value(one, found[one["field"]]) for one in told["fields"]}
        case "array":
            return [_value(told["items"], one) for one in found]
        case "bytes":
            return base64.b64decode(found)
        case "float" | "double":
            return float(found)
    return found
