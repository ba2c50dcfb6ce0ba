"""Records in Avro with a registry's ids, written by fastavro, and what a format makes of them."""

import io
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
from toy_registry import ToyRegistry

from backfill_cli.contracts.decoder import Asked, Decoded
from backfill_cli.decode.registered import Registered
from backfill_cli.model.schema import Columns
from backfill_cli.registry import decoder
from backfill_cli.schema_registry.options import RegistryOptions
from backfill_cli.schema_registry.registry import SchemaRegistry


@dataclass(frozen=True)
class Topic:
    """A topic `orders` and a toy registry of its schemas."""

    registry: ToyRegistry
    subject: str = "orders-value"

    def record(self, schema: Any, value: Any) -> bytes:
        """A record as the registry's serializer writes it."""
        id, out = self.registry.add(self.subject, json.dumps(schema)), io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
        return b"\0" + struct.pack(">I", id) + out.getvalue()

    def asked(
        self, key: Sequence[str] = (), declared: Columns | None = None, encoding: str = "avro", **more: Any
    ) -> Asked:
        registry = SchemaRegistry.of(RegistryOptions(url=self.registry.url), "upstream.registry")
        documents = Registered(registry, encoding, "upstream.value.encoding")
        names = ("topic 'orders'", "orders", "orders", tuple(key))
        return Asked(*names, declared, {}, "upstream.value", documents=documents, **more)

    def read(
        self, form: str, records: Sequence[bytes], key: Sequence[str] = (), seen: Sequence[bytes] | None = None
    ) -> tuple[Columns, Decoded]:
        """(the columns that these records show, or those seen when the job began; the records' rows)."""
        asked, of = self.asked(key), decoder(form)
        found = of.columns(asked, lambda: records if seen is None else seen)
        opened = of.open(asked, found.columns, found.facts)
        return found.columns, opened.decode(lambda: records)(records)


def rows(found: Decoded) -> list[Mapping[str, Any]]:
    """The rows of what was read; an error is its text."""
    errors = found.error.to_pylist() if found.error is not None else []
    columns = {name: column.to_pylist() for name, column in found.columns.items()}
    count = len(next(iter(columns.values())))
    made = [{name: values[i] for name, values in columns.items()} for i in range(count)]
    return [{"error": errors[i]} if errors and errors[i] else row for i, row in enumerate(made)]


def table_envelope(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    """Debezium's, of a table whose row has these fields."""
    row = {"type": "record", "name": "Value", "namespace": f"shop.{name}", "fields": list(fields)}
    parts = [{"name": part, "type": "string"} for part in ("db", "table")]
    source = {"type": "record", "name": "Source", "fields": [*parts, {"name": "ts_ms", "type": "long"}]}
    members = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", f"shop.{name}.Value"], "default": None},
        {"name": "source", "type": source},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ]
    return {"type": "record", "name": "Envelope", "namespace": f"shop.{name}", "fields": members}


def table_change(name: str, row: dict[str, Any], db: str = "shop") -> dict[str, Any]:
    source = {"db": db, "table": name, "ts_ms": 5}
    return {"before": None, "after": row, "source": source, "op": "c", "ts_ms": None}
