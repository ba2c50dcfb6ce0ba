"""JSON objects that are not rows of a table: read as rows they would be NULLs, or a deleted row would stay.

Each kind is recognised by names of members that the table does not declare.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from backfill_cli.decode.tokens import Token
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.model.schema import Columns


class Kind(NamedTuple):
    """names: of members. what: they indicate."""

    names: tuple[str, ...]
    what: str


_DELETED = "__deleted"
_KINDS = (
    (
        ("schema", "payload"),
        "a row wrapped in Kafka Connect's schema block: let its converter omit the block "
        '(schemas.enable = false); Debezium\'s envelopes are read with value.format = "debezium"',
        False,
    ),
    (
        ("op", "before", "after"),
        'an envelope of Debezium, not a row: read it with value.format = "debezium"',
        False,
    ),
    (
        ("database", "table", "type", "data"),
        'a change as Maxwell or Canal writes it, not a row: read it with value.format = "maxwell" or "canal"',
        False,
    ),
    (
        (_DELETED,),
        "a row marked __deleted, which would stay: let ExtractNewRecordState write tombstones "
        '(delete.tombstone.handling.mode = "tombstone"), or declare the column __deleted',
        True,
    ),
)
"""(names, what they indicate, whether only in rows with a key)"""


def kinds(columns: Columns, keyed: bool) -> tuple[Kind, ...]:
    """Those that the table's columns allow to recognise. keyed: rows have a key."""
    return tuple(
        Kind(names, what)
        for names, what, of_keys in _KINDS
        if (keyed or not of_keys) and not columns.keys() & set(names)
    )


def refuse(members: Mapping[str, Token], known: Sequence[Kind]) -> None:
    """Raises Unreadable for an object that is of one of these kinds."""
    for kind in known:
        if kind.names == (_DELETED,):
            found = members.get(_DELETED) in (True, "true")
        else:
            found = all(name in members for name in kind.names)
        if found:
            raise Unreadable(kind.what)
