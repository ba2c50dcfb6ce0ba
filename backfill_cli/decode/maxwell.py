"""Changes of MySQL's tables as Maxwell writes them: JSON, `data` is the row, `old` what an update changed.

Its values are plain JSON: a decimal is a number, a time a text (a TIMESTAMP in UTC), bytes are base64.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from backfill_cli.decode import values
from backfill_cli.decode.encodings import textual
from backfill_cli.decode.row_changes import ChangesOf, RowChange, full_name, object_in
from backfill_cli.decode.tokens import Number, Token
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.model.schema import SparkType

_WRITES = ("insert", "update", "bootstrap-insert")
_MESSAGES = (
    *("bootstrap-start", "bootstrap-complete", "heartbeat"),
    *("database-create", "database-alter", "database-drop", "table-create", "table-alter"),
)
"""Which change no row. Of a bootstrap, a row that changes meanwhile follows as an update."""

_LAST_S = 2**63 // 1000


@dataclass(frozen=True, slots=True)
class Maxwell:
    """See row_changes.Form."""

    writer: ClassVar[str] = "Maxwell"

    def changes(self, record: Mapping[str, Token]) -> Iterable[RowChange]:
        kind, table = record.get("type"), full_name(record)
        if kind in _MESSAGES:
            return
        if kind == "table-drop":
            yield RowChange(table, True, None, None, {})
            return
        if kind not in (*_WRITES, "delete"):
            raise Unreadable("no 'type': not a record of Maxwell" if kind is None else f"unknown type {kind}")
        row = object_in(record, "data", self.writer)
        old = object_in(record, "old", self.writer) if kind == "update" else {}
        yield RowChange(table, kind == "delete", _ms(record.get("ts")), row, old)

    def reader(self, kind: SparkType) -> values.Reader:
        return values.of_json(kind, textual(kind))


def _ms(seconds: Token) -> int | None:
    if seconds is None:
        return None
    if not isinstance(seconds, Number) or not seconds.is_whole or abs(int(seconds[:20])) >= _LAST_S:
        raise Unreadable("'ts' is not a time in seconds")
    return int(seconds) * 1000


decoder = ChangesOf(Maxwell())
