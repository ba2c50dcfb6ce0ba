"""Delimited text as RFC 4180 has it, field by field, quoted ones told from bare ones; and what its texts mean."""

import re
from typing import Any

from oracle import plain
from oracle.readers import kinds
from oracle.readers.kinds import BITS, Doubts, Kind, No

Field = tuple[str, bool]
"""Its text, and whether it was quoted."""


def records(raw: bytes, many_lines: bool, doubts: Doubts) -> list[list[Field]]:
    """The records of a file; blank lines are none. Raises No."""
    try:
        text = raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as exc:
        raise No(f"not UTF-8: {exc}") from None
    found: list[list[Field]] = []
    at = 0
    while at < len(text):
        record, at = _record(text, at, many_lines, doubts)
        if record != [("", False)]:
            found.append(record)
    return found


def _record(text: str, at: int, many_lines: bool, doubts: Doubts) -> tuple[list[Field], int]:
    record: list[Field] = []
    while True:
        field, at = _field(text, at, many_lines, doubts)
        record.append(field)
        if at >= len(text):
            return record, at
        ended = text[at]
        at += 1
        if ended == ",":
            continue
        if ended == "\r" and text[at : at + 1] == "\n":
            at += 1
        elif ended == "\r":
            doubts.append("a line that ends in a carriage return alone")
        return record, at


def _field(text: str, at: int, many_lines: bool, doubts: Doubts) -> tuple[Field, int]:
    if text[at : at + 1] != '"':
        end = re.compile(r"[,\r\n]|$(?![\s\S])").search(text, at)
        assert end is not None
        bare = text[at : end.start()]
        if '"' in bare:
            doubts.append("a quote within a bare field")
        return (bare, False), end.start()
    made, at = "", at + 1
    while True:
        quote = text.find('"', at)
        if quote < 0:
            raise No("a quote that never ends")
        made += text[at:quote]
        at = quote + 1
        if text[at : at + 1] != '"':
            break
        made, at = made + '"', at + 1
    if at < len(text) and text[at] not in ",\r\n":
        raise No("text after a quoted field")
    if ("\n" in made or "\r" in made) and not many_lines:
        raise No("a line end within quotes")
    return (made, True), at


def value(kind: Kind, field: Field, null: str, doubts: Doubts) -> Any:
    """A field as a value of its column. Raises No."""
    text, quoted = field
    if text == null and not quoted:
        return None
    if kind == "string":
        return kinds.text(text)
    if isinstance(kind, tuple) and kind[0] == "decimal":
        if not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text):
            raise No(f"{text!r} is no decimal")
        return kinds.decimal(kind[1], kind[2], kinds.number_of(text))
    if kind in BITS:
        if not re.fullmatch(r"-?[0-9]+", text):
            raise No(f"{text!r} is no {kind}")
        return kinds.integer(kind, text, doubts)
    if kind in ("float", "double"):
        if text in ("NaN", "Infinity", "-Infinity"):
            return (plain.single if kind == "float" else plain.double)(float(text))
        if not re.fullmatch(r"-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?", text):
            raise No(f"{text!r} is no {kind}")
        if re.fullmatch("-0+", text):
            return (plain.single if kind == "float" else plain.double)(-0.0)
        return (kinds.single if kind == "float" else kinds.double)(text, doubts)
    if kind == "boolean":
        if text not in ("true", "false"):
            raise No(f"{text!r} is no boolean")
        return ("bool", text == "true")
    if kind == "date":
        return kinds.date(text, doubts)
    if kind in ("timestamp", "timestamp_ntz"):
        return kinds.time(text, kind == "timestamp", doubts)
    raise AssertionError(kind)
