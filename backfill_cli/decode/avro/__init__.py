"""Avro: records without their schema, which is known from elsewhere.

| module | what it is |
| --- | --- |
| `schema` | a writer's schema, parsed by the specification |
| `connect` | what Kafka Connect calls its types |
| `columns` | many records by columns |
| `extents` | where the elements of one record's array are |
| `documents` | one record in plain Python, or what is wrong with it |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import pyarrow as pa

from backfill_cli.decode.avro import schema
from backfill_cli.decode.avro.connect import connect
from backfill_cli.decode.connect import Connect
from backfill_cli.decode.documents import Group
from backfill_cli.decode.tokens import Token
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.formats.compute import pc

_KNOWN = 1000
"""Schemas that are kept in a process."""


class Avro:
    """Reads records of one writer's schema."""

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        """text: the schema. references: those whose named types it refers to. Raises Unsupported for no schema."""
        self.type = schema.parsed(text, references)
        self._checked: set[pa.DataType] = set()

    @cached_property
    def schema(self) -> Connect:
        """Of the document, by Kafka Connect."""
        return connect(self.type)

    @property
    def null(self) -> bytes | None:
        """How the record that is null is written; None if the schema has none."""
        branches = [one.kind for one in self.type.parts[:64]] if self.type.kind == "union" else []
        return bytes([2 * branches.index("null")]) if "null" in branches else None

    def read(self, payloads: Sequence[bytes], wanted: pa.Schema) -> tuple[dict[str, pa.Array], Sequence[int]]:
        """(the members asked for, one row for each record that could be read; the indices of those, rising).

        wanted: members of a record as INT64, DOUBLE, BOOLEAN, STRING or BINARY, in structs, lists and maps; one
        that the schema does not have is NULL. Where `schema` is no struct, as that of many keys, the one member
        asked for is the value itself. Raises Unsupported for one that has another type, naming it.
        """
        from backfill_cli.decode.avro import columns

        is_struct = self.schema["type"] == "struct"
        asked = pa.struct(list(wanted)) if is_struct else wanted.field(0).type
        if asked not in self._checked:
            columns.check(self.type, asked)
            self._checked.add(asked)
        rows, kept = columns.read(self.type, payloads, asked)
        if is_struct and rows.null_count:  # null by itself, which is no object
            kept = [kept[i] for i in pc.indices_nonzero(rows.is_valid()).to_pylist()]
            rows = rows.drop_null()
        return dict(zip(wanted.names, rows.flatten() if is_struct else [rows], strict=True)), kept

    def token(self, payload: bytes) -> Token:
        """A record as Kafka Connect's JsonConverter writes it. Raises Unreadable: what is wrong, and where."""
        from backfill_cli.decode.avro.documents import document

        return document(self.type, payload)


@dataclass(frozen=True, slots=True)
class OfOne:
    """`Documents` of records that were all written by one schema, as those of a file."""

    text: str

    def groups(self, records: Sequence[bytes | None]) -> tuple[Sequence[Group], Mapping[int, Unreadable]]:
        from backfill_cli.decode.registered import Written

        at = [i for i, record in enumerate(records) if record is not None]
        return [Written(at, [records[i] or b"" for i in at], reader(self.text), "its schema")] if at else [], {}


@lru_cache(_KNOWN)
def reader(text: str, references: tuple[str, ...] = ()) -> Avro:
    """What reads records that were written by a schema. Made once in a process."""
    return Avro(text, references)
