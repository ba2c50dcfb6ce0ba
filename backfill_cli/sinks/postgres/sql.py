"""Quoting for PostgreSQL: every identifier, our own or a user's, goes through `quoted` and keeps its case."""

from collections.abc import Iterable
from dataclasses import dataclass

from backfill_cli.contracts import SinkTable, own
from backfill_cli.contracts.targets import RENAME
from backfill_cli.errors import UsageError

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
