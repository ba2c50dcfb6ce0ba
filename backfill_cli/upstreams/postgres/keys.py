"""Conditions on keys, which the database compares: no key is ever compared here.

A cursor is a JSON list of the texts of a key's columns, as the server's output functions write them; a cursor that
is a split's bound may have the first columns only.
"""

import json
from collections.abc import Sequence

from backfill_cli.cdc.ranges import KeyRange
from backfill_cli.model.position import Cursor
from backfill_cli.upstreams.postgres.client import Connection, row_of, rows_of
from backfill_cli.upstreams.postgres.tables import PgTable
from backfill_cli.upstreams.postgres.types import Column, quoted, selected


def _cursor(texts: Sequence[str]) -> Cursor:
    return json.dumps(list(texts), ensure_ascii=False)


def literal(text: str) -> str:
    """The text as an SQL string literal, whatever characters it holds."""
    escaped = text.replace("'", "''")
    return "E'" + escaped.replace("\\", "\\\\") + "'" if "\\" in text else "'" + escaped + "'"


def condition(key: Sequence[Column], names: Sequence[str], keys: KeyRange) -> str:
    """SQL that a row's key is in a range. names: SQL of the key's columns."""
    limits = [_compared(key, names, ">", keys.after)] if keys.after is not None else []
    limits += [_compared(key, names, "<=", keys.up_to)] if keys.up_to is not None else []
    return " AND ".join(limits) or "true"


def _compared(key: Sequence[Column], names: Sequence[str], operator: str, cursor: Cursor) -> str:
    texts: list[str] = json.loads(str(cursor))
    parts = list(zip(key, names, texts, strict=False))
    left = ", ".join(f"{name}{column.comparable}" for column, name, _ in parts)
    right = ", ".join(f"{literal(text)}::{column.type_name}{column.comparable}" for column, _, text in parts)
    return f"({left}) {operator} ({right})"


def in_any(key: Sequence[Column], ranges: Sequence[KeyRange]) -> str:
    """SQL, on columns k0, k1, …, that a key is in one of the ranges."""
    names = [f"k{i}{f' COLLATE {column.collation}' if column.collation else ''}" for i, column in enumerate(key)]
    return " OR ".join(f"({condition(key, names, keys)})" for keys in ranges) or "false"


def of_rows(key: Sequence[Column], keys: KeyRange) -> str:
    """SQL for a table's rows in a range."""
    return condition(key, [quoted(column.name) for column in key], keys)


def after_sql(table: str, source: str, key: Sequence[Column], keys: KeyRange, rows: int) -> str:
    """A query for the key of a range's row with this number, from 1. table, source: as SQL, see PgTable."""
    texts = ", ".join(selected(column) + "::text" for column in key)
    # with the table's name: a bare name would mean the selected text, and order by that
    order = ", ".join(f"{table}.{quoted(column.name)}" for column in key)
    where = of_rows(key, keys)
    return f"SELECT {texts} FROM {source} WHERE {where} ORDER BY {order} OFFSET {rows - 1} LIMIT 1"


def cursor_of(row: Sequence[str] | None) -> Cursor | None:
    """The key that `after_sql` found."""
    return None if row is None else _cursor(row)


def key_after(connection: Connection, table: PgTable, keys: KeyRange, rows: int) -> Cursor | None:
    """The key of a range's row with this number, from 1; None if the range has fewer."""
    query = after_sql(table.sql, table.source, table.key, keys, rows)
    return cursor_of(row_of(connection, f"searching for a key of table {table.name!r}", query))


def rows_in(connection: Connection, table: PgTable, keys: KeyRange, most: int) -> int:
    """How many rows a range has, at most this many."""
    inner = f"SELECT FROM {table.source} WHERE {of_rows(table.key, keys)} LIMIT {most}"
    counting = f"counting rows of table {table.name!r}"
    return int(row_of(connection, counting, f"SELECT count(*) FROM ({inner}) rows")[0])


def cuts(connection: Connection, table: PgTable, most: int) -> list[Cursor]:
    """At most so many distinct values of the first key column, in the database's order, from its statistics."""
    first, doing = table.key[0], "reading its statistics"
    collate = f" COLLATE {first.collation}" if first.collation else ""
    (kind,) = row_of(connection, doing, "SELECT format_type(%s, NULL)", (first.base_oid,))
    # an anyarray can only be cast by way of its text
    query = f"""
        SELECT DISTINCT ON (tile) concat(v) FROM (
            SELECT v, ntile({most + 1}) OVER (ORDER BY v{collate}) AS tile FROM (
                SELECT DISTINCT v FROM pg_stats, unnest(histogram_bounds::text::{kind}[]) v
                WHERE schemaname = %s AND tablename = %s AND attname = %s AND inherited = %s) d) t
        ORDER BY tile, v{collate} DESC"""
    given = (table.schema, table.relation, first.name, table.kind == "p")
    return [_cursor(row) for row in rows_of(connection, doing, query, given)][:-1]
