"""Changes of MySQL's tables as Maxwell writes them: JSON, `data` is the row, `old` what an update changed.

Its values are plain JSON: a decimal is a number, a time a text (a TIMESTAMP in UTC), bytes are base64.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from backfill_cli.decode import values
from backfill_cli.decode.encodings import textual
from backfill_cli.decode.row_changes import (
    ChangesOf,
    RowChange,
    TableChange,
    full_name,
    object_in,
    text_in,
    time_in,
)
from backfill_cli.decode.statements import effect
from backfill_cli.decode.tokens import Number, Token, whole_object
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.model.schema import SparkType

_WRITES = ("insert", "update", "bootstrap-insert")
_AROUND_ROWS = ("bootstrap-start", "bootstrap-complete")
"""Of a bootstrap, a row that changes meanwhile follows as an update."""
_STATEMENTS = (
    *("database-create", "database-alter", "database-drop"),
    *("table-create", "table-alter", "table-drop"),
)

_LAST_S = 2**63 // 1000


@dataclass(frozen=True, slots=True)
class Maxwell:
    """See row_changes.Form."""

    writer: ClassVar[str] = "Maxwell"

    def changes(self, record: bytes) -> Iterable[RowChange | TableChange]:
        return self._of(whole_object(record))

    def _of(self, record: Mapping[str, Token]) -> Iterable[RowChange | TableChange]:
        kind, table = record.get("type"), full_name(record)
        if kind in _STATEMENTS:
            yield self._of_statement(record, str(kind), table)
            return
        if kind in _AROUND_ROWS:
            object_in(record, "data", self.writer)
            return
        if kind not in (*_WRITES, "delete"):
            raise Unreadable("no 'type': not a record of Maxwell" if kind is None else f"unknown type {kind}")
        row = object_in(record, "data", self.writer)
        # left out where no value changed that Maxwell writes (exclude_columns)
        is_told = kind == "update" and record.get("old") is not None
        old = object_in(record, "old", self.writer) if is_told else {}
        yield RowChange(table, kind == "delete", _ms(record.get("ts")), row, old)

    def _of_statement(self, record: Mapping[str, Token], kind: str, table: str) -> TableChange:
        sql, database = (text_in(record, name, self.writer) for name in ("sql", "database"))
        if kind.startswith("table"):
            text_in(record, "table", self.writer)
        time_in(record, ("ts",), self.writer)
        if kind == "database-drop":
            return TableChange(databases=frozenset({database}))
        if kind == "table-drop":
            return TableChange(emptied=table)
        if not kind.startswith("table"):
            return TableChange()
        images = (record.get("old"), record.get("def"))
        names = {full_name(one) for one in images if isinstance(one, dict)} - {""}
        lost = effect(sql, database).tables if len(names) < 2 else frozenset[str]()
        renamed = names | {table} if len(names) > 1 else set[str]()
        return TableChange(others=frozenset(renamed) | (lost & {table}))

    def reader(self, kind: SparkType) -> values.Reader:
        return values.of_json(kind, textual(kind))


def _ms(seconds: Token) -> int | None:
    if seconds is None:
        return None
    if not isinstance(seconds, Number) or not seconds.is_whole or abs(int(seconds[:20])) >= _LAST_S:
        raise Unreadable("'ts' is not a time in seconds")
    return int(seconds) * 1000


decoder = ChangesOf(Maxwell())
