"""Protobuf: messages without their schema, which is known from elsewhere.

| module | what it is |
| --- | --- |
| `schema` | a registry's schema and its references, as message types |
| `text`, `descriptors` | its two forms; both become files (`files`) |
| `types` | the types that files define, linked by their full names |
| `known` | files that need no reference |
| `connect` | what Kafka Connect calls the types |
| `columns` | many messages by columns |
| `one` | one message in plain Python, or what is wrong with it |
| `wire` | the wire format of one message |
"""

from collections.abc import Sequence
from functools import cached_property, lru_cache

import pyarrow as pa

from backfill_cli.decode.connect import Connect
from backfill_cli.decode.protobuf.connect import connect
from backfill_cli.decode.protobuf.one import token
from backfill_cli.decode.protobuf.schema import types_of
from backfill_cli.decode.protobuf.types import Types
from backfill_cli.decode.tokens import Token

_KNOWN = 1000
"""Schemas, and message types, that are kept in a process."""

References = tuple[tuple[str, str], ...]
"""(the path of an import, the schema it is)"""


class Protobuf:
    """Reads messages of one type."""

    def __init__(self, types: Types, name: str) -> None:
        self._types, self._name = types, name

    @cached_property
    def schema(self) -> Connect:
        """Of the message, by Kafka Connect."""
        return connect(self._types, self._name)

    def read(self, payloads: Sequence[bytes], wanted: pa.Schema) -> tuple[dict[str, pa.Array], Sequence[int]]:
        """(the fields asked for, one row for each message that could be read; the indices of those, rising).

        wanted: fields as INT64, DOUBLE, BOOLEAN, STRING or BINARY, in structs, lists and maps; one that the type
        does not have is NULL. No message is read where one is asked for as something else.
        """
        from backfill_cli.decode.protobuf import columns

        return columns.read(payloads, self._types, self._name, wanted)

    def token(self, payload: bytes) -> Token:
        """A message as Kafka Connect's JsonConverter writes it. Raises Unreadable: what is wrong."""
        return token(payload, self._types, self._name)


@lru_cache(_KNOWN)
def reader(text: str, references: References, message: tuple[int, ...] | str | None) -> Protobuf:
    """What reads messages of one type of a schema. Made once in a process. Raises Unsupported.

    message: the indexes of the type; or its full name; None: the only one that there is.
    """
    types = _types(text, references)
    return Protobuf(types, types.chosen(message))


@lru_cache(_KNOWN)
def _types(text: str, references: References) -> Types:
    return types_of(text, dict(references))
