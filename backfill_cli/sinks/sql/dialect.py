"""Names and types of an SQL database: every identifier, our own or a user's, goes through `SqlDialect.quoted`.

A column's values survive exactly in the type that a Spark type is mapped to, or the type is refused.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backfill_cli.contracts import SinkTable, own
from backfill_cli.contracts.refusals import RENAME
from backfill_cli.errors import BadData, Hint, UsageError, in_config
from backfill_cli.model.plan import StagedFile
from backfill_cli.model.schema import fields_of, shown
from backfill_cli.spark.names import as_text

NAMED_KEYS = 5
"""How many keys a message names."""
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_CHARACTERS = re.compile(r"(var)?char\(\d+\)")


def paths_of(folder: str, files: Sequence[StagedFile]) -> list[str]:
    return [f"{folder.rstrip('/')}/{file.path}" for file in files]


def literal(text: str) -> str:
    """A string literal, for the few statements that accept no parameters (COMMENT ON, SET)."""
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a sink table.

    type: as the database writes it. spark: the type's name in Spark's schema; of the elements, if array.
    """

    name: str
    type: str
    spark: str
    array: bool = False


@dataclass(frozen=True, slots=True)
class SqlDialect:
    """How one database spells names and types.

    system: its name. schema: of tables that name none. simple, logical: its types by Spark's, and by a column's
    metadata; decimal: its exact numbers. nested: its type for a nested one (table, column, Spark's type, where in
    the column's type), or an error. rename: the hint for a target whose name is reserved.
    functions: what stands before a function's name, so that no user's function is called instead.
    longest_bytes: of a name, where longer ones are truncated without an error. ignores_case: of names.
    indexed: whether side tables have keys. comments: whether there is COMMENT ON. lock: ends a SELECT whose rows
    nobody else may change or lock.
    """

    system: str
    schema: str
    simple: Mapping[str, str]
    logical: Mapping[str, str]
    decimal: str
    nested: Callable[[str, str, Any, str], str]
    rename: Hint
    functions: str = ""
    longest_bytes: int | None = None
    ignores_case: bool = False
    indexed: bool = True
    comments: bool = True
    lock: str = " FOR UPDATE"

    def quoted(self, name: str) -> str:
        """The quoted identifier for exactly this name, whatever characters it contains.

        Raises UsageError for a name that the database cannot hold: empty, too long, or with a NUL character.
        """
        longest = self.longest_bytes
        if not name or "\0" in name or (longest and len(name.encode()) > longest):
            faults = f"empty, longer than {longest} bytes, or holds" if longest else "empty or holds"
            raise UsageError(
                f"{name!r} cannot name a column or table in {self.system}: it is {faults} a NUL character", RENAME
            )
        return '"' + name.replace('"', '""') + '"'

    def listed(self, names: Iterable[str], prefix: str = "") -> str:
        """`"a", "b"`, each with `prefix.` in front when there is one."""
        dot = f"{prefix}." if prefix else ""
        return ", ".join(dot + self.quoted(name) for name in names)

    def matching(self, names: Iterable[str], left: str, right: str) -> str:
        """SQL: the rows `left` and `right` have equal values in these columns, none of them NULL."""
        return " AND ".join(f"{left}.{self.quoted(name)} = {right}.{self.quoted(name)}" for name in names)

    def shown(self, key: Iterable[str], of: str) -> str:
        """SQL of the key of the row `of` as text, for messages."""
        return " || ', ' || ".join(f"coalesce(CAST({of}.{self.quoted(name)} AS text), 'NULL')" for name in key)

    def lacking(self, table: SinkTable, of: str) -> str:
        """SQL of what `no_row_to_fill` says of the change `of`."""
        left = f"{self.functions}array_to_string({of}.{own.UNSENT}, ', ')"
        return ", ".join([self.shown(table.key, of), left, *(self.shown([one], of) for one in table.place or ())])

    def twice(self, key: Sequence[str], rows: str) -> str:
        """SQL of the first keys that occur more than once in these rows (SQL): as text, and how often."""
        names, count = self.listed(key), f"{self.functions}count(*)"
        if not key:
            return f"SELECT '', {count} FROM {rows} HAVING 1 < {count}"
        return (
            f"SELECT {self.shown(key, 'd')}, d.{own.COUNT} FROM (SELECT {names}, {count} AS {own.COUNT} "
            f"FROM {rows} GROUP BY {names} HAVING {count} > 1 LIMIT {NAMED_KEYS}) d"
        )

    def target(self, schema: str, table: str) -> "Target":
        return Target(schema, table, self)

    def parse(self, text: str, schema: str = "") -> "Target":
        """From the config's `target`: `table` in a schema (by default the dialect's), or `schema.table`.

        Raises UsageError for more than one dot, an empty part, and names reserved for side tables.
        """
        *before, table = text.split(".")
        where = before[0] if before else schema or self.schema
        if len(before) > 1 or not where or not table:
            raise UsageError(
                f"target {text!r}: a {self.system} table is named `table` or `schema.table`",
                in_config(
                    f'name it beside the table\'s name, for example: tables.target = "{self.schema}.orders"'
                ),
            )
        if own.is_own(table) and not table.startswith(own.COLUMNS):
            raise UsageError(
                f"target {text!r}: names that begin with {own.PREFIX} are reserved for backfill's own tables",
                self.rename,
            )
        return self.target(where, table)

    def target_of(self, table: SinkTable, schema: str = "") -> "Target":
        """As `parse`; the name of a side table may be a reserved one."""
        if not table.side:
            return self.parse(table.target, schema)
        beside, prefix, name = table.target.rpartition(own.PREFIX)
        return self.target(beside.rstrip(".") or schema or self.schema, prefix + name)

    def columns(self, table: str, schema: str) -> tuple[Column, ...]:
        """A table's columns for a Spark schema given as JSON, in its order.

        Raises BadData naming table, column and type if a type would not survive exactly.
        """
        return tuple(self._column(table, one) for one in fields_of(schema))

    def _column(self, table: str, of: Mapping[str, Any]) -> Column:
        spark = of["type"]
        array = not isinstance(spark, str) and spark["type"] == "array"
        name = spark["elementType"] if array else spark
        kind = self.type_of_field(table, of["name"], of)
        return Column(of["name"], kind, _logical(of) or (name if isinstance(name, str) else shown(name)), array)

    def type_of_field(self, table: str, column: str, of: Mapping[str, Any], within: str = "") -> str:
        """within: follows the column's name where the field is one inside the column's type."""
        logical = _logical(of)
        if logical is None:
            return self.type_of(table, column, of["type"], within)
        if logical not in self.logical or of["type"] != "string":
            raise self.refused(table, column, f"{shown(of['type'])} marked {logical!r}", within)
        return self.logical[logical]

    def type_of(self, table: str, column: str, spark: Any, within: str = "") -> str:
        if not isinstance(spark, str):
            return self.nested(table, column, spark, within)
        if spark in self.simple:
            return self.simple[spark]
        if decimal := _DECIMAL.fullmatch(spark):
            return f"{self.decimal}({decimal[1]},{decimal[2]})"
        if _CHARACTERS.fullmatch(spark):
            return self.simple["string"]
        raise self.refused(table, column, spark, within)

    def refused(self, table: str, column: str, spark: str, within: str = "") -> BadData:
        return BadData(
            f"table {table!r}, column {column + within!r}: {self.system} has no exact counterpart of Spark's type "
            f"{spark}",
            as_text(column, spark),
        )


def _logical(of: Mapping[str, Any]) -> str | None:
    return (of.get("metadata") or {}).get("logical")


@dataclass(frozen=True, slots=True)
class Target:
    """A sink table. schema and table are the names themselves, unquoted."""

    schema: str
    table: str
    dialect: SqlDialect = field(repr=False, compare=False)

    @property
    def sql(self) -> str:
        return f"{self.dialect.quoted(self.schema)}.{self.dialect.quoted(self.table)}"

    @property
    def identity(self) -> str:
        """The same text for all spellings of this table."""
        return str(self).lower() if self.dialect.ignores_case else str(self)

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"
