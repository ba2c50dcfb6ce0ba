"""Staged rows instead of a target's rows of the same keys, whatever looks on."""

from collections.abc import Sequence

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import BadData
from backfill_cli.sinks.postgres.session import Connection, rows_of, run
from backfill_cli.sinks.postgres.shape import Shape
from backfill_cli.sinks.postgres.sql import Target, listed, matching, quoted
from backfill_cli.sinks.postgres.types import OP, Column

NAMED_KEYS = 5
INSERTS, CHANGES, CARRIED = "_backfill_inserts", "_backfill_changes", "_backfill_carried"
"""Temporary tables: staged rows, on their way; what the job does not write of rows that go and come back."""


def replace(
    con: Connection, target: Target, table: SinkTable, columns: Sequence[Column], shape: Shape, staged: str
) -> None:
    """The rows of a temporary table stand in the target instead of those of their keys; of a delete, nothing."""
    if not shape.in_place:
        _delete(con, target, table, shape, staged, "true")
        _insert(con, target, table, columns, staged, "true")
    elif shape.carries:
        _carry(con, target, table, columns, shape, staged)
    else:
        _update(con, target, table, columns, shape, staged)


def kept(of: str) -> str:
    """SQL: a staged row that is there in the end; snapshot rows have no op."""
    return f"{of}.{OP} IS DISTINCT FROM 'D'"


def shown(key: Sequence[str], of: str) -> str:
    """SQL of a row's key as text for people."""
    return " || ', ' || ".join(f"coalesce({of}.{quoted(name)}::text, 'NULL')" for name in key)


def _delete(con: Connection, target: Target, table: SinkTable, shape: Shape, staged: str, which: str) -> None:
    """No row of the keys of the staged rows `which` (SQL) is left. Raises BadData where a trigger kept some."""
    same = matching(table.key, "t", "s")
    run(con, f"DELETE FROM {target.sql} t USING pg_temp.{staged} s WHERE {same} AND {which}")
    if shape.triggered:
        left = rows_of(
            con,
            f"SELECT {shown(table.key, 's')} FROM pg_temp.{staged} s WHERE {which} "
            f"AND EXISTS (SELECT 1 FROM {target.sql} t WHERE {same}) LIMIT {NAMED_KEYS}",
        )
        refuse_swallowed(table, target, shape, "deletes", [key for (key,) in left])


def _insert(
    con: Connection, target: Target, table: SinkTable, columns: Sequence[Column], staged: str, which: str
) -> None:
    names = [column.name for column in columns]
    # In the key's order: a million rows went into its index in 3.7 s, not 7.7.
    run(
        con,
        f"INSERT INTO {target.sql} ({listed(names)}) OVERRIDING SYSTEM VALUE SELECT {listed(names, 's')} "
        f"FROM pg_temp.{staged} s WHERE {kept('s')} AND {which} ORDER BY {listed(table.key, 's')}",
    )


def _carry(
    con: Connection, target: Target, table: SinkTable, columns: Sequence[Column], shape: Shape, staged: str
) -> None:
    """Rows go, and come back with the values that the job does not write: so may any exchange unique values."""
    names, key = [column.name for column in columns], table.key
    run(
        con,
        f"CREATE TEMPORARY TABLE {CARRIED} ON COMMIT DROP AS SELECT {listed((*key, *shape.extra), 't')} "
        f"FROM {target.sql} t JOIN pg_temp.{staged} s ON {matching(key, 't', 's')} WHERE {kept('s')}",
    )
    _delete(con, target, table, shape, staged, "true")
    same = matching(key, "c", "s")
    run(
        con,
        f"INSERT INTO {target.sql} ({listed((*names, *shape.extra))}) OVERRIDING SYSTEM VALUE "
        f"SELECT {listed(names, 's')}, {listed(shape.extra, 'c')} FROM pg_temp.{staged} s "
        f"JOIN pg_temp.{CARRIED} c ON {same} WHERE {kept('s')} ORDER BY {listed(key, 's')}",
    )
    new = f"NOT EXISTS (SELECT 1 FROM pg_temp.{CARRIED} c WHERE {same})"
    _insert(con, target, table, columns, staged, new)
    run(con, f"DROP TABLE pg_temp.{CARRIED}")


def _update(
    con: Connection, target: Target, table: SinkTable, columns: Sequence[Column], shape: Shape, staged: str
) -> None:
    """Rows that are there stay and change; where they exchange unique values, some are NULL on the way."""
    same = matching(table.key, "t", "s")
    _delete(con, target, table, shape, staged, f"NOT ({kept('s')})")
    for unique in shape.clashing:
        if unique.blank:
            taken = (
                f"SELECT 1 FROM pg_temp.{staged} n WHERE {kept('n')} AND {matching(unique.columns, 'n', 't')} "
                f"AND NOT ({matching(table.key, 'n', 't')})"
            )
            run(
                con,
                f"UPDATE {target.sql} t SET {quoted(unique.blank)} = NULL FROM pg_temp.{staged} s "
                f"WHERE {same} AND {kept('s')} AND EXISTS ({taken})",
            )
    names = [column.name for column in columns if column.name not in table.key]
    values = ", ".join(f"{quoted(name)} = s.{quoted(name)}" for name in names)
    if values:
        change = f"UPDATE {target.sql} t SET {values} FROM pg_temp.{staged} s WHERE {same} AND {kept('s')}"
        if shape.triggered:
            refuse_swallowed(table, target, shape, "changes", _unchanged(con, target, table, staged, change))
        else:
            run(con, change)
    _insert(con, target, table, columns, staged, f"NOT EXISTS (SELECT 1 FROM {target.sql} t WHERE {same})")


def _unchanged(con: Connection, target: Target, table: SinkTable, staged: str, change: str) -> list[str]:
    """Run the update `change`; the first keys of rows that are there and that it did not touch."""
    key = table.key
    found = rows_of(
        con,
        f"WITH done AS ({change} RETURNING {listed(key, 's')}) "
        f"SELECT {shown(key, 's')} FROM pg_temp.{staged} s WHERE {kept('s')} "
        f"AND EXISTS (SELECT 1 FROM {target.sql} t WHERE {matching(key, 't', 's')}) "
        f"AND NOT EXISTS (SELECT 1 FROM done d WHERE {matching(key, 'd', 's')}) LIMIT {NAMED_KEYS}",
    )
    return [key for (key,) in found]


def refuse_swallowed(table: SinkTable, target: Target, shape: Shape, what: str, keys: Sequence[str]) -> None:
    """Raises BadData where rows stayed as they were. what: what the epoch does to them, for people."""
    if not keys:
        return
    named = "; ".join(f"({key})" for key in keys)
    silence = "; ".join(shape.silencers) or f"ALTER TABLE {target.sql} DISABLE TRIGGER USER"
    raise BadData(
        f"table {table.name!r}: rows of {target} stay as they were, though the epoch {what} them: rows with the "
        f"key ({', '.join(table.key)}): {named}; a trigger may have returned NULL for them, or undone it",
        f"let the trigger return OLD for a DELETE and NEW for an UPDATE, or switch it off: {silence}",
    )
