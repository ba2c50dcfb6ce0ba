"""Rows that Debezium's transforms took out of their envelopes (ExtractNewRecordState, ExtractNewDocumentState).

What the transform adds begins with `__`. By `__deleted` and `__op` a row says that it is gone; neither does where
the table has a column of that name.
"""

from collections.abc import Collection, Mapping

from backfill_cli.contracts.decoder import Fault
from backfill_cli.decode.tokens import Token, written
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.spark.failures import SHOWN

DELETED, OP = "__deleted", "__op"
ADDED = (OP, DELETED, "__table", "__lsn", "__source_ts_ms")
"""Fields by which such rows are recognised."""

_TRUNCATED = "the table was truncated, which is not followed"


def marks(columns: Collection[str]) -> tuple[str, ...]:
    """Those of a row's members that say whether it is gone."""
    return tuple(name for name in (DELETED, OP) if name not in columns)


STAYS = {DELETED: ("false",), OP: ("c", "r", "u")}
"""What the marks of a row say that was not deleted: the transform writes no other words, and no NULL."""


def is_gone(row: Mapping[str, Token], known: Collection[str]) -> bool:
    """Whether a row was deleted; one without marks was not. known: the `marks`. Raises Unreadable for a truncate,
    and for what the transform does not write.
    """
    op = row.get(OP) if OP in known else None
    told = row.get(DELETED) if DELETED in known else None
    if op == "t":
        raise Unreadable(_TRUNCATED, Fault.TRUNCATED)
    deleted = {True: "true", False: "false"}.get(told, told) if isinstance(told, bool) else told
    for mark, said, gone in ((DELETED, deleted, "true"), (OP, op, "d")):
        if said is not None and said not in (*STAYS[mark], gone):
            raise Unreadable(f"unknown {mark} {said if isinstance(said, str) else written(said)}"[:SHOWN])
    return op == "d" or deleted == "true"


def own_names(names: Collection[str], columns: Collection[str]) -> Collection[str]:
    """A row's members without those that the transform added."""
    if not any(name in names for name in ADDED):
        return names
    return [name for name in names if name in columns or not name.startswith("__")]
