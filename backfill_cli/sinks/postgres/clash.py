"""Finds the unique index that refused rows, and says what to do if the rows only exchange its values."""

import json
from dataclasses import dataclass

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import BadData
from backfill_cli.sinks.postgres.edge import told
from backfill_cli.sinks.postgres.session import Connection, rows_of
from backfill_cli.sinks.postgres.sql import Target, listed, quoted


@dataclass(frozen=True, slots=True)
class Index:
    """A unique index of a table; for a partition's index, that of the whole table.

    kind: its constraint as ADD CONSTRAINT calls it, empty if it belongs to no constraint.
    columns: empty if it is over an expression.
    """

    name: str
    table: Target
    kind: str
    columns: tuple[str, ...]

    @property
    def drop(self) -> str:
        """The statement that removes it."""
        if self.kind:
            return f"ALTER TABLE {self.table.sql} DROP CONSTRAINT {quoted(self.name)}"
        return f"DROP INDEX {quoted(self.table.schema)}.{quoted(self.name)}"


def place_of(exc: Exception) -> Target | None:
    """The table that the error itself names; None if it names none."""
    schema, table = told(exc, "schema"), told(exc, "table")
    return Target(schema, table) if schema and table else None


def index_of(con: Connection, exc: Exception, target: Target) -> Index | None:
    """The index that an error names; None if it no longer exists."""
    found = rows_of(
        con,
        "SELECT x.relname, tn.nspname, t.relname, coalesce(u.contype::text, ''), "
        "(SELECT pg_catalog.json_agg(a.attname ORDER BY k.place)::text "
        "FROM pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place) "
        "LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
        "WHERE k.place <= i.indnkeyatts) "
        "FROM pg_catalog.pg_class p JOIN pg_catalog.pg_namespace n ON n.oid = p.relnamespace "
        "JOIN pg_catalog.pg_class x ON x.oid = coalesce(pg_catalog.pg_partition_root(p.oid)::oid, p.oid) "
        "JOIN pg_catalog.pg_index i ON i.indexrelid = x.oid "
        "JOIN pg_catalog.pg_class t ON t.oid = i.indrelid "
        "JOIN pg_catalog.pg_namespace tn ON tn.oid = t.relnamespace "
        "LEFT JOIN pg_catalog.pg_constraint u ON u.conindid = x.oid AND u.contype IN ('p', 'u') "
        "WHERE n.nspname = $1 AND p.relname = $2",
        told(exc, "schema") or target.schema,
        told(exc, "constraint"),
    )
    for name, schema, table, kind, held in found:
        columns = json.loads(held)
        word = {"p": "PRIMARY KEY", "u": "UNIQUE"}.get(kind, "")
        return Index(name, Target(schema, table), word, () if None in columns else tuple(columns))
    return None


def exchanged(table: SinkTable, index: Index) -> BadData:
    """The error for rows that clash only while they are updated one by one, not once all are updated."""
    name, columns = quoted(index.name), listed(index.columns)
    if index.kind:
        on = f"defer its check to the end of the transaction: {index.drop}, "
        on += f"ADD CONSTRAINT {name} {index.kind} ({columns}) DEFERRABLE"
    else:
        on = "replace the index with a constraint, which can be deferred: "
        on += f"{index.drop}; ALTER TABLE {index.table.sql} ADD CONSTRAINT {name} UNIQUE ({columns}) DEFERRABLE"
    return BadData(
        f"table {table.name!r}: rows of the epoch exchange values of {index.name!r} ({', '.join(index.columns)}) "
        f"of {index.table}, which is checked row by row, and they are updated in place: another table refers to "
        "them, or the table has a trigger",
        on,
    )
