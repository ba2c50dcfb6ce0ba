"""JSON as documents: plain, or in Kafka Connect's schema block, which is then the group's schema."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from backfill_cli.decode.connect import Connect
from backfill_cli.decode.documents import Group
from backfill_cli.decode.tokens import Token, first_value, parsed, text_of, whole_object, written
from backfill_cli.decode.unreadable import Unreadable

if TYPE_CHECKING:
    import pyarrow as pa

_BEGIN = re.compile(r'\s*\{\s*"schema"\s*:\s*')
_MIDDLE = re.compile(r'\s*,\s*"payload"\s*:\s*')
_WRAPPED = re.compile(rb'\s*\{\s*"(?:schema|payload)"\s*:')
_KNOWN_BLOCKS = 64
_ODD_BLOCK = "a schema block that is neither before nor after its payload: not Kafka Connect's JSON"


@dataclass(frozen=True, slots=True)
class JsonDocuments:
    """`Documents` of one JSON value a record. blocks: a document may be the `payload` beside a schema block."""

    blocks: bool = False

    def groups(self, records: Sequence[bytes | None]) -> tuple[Sequence[Group], Mapping[int, Unreadable]]:
        if not self.blocks:
            at = [i for i, record in enumerate(records) if record is not None]
            texts = [record for record in records if record is not None]
            return [Texts(at, texts)] if at else [], {}
        found: dict[int, Wrapped] = {}
        for i, record in enumerate(records):
            if record is None:
                continue
            schema, text = _known_blocks().split(record)
            group = found.get(id(schema))
            if group is None:
                group = found[id(schema)] = Wrapped([], [], [], schema)
            group.at.append(i)
            group.texts.append(text)
            group.records.append(record)
        return [*found.values()], {}


PLAIN, IN_BLOCKS = JsonDocuments(), JsonDocuments(blocks=True)


class Texts:
    """A `Group` of JSON texts."""

    schema: Connect | None = None
    written: str | None = None
    binary: ClassVar[bool] = False

    def __init__(self, at: list[int], texts: list[bytes]) -> None:
        self.at, self.texts = at, texts

    def only(self, numbers: Sequence[int]) -> Group:
        found = copy(self)
        found.at, found.texts = [self.at[n] for n in numbers], [self.texts[n] for n in numbers]
        found.__dict__.pop("_joined", None)
        return found

    def read(self, wanted: "pa.Schema") -> "tuple[dict[str, pa.Array], Sequence[int]]":
        from backfill_cli.decode import arrow_json

        return arrow_json.parse(self.texts, self._joined, wanted)

    def token(self, number: int) -> Token:
        return parsed(text_of(self.texts[number]))

    def unlike(
        self, those: Sequence[int], path: Sequence[str], is_right: Callable[[frozenset[str]], bool]
    ) -> Collection[int]:
        from backfill_cli.decode.members import unlike

        texts = self.texts if len(those) == len(self.texts) else [self.texts[i] for i in those]
        found = unlike(texts, "$" + "".join(f'."{name}"' for name in path), is_right)
        return {those[i] for i in found}

    def holding(self, names: Collection[str]) -> Collection[int]:
        quoted = [f'"{name}"'.encode() for name in names]
        if not all(name in self._joined for name in quoted):
            return ()
        return [i for i, text in enumerate(self.texts) if all(name in text for name in quoted)]

    def recased(self, names: Collection[str]) -> Collection[int]:
        if not _may_be_recased(self._joined, names):
            return ()
        return [i for i, text in enumerate(self.texts) if _may_be_recased(text, names)]

    @cached_property
    def _joined(self) -> bytes:
        """One a line."""
        return b"\n".join(self.texts)


class Wrapped(Texts):
    """Texts that stood in a schema block, or whose records have none. records: as they came."""

    def __init__(self, at: list[int], texts: list[bytes], records: list[bytes], schema: Connect | None) -> None:
        super().__init__(at, texts)
        self.records, self.schema = records, schema

    def only(self, numbers: Sequence[int]) -> Group:
        at, texts = [self.at[n] for n in numbers], [self.texts[n] for n in numbers]
        return Wrapped(at, texts, [self.records[n] for n in numbers], self.schema)

    def token(self, number: int) -> Token:
        record, text = self.records[number], self.texts[number]
        if text is not record:
            try:
                return parsed(text_of(text))
            except Unreadable:
                pass  # other members can follow the payload
        told = whole_object(record)
        inner = None if "op" in told else told.get("payload")
        if inner is None:
            return told
        if told.get("schema") is not None and self.schema is None:
            raise Unreadable(_ODD_BLOCK)
        return inner


def _may_be_recased(text: bytes, names: Collection[str]) -> bool:
    if b"\\u" in text or not all(name.isascii() for name in names):
        return True
    lower = text.lower()  # lowers ASCII letters only
    return any(lower.count(f'"{name.lower()}"'.encode()) > text.count(f'"{name}"'.encode()) for name in names)


class _Blocks:
    """Takes texts out of their schema blocks, and knows those: the same block is the same object."""

    def __init__(self) -> None:
        self._known: dict[bytes, Any] = {}

    def split(self, record: bytes) -> tuple[Connect | None, bytes]:
        """(the block, the text of its payload); (None, the record) if there is none."""
        if record.startswith(b'{"schema"'):
            for prefix, schema in self._known.items():
                if record.startswith(prefix) and record.endswith(b"}"):
                    return schema, record[len(prefix) : -1]
        elif _WRAPPED.match(record) is None:
            return None, record
        try:
            return self._in_front(record) or self._anywhere(record)
        except (Unreadable, RecursionError):  # nested hundreds deep
            return None, record  # `token` says why

    def _in_front(self, record: bytes) -> tuple[Connect | None, bytes] | None:
        text = text_of(record)
        begin = _BEGIN.match(text)
        if begin is None:
            return None
        told, end = first_value(text, begin.end())
        middle = _MIDDLE.match(text, end)
        if middle is None or not text.endswith("}"):
            return None
        prefix = text[: middle.end()].encode()
        return self._remembered(prefix, told), record[len(prefix) : -1]

    def _anywhere(self, record: bytes) -> tuple[Connect | None, bytes]:
        told = whole_object(record)
        inner, schema = (None, None) if "op" in told else (told.get("payload"), told.get("schema"))
        if inner is None:
            return None, record
        return self._remembered(written(schema).encode(), schema), written(inner).encode()

    def _remembered(self, name: bytes, schema: Token) -> Connect | None:
        if name not in self._known:
            if len(self._known) >= _KNOWN_BLOCKS:
                self._known.clear()
            # what is no object is a block, too, but not Kafka Connect's
            self._known[name] = schema if schema is None or isinstance(schema, dict) else {"type": schema}
        known: Connect | None = self._known[name]
        return known


@cache
def _known_blocks() -> _Blocks:
    """Made once in a process."""
    return _Blocks()
