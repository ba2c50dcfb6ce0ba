"""Names and types in PostgreSQL: every identifier, our own or a user's, goes through `quoted` and keeps its case.

Values survive exactly, or their type is refused, naming the column.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backfill_cli.contracts import SinkTable, own
from backfill_cli.contracts.targets import RENAME
from backfill_cli.errors import BadData, UsageError
from backfill_cli.model.schema import fields_of, shown
from backfill_cli.spark.names import as_text

TREE = (
    "WITH tree (oid) AS (SELECT $1::regclass::oid UNION "
    "SELECT relid::oid FROM pg_catalog.pg_partition_tree($1::regclass))"
)
"""SQL: the table named by the first parameter, and its partitions."""
LONGEST_BYTES = 63
"""PostgreSQL truncates longer names without an error: two names could become one."""


def quoted(name: str) -> str:
    """The quoted identifier for exactly this name.

    Raises UsageError for a name that PostgreSQL cannot hold: empty, over 63 bytes, or with a NUL character.
    """
    if not name or "\0" in name or len(name.encode()) > LONGEST_BYTES:
        raise UsageError(
            f"{name!r} cannot name a column or table in PostgreSQL: it is empty, longer than {LONGEST_BYTES} "
            "bytes, or holds a NUL character",
            RENAME,
        )
    return '"' + name.replace('"', '""') + '"'


def listed(names: Iterable[str], prefix: str = "") -> str:
    """`"a", "b"`, each with `prefix.` in front when there is one."""
    dot = f"{prefix}." if prefix else ""
    return ", ".join(dot + quoted(name) for name in names)


def matching(names: Iterable[str], left: str, right: str) -> str:
    """SQL: the rows `left` and `right` have equal values in these columns, none of them NULL."""
    return " AND ".join(f"{left}.{quoted(name)} = {right}.{quoted(name)}" for name in names)


def literal(text: str) -> str:
    """A string literal, for the few statements that accept no parameters (COMMENT ON)."""
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class Target:
    """A sink table. schema and table are the names themselves, unquoted."""

    schema: str
    table: str

    @classmethod
    def parse(cls, text: str, default: str) -> "Target":
        """From the config's `target`: `table` in the schema `default`, or `schema.table`.

        Raises UsageError for more than one dot, an empty part, and names reserved for side tables.
        """
        parts = text.split(".")
        schema, table = (default, parts[0]) if len(parts) == 1 else (parts[0], parts[-1])
        if len(parts) > 2 or not schema or not table:
            raise UsageError(
                f"target {text!r}: a PostgreSQL table is named `table` or `schema.table`",
                'name it beside the table\'s name, for example: tables.target = "public.orders"',
            )
        if own.is_own(table):
            raise UsageError(
                f"target {text!r}: names that begin with {own.PREFIX} are reserved for backfill's own tables",
                "name another target: tables.target",
            )
        return cls(schema, table)

    @classmethod
    def of(cls, table: SinkTable, default: str) -> "Target":
        """As `parse`; the name of a side table may be a reserved one."""
        if not table.side:
            return cls.parse(table.target, default)
        beside, prefix, name = table.target.rpartition(own.PREFIX)
        return cls(beside.rstrip(".") or default, prefix + name)

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


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
