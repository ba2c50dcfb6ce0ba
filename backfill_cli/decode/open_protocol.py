"""Changes of TiDB's tables as TiCDC's open protocol writes them: a record has several events, and their tables in
its key.

A key is the protocol's version and then, for each event, the length and the JSON of when and of which table it is;
a value has the length and the JSON of each event. Lengths and version are 8 bytes, big-endian. A column of a row
is `{"t": MySQL's type, "h": whether it is of the key, "f": flags, "v": value}`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from backfill_cli.contracts.decoder import Fault
from backfill_cli.decode import values
from backfill_cli.decode.keyed import parted
from backfill_cli.decode.row_changes import ChangesOf, RowChange, TableChange, text_in
from backfill_cli.decode.statements import effect
from backfill_cli.decode.tokens import NO_TEXT, Constant, Number, Token, parsed
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.formats.schemas import Unsupported
from backfill_cli.model.schema import SparkType, shown

_ROW, _STATEMENT, _RESOLVED = "1", "2", "3"
_DROPS, _TRUNCATES, _RENAMES = "4", "11", "14"
"""TiDB's numbers of statements."""

_IN_KEY = frozenset(
    ("ts", "scm", "tbl", "rid", "ptn", "t", "checksum", "checksum_old", "corrupted", "ohk", "ccl"),
)
"""What a key can have: another version of TiCDC may mean something by anything else."""

_LOGICAL_BITS = 18
"""Of a time of TiDB, those that count within a millisecond."""

_BINARY, _HANDLE, _UNSIGNED = 1, 2, 128
"""Flags of a column."""
_NUMBERS = frozenset((1, 2, 3, 4, 5, 8, 9, 13, 16))
_NAMED = {247: "an ENUM", 248: "a SET"}
_TEXTS = frozenset((7, 10, 11, 12, 14, 245, 246))
_ESCAPED = frozenset((15, 253, 254))
"""VARCHAR and CHAR; of VARBINARY and BINARY the bytes are escaped as in Go's source code."""

_BASE64 = frozenset((249, 250, 251, 252))
"""TEXT and BLOB."""

_NO_COLUMN = "not a column as TiCDC's open protocol writes it"
_ESCAPE = re.compile(
    r'\\(?:(?P<simple>[abfnrtv\\"])|x(?P<byte>[0-9a-f]{2})|u(?P<short>[0-9a-f]{4})|U(?P<long>[0-9a-f]{8}))'
    r'|(?P<plain>[^\\"]+)|(?P<wrong>.)',
    re.DOTALL,
)
_SIMPLE = dict(zip('abfnrtv\\"', '\a\b\f\n\r\t\v\\"', strict=True))


@dataclass(frozen=True, slots=True)
class OpenProtocol:
    """See row_changes.Form."""

    writer: ClassVar[str] = "TiCDC"

    def changes(self, record: bytes) -> Iterable[RowChange | TableChange]:
        key, value = parted(record)
        told = list(_objects(_after_version(key), "key"))
        events = list(_frames(value, "value"))
        if not told:
            raise Unreadable("no event in the record's key: not a record of TiCDC's open protocol")
        if len(told) == 1 and told[0].get("t") == _RESOLVED and not events:
            return
        if len(told) != len(events):
            raise Unreadable(f"{len(told)} events in the record's key, but {len(events)} in its value")
        for one, event in zip(told, events, strict=True):
            yield from self._of_event(one, event)

    def _of_event(self, told: Mapping[str, Token], raw: bytes) -> Iterator[RowChange | TableChange]:
        odd = sorted(told.keys() - _IN_KEY)
        if odd:
            raise Unreadable(f"'{odd[0]}' in the record's key is nothing that TiCDC's open protocol has there")
        kind = told.get("t")
        if kind == _RESOLVED and not raw:
            return
        if kind not in (_ROW, _STATEMENT) or not isinstance(kind, Number):
            raise Unreadable(f"no event of TiCDC's open protocol has the type {kind}")
        table = ".".join(part for name in ("scm", "tbl") if (part := _name(told, name)))
        if kind == _STATEMENT:
            yield _of_statement(_object(raw, "value"), table, _name(told, "scm"))
        else:
            yield self._of_row(told, _object(raw, "value"), table)

    def _of_row(self, told: Mapping[str, Token], event: Mapping[str, Token], table: str) -> RowChange:
        if told.get("corrupted") is True:
            raise Unreadable("TiCDC found that the row's checksum is wrong")
        deletes = "d" in event
        if deletes == ("u" in event):
            raise Unreadable("no row in 'u' or 'd', or one in both: not a row of TiCDC's open protocol")
        if not deletes and told.get("ohk") is True:
            raise Unreadable(_PARTIAL.format(what="the key only"), Fault.NOT_SENT)
        if not deletes and told.get("ccl"):
            raise Unreadable(_PARTIAL.format(what="where the row is"), Fault.NOT_SENT)
        row = _row(event, "d" if deletes else "u")
        old = _row(event, "p") if "p" in event else {}
        # some versions of TiCDC do not say that they sent the key only (`ohk`)
        only_key = all(_is_flagged(cell, _HANDLE) for cell in row.values())
        return RowChange(table, deletes, _ms(told), row, old, only_key=only_key)

    def reader(self, kind: SparkType) -> values.Reader:
        if isinstance(kind, dict):
            raise Unsupported(f"no value of TiCDC's open protocol is nested: declare STRING, not {shown(kind)}")
        return lambda cell: None if cell is None else _value(cell, kind)


_PARTIAL = (
    "TiCDC sent {what}, as the record would have been too large: raise max-message-bytes, or set "
    'large-message-handle-option = "none", in the changefeed'
)


def _after_version(key: bytes) -> bytes:
    if len(key) < 8:
        raise Unreadable("no version in the record's key: not a record of TiCDC's open protocol")
    if (version := int.from_bytes(key[:8], "big")) != 1:
        raise Unreadable(f"the record's key says version {version} of TiCDC's open protocol, but 1 is known")
    return key[8:]


def _frames(raw: bytes, where: str) -> Iterator[bytes]:
    """The events' bytes. Raises Unreadable for what does not end with one."""
    at = 0
    while at < len(raw):
        end = at + 8 + int.from_bytes(raw[at : at + 8], "big")
        if at + 8 > len(raw) or end > len(raw):
            raise Unreadable(f"the record's {where} does not end where an event does: was it compressed?")
        if end > at + 8 or where == "key":
            yield raw[at + 8 : end]
        at = end


def _objects(raw: bytes, where: str) -> Iterator[Mapping[str, Token]]:
    return (_object(one, where) for one in _frames(raw, where))


def _object(raw: bytes, where: str) -> Mapping[str, Token]:
    try:
        found = parsed(raw.decode())
    except UnicodeDecodeError:
        raise Unreadable(NO_TEXT) from None
    if not isinstance(found, dict):
        raise Unreadable(f"an event in the record's {where} is not a JSON object")
    return found


def _name(told: Mapping[str, Token], member: str) -> str:
    return text_in(told, member, "TiCDC") if member in told else ""


def _of_statement(event: Mapping[str, Token], table: str, database: str) -> TableChange:
    """As in canal.py: of a statement about several tables, the record names one."""
    does, kind = effect(text_in(event, "q", "TiCDC"), database), event.get("t")
    if not isinstance(kind, Number):
        raise Unreadable("no type of the statement: not a record of TiCDC")
    if kind not in (_DROPS, _TRUNCATES):
        its = {table} if kind == _RENAMES or does.restores else set[str]()
        return TableChange(databases=does.databases, others=does.tables | its)
    return TableChange(emptied=table, others=does.tables - {table, table.lower()})


def _row(event: Mapping[str, Token], member: str) -> Mapping[str, Token]:
    found = event[member]
    if not isinstance(found, dict):
        raise Unreadable(f"'{member}' is not the row that a record of TiCDC has there")
    for name, cell in found.items():
        if not isinstance(cell, dict):
            raise Unreadable(f"column '{name}' in '{member}': {_NO_COLUMN}")
    return found


def _is_flagged(cell: Token, flag: int) -> bool:
    flags = cell.get("f") if isinstance(cell, dict) else None
    return isinstance(flags, Number) and flags.is_whole and bool(int(flags[:20]) & flag)


def _ms(told: Mapping[str, Token]) -> int:
    """When the source committed the change."""
    ts = told.get("ts")
    if not isinstance(ts, Number) or not ts.is_whole or not 0 < len(ts) <= 20 or not 0 <= int(ts) < 2**64:
        raise Unreadable("'ts' in the record's key is not a time of TiDB")
    return int(ts) >> _LOGICAL_BITS


def _value(cell: Token, kind: str) -> Any:
    """A column's value as one of this type. Raises Unreadable, naming what it is."""
    if not isinstance(cell, dict) or not all(isinstance(cell.get(name), Number) for name in ("t", "f")):
        raise Unreadable(_NO_COLUMN + ("" if not isinstance(cell, dict) or "f" in cell else ": it has no flags"))
    if not cell["t"].is_whole or not cell["f"].is_whole or "v" not in cell:
        raise Unreadable(_NO_COLUMN)
    value, of = cell["v"], int(cell["t"][:9])
    is_binary = _is_flagged(cell, _BINARY)
    if value is None:
        return None
    if of in _NUMBERS or of in _NAMED:
        if not isinstance(value, Number) or (_is_flagged(cell, _UNSIGNED) and float(value) < 0):
            raise Unreadable(_NO_COLUMN)
        if of in _NAMED and kind == "string":
            raise Unreadable(f"{_NAMED[of]}, of which TiCDC's open protocol has the number: declare BIGINT")
        return _of_text(value, kind)
    if not isinstance(value, str) or isinstance(value, Number | Constant):
        raise Unreadable(_NO_COLUMN)
    if of in _TEXTS:
        return _of_text(value, kind)
    if of not in _ESCAPED | _BASE64:
        raise Unreadable(f"a column of MySQL's type {of}, which TiCDC's open protocol does not have")
    raw = values.of_base64(value) if of in _BASE64 else _unescaped(value) if is_binary else value.encode()
    if not is_binary:
        return _of_text(_text(raw), kind)
    if kind != "binary":
        raise Unreadable("bytes: declare BINARY")
    return raw


def _of_text(text: str, kind: str) -> Any:
    if kind == "binary":
        raise Unreadable("no bytes: declare STRING")
    return values.of_text(text, kind)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Unreadable(NO_TEXT) from None


def _unescaped(text: str) -> bytes:
    """The bytes that Go's strconv.Quote wrote as this text, without its quotation marks."""
    found = bytearray()
    for one in _ESCAPE.finditer(text):
        if one["wrong"] is not None:
            raise Unreadable("not bytes as TiCDC's open protocol escapes them")
        if one["byte"] is not None:
            found.append(int(one["byte"], 16))
        elif (code := one["short"] or one["long"]) is not None:
            found += _character(int(code, 16))
        else:
            found += (_SIMPLE[one["simple"]] if one["simple"] is not None else one["plain"]).encode()
    return bytes(found)


def _character(code: int) -> bytes:
    try:
        return chr(code).encode()
    except (ValueError, OverflowError):  # no character, or half of one
        raise Unreadable("not bytes as TiCDC's open protocol escapes them") from None


decoder = ChangesOf(OpenProtocol(), keyed=True)
