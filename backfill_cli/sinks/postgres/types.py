"""Maps Spark's types to PostgreSQL's: values survive exactly, or the type is refused, naming the column."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backfill_cli.contracts import own
from backfill_cli.errors import BadData, UsageError
from backfill_cli.model.schema import fields_of, shown
from backfill_cli.sinks.postgres.sql import quoted
from backfill_cli.spark.names import as_text

SIMPLE = {
    "boolean": "boolean",
    "byte": "smallint",
    "short": "smallint",
    "integer": "integer",
    "long": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
}
"""As format_type() writes them, so that they can be compared with those of an existing table."""
LOGICAL = {"uuid": "uuid", "json": "json"}
"""json, not jsonb: jsonb changes 1E400, the order of names, and repeated names."""
EQUAL = {"character varying": "text"}
OF_THE_SYSTEM = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_CHARACTERS = re.compile(r"(var)?char\(\d+\)")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a sink table.

    type: as format_type() writes it. spark: the type's name in Spark's schema; of the elements, if array.
    """

    name: str
    type: str
    spark: str
    array: bool = False


def sink_columns(table: str, schema: str) -> tuple[Column, ...]:
    """The sink's columns for a Spark schema given as JSON, in its order.

    Raises BadData naming table, column and type if a type would not survive exactly; UsageError if names differ
    in case only, or if one is reserved by the staged files or by PostgreSQL.
    """
    fields = fields_of(schema)
    _refuse_names(table, [field["name"] for field in fields])
    return tuple(_of_field(table, field["name"], field) for field in fields)


def _of_field(table: str, name: str, field: Mapping[str, Any]) -> Column:
    logical, spark = (field.get("metadata") or {}).get("logical"), field["type"]
    if logical is not None:
        if logical not in LOGICAL or spark != "string":
            raise _refused(table, name, f"{shown(spark)} marked {logical!r}")
        return Column(name, LOGICAL[logical], LOGICAL[logical])
    if isinstance(spark, str):
        return Column(name, _of_simple(table, name, spark), spark)
    if spark["type"] == "array" and isinstance(spark["elementType"], str):
        element = spark["elementType"]
        return Column(name, _of_simple(table, name, element, "[]") + "[]", element, array=True)
    raise _refused(table, name, shown(spark))


def _of_simple(table: str, name: str, spark: str, within: str = "") -> str:
    """within: follows the name where the type is that of elements."""
    if spark in SIMPLE:
        return SIMPLE[spark]
    if decimal := _DECIMAL.fullmatch(spark):
        return f"numeric({decimal[1]},{decimal[2]})"
    if _CHARACTERS.fullmatch(spark):
        return "text"
    raise _refused(table, name, spark, within)


def _refused(table: str, name: str, spark: str, within: str = "") -> BadData:
    return BadData(
        f"table {table!r}, column {name + within!r}: PostgreSQL has no exact counterpart of Spark's type {spark}",
        as_text(name, spark),
    )


def _refuse_names(table: str, names: Sequence[str]) -> None:
    own.refuse_names(f"table {table!r}", names)
    for name in names:
        try:
            quoted(name)
        except UsageError as error:
            raise UsageError(f"table {table!r}: {error.message}", error.template) from None
        if name in OF_THE_SYSTEM:
            raise UsageError(
                f"table {table!r}: a column cannot be named {name!r}, which PostgreSQL reserves",
                f'rename it in the transform: select = ["{name} AS its_{name}", …]',
            )


def read_back(schema: str) -> str:
    """The schema (JSON) of the columns as exported to Parquet for Spark: text for UUID and JSON."""
    fields = [{**field, "metadata": {}} for field in fields_of(schema)]
    return json.dumps({"type": "struct", "fields": fields})
