"""JSON objects that are not rows of a table: read as rows they would be NULLs.

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


_KINDS = (
    (
        ("schema", "payload"),
        "a row wrapped in Kafka Connect's schema block: let its converter omit the block "
        '(schemas.enable = false); Debezium\'s envelopes are read with value.format = "debezium"',
    ),
    (
        ("op", "before", "after"),
        'an envelope of Debezium, not a row: read it with value.format = "debezium"',
    ),
    (
        ("database", "table", "type", "data"),
        'a change as Maxwell or Canal writes it, not a row: read it with value.format = "maxwell" or "canal"',
    ),
)
"""(names, what they indicate)"""


def kinds(columns: Columns) -> tuple[Kind, ...]:
    """Those that the table's columns allow to recognise."""
    return tuple(Kind(names, what) for names, what in _KINDS if not columns.keys() & set(names))


def refuse(members: Mapping[str, Token], known: Sequence[Kind]) -> None:
    """Raises Unreadable for an object that is of one of these kinds."""
    for kind in known:
        if all(name in members for name in kind.names):
            raise Unreadable(kind.what)
