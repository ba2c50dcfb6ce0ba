"""What stands before a record's bytes: the id of its schema; for Protobuf, which of its messages it is, too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

MAGIC, GUID = b"\0", b"\1"
"""The first byte of a record that has its schema's id, or its schema's GUID."""

HEADERS = frozenset({"__value_schema_id", "apicurio.value.contentId", "apicurio.value.globalId"})
"""Of records whose values' ids are there instead, by Confluent's and Apicurio's serializers."""

_DEPTH = 100
"""Messages nest in messages; Protobuf's own readers stop at this depth."""


class NoId(Exception):
    """A record that does not begin with the id of a schema. args[0]: what it begins with, for people."""


@dataclass(frozen=True, slots=True)
class Wire:
    """How records name their schemas: a zero, then the id. id_bytes: its length. at: where the config says so.

    Confluent's ids have 4 bytes, those of Apicurio's own serializers have 8 by default. Both count from 1, so that
    a short id read as a long one, or a long one as a short one, is seen: it is huge, or 0.
    """

    id_bytes: int
    at: str

    @property
    def length(self) -> int:
        """Bytes before the record's own."""
        return 1 + self.id_bytes

    def split(self, record: bytes) -> tuple[int, bytes]:
        """(the id of the record's schema, the bytes after it). Raises NoId."""
        return self._id(record[: self.length]), record[self.length :]

    def grouped(self, records: Sequence[bytes | None]) -> tuple[Mapping[int, Sequence[int]], Mapping[int, NoId]]:
        """(id → the indices of its records, rising; index → why a record has no id), without those of None."""
        found: dict[int, Sequence[int]] = {}
        others: dict[int, NoId] = {}
        for begin, indices in _by_begin(records, self.length).items():
            try:
                found[self._id(begin)] = indices
            except NoId as exc:
                others |= dict.fromkeys(indices, exc)
        return found, others

    def _id(self, begin: bytes) -> int:
        if begin[:1] == GUID and len(begin) == self.length:
            raise NoId(
                "begins with the byte 1, as records do that name their schema by a GUID, which is not supported: "
                "let the serializer write ids, its default"
            )
        if begin[:1] != MAGIC:
            shown = "is empty" if not begin else f"begins with {begin!r}, not with the byte 0"
            raise NoId(f"has no schema id: it {shown}; ids in headers are not read")
        if len(begin) < self.length:
            raise NoId(f"has no schema id: it ends after {len(begin)} bytes")
        id = int.from_bytes(begin[1:], "big")
        if self.id_bytes == 4 and id == 0:
            raise NoId(f"has schema id 0: if its ids have 8 bytes, set {self.at}.id_bytes = 8")
        if self.id_bytes == 8 and id >= 1 << 32:
            raise NoId(f"has schema id {id}: if its ids have 4 bytes, set {self.at}.id_bytes = 4")
        return id


def _by_begin(records: Sequence[bytes | None], length: int) -> Mapping[bytes, Sequence[int]]:
    """The indices of the records that have a value, by their first bytes."""
    there = [record for record in records if record is not None]
    first = there[0][:length] if there else b""
    if len(first) == length and len(there) == len(records) and all(map(bytes.startswith, there, repeat(first))):
        return {first: range(len(records))}  # as most are
    found: dict[bytes, list[int]] = {}
    for index, record in enumerate(records):
        if record is not None:
            found.setdefault(record[:length], []).append(index)
    return found


def message_indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """(which message a Protobuf record is: its index in the file, then in that message, and so on; their length).

    payload: what follows the id: zigzag varints, their count first; a single 0 stands for the first message.
    Raises NoId for a path that no schema has.
    """
    if payload[:1] == b"\0":
        return (0,), 1
    count, at = _zigzag(payload, 0)
    if not 0 < count <= _DEPTH:
        raise NoId(f"names no message of its schema: {count} indexes")
    path = []
    for _ in range(count):
        index, at = _zigzag(payload, at)
        if index < 0:
            raise NoId(f"names no message of its schema: index {index}")
        path.append(index)
    return tuple(path), at


def _zigzag(payload: bytes, at: int) -> tuple[int, int]:
    """(the number that begins there, where it ends). Raises NoId."""
    found = 0
    for place, byte in enumerate(payload[at : at + 5]):
        found |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return found >> 1 ^ -(found & 1), at + place + 1
    raise NoId("names no message of its schema: its bytes end within an index")
