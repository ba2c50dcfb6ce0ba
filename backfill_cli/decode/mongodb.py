"""Documents of MongoDB as Debezium's connector writes them: each as extended JSON, a text in an envelope.

A column is the document's member of its name, of one of BSON's types, in any of the forms that
`json.serialization.mode` has for it. A delete has no document, and names the one that is gone in the record's key.
"""

import re
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from backfill_cli.contracts.decoder import Asked, Decoded, Fault, Found
from backfill_cli.decode import messages, values
from backfill_cli.decode.documents import Document, Documents, as_members
from backfill_cli.decode.encodings import textual
from backfill_cli.decode.json_documents import IN_BLOCKS
from backfill_cli.decode.rows import Change, Rows, changes_one_by_one, one_by_one
from backfill_cli.decode.source_table import Known
from backfill_cli.decode.tokens import Constant, Number, Token, parsed
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.errors import ConfigError, in_config
from backfill_cli.formats.schemas import Unsupported
from backfill_cli.model.schema import Columns, SparkType, columns_of, schema_text, shown
from backfill_cli.model.skipped import Skipped

ID = "_id"
FORMAT = "debezium-mongodb"

_MODE = (
    "let the connector send documents, by capture.mode = change_streams_update_full (its default); of one that is "
    "deleted before the connector reads it, capture.mode.full.update.type = post_image has it"
)
_NO_DOCUMENT = f"an update without the document as it is afterwards: {_MODE}"
_OTHER = "not an envelope of Debezium's connector for MongoDB"
_OPS = ("c", "r", "u")
_DAY_MICROS = 86_400_000_000
_BSON = "bson"
"""In the metadata of a text `_id`: the type of the documents' ids, as the first records show it."""

# Values


@dataclass(frozen=True, slots=True)
class Bson:
    """A value. kind: its type, as errors name it. value: its digits, text, bytes, microseconds or members."""

    kind: str
    value: Any = None


_NULL, _BOOLEAN, _WHOLE, _DOUBLE, _STRING = "NULL", "a boolean", "a whole number", "a double", "a string"
_ARRAY, _DOCUMENT, _OBJECT_ID, _DECIMAL = "an array", "a document", "an ObjectId", "a Decimal128"
_DATE, _BINARY, _UUID = "a date", "binary data", "a UUID"
_WITHOUT_COLUMN = {
    "$timestamp": "a timestamp of MongoDB's own log",
    "$regularExpression": "a regular expression",
    "$regex": "a regular expression",
    "$code": "JavaScript code",
    "$symbol": "a symbol",
    "$dbPointer": "a DBPointer",
    "$minKey": "MinKey",
    "$maxKey": "MaxKey",
    "$undefined": "an undefined value",
}
_HEX = re.compile("[0-9a-f]{24}")
_DIGITS = re.compile("-?[0-9]{1,19}")
_FLOATING = re.compile(r"-?[0-9]+(?:[.][0-9]+)?(?:[eE][+-]?[0-9]+)?|NaN|-?Infinity")
_SUBTYPE = re.compile("[0-9a-fA-F]{1,2}")


def bson(token: Token) -> Bson:
    """A token of extended JSON (legacy, relaxed or canonical) as a value. Raises Unreadable."""
    if token is None or isinstance(token, bool):
        return Bson(_NULL) if token is None else Bson(_BOOLEAN, token)
    if isinstance(token, Number):
        return Bson(_WHOLE if token.is_whole else _DOUBLE, token)
    if isinstance(token, Constant):
        return Bson(_DOUBLE, token)
    if isinstance(token, str):
        return Bson(_STRING, token)
    if isinstance(token, list):
        return Bson(_ARRAY, token)
    names = frozenset(token)
    if not any(name.startswith("$") for name in names):
        return Bson(_DOCUMENT, token)
    none = next((name for name in sorted(names) if name in _WITHOUT_COLUMN), None)
    if none is not None:
        return Bson(_WITHOUT_COLUMN[none])
    for known, read in _WRAPPERS:
        if names & known:
            found = read(token) if names <= known else None
            if found is None:
                raise Unreadable(f"not extended JSON: an object with the member {min(names & known)}")
            return found
    return Bson(_DOCUMENT, token)


def _text(token: Token, form: re.Pattern[str]) -> str | None:
    is_text = isinstance(token, str) and not isinstance(token, Number | Constant)
    return token if is_text and form.fullmatch(token) else None


def _object_id(of: Mapping[str, Token]) -> Bson | None:
    told = of.get("$oid")
    text = _text(told.lower(), _HEX) if isinstance(told, str) else None
    return None if text is None else Bson(_OBJECT_ID, text)


def _number(name: str, kind: str, form: re.Pattern[str]) -> Callable[[Mapping[str, Token]], Bson | None]:
    def read(of: Mapping[str, Token]) -> Bson | None:
        text = _text(of.get(name), form)
        return None if text is None else Bson(kind, text)

    return read


def _date(of: Mapping[str, Token]) -> Bson | None:
    told: Any = of.get("$date")
    if isinstance(told, dict):
        told = Number(_text(told.get("$numberLong"), _DIGITS) or "")
    if isinstance(told, Number):
        return Bson(_DATE, int(told) * 1000) if told.is_whole and len(told) <= 20 else None
    return Bson(_DATE, values.of_text(told, "timestamp")) if isinstance(told, str) else None


def _binary(of: Mapping[str, Token]) -> Bson | None:
    told: Any = of.get("$binary")
    of_type = of.get("$type")
    if isinstance(told, dict):
        told, of_type = told.get("base64"), told.get("subType")
    subtype = _text(of_type, _SUBTYPE)
    if not isinstance(told, str) or subtype is None:
        return None
    raw = values.of_base64(told)
    return Bson(_UUID if int(subtype, 16) == 4 and len(raw) == 16 else _BINARY, raw)


def _uuid(of: Mapping[str, Token]) -> Bson | None:
    try:
        return Bson(_UUID, uuid.UUID(str(of.get("$uuid"))).bytes)
    except ValueError:
        return None


_WRAPPERS: Sequence[tuple[frozenset[str], Callable[[Mapping[str, Token]], Bson | None]]] = (
    (frozenset({"$oid"}), _object_id),
    (frozenset({"$numberInt"}), _number("$numberInt", _WHOLE, _DIGITS)),
    (frozenset({"$numberLong"}), _number("$numberLong", _WHOLE, _DIGITS)),
    (frozenset({"$numberDouble"}), _number("$numberDouble", _DOUBLE, _FLOATING)),
    (frozenset({"$numberDecimal"}), _number("$numberDecimal", _DECIMAL, re.compile(".{1,50}"))),
    (frozenset({"$date"}), _date),
    (frozenset({"$binary", "$type"}), _binary),
    (frozenset({"$uuid"}), _uuid),
)
"""Each type that is an object in extended JSON: its members, and what reads it, None if it is malformed."""

_Reader = Callable[[Bson, Token], Any]
"""A value, and the token that it is of, in its stored form. Raises Unreadable for one of another type."""


def reader(kind: SparkType) -> Callable[[Token], Any]:
    """What reads a column of this type. Raises Unsupported."""
    read = _nested(kind) if isinstance(kind, dict) else _simple(kind)

    def value(token: Token) -> Any:
        found = bson(token)
        if found.kind in _WITHOUT_COLUMN.values():
            raise Unreadable(f"{found.kind} has no column type: leave the column out of the schema")
        return None if found.kind == _NULL else read(found, token)

    return value


def _other(found: Bson, kind: SparkType) -> Unreadable:
    return Unreadable(f"{found.kind}, but the column is {shown(kind)}")


def _simple(kind: str) -> _Reader:
    if kind == "string":
        return _as_text
    takes: tuple[str, ...] = ()
    if kind in values.BITS:
        takes = (_WHOLE,)
    elif kind in ("float", "double"):
        takes = (_WHOLE, _DOUBLE)
    elif kind.startswith("decimal"):
        takes = (_WHOLE, _DECIMAL)
    elif kind == "boolean":
        takes = (_BOOLEAN,)
    elif kind == "binary":
        takes = (_BINARY, _UUID)
    elif kind in ("date", "timestamp"):
        takes = (_DATE,)
    if not takes:
        raise Unsupported(f"no value of MongoDB is a {shown(kind)}: a date is an instant, which is a TIMESTAMP")

    def read(found: Bson, token: Token) -> Any:
        if found.kind not in takes:
            raise _other(found, kind)
        if found.kind == _DATE:
            return _moment(found.value, kind)
        if kind in ("float", "double"):
            return _floating(found, kind)
        return found.value if found.kind in (_BOOLEAN, _BINARY, _UUID) else values.of_text(str(found.value), kind)

    return read


def _floating(found: Bson, kind: str) -> float:
    """Exactly the number, whereas of JSON's digits the nearest one counts."""
    value: float = values.of_text(str(found.value), kind)
    held = value if kind == "double" else struct.unpack("<f", struct.pack("<f", value))[0]
    told = int(found.value) if found.kind == _WHOLE else float(found.value)
    if held != told and value == value:
        raise values.inexact(kind)
    return value


def _moment(micros: int, kind: str) -> int:
    day, rest = divmod(micros, _DAY_MICROS)
    if not values.FIRST_DAY <= day <= values.LAST_DAY:
        raise Unreadable(values.out_of_range(kind))
    if kind == "timestamp":
        return micros
    if rest:
        raise values.inexact(kind)
    return day


def _as_text(found: Bson, token: Token) -> str:
    """Of documents and arrays, their extended JSON."""
    if found.kind in (_STRING, _OBJECT_ID, _DECIMAL):
        return str(found.value)
    if found.kind == _UUID:
        return str(uuid.UUID(bytes=found.value))
    if found.kind in (_DATE, _BINARY):
        raise _other(found, "string")
    told = Number(found.value) if found.kind in (_WHOLE, _DOUBLE) else token
    return str(values.of_json("string", textual("string"))(told))


def _nested(kind: dict[str, Any]) -> _Reader:
    if kind["type"] == "array":
        of_items = reader(kind["elementType"])
        return lambda found, _: [of_items(one) for one in _are(found, _ARRAY, kind)]
    if kind["type"] == "map":
        if kind["keyType"] != "string":
            raise Unsupported(f"names of members are texts: declare MAP<STRING, …>, not {shown(kind)}")
        of_values = reader(kind["valueType"])
        return lambda found, _: [(name, of_values(found.value[name])) for name in _are(found, _DOCUMENT, kind)]
    parts = [(one["name"], reader(one["type"])) for one in kind["fields"]]

    def of_struct(found: Bson, token: Token) -> Any:
        members = _are(found, _DOCUMENT, kind)
        return tuple(read(members.get(name)) for name, read in parts)

    return of_struct


def _are(found: Bson, expected: str, kind: SparkType) -> Any:
    if found.kind != expected:
        raise _other(found, kind)
    return found.value


# Rows


@dataclass(frozen=True, slots=True)
class Mongo:
    """A `Decode` of envelopes."""

    schema: str
    known: Known
    documents: Documents = IN_BLOCKS

    @property
    def beside(self) -> Columns:
        return {}

    def __call__(self, records: Sequence[bytes | None]) -> Decoded:
        return _reading(self)(records)


@cache
def _reading(of: Mongo) -> Callable[[Sequence[bytes | None]], Decoded]:
    """Made once in a worker: what does not depend on the records."""
    return _Reading(of).decoded


class _Reading:
    def __init__(self, of: Mongo) -> None:
        self.of = of
        self.columns = columns_of(of.schema)
        self._readers = {name: reader(column["type"]) for name, column in self.columns.items()}
        self._folded = {name.lower() for name in self.columns}

    def decoded(self, records: Sequence[bytes | None]) -> Decoded:
        return changes_one_by_one(self.columns, _documents(self.of.documents, records), self._made)

    def _made(self, document: Document) -> list[Change] | Skipped:
        envelope = as_members(document.token())
        if (message := messages.kind_of(envelope)) is not None:
            return message
        source = envelope.get("source")
        if not is_envelope(envelope) or not isinstance(source, dict):
            raise Unreadable(_OTHER)
        of, op, after = collection_of(source), envelope.get("op"), envelope.get("after")
        if self.of.known.is_other(of):
            raise Unreadable(self.of.known.fault(of), Fault.OTHER_TABLE)
        ms = source.get("ts_ms")
        made_ms = int(ms) if isinstance(ms, Number) and ms.is_whole and len(ms) < 19 else None
        if op == "d":
            return [("K", made_ms, {})]
        if op not in _OPS:
            raise Unreadable(f"unknown op {op}")
        if after is None:
            raise Unreadable(
                _NO_DOCUMENT if op == "u" else f"no 'after' in an envelope with op {op}", Fault.NOT_SENT
            )
        return [("U", made_ms, self._row(_document_in(after)))]

    def _row(self, document: Mapping[str, Token]) -> Mapping[str, Any]:
        row = {name: _value(name, self._readers[name], document.get(name)) for name in self.columns}
        _refuse_key(self.columns.get(ID), document.get(ID))
        for name in document if None in row.values() else ():
            if name not in self.columns and name.lower() in self._folded:
                raise Unreadable(f"member '{name}' differs from a column only in case: it would be NULL")
        return row


def _value(name: str, read: Callable[[Token], Any], token: Token) -> Any:
    try:
        return read(token)
    except Unreadable as exc:
        raise Unreadable(f"column '{name}': {exc.args[0]}", exc.fault) from None


def _documents(encoding: Documents, records: Sequence[bytes | None]) -> list[Document | None]:
    groups, faults = encoding.groups(records)
    found: list[Document | None] = [None] * len(records)
    for index, fault in faults.items():
        found[index] = Document(fault)
    for group in groups:
        for number, index in enumerate(group.at):
            found[index] = Document(group, number)
    return found


def is_envelope(envelope: Mapping[str, Any]) -> bool:
    """Whether Debezium's connector for MongoDB wrote it."""
    source = envelope.get("source")
    return isinstance(source, dict) and source.get("connector") == "mongodb"


def collection_of(source: Mapping[str, Any]) -> str:
    """The full name of a collection, `database.collection`."""
    return ".".join(str(source[part]) for part in ("db", "collection") if source.get(part))


def _document_in(text: Token) -> Mapping[str, Token]:
    if not isinstance(text, str) or isinstance(text, Number | Constant):
        raise Unreadable("'after' is not a text of extended JSON")
    return as_members(parsed(text))


# Keys


@dataclass(frozen=True, slots=True)
class Keys:
    """A `Decode` of records' keys: `id`, the document's as extended JSON."""

    schema: str
    documents: Documents = IN_BLOCKS

    @property
    def beside(self) -> Columns:
        return {}

    def __call__(self, records: Sequence[bytes | None]) -> Decoded:
        columns = columns_of(self.schema)
        ((name, column),) = columns.items()
        read = reader(column["type"])

        def key(document: Document) -> tuple[Any]:
            text = as_members(document.token()).get("id")
            if not isinstance(text, str):
                raise Unreadable("no 'id' in the key of a document")
            token = parsed(text)
            _refuse_key(column, token)
            return (_value(name, read, token),)

        return one_by_one(columns, _documents(self.documents, records), key)


def _refuse_key(column: Mapping[str, Any] | None, token: Token) -> None:
    """Raises Unreadable for an id whose text another document's of another type may have, too."""
    if column is None or column["type"] != "string":
        return
    found, pinned = bson(token), column["metadata"].get(_BSON)
    if found.kind not in (_STRING, _OBJECT_ID, _UUID, _NULL):
        raise Unreadable(f"column '{ID}': {found.kind}, but as a key STRING holds a string, an ObjectId or a UUID")
    if pinned is not None and found.kind not in (pinned, _NULL):
        raise Unreadable(f"column '{ID}': {found.kind}, but the ids of the first records were each {pinned}")
    if pinned is None and found.kind == _STRING and _may_be_other(found.value):
        raise Unreadable(
            f"column '{ID}': a string with the text of an ObjectId or a UUID, which may be another's id"
        )


def _may_be_other(text: str) -> bool:
    try:
        return _HEX.fullmatch(text) is not None or str(uuid.UUID(text)) == text
    except ValueError:
        return False


# On the driver


class MongoFormat:
    """See contracts.decoder.Decoder. A tombstone's key does not name the collection, so a topic has one."""

    changes: ClassVar[bool] = False
    reads_keys: ClassVar[bool] = True
    options: ClassVar[frozenset[str]] = frozenset({"encoding"})

    def columns(self, asked: Asked, samples: Callable[[], Sequence[bytes]]) -> Found:
        if asked.declared is None:
            fault = f"{asked.at}.schema: missing: documents do not say which members are columns"
            hint = f'declare them, each with its type: {asked.at}.schema = "_id STRING, note STRING"'
            raise ConfigError("upstream", [fault], in_config(hint))
        _refuse_keys(asked)
        _refuse_types(asked)
        seen = [one for one in map(self._shown, _documents(_encoding(asked), samples())) if one is not None]
        if seen and not any(map(is_envelope, seen)):
            fault = f"{asked.at}.format: no record of {asked.place} is {_OTHER.removeprefix('not ')}"
            raise ConfigError("upstream", [fault], "name the topic of a collection, like server.shop.orders")
        found = [one for one in seen if is_envelope(one)]
        names = sorted({collection_of(one["source"]) for one in found})
        if len(names) > 1:
            fault = f"{asked.place}: documents of several collections: {', '.join(names[:5])}"
            raise ConfigError(
                "upstream", [fault], "let each collection have a topic of its own, as the connector does"
            )
        if any(one.get("op") == "u" and one.get("after") is None for one in found):
            raise ConfigError("upstream", [f"{asked.place}: an update without its document"], _MODE)
        kinds = sorted({kind for one in found if (kind := self._kind(one)) is not None})
        of_key = asked.declared[ID]
        if of_key["type"] == "string" and len(kinds) > 1:
            fault = f"{asked.place}: '{ID}' is {' and '.join(kinds)}: as texts two of them can be one key"
            raise ConfigError("upstream", [fault], "let a topic have documents whose ids are of one type")
        if of_key["type"] == "string" and kinds:
            of_key = {**of_key, "metadata": {**of_key["metadata"], _BSON: kinds[0]}}
        return Found({**asked.declared, ID: of_key}, facts={"source": names[0] if names else None})

    def _shown(self, document: Document | None) -> Mapping[str, Any] | None:
        """The envelope of a sample; None for a message, and for what cannot be read, which the job will say."""
        try:
            told = None if document is None else as_members(document.token())
            return None if told is None or messages.kind_of(told) is not None else told
        except (Unreadable, RecursionError):
            return None

    def _kind(self, envelope: Mapping[str, Any]) -> str | None:
        """Of which type a document's id is."""
        try:
            kind = bson(_document_in(envelope.get("after")).get(ID)).kind
        except (Unreadable, RecursionError):
            return None
        return None if kind == _NULL else kind

    def open(self, asked: Asked, columns: Columns, facts: Mapping[str, Any]) -> Rows:
        if asked.of_keys:
            return Rows(Keys(schema_text(columns), _encoding(asked)))
        known = Known((), facts.get("source"), (asked.name, asked.table))
        return Rows(Mongo(schema_text(columns), known, _encoding(asked)))


def _encoding(asked: Asked) -> Documents:
    return IN_BLOCKS if asked.documents is None else asked.documents


def _refuse_keys(asked: Asked) -> None:
    """Raises ConfigError for any key but the document's own."""
    if asked.key != (ID,):
        fault = f"tables: '{asked.table}' needs the key {ID}: a deleted document is known by that alone"
        raise ConfigError("config", [fault], in_config(f'name it in [[tables]]: key = ["{ID}"]'))
    if asked.declared is not None and ID not in asked.declared:
        hint = f'declare it: {asked.at}.schema = "{ID} STRING, …", as STRING if the ids are ObjectIds'
        raise ConfigError("upstream", [f"{asked.at}.schema: the key column '{ID}' is missing"], in_config(hint))


def _refuse_types(asked: Asked) -> None:
    faults = []
    for name, column in (asked.declared or {}).items():
        try:
            reader(column["type"])
        except Unsupported as exc:
            faults.append(f"{asked.at}: column '{name}': {exc}")
    if faults:
        raise ConfigError("upstream", faults)


decoder = MongoFormat()
