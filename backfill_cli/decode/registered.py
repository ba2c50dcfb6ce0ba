"""Records that begin with the id of their schema: a registry has the schema, an encoding reads the documents."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from backfill_cli.decode.connect import Connect
from backfill_cli.decode.documents import Group
from backfill_cli.decode.tokens import Token
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.formats.schemas import Unsupported
from backfill_cli.schema_registry.registry import Schema, SchemaRegistry, UnknownSchema

if TYPE_CHECKING:
    import pyarrow as pa


class Reader(Protocol):
    """Reads the bytes after the id of records of one schema, as `Group` does. schema: of the document."""

    @property
    def schema(self) -> Connect: ...

    def read(
        self, payloads: Sequence[bytes], wanted: "pa.Schema"
    ) -> "tuple[dict[str, pa.Array], Sequence[int]]": ...

    def token(self, payload: bytes) -> Token: ...


@dataclass(frozen=True, slots=True)
class RegisteredDocuments:
    """`Documents` of records with ids. kind: that their schemas must have, as the registry calls it."""

    registry: SchemaRegistry
    kind: str

    def groups(self, records: Sequence[bytes | None]) -> tuple[Sequence[Group], Mapping[int, Unreadable]]:
        """Raises Transient while the registry does not answer, Fatal where it is none or lets nobody in."""
        by_id, others = self.registry.wire.grouped(records)
        faults = {index: Unreadable(f"the record {why}") for index, why in others.items()}
        groups: list[Group] = []
        for id, at in by_id.items():
            try:
                groups += self._of_schema(id, at, records)
            except Unreadable as exc:
                faults |= dict.fromkeys(at, exc)
        return groups, faults

    def _of_schema(self, id: int, at: Sequence[int], records: Sequence[bytes | None]) -> list[Group]:
        """Raises Unreadable for a schema that cannot be had, or cannot be read."""
        written, begin = f"schema id {id}", self.registry.wire.length
        try:
            schema = self.registry.by_id(id)
            if schema.kind != self.kind:
                raise Unreadable(f"{written} is {schema.kind.title()}, not {self.kind.title()}")
            payloads = [record[begin:] for i in at if (record := records[i]) is not None]
            return [Registered(at, payloads, _avro(schema), written)]
        except UnknownSchema as exc:
            raise Unreadable(str(exc)) from exc
        except Unsupported as exc:
            raise Unreadable(f"{written}: {exc}") from exc


def _avro(schema: Schema) -> Reader:
    from backfill_cli.decode import avro

    return avro.reader(schema.text, tuple(one.text for one in schema.references))


class Registered:
    """A `Group` of records of one schema. Each document has the members that the schema has."""

    binary: ClassVar[bool] = True

    def __init__(self, at: Sequence[int], payloads: Sequence[bytes], reader: Reader, written: str) -> None:
        self.at, self.written = at, written
        self._payloads, self._reader = payloads, reader
        self.schema: Connect | None = reader.schema

    def read(self, wanted: "pa.Schema") -> "tuple[dict[str, pa.Array], Sequence[int]]":
        return self._reader.read(self._payloads, wanted)

    def token(self, number: int) -> Token:
        return self._reader.token(self._payloads[number])

    def unlike(
        self, those: Sequence[int], path: Sequence[str], is_right: Callable[[frozenset[str]], bool]
    ) -> Collection[int]:
        return () if is_right(frozenset(self._members(path))) else those

    def holding(self, names: Collection[str]) -> Collection[int]:
        return range(len(self.at)) if set(names) <= self._members(()) else ()

    def recased(self, names: Collection[str]) -> Collection[int]:
        members = self._members(())
        wanted = {name.lower(): name for name in names}
        odd = any(wanted.get(member.lower(), member) != member for member in members)
        return range(len(self.at)) if odd else ()

    def _members(self, path: Sequence[str]) -> set[str]:
        """The names of the members of the object there."""
        at = self.schema or {}
        for name in path:
            at = next((one for one in at.get("fields", ()) if one["field"] == name), {})
        return {one["field"] for one in at.get("fields", ())}
