"""Names and types in DuckDB."""

import json
from typing import Any

from backfill_cli.contracts import own
from backfill_cli.errors import in_config
from backfill_cli.model.schema import fields_of
from backfill_cli.sinks.sql.dialect import Column, SqlDialect

INTEGERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT"})


def _nested(table: str, column: str, spark: Any, within: str) -> str:
    match spark["type"]:
        case "array":
            return DUCKDB.type_of(table, column, spark["elementType"], f"{within}[]") + "[]"
        case "map":
            key = DUCKDB.type_of(table, column, spark["keyType"], f"{within} (map key)")
            return f"MAP({key}, {DUCKDB.type_of(table, column, spark['valueType'], f'{within} (map value)')})"
        case "struct" if spark["fields"]:
            own.refuse_twins(
                f"table {table!r}, column {column + within!r}", [field["name"] for field in spark["fields"]]
            )
            inner = [
                DUCKDB.quoted(field["name"])
                + " "
                + DUCKDB.type_of_field(table, column, field, f"{within}.{field['name']}")
                for field in spark["fields"]
            ]
            return f"STRUCT({', '.join(inner)})"
        case other:
            what = f"{other} without fields" if other == "struct" else other
            raise DUCKDB.refused(table, column, what, within)


DUCKDB = SqlDialect(
    system="DuckDB",
    schema="main",
    simple={
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
    },
    logical={"uuid": "UUID", "json": "JSON"},
    decimal="DECIMAL",
    nested=_nested,
    rename=in_config('choose another name, for example: tables.target = "main.orders"'),
    ignores_case=True,
    indexed=False,  # an index would slow down every delete
    lock="",  # nobody else has the file open
)
quoted, listed, matching = DUCKDB.quoted, DUCKDB.listed, DUCKDB.matching


def sink_columns(table: str, schema: str) -> tuple[Column, ...]:
    """See SqlDialect.columns. Raises UsageError too, if names differ in case only, or if one is reserved."""
    own.refuse_names(f"table {table!r}", [field["name"] for field in fields_of(schema)])
    return DUCKDB.columns(table, schema)


def exported_columns(table: str, schema: str) -> tuple[Column, ...]:
    """As `sink_columns`, with the types that Spark reads back: text if the sink's type is UUID or JSON."""
    return sink_columns(table, json.dumps(_without_logical(json.loads(schema))))


def _without_logical(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_logical(value) for key, value in node.items() if key != "metadata"}
    return [_without_logical(item) for item in node] if isinstance(node, list) else node
