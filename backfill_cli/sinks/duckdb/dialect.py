"""Names and types in DuckDB: every identifier, our own or a user's, goes through `quoted`.

Values survive exactly, or their type is refused, naming the column.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from backfill_cli.contracts import SinkTable, own
from backfill_cli.contracts.targets import RENAME
from backfill_cli.errors import BadData, UsageError
from backfill_cli.model.schema import fields_of
from backfill_cli.spark.names import as_text


def quoted(name: str) -> str:
    """The quoted identifier for exactly this name, whatever characters it contains.

    Raises UsageError for the two names that DuckDB cannot hold: an empty one and one with a NUL character.
    """
    if not name or "\0" in name:
        raise UsageError(
            f"{name!r} cannot name a column or table in DuckDB: it is empty or holds a NUL character",
            RENAME,
        )
    return '"' + name.replace('"', '""') + '"'


def listed(names: Iterable[str], prefix: str = "") -> str:
    """`"a", "b"`, each with `prefix.` in front when there is one."""
    dot = f"{prefix}." if prefix else ""
    return ", ".join(dot + quoted(name) for name in names)


def literal(text: str) -> str:
    """A string literal, for the few statements that accept no parameters (COMMENT ON, SET)."""
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class Target:
    """A sink table. schema and table are the names themselves, unquoted."""

    schema: str
    table: str

    @classmethod
    def parse(cls, text: str) -> "Target":
        """From the config's `target`: `table`, or `schema.table`.

        Raises UsageError for more than one dot, an empty part, and names reserved for side tables.
        """
        parts = text.split(".")
        schema, table = ("main", parts[0]) if len(parts) == 1 else (parts[0], parts[-1])
        if len(parts) > 2 or not schema or not table:
            raise UsageError(
                f"target {text!r}: a DuckDB table is named `table` or `schema.table`",
                'name it beside the table\'s name, for example: tables.target = "main.orders"',
            )
        if own.is_own(table):
            raise UsageError(
                f"target {text!r}: names that begin with {own.PREFIX} are reserved for backfill's own tables",
                'choose another name, for example: tables.target = "main.orders"',
            )
        return cls(schema, table)

    @classmethod
    def of(cls, table: SinkTable) -> "Target":
        """As `parse`; the name of a side table may be a reserved one."""
        if not table.side:
            return cls.parse(table.target)
        beside, prefix, name = table.target.rpartition(own.PREFIX)
        return cls(beside.rstrip(".") or "main", prefix + name)

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    @property
    def identity(self) -> str:
        """The same text for all spellings of this table: DuckDB ignores the case of names."""
        return f"{self.schema}.{self.table}".lower()

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


SIMPLE = {
    "boolean": "BOOLEAN",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
}
LOGICAL = {"uuid": "UUID", "json": "JSON"}
INTEGERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT"})

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_CHARACTERS = re.compile(r"(var)?char\(\d+\)")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a sink table. type: as DuckDB writes it in DDL."""

    name: str
    type: str


def sink_columns(table: str, schema: str) -> tuple[Column, ...]:
    """The sink's columns for a Spark schema given as JSON, in its order.

    Raises BadData naming table, column and type if a type would not survive exactly; UsageError if names differ
    in case only, or if one is reserved.
    """
    fields = fields_of(schema)
    own.refuse_names(f"table {table!r}", [field["name"] for field in fields])
    return tuple(Column(field["name"], _of_field(table, field["name"], field)) for field in fields)


def exported_columns(table: str, schema: str) -> tuple[Column, ...]:
    """As `sink_columns`, with the types that Spark reads back: text if the sink's type is UUID or JSON."""
    return sink_columns(table, json.dumps(_without_logical(json.loads(schema))))


def _without_logical(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_logical(value) for key, value in node.items() if key != "metadata"}
    return [_without_logical(item) for item in node] if isinstance(node, list) else node


def _of_field(table: str, name: str, field: Mapping[str, Any], within: str = "") -> str:
    """within: follows the column's name where the field is one inside the column's type."""
    logical = (field.get("metadata") or {}).get("logical")
    if logical is None:
        return _of(table, name, field["type"], within)
    if logical not in LOGICAL or field["type"] != "string":
        raise _refused(table, name, within, f"{field['type']} marked {logical!r}")
    return LOGICAL[logical]


def _of(table: str, name: str, spark: Any, within: str) -> str:
    if isinstance(spark, str):
        return _of_simple(table, name, spark, within)
    match spark["type"]:
        case "array":
            return _of(table, name, spark["elementType"], f"{within}[]") + "[]"
        case "map":
            key = _of(table, name, spark["keyType"], f"{within} (map key)")
            return f"MAP({key}, {_of(table, name, spark['valueType'], f'{within} (map value)')})"
        case "struct" if spark["fields"]:
            own.refuse_twins(
                f"table {table!r}, column {name + within!r}", [field["name"] for field in spark["fields"]]
            )
            inner = [
                quoted(field["name"]) + " " + _of_field(table, name, field, f"{within}.{field['name']}")
                for field in spark["fields"]
            ]
            return f"STRUCT({', '.join(inner)})"
        case other:
            raise _refused(table, name, within, f"{other} without fields" if other == "struct" else other)


def _of_simple(table: str, name: str, spark: str, within: str) -> str:
    if spark in SIMPLE:
        return SIMPLE[spark]
    if decimal := _DECIMAL.fullmatch(spark):
        return f"DECIMAL({decimal[1]},{decimal[2]})"
    if _CHARACTERS.fullmatch(spark):
        return "VARCHAR"
    raise _refused(table, name, within, spark)


def _refused(table: str, name: str, within: str, spark: str) -> BadData:
    return BadData(
        f"table {table!r}, column {name + within!r}: DuckDB has no exact counterpart of Spark's type {spark}",
        as_text(name, spark),
    )
