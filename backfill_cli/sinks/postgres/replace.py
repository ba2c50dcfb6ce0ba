"""Replaces a target's rows with the staged rows of the same keys, as the target's shape requires."""

from collections.abc import Sequence
from dataclasses import dataclass

from backfill_cli.contracts import SinkTable, own
from backfill_cli.errors import BadData
from backfill_cli.sinks.postgres.session import Connection, rows_of, run
from backfill_cli.sinks.postgres.shape import Shape, Unique
from backfill_cli.sinks.postgres.sql import Target, listed, matching, quoted
from backfill_cli.sinks.postgres.types import Column

NAMED_KEYS = 5


def kept(of: str) -> str:
    """SQL: whether a staged row exists after the epoch; snapshot rows have no op."""
    return f"{of}.{own.OP} IS DISTINCT FROM 'D'"


def shown(key: Sequence[str], of: str) -> str:
    """SQL of a row's key as text, for messages."""
    return " || ', ' || ".join(f"coalesce({of}.{quoted(name)}::text, 'NULL')" for name in key)


def replace(
    con: Connection, target: Target, table: SinkTable, columns: Sequence[Column], shape: Shape, staged: str
) -> None:
    """The target holds the rows of a temporary table instead of its own with the same keys; deletes leave none."""
    signed = tuple(column.name for column in columns if column.spark in ("float", "double"))
    write = _Write(con, target, table, tuple(column.name for column in columns), shape, staged, signed)
    if not shape.in_place:
        write.delete("true")
        write.insert("true")
    elif shape.carries:
        write.carry()
    else:
        write.update()


@dataclass(frozen=True, slots=True)
class _Write:
    """Statements from one temporary table, `s`, into one target, `t`. names: the columns that the job writes.

    signed: those of them in which equal values can differ: 0 and -0 are one key.
    """

    con: Connection
    target: Target
    table: SinkTable
    names: tuple[str, ...]
    shape: Shape
    staged: str
    signed: tuple[str, ...]

    @property
    def _s(self) -> str:
        return f"pg_temp.{self.staged} s"

    @property
    def _t(self) -> str:
        return f"{self.target.sql} t"

    @property
    def _same(self) -> str:
        return matching(self.table.key, "t", "s")

    def delete(self, which: str) -> None:
        """The target has no row with a key of the staged rows `which` (SQL). BadData if a trigger kept one."""
        run(self.con, f"DELETE FROM {self._t} USING {self._s} WHERE {self._same} AND {which}")
        if self.shape.triggered:
            left = rows_of(
                self.con,
                f"SELECT {shown(self.table.key, 's')} FROM {self._s} WHERE {which} "
                f"AND EXISTS (SELECT 1 FROM {self._t} WHERE {self._same}) LIMIT {NAMED_KEYS}",
            )
            refuse_swallowed(self.table, self.target, self.shape, "deletes", [key for (key,) in left])

    def insert(self, which: str) -> None:
        """The staged rows `which` (SQL) are in the target, which has none of their keys."""
        # In key order: a million rows went into the index in 3.7 s, not 7.7.
        run(
            self.con,
            f"INSERT INTO {self.target.sql} ({listed(self.names)}) OVERRIDING SYSTEM VALUE "
            f"SELECT {listed(self.names, 's')} FROM {self._s} WHERE {kept('s')} AND {which} "
            f"ORDER BY {listed(self.table.key, 's')}",
        )

    def carry(self) -> None:
        """Rows are deleted, then inserted with their extra columns, so that they can exchange unique values."""
        key, extra, same = self.table.key, self.shape.extra, matching(self.table.key, "c", "s")
        run(
            self.con,
            f"CREATE TEMPORARY TABLE {own.CARRIED} ON COMMIT DROP AS SELECT {listed((*key, *extra), 't')} "
            f"FROM {self._t} JOIN {self._s} ON {self._same} WHERE {kept('s')}",
        )
        self.delete("true")
        run(
            self.con,
            f"INSERT INTO {self.target.sql} ({listed((*self.names, *extra))}) OVERRIDING SYSTEM VALUE "
            f"SELECT {listed(self.names, 's')}, {listed(extra, 'c')} FROM {self._s} "
            f"JOIN pg_temp.{own.CARRIED} c ON {same} WHERE {kept('s')} ORDER BY {listed(key, 's')}",
        )
        self.insert(f"NOT EXISTS (SELECT 1 FROM pg_temp.{own.CARRIED} c WHERE {same})")
        run(self.con, f"DROP TABLE pg_temp.{own.CARRIED}")

    def update(self) -> None:
        """Existing rows are updated in place; unique values that they exchange are set to NULL first."""
        self.delete(f"NOT ({kept('s')})")
        for unique in self.shape.clashing:
            if unique.blank:
                self._blank(unique)
        changing = (n for n in self.names if n not in self.table.key or n in self.signed)
        values = ", ".join(f"{quoted(n)} = s.{quoted(n)}" for n in changing)
        if values:
            change = f"UPDATE {self._t} SET {values} FROM {self._s} WHERE {self._same} AND {kept('s')}"
            if self.shape.triggered:
                refuse_swallowed(self.table, self.target, self.shape, "changes", self._unchanged(change))
            else:
                run(self.con, change)
        self.insert(f"NOT EXISTS (SELECT 1 FROM {self._t} WHERE {self._same})")

    def _blank(self, unique: Unique) -> None:
        """Changing rows whose unique values another row takes have NULL there until they are updated."""
        taken = (
            f"SELECT 1 FROM pg_temp.{self.staged} n WHERE {kept('n')} AND {matching(unique.columns, 'n', 't')} "
            f"AND NOT ({matching(self.table.key, 'n', 't')})"
        )
        run(
            self.con,
            f"UPDATE {self._t} SET {quoted(unique.blank)} = NULL FROM {self._s} "
            f"WHERE {self._same} AND {kept('s')} AND EXISTS ({taken})",
        )

    def _unchanged(self, change: str) -> list[str]:
        """Runs the update `change`. Returns the first keys of existing rows that it did not touch."""
        key = self.table.key
        found = rows_of(
            self.con,
            f"WITH done AS ({change} RETURNING {listed(key, 's')}) "
            f"SELECT {shown(key, 's')} FROM {self._s} WHERE {kept('s')} "
            f"AND EXISTS (SELECT 1 FROM {self._t} WHERE {self._same}) "
            f"AND NOT EXISTS (SELECT 1 FROM done d WHERE {matching(key, 'd', 's')}) LIMIT {NAMED_KEYS}",
        )
        return [text for (text,) in found]


def refuse_swallowed(table: SinkTable, target: Target, shape: Shape, what: str, keys: Sequence[str]) -> None:
    """Raises BadData if rows stayed as they were. what: what the epoch does to them, for the message."""
    if not keys:
        return
    named = "; ".join(f"({key})" for key in keys)
    silence = "; ".join(shape.silencers) or f"ALTER TABLE {target.sql} DISABLE TRIGGER USER"
    raise BadData(
        f"table {table.name!r}: the epoch {what} rows of {target}, but they stayed as they were: rows with the "
        f"key ({', '.join(table.key)}): {named}; a trigger may have returned NULL for them, or undone the change",
        f"let the trigger return OLD for a DELETE and NEW for an UPDATE, or disable it: {silence}",
    )
