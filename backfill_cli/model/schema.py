"""The columns of a table as a value: Spark's own description of them, as JSON.

A schema is `{"type": "struct", "fields": [{"name", "type", "nullable", "metadata"}, …]}`; a column's type is a
name ("bigint" is written "long") or a nested object. A column's metadata can carry {"logical": "uuid"|"json"}, and
{"counts": …}, what its whole numbers count.
"""

import json
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

SparkType = str | dict[str, Any]
Columns = dict[str, dict[str, Any]]
"""column name -> its field object, in order"""


def field(name: str, kind: SparkType, metadata: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A nullable column, as in Spark's JSON."""
    return {"name": name, "type": kind, "nullable": True, "metadata": dict(metadata or {})}


def schema_text(columns: Columns) -> str:
    """The schema as the JSON that catalog and sinks keep."""
    return json.dumps({"type": "struct", "fields": list(columns.values())}, separators=(",", ":"))


def columns_of(schema: str) -> Columns:
    """The columns of a schema that `schema_text` or Spark wrote, by name."""
    return {one["name"]: one for one in fields_of(schema)}


def fields_of(schema: str) -> list[dict[str, Any]]:
    """The same in order and including duplicate names, which a transform's output can contain."""
    found: list[dict[str, Any]] = json.loads(schema)["fields"]
    return found


def names_of(schema: str) -> list[str]:
    return [one["name"] for one in fields_of(schema)]


def shown(kind: SparkType) -> str:
    """A type for display: `decimal(10,2)`, `array<string>`."""
    if isinstance(kind, str):
        return {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{shown(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{shown(kind['keyType'])},{shown(kind['valueType'])}>"
    return f"struct<{','.join(f['name'] + ':' + shown(f['type']) for f in kind['fields'])}>"


@cache
def decimal_of(kind: str) -> tuple[int, int]:
    """(precision, scale) of `decimal(p,s)`."""
    precision, scale = kind[len("decimal(") : -1].split(",")
    return int(precision), int(scale)


def shown_column(column: Mapping[str, Any], kept: Collection[str]) -> str:
    """A column's type in a sink, for display: `uuid`, or `string (upstream uuid)` where it is not `kept`."""
    kind, logical = shown(column["type"]), (column.get("metadata") or {}).get("logical")
    if logical is None:
        return kind
    return str(logical) if logical in kept else f"{kind} (upstream {logical})"


def same_type(a: SparkType, b: SparkType) -> bool:
    """Whether two types hold the same values; nullability and metadata are ignored."""
    return shown(a) == shown(b)


def differing(old: Columns, new: Columns) -> list[str]:
    """The columns that were added, were dropped, or changed type."""
    added = [name for name in new if name not in old]
    gone = [name for name in old if name not in new]
    return added + gone + [n for n in new if n in old and not same_type(new[n]["type"], old[n]["type"])]


def counts_of(columns: Columns) -> dict[str, Any]:
    """What whole numbers of these columns count, as far as it is known: see decode.connect.counted."""
    return {name: one["metadata"]["counts"] for name, one in columns.items() if "counts" in one["metadata"]}


def unlike(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Columns whose whole numbers count something else than before."""
    return [
        f"the numbers of column '{name}' were {_said(old[name])}, and are {_said(what)}"
        for name, what in new.items()
        if name in old and what != old[name]
    ]


def _said(counts: Any) -> str:
    return json.dumps(counts) if isinstance(counts, dict) else counts or "plain"
