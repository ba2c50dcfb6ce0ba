"""A table's changes in a window by key: each key's latest row, or that it is deleted."""

import re
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from backfill_cli.cdc.net import LOST, UNSENT, Key, NetChanges, Row
from backfill_cli.errors import START_OVER, BadData, sql
from backfill_cli.upstreams.postgres.keys import literal
from backfill_cli.upstreams.postgres.types import Column, quoted
from backfill_cli.upstreams.postgres.window import LogTable

_WHOLE = object()

_STRINGS = frozenset({17, 25, 1042, 1043})
"""bytea, text, char, varchar."""
_FLOATS = frozenset({700, 701})
_MINUS_ZERO = re.compile(rb"(?<![^{,])-0(?![^},])")
"""Of a float, or of an element in an array of floats."""


class ValueLost(BadData):
    """The window lacks a value that only later log may have."""


class NetTable(NetChanges):
    """columns: those of the rows. changes: so far. unsure: see Taken."""

    def __init__(self, table: LogTable) -> None:
        self.table, self.columns = table, table.columns
        names = [one.name for one in table.columns]
        key_at = tuple(names.index(name) for name in table.key)
        super().__init__(key_at, _key_of(table.columns, key_at))
        self._identified = self._by_key = self.unsure = False
        self.changes = 0

    def widen(self, columns: tuple[Column, ...]) -> None:
        """Columns were added at the end, NULL in the rows so far."""
        self.add_columns(len(columns) - len(self.columns))
        self.columns = columns

    def identify(self, identity: frozenset[str], full: bool = False) -> None:
        """From here on old rows have these columns, by an index on them unless `full`."""
        self._identified = identity.issuperset(self.table.key)
        self._by_key = identity == frozenset(self.table.key) and not full

    def truncate(self) -> None:
        super().truncate()
        self.unsure = False

    def left_out(self) -> tuple[str, ...]:
        """The columns that some row leaves unchanged. Raises BadData for a row with a lost value."""
        found, lost = self.lacking()
        if lost:
            raise self._lost(lost)
        return tuple(self.columns[at].name for at in sorted(found))

    def shown_key(self, key: Key) -> str:
        """A key for people."""
        return ", ".join(f"{name} = {_text(v)}" for name, v in zip(self.table.key, self.values(key), strict=True))

    def held_bytes(self, of_row: int) -> int:
        """Roughly the memory of its rows. of_row: what one costs beside its values."""
        rows = (row or () for _, _, row in self.entries.values())
        values = sum(len(value) for row in rows for value in row if isinstance(value, bytes))
        return values + of_row * len(self.entries)

    def require_identity(self) -> None:
        if not self._by_key:
            self.unsure = True
        if not self._identified:
            raise BadData(
                f"table {self.table.name!r}: its replica identity lacks a column of the key "
                f"({', '.join(self.table.key)}), so the log does not say which rows changed",
                sql(f"ALTER TABLE {self.table.name} REPLICA IDENTITY FULL") + "; then " + START_OVER,
            )

    def require_keys(self) -> None:
        """Raises BadData for a key that lacks the value of a column."""
        if len(self.key_at) > 1:
            found = next((key for key in self.entries if None in key or UNSENT in key), _WHOLE)
        else:
            found = next((key for key in (None, UNSENT) if key in self.entries), _WHOLE)
        if found is not _WHOLE:
            raise BadData(
                f"table {self.table.name!r}: a change with an incomplete key: {self.shown_key(found)}",
                "the key's columns must be NOT NULL and in the table's replica identity: "
                + sql(f"ALTER TABLE {self.table.name} REPLICA IDENTITY FULL")
                + "; then "
                + START_OVER,
            )

    def _lost(self, lost: dict[Key, Row]) -> "ValueLost":
        """lost: rows by key. The hint's SQL writes their values to the log, where a longer window finds them."""
        key, row = next(iter(lost.items()))
        columns = [self.columns[at] for at, value in enumerate(row) if value is LOST]
        others = f"; such rows: {len(lost):,}" if len(lost) > 1 else ""
        anew = ", ".join(f"{quoted(column.name)} = {_anew(column)}" for column in columns)
        table = self.table.name
        which = f" WHERE {self._is_key(key)}" if not others else ""
        return ValueLost(
            f"table {table!r}: an UPDATE gave a row the new key {self.shown_key(key)}, but the log does not have "
            f"its value of {', '.join(repr(column.name) for column in columns)}, which is stored out of line "
            f"(TOAST) and did not change{others}",
            "write it again, so that the log has it: "
            + sql(f"UPDATE {table} SET {anew}{which}")
            + "; and for later changes of keys: "
            + sql(f"ALTER TABLE {table} REPLICA IDENTITY FULL"),
        )

    def _is_key(self, key: Key) -> str:
        """SQL that is true of the row with this key."""
        named = zip((self.columns[at] for at in self.key_at), self.values(key), strict=True)
        return " AND ".join(f"{quoted(c.name)}{c.comparable} = {literal(_text(value))}" for c, value in named)


def _key_of(columns: tuple[Column, ...], at: tuple[int, ...]) -> Callable[[Row], Key]:
    """A row's key by which changes are netted: the same for 0 and -0, as in the database and in sinks."""
    key_of = itemgetter(*at)
    if not any({columns[one].base_oid, columns[one].element_oid} & _FLOATS for one in at):
        return key_of
    floats = [bool({columns[one].base_oid, columns[one].element_oid} & _FLOATS) for one in at]

    def unsigned(values: Iterable[Any]) -> tuple[Any, ...]:
        pairs = zip(values, floats, strict=True)
        return tuple(
            _MINUS_ZERO.sub(b"0", one) if known and isinstance(one, bytes) else one for one, known in pairs
        )

    return (lambda row: unsigned(key_of(row))) if len(at) > 1 else (lambda row: unsigned((key_of(row),))[0])


def _anew(column: Column) -> str:
    """SQL that sets a column to its own value as a new one, which the log then has."""
    name = quoted(column.name)
    if column.base_oid in _STRINGS:
        return f"{name} || ''"
    return f"{name}::text::{column.type_name}"


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else "NULL" if value is None else "not sent"
