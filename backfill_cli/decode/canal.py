"""Changes of MySQL's or TiDB's tables as Canal (flat messages) and TiCDC (canal-json) write them: lists of rows.

Every value is a text, bytes with one character for each (ISO 8859-1). `_tidb` is TiCDC's own: watermarks, and rows
of which only the key was sent.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from backfill_cli.contracts.decoder import Fault
from backfill_cli.decode import values
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
from backfill_cli.decode.tokens import Number, Token, whole_object, written
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.formats.schemas import Unsupported
from backfill_cli.model.schema import SparkType, shown

_ROWS = ("INSERT", "UPDATE", "DELETE")
_EMPTIES = ("TRUNCATE", "ERASE")
"""Types of statements after which a table has no rows."""

_ROLLED_BACK = (
    "an XA transaction was rolled back after its rows had been written to the topic: fill the table anew from a "
    "topic without them"
)
_PARTIAL = (
    "TiCDC sent {what}, as the record would have been too large: raise max-message-bytes, or set "
    'large-message-handle-option = "none", in the changefeed'
)


@dataclass(frozen=True, slots=True)
class Canal:
    """See row_changes.Form."""

    writer: ClassVar[str] = "Canal"

    def changes(self, record: bytes) -> Iterable[RowChange | TableChange]:
        return self._of(whole_object(record))

    def _of(self, record: Mapping[str, Token]) -> Iterable[RowChange | TableChange]:
        kind, table = record.get("type"), full_name(record)
        if kind == "TIDB_WATERMARK":
            if "watermarkTs" not in object_in(record, "_tidb", "TiCDC"):
                raise Unreadable("no 'watermarkTs' in '_tidb': not a watermark of TiCDC")
            return
        if kind == "XACOMMIT":
            text_in(record, "sql", self.writer)
            time_in(record, ("es", "ts"), self.writer)
            return
        if kind == "XAROLLBACK":
            raise Unreadable(_ROLLED_BACK)
        if record.get("isDdl") is True:
            yield self._of_statement(record, table)
            return
        if kind not in _ROWS:
            raise Unreadable("no 'type': not a record of Canal" if kind is None else f"unknown type {kind}")
        rows, types = record.get("data"), record.get("mysqlType")
        old = record.get("old") if kind == "UPDATE" else None
        if old is None and isinstance(rows, list):
            old = [None] * len(rows)
        if not rows or not isinstance(rows, list) or not isinstance(old, list) or len(old) != len(rows):
            raise Unreadable("no 'data', or another number of 'old' rows: only binlog_format = ROW has rows")
        self._refuse_partial(record.get("_tidb"), kind)
        if not isinstance(types, dict):
            raise Unreadable("no 'mysqlType', so another program than Canal or TiCDC wrote it: how is not known")
        for row, was in zip(rows, old, strict=True):
            if not isinstance(row, dict) or not isinstance(was, dict | None):
                raise Unreadable("'data' or 'old' holds what is no row")
            yield RowChange(table, kind == "DELETE", _ms(record), row, was or {}, frozenset(types))

    def _of_statement(self, record: Mapping[str, Token], table: str) -> TableChange:
        """Of a statement about several tables, the record names one, and its type is one of several."""
        database = record.get("database")
        does = effect(text_in(record, "sql", self.writer), database if isinstance(database, str) else "")
        if record.get("type") not in _EMPTIES:
            its = {table} if record.get("type") == "RENAME" or does.restores else set[str]()
            return TableChange(databases=does.databases, others=does.tables | its)
        if does.temporary:
            return TableChange()
        return TableChange(emptied=table, others=does.tables - {table, table.lower()})

    def _refuse_partial(self, told: Token, kind: str) -> None:
        """Raises Unreadable for a row of which TiCDC sent the key only; of a delete that is enough."""
        if not isinstance(told, dict) or kind == "DELETE":
            return
        if told.get("onlyHandleKey") is True:
            raise Unreadable(_PARTIAL.format(what="the key only"), Fault.NOT_SENT)
        if told.get("claimCheckLocation"):
            raise Unreadable(_PARTIAL.format(what="where the row is"), Fault.NOT_SENT)

    def reader(self, kind: SparkType) -> values.Reader:
        if isinstance(kind, dict):
            raise Unsupported(f"every value of Canal is a text: declare STRING, not {shown(kind)}")
        return lambda token: None if token is None else _value(token, kind)


def _value(token: Token, kind: str) -> Any:
    text = token if isinstance(token, str) else written(token)
    if kind != "binary":
        return values.of_text(text, kind)
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise values.inexact(kind) from None


def _ms(record: Mapping[str, Token]) -> int | None:
    """When the source changed the row, else when the record was made."""
    told = record.get("es") if record.get("es") is not None else record.get("ts")
    if told is None:
        return None
    if not isinstance(told, Number) or not told.is_whole or len(told) > 19 or abs(int(told)) >= 2**63:
        raise Unreadable("'es' or 'ts' is not a time in milliseconds")
    return int(told)


decoder = ChangesOf(Canal())
