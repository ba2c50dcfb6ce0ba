"""Quoting for DuckDB: every identifier, our own or a user's, goes through `quoted`."""

from collections.abc import Iterable
from dataclasses import dataclass

from backfill_cli.contracts import SinkTable, own
from backfill_cli.contracts.targets import RENAME
from backfill_cli.errors import UsageError


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
