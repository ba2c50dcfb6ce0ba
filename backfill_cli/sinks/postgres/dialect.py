"""Names and types in PostgreSQL."""

from typing import Any

from backfill_cli.contracts import own
from backfill_cli.errors import UsageError, in_config
from backfill_cli.model.schema import fields_of
from backfill_cli.model.schema import shown as shown_type
from backfill_cli.sinks.sql.dialect import Column, SqlDialect

TREE = (
    "WITH tree (oid) AS (SELECT $1::regclass::oid UNION "
    "SELECT relid::oid FROM pg_catalog.pg_partition_tree($1::regclass))"
)
"""SQL: the table named by the first parameter, and its partitions."""
EQUAL = {"character varying": "text"}
OF_THE_SYSTEM = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")


def _nested(table: str, column: str, spark: Any, within: str) -> str:
    if spark["type"] == "array" and isinstance(spark["elementType"], str):
        return POSTGRES.type_of(table, column, spark["elementType"], "[]") + "[]"
    raise POSTGRES.refused(table, column, shown_type(spark))


POSTGRES = SqlDialect(
    system="PostgreSQL",
    schema="public",
    simple={  # as format_type() writes them, so that they can be compared with those of an existing table
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
    },
    # json, not jsonb: jsonb changes 1E400, the order of names, and repeated names.
    logical={"uuid": "uuid", "json": "json"},
    decimal="numeric",
    nested=_nested,
    rename=in_config("name another target: tables.target"),
    functions="pg_catalog.",
    longest_bytes=63,
)
quoted, listed, matching, shown = POSTGRES.quoted, POSTGRES.listed, POSTGRES.matching, POSTGRES.shown


def sink_columns(table: str, schema: str) -> tuple[Column, ...]:
    """See SqlDialect.columns.

    Raises UsageError too, if names differ in case only, or if one is reserved by staged files or by PostgreSQL.
    """
    names = [field["name"] for field in fields_of(schema)]
    own.refuse_names(f"table {table!r}", names)
    for name in names:
        try:
            quoted(name)
        except UsageError as error:
            raise UsageError(f"table {table!r}: {error.message}", error.hint) from None
        if name in OF_THE_SYSTEM:
            raise UsageError(
                f"table {table!r}: a column cannot be named {name!r}, which PostgreSQL reserves",
                f'rename it in the transform: select = ["{name} AS its_{name}", …]',
            )
    return POSTGRES.columns(table, schema)
