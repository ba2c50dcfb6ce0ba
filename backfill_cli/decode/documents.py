"""Documents: what records hold, whichever encoding they are written in. Formats read documents, never bytes.

An encoding puts the records of a batch into groups, each written by one schema, and reads a group by columns. A
document that it cannot read so is read by itself, as tokens (tokens.py), which says what is wrong with it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from backfill_cli.decode.connect import Connect
from backfill_cli.decode.tokens import NO_OBJECT, Token
from backfill_cli.decode.unreadable import Unreadable

if TYPE_CHECKING:
    import pyarrow as pa


class Group(Protocol):
    """Records that were written by one schema.

    at: the records' indices, rising. Other methods number the group's documents from 0.
    schema: of the whole document, as connect.py reads it; None: nothing says it, as in plain JSON.
    written: how messages name the schema (`schema id 12`); None for plain JSON.
    binary: whether `read` has bytes and decimals as `binary`, decimals big-endian in two's complement; otherwise
    they are base64 texts.
    """

    @property
    def at(self) -> Sequence[int]: ...

    @property
    def schema(self) -> Connect | None: ...

    @property
    def written(self) -> str | None: ...

    @property
    def binary(self) -> bool: ...

    def only(self, numbers: Sequence[int]) -> "Group":
        """A group of these documents, rising."""
        ...

    def read(self, wanted: "pa.Schema") -> "tuple[dict[str, pa.Array], Sequence[int]]":
        """(these members, one row for each document that could be read; the numbers of those documents, rising).

        wanted: structs of int64 (whole numbers, dates, times), float64, bool, string (enums and uuids, too, and
        unsigned numbers of 64 bits), and binary. A member that a document lacks is NULL.
        """
        ...

    def token(self, number: int) -> Token:
        """A document as Kafka Connect's JsonConverter would write it. Raises Unreadable.

        Bytes and decimals are base64 texts, maps objects; a union of several branches is an object with a member
        for each.
        """
        ...

    def unlike(
        self, those: Sequence[int], path: Sequence[str], is_right: Callable[[frozenset[str]], bool]
    ) -> Collection[int]:
        """Those documents whose object at `path` does not have the right members."""
        ...

    def holding(self, names: Collection[str]) -> Collection[int]:
        """The documents that may have a member of each of these names."""
        ...

    def recased(self, names: Collection[str]) -> Collection[int]:
        """The documents that may have a member whose name differs from one of these only in case."""
        ...


class Documents(Protocol):
    """An encoding, opened for a place. Pickled to workers: a frozen dataclass with this method."""

    def groups(self, records: Sequence[bytes | None]) -> tuple[Sequence[Group], Mapping[int, Unreadable]]:
        """(the records' groups, why other records have none, by index); one without a value is in neither."""
        ...


class Document(NamedTuple):
    """One document of a group, or why its record has none."""

    group: Group | Unreadable
    number: int = 0

    @property
    def schema(self) -> Connect | None:
        return None if isinstance(self.group, Unreadable) else self.group.schema

    @property
    def written(self) -> str | None:
        return None if isinstance(self.group, Unreadable) else self.group.written

    @property
    def binary(self) -> bool:
        return not isinstance(self.group, Unreadable) and self.group.binary

    def token(self) -> Token:
        """Raises Unreadable."""
        if isinstance(self.group, Unreadable):
            raise self.group
        return self.group.token(self.number)


def as_members(document: Token) -> dict[str, Token]:
    """The members of a document that is an object. Raises Unreadable."""
    if not isinstance(document, dict):
        raise Unreadable(NO_OBJECT)
    return document
