"""PostgreSQL's types: which type of Spark holds each exactly, and how a chunk selects it.

A type that Spark has no exact match for is read as text, as the server's output function writes it. The values:
`values.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backfill_cli.errors import UsageError, sql
from backfill_cli.formats import schemas
from backfill_cli.model.schema import SparkType, field

if TYPE_CHECKING:
    import pyarrow as pa

SETTINGS: Mapping[str, str] = {
    "DateStyle": "ISO,YMD",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    # A policy that hides rows is then an error, instead of a table that seems smaller.
    "row_security": "off",
    # The role's own limits are for its other work.
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
}
"""What every session sets: the text of a value and the rows that a query sees depend on these."""

NEWER = {"transaction_timeout": "0"}
"""The same, for servers that have it: from version 17 on."""

_PAIRS = ", ".join(f"('{name}', '{value}')" for name, value in {**SETTINGS, **NEWER}.items())
SET = (
    f"SELECT count(set_config(n, v, false)) FROM (VALUES {_PAIRS}) s (n, v) "
    "WHERE current_setting(n, true) IS NOT NULL"
)
"""Sets those that the server has."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    type_oid, typmod: as in the catalog. type_name: as format_type() writes it. toasts: whether an update may omit
    the unchanged value. collation: as in SQL, "" for none. base_*: the type beneath domains; category: its
    pg_type.typtype (b, e, c, r, m). element_*: of a true array's elements, beneath domains; 0: none. base_name:
    SQL of the type beneath domains, without modifiers. reaches: the oids of all types that its text is made of, at
    any depth: its own, and those of elements, attributes, bounds.
    """

    name: str
    type_oid: int
    typmod: int
    type_name: str
    not_null: bool
    toasts: bool
    collation: str
    base_oid: int
    base_typmod: int
    category: str
    element_oid: int
    element_typmod: int
    delimiter: str
    base_name: str = ""
    reaches: tuple[int, ...] = ()

    @property
    def comparable(self) -> str:
        """The cast with which the server finds operators for it: those of an enum are not found for a domain."""
        return f"::{self.base_name}" if self.category == "e" and self.type_oid != self.base_oid else ""


_COLUMNS_OF = """
WITH RECURSIVE wanted AS ({wanted}),
steps AS (
    SELECT DISTINCT type AS root, typmod AS root_typmod, 0 AS depth, type, typmod FROM wanted
    UNION ALL
    SELECT root, root_typmod, CASE WHEN t.typtype = 'd' THEN depth ELSE 1 END,
           CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.typelem END,
           CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE s.typmod END
    FROM steps s JOIN pg_catalog.pg_type t ON t.oid = s.type
    WHERE t.typtype = 'd' OR s.depth = 0 AND t.typoutput = 'pg_catalog.array_out'::regproc AND t.typelem <> 0
),
ends AS (
    SELECT s.*, t.typtype, t.typdelim
    FROM steps s JOIN pg_catalog.pg_type t ON t.oid = s.type WHERE t.typtype <> 'd'
),
reached AS (
    SELECT type AS root, type FROM wanted
    UNION
    SELECT r.root, beneath.type FROM reached r JOIN pg_catalog.pg_type t ON t.oid = r.type CROSS JOIN LATERAL (
        SELECT t.typbasetype AS type WHERE t.typbasetype <> 0
        UNION ALL SELECT t.typelem WHERE t.typelem <> 0
        UNION ALL SELECT g.rngsubtype FROM pg_catalog.pg_range g
        WHERE t.oid IN (g.rngtypid, (to_jsonb(g) ->> 'rngmultitypid')::oid)  -- from version 14 on
        UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
    ) beneath
)
SELECT w.rel, w.name, w.type, w.typmod, pg_catalog.format_type(w.type, w.typmod), w.not_null, w.toasts,
       coalesce((SELECT quote_ident(n.nspname) || '.' || quote_ident(c.collname) FROM pg_catalog.pg_collation c
                 JOIN pg_catalog.pg_namespace n ON n.oid = c.collnamespace WHERE c.oid = w.collation), ''),
       base.type, base.typmod, base.typtype::text, coalesce(element.type, 0), coalesce(element.typmod, -1),
       coalesce(element.typdelim::text, ','), pg_catalog.format_type(base.type, -1),
       ARRAY(SELECT r.type::bigint FROM reached r WHERE r.root = w.type ORDER BY r.type)
FROM wanted w
JOIN ends base ON base.root = w.type AND base.root_typmod = w.typmod AND base.depth = 0
LEFT JOIN ends element ON element.root = w.type AND element.root_typmod = w.typmod AND element.depth = 1
ORDER BY w.rel, w.number
"""

COLUMNS = _COLUMNS_OF.format(
    wanted="""
    SELECT attrelid AS rel, attnum::int AS number, attname::text AS name, atttypid AS type, atttypmod AS typmod,
           attnotnull AS not_null, attlen = -1 AND attstorage <> 'p' AS toasts, attcollation AS collation
    FROM pg_catalog.pg_attribute
    WHERE attrelid = ANY(%s::oid[]) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''"""
)
"""Rows for `by_table`, for tables given by oid; no generated columns, which the log does not have."""

DESCRIBED = _COLUMNS_OF.format(
    wanted="""
    SELECT 0::oid AS rel, g.number::int, g.name, g.type, g.typmod, false AS not_null,
           t.typlen = -1 AND t.typstorage <> 'p' AS toasts, t.typcollation AS collation
    FROM unnest(%s::text[], %s::oid[], %s::int[]) WITH ORDINALITY g (name, type, typmod, number)
    JOIN pg_catalog.pg_type t ON t.oid = g.type"""
)
"""Rows for `by_table`, all of table 0, for columns given by three arrays: names, types and typmods."""


def by_table(rows: Iterable[Sequence[Any]]) -> dict[int, tuple[Column, ...]]:
    """The columns that COLUMNS found, in order, by their table's oid."""
    found: dict[int, tuple[Column, ...]] = {}
    for table, *row in rows:
        row[-1] = tuple(row[-1])
        found[table] = (*found.get(table, ()), Column(*row))
    return found


_SIMPLE = {
    16: "boolean",
    17: "binary",
    20: "long",
    21: "short",
    23: "integer",
    700: "float",
    701: "double",
    1082: "date",
    1114: "timestamp_ntz",
    1184: "timestamp",
}
_NUMERIC = 1700
MONEY = 790
_LOGICAL = {2950: "uuid", 114: "json", 3802: "json"}
_TEXTS = frozenset({25, 1043, 1042, 19, 114, 3802})
"""text, varchar, bpchar, name, json, jsonb: those that ADBC reads as the server's output function writes them."""

_NAMES_OF_OBJECTS = frozenset({24, 2202, 2203, 2204, 2205, 2206, 3734, 3769, 4089, 4096, 4191, 1033})
"""regclass and its like, aclitem: their text is the current name of another object."""


def spark_field(column: Column, table: str = "…") -> dict[str, Any]:
    """The column as a Spark field. table: SQL of its table, for messages.

    Raises UsageError if its text can change without a change of the row.
    """
    if not _NAMES_OF_OBJECTS.isdisjoint(column.reaches):
        many = "[]" if column.element_oid else ""
        raise UsageError(
            f"table {table}, column {column.name!r}: {column.type_name} cannot be read exactly: its text holds "
            "the name of another object, and changes when that object is renamed",
            "keep the text as it is now: "
            + sql(f"ALTER TABLE {table} ALTER COLUMN {quoted(column.name)} TYPE text{many}")
            + "; every plain column of a table is copied",
        )
    logical = _LOGICAL.get(column.base_oid)
    return field(column.name, spark_type(column), {"logical": logical} if logical else None)


def spark_type(column: Column) -> SparkType:
    """The column's type in Spark, without checking whether it can be read."""
    if column.element_oid:
        return {
            "type": "array",
            "elementType": _scalar(column.element_oid, column.element_typmod),
            "containsNull": True,
        }
    return _scalar(column.base_oid, column.base_typmod)


def _scalar(oid: int, typmod: int) -> str:
    if oid == _NUMERIC and typmod >= 4:
        precision, scale = (typmod - 4) >> 16, (typmod - 4) & 0x7FF  # negative scales are 1024 and above
        if scale <= precision <= 38:
            return f"decimal({precision},{scale})"
    return _SIMPLE.get(oid, "string")


def arrow_type(column: Column) -> "pa.DataType":
    """The Arrow type of the Spark field."""
    return schemas.arrow_type(spark_type(column))


def quoted(name: str) -> str:
    """An SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def is_native(column: Column) -> bool:
    """Whether chunks select the column itself, not its text."""
    return not column.element_oid and (column.base_oid in _SIMPLE or column.base_oid in _TEXTS)


def selected(column: Column) -> str:
    """The expression that a chunk selects: the column itself, or its text by the server's output function.

    A cast would give another text: inet's adds the netmask, xml's keeps a declaration of the encoding.
    """
    name = quoted(column.name)
    if is_native(column):
        return name
    # a composite value with only NULLs IS NULL, though its text is not; concat alone turns NULL into ''
    return f"CASE WHEN {name} IS DISTINCT FROM NULL THEN pg_catalog.concat({name}) END"
