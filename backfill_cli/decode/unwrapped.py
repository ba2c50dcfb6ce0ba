"""Rows that Debezium's transforms took out of their envelopes (ExtractNewRecordState, ExtractNewDocumentState).

What the transform adds begins with `__`. By `__deleted` and `__op` a row says that it is gone; neither does where
the table has a column of that name.
"""

from collections.abc import Collection, Mapping

from backfill_cli.contracts.decoder import Fault
from backfill_cli.decode.tokens import Token
from backfill_cli.decode.unreadable import Unreadable

DELETED, OP = "__deleted", "__op"
ADDED = (OP, DELETED, "__table", "__lsn", "__source_ts_ms")
"""Fields by which such rows are recognised."""

_TRUNCATED = "the table was truncated, which is not followed"


def marks(columns: Collection[str]) -> tuple[str, ...]:
    """Those of a row's members that say whether it is gone."""
    return tuple(name for name in (DELETED, OP) if name not in columns)


def is_gone(row: Mapping[str, Token], known: Collection[str]) -> bool:
    """Whether a row was deleted. known: the `marks`. Raises Unreadable for a truncate."""
    op = row.get(OP) if OP in known else None
    if op == "t":
        raise Unreadable(_TRUNCATED, Fault.TRUNCATED)
    return op == "d" or (DELETED in known and row.get(DELETED) in (True, "true"))


def own_names(names: Collection[str], columns: Collection[str]) -> Collection[str]:
    """A row's members without those that the transform added."""
    if not any(name in names for name in ADDED):
        return names
    return [name for name in names if name in columns or not name.startswith("__")]
