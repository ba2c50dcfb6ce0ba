"""Documents of records that name their schema by a registry's id. Workers fetch the schemas themselves."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from backfill_cli.contracts.decoder import Asked
from backfill_cli.decode.block import Clash, pinned
from backfill_cli.decode.connect import Connect
from backfill_cli.decode.documents import Group
from backfill_cli.decode.json_documents import Texts
from backfill_cli.decode.tokens import Token
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.errors import BadData, ConfigError
from backfill_cli.formats.schemas import Unsupported
from backfill_cli.schema_registry.registry import Schema, SchemaRegistry, UnknownSchema

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}
"""The encodings, and what a registry calls their schemas."""

Indexes = tuple[int, ...]
ALL: Indexes = ()
_Parts = Mapping[Indexes, tuple[Sequence[int], Sequence[bytes]]]

_READERS = 1_000
"""Schemas whose readers are kept in a process."""


class Reader(Protocol):
    """Reads records that were written by one schema, without what stands before their bytes; see `Group`."""

    @property
    def schema(self) -> Connect: ...

    def read(
        self, payloads: Sequence[bytes], wanted: "pa.Schema"
    ) -> "tuple[dict[str, pa.Array], Sequence[int]]": ...

    def token(self, payload: bytes) -> Token: ...


@dataclass(frozen=True, slots=True)
class Registered:
    """`Documents` of an encoding by its name. at: the option that names it, for errors."""

    registry: SchemaRegistry
    encoding: str
    at: str

    def groups(self, records: Sequence[bytes | None]) -> tuple[Sequence[Group], Mapping[int, Unreadable]]:
        found, faults = self._grouped(records)
        return [group for _, group in found], faults

    def _grouped(
        self, records: Sequence[bytes | None]
    ) -> tuple[Sequence[tuple[int, Group]], Mapping[int, Unreadable]]:
        """`groups`, each with the id of its schema."""
        by_id, without = self.registry.wire.grouped(records)
        faults = {index: Unreadable(str(exc.args[0])) for index, exc in without.items()}
        found: list[tuple[int, Group]] = []
        there = [record for record in records if record is not None]
        behind = itemgetter(slice(self.registry.wire.length, None))
        for id, all_of in by_id.items():
            mine = there if len(all_of) == len(there) else [records[i] or b"" for i in all_of]
            payloads = list(map(behind, mine))
            parts, bad = self._parts(all_of, payloads)
            faults |= bad
            for indexes, (at, texts) in parts.items():
                try:
                    reader = self.reader(self.registry.by_id(id), indexes)
                except (UnknownSchema, Unsupported) as exc:
                    faults |= dict.fromkeys(at, Unreadable(str(exc.args[0])))
                else:
                    of = Described if self.encoding == "json-schema" else Written
                    found.append((id, of(at, texts, reader, named(id))))
        return found, faults

    def _parts(self, at: Sequence[int], payloads: Sequence[bytes]) -> tuple[_Parts, dict[int, Unreadable]]:
        """(by what stands before the bytes of each: the message's indexes in its schema; why others have none)."""
        if self.encoding != "protobuf":
            return {ALL: (at, payloads)}, {}
        from backfill_cli.decode.protobuf.messages import by_indexes

        found, without = by_indexes(payloads)
        parts = {indexes: ([at[i] for i in numbers], texts) for indexes, (numbers, texts) in found.items()}
        return parts, {at[i]: Unreadable(str(exc.args[0])) for i, exc in without.items()}

    def schemas(self, records: Sequence[bytes], subject: str | None) -> "list[Seen]":
        """Those of these records and the subject's newest, newest first, by their ids.

        The subject's newest is the first once a record has it: one of another subject, with a higher id, does not
        say what the columns are. subject: None for those of records alone.
        Raises BadData if none of them can be read, naming why.
        """
        groups, without = self._grouped(records)
        found: list[tuple[int, Connect]] = [(id, group.schema or {}) for id, group in groups]
        why = next(map(str, without.values()), f"there are no records yet, and no subject '{subject}'")
        latest = None if subject is None else self.registry.latest(subject)
        used = {id for id, _ in found}
        if latest is not None and latest.id not in used:
            try:
                _, newest = max(found, key=_id, default=(0, {}))
                found.append((latest.id, self.reader(latest, newest.get("name")).schema))
            except Unsupported as exc:
                why = str(exc)
        if not found:
            raise BadData(f"{self.registry.connection.urls[0]}: no schema to read: {why}", "")
        first = latest.id if latest is not None and latest.id in used else None
        found.sort(key=lambda one: (one[0] == first, one[0]), reverse=True)
        return [Seen(id, schema, id in used) for id, schema in found]

    def reader(self, schema: Schema, message: Indexes | str | None = None) -> Reader:
        """What reads the records of a schema. Raises Unsupported, naming the schema.

        message: of a Protobuf schema, by its indexes or its name; None: the only one.
        """
        if schema.kind != KINDS[self.encoding]:
            raise Unsupported(f"{named(schema.id)} is {schema.kind}, but {self.at} = '{self.encoding}'")
        try:
            found = _reader(schema, message)
            _ = found.schema  # made by its first use
            return found
        except Unsupported as exc:
            raise Unsupported(f"{named(schema.id)}: {exc}") from exc


_id = itemgetter(0)
_Made = TypeVar("_Made")


class Seen(NamedTuple):
    """A schema by its id. is_used: whether a record has it."""

    id: int
    schema: Connect
    is_used: bool

    @property
    def name(self) -> str:
        """What messages call it."""
        return named(self.id)


def fitting(
    asked: Asked,
    schemas: Sequence[Seen],
    fields: Callable[[Seen], Sequence[Connect]],
    make: Callable[[Sequence[Seen]], _Made],
) -> _Made:
    """What is made of these schemas; of those that records have, if it is refused with another one.

    A subject's newest schema can be of no record: it was registered too early, by mistake, or for another table.
    Whether rows have a snapshot's columns is asked of those that records have. Where records that do not fit are
    set aside, schemas of another type of a column than newer ones have do not count. fields: of a schema's row.
    """
    used = [one for one in schemas if one.is_used]
    if asked.whole is not None and used:
        return make(used)
    lenient = asked.sets_aside or asked.begun
    try:
        return make(schemas)
    except (BadData, ConfigError):
        if not lenient and (not used or len(used) == len(schemas)):
            raise
    try:
        return make(used or schemas)
    except (BadData, ConfigError):
        if not lenient:
            raise
    return make(_agreeing(used or schemas, fields))


def _agreeing(schemas: Sequence[Seen], fields: Callable[[Seen], Sequence[Connect]]) -> Sequence[Seen]:
    """Those of these schemas, newest first, whose columns have the types that they have in those before."""
    kept: list[Seen] = []
    for schema in schemas:
        with suppress(Clash):
            pinned("", [(one.name, fields(one)) for one in (*kept, schema)])
            kept.append(schema)
    return kept


def named(id: int) -> str:
    """A schema, as messages name it."""
    return f"schema id {id}"


@lru_cache(_READERS)
def _reader(schema: Schema, message: Indexes | str | None) -> Reader:
    if schema.kind == "PROTOBUF":
        from backfill_cli.decode import protobuf

        return protobuf.reader(schema.text, tuple((one.name, one.text) for one in schema.references), message)
    if schema.kind == "JSON":
        from backfill_cli.decode.json_schema import JsonSchema

        return JsonSchema(schema.text, {one.name: one.text for one in schema.references})
    from backfill_cli.decode import avro

    return avro.reader(schema.text, tuple(one.text for one in schema.references))


class Described(Texts):
    """A `Group` of JSON texts that a schema describes: they can lack its members, and have others."""

    def __init__(self, at: Sequence[int], texts: Sequence[bytes], reader: Reader, written: str) -> None:
        super().__init__(list(at), list(texts))
        self.schema, self.written = reader.schema, written


class Written:
    """A `Group` of records of one schema, all of which have the schema's members."""

    binary = True

    def __init__(self, at: Sequence[int], payloads: Sequence[bytes], reader: Reader, written: str) -> None:
        self.at, self.payloads, self.written = at, payloads, written
        self._reader = reader

    @property
    def schema(self) -> Connect:
        return self._reader.schema

    def only(self, numbers: Sequence[int]) -> Group:
        at, payloads = [self.at[n] for n in numbers], [self.payloads[n] for n in numbers]
        return Written(at, payloads, self._reader, self.written)

    def read(self, wanted: "pa.Schema") -> "tuple[dict[str, pa.Array], Sequence[int]]":
        try:
            return self._reader.read(self.payloads, wanted)
        except Unsupported:  # a member of another type: one by one, each says so
            return {one.name: one.type and _none(one.type) for one in wanted}, []

    def token(self, number: int) -> Token:
        return self._reader.token(self.payloads[number])

    def unlike(
        self, those: Sequence[int], path: Sequence[str], is_right: Callable[[frozenset[str]], bool]
    ) -> Collection[int]:
        return () if is_right(members(self.schema, path)) else those

    def holding(self, names: Collection[str]) -> Collection[int]:
        return range(len(self.at)) if members(self.schema) >= set(names) else ()

    def recased(self, names: Collection[str]) -> Collection[int]:
        folded = {name.lower() for name in names}
        is_one = any(name not in names and name.lower() in folded for name in members(self.schema))
        return range(len(self.at)) if is_one else ()


def members(schema: Connect, path: Sequence[str] = ()) -> frozenset[str]:
    """The names of the members of the object at a path."""
    for name in path:
        schema = next((one for one in schema.get("fields") or () if one.get("field") == name), {})
    return frozenset(str(one.get("field")) for one in schema.get("fields") or ())


def _none(kind: "pa.DataType") -> "pa.Array":
    import pyarrow as pa

    return pa.nulls(0, kind)
