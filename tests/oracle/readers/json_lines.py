"""JSON lines: an object a line, UTF-8, columns as the DDL says.

Where JSON leaves it open what is meant (a number written as text, a key twice, a key in other letters), the
value that most would take is right, and so is a refusal; what must not happen is another value or a NULL.
"""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from oracle import ddl, plain
from oracle.answer import Answer, Refused, Rows
from oracle.readers import cells
from oracle.readers.cells import Doubt, No

Object = list[tuple[str, Any]]


class Number(str):
    """A JSON number as it is written."""


class Constant(str):
    """NaN, Infinity, -Infinity: no JSON, but written by Python and others."""


def read(files: Mapping[str, bytes], schema: str) -> Answer:
    """files: as the snapshot holds them. schema: the DDL of the config."""
    columns = ddl.columns(schema)
    rows: list[plain.Row] = []
    doubt, shown = Doubt(), set[str]()
    for path, content in sorted(files.items()):
        name = path.rsplit("/", 1)[-1]
        try:
            rows += [_row(record, columns, doubt, shown) for record in _records(content, doubt)]
        except No as exc:
            return Refused(str(exc), (name,))
    lacking = [column for column in columns if column not in shown]
    if rows and lacking:
        return Refused("a column that nothing in the files shows", (lacking[0],))
    types = tuple((name, kind.duckdb) for name, kind in columns.items())
    return Rows(tuple(rows), types, str(doubt))


def _records(content: bytes, doubt: Doubt) -> list[Object]:
    try:
        text = content.decode("utf-8", "strict")
    except UnicodeDecodeError:
        raise No("bytes that are no text") from None
    if text == "\ufeff":
        doubt.reasons.append("nothing but a BOM")
    text = text.removeprefix("\ufeff")
    if re.search(r"\r(?!\n)", text):
        doubt.reasons.append("a lone CR")
    found = []
    for line in re.split(r"\r\n|\n|\r", text):
        if line.strip(" \t"):
            try:
                record = json.loads(
                    line,
                    object_pairs_hook=_Pairs,
                    parse_float=Number,
                    parse_int=Number,
                    parse_constant=Constant,
                )
            except (ValueError, RecursionError) as exc:
                raise No(f"no JSON: {exc}") from None
            if not isinstance(record, _Pairs):
                raise No("not an object")
            found.append(record)
    return found


class _Pairs(list[tuple[str, Any]]):
    """An object as it is written, keys that come twice too."""


def _row(record: Object, columns: Mapping[str, ddl.Type], doubt: Doubt, shown: set[str]) -> plain.Row:
    told = _fields(record, columns, doubt)
    shown |= set(told)
    return {name: _value(told.get(name), kind, doubt) for name, kind in columns.items()}


def _fields(record: Object, columns: Mapping[str, ddl.Type] | set[str], doubt: Doubt) -> dict[str, Any]:
    told: dict[str, Any] = {}
    folded = {name.lower(): name for name in columns}
    for key, value in record:
        name = key
        if key not in columns:
            if key.lower() not in folded:
                doubt.reasons.append("a field that the schema lacks")
                continue
            name = folded[key.lower()]
            doubt.reasons.append("a field's name in other letters")
        if name in told:
            doubt.reasons.append("a key twice")
        told[name] = value
    return told


def _value(value: Any, kind: ddl.Type, doubt: Doubt) -> plain.Value:
    if value is None:
        return None
    match kind.name:
        case "ARRAY":
            if isinstance(value, list) and not isinstance(value, _Pairs):
                return ("list", tuple(_value(one, kind.of[0], doubt) for one in value))
        case "MAP":
            if isinstance(value, _Pairs):
                told: dict[str, Any] = {}
                for key, inner in value:
                    if key in told:
                        doubt.reasons.append("a key twice")
                    told[key] = inner
                pairs = [
                    (_text(key, kind.of[0], doubt), _value(one, kind.of[1], doubt)) for key, one in told.items()
                ]
                return plain.mapped(pairs)
        case "STRUCT":
            if isinstance(value, _Pairs):
                inner = dict(zip(kind.fields, kind.of, strict=True))
                fields = _fields(value, inner, doubt)
                return ("struct", tuple((n, _value(fields.get(n), k, doubt)) for n, k in inner.items()))
        case "BOOLEAN":
            if isinstance(value, bool):
                return ("bool", value)
            if value in ("true", "false") and type(value) is str:
                doubt.reasons.append("a boolean written as text")
                return ("bool", value == "true")
        case "STRING":
            if type(value) is str:
                return _checked_text(value)
            doubt.reasons.append("no text in a STRING")
            if isinstance(value, bool):
                return ("text", "true" if value else "false")
            if isinstance(value, (Number, Constant)):
                return ("text", str(value))
        case _:
            if isinstance(value, (str, Number, Constant)) and not isinstance(value, bool):
                return _scalar(value, kind, doubt)
    raise No(f"{value!r} is no {kind.name}")


def _checked_text(value: str) -> plain.Value:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise No("half a surrogate") from None
    return ("text", value)


def _scalar(value: str, kind: ddl.Type, doubt: Doubt) -> plain.Value:
    if isinstance(value, Number):
        if kind.name in ("FLOAT", "DOUBLE"):
            return cells.floating(value, kind, doubt)
        if kind.name in cells.RANGES:
            if not re.fullmatch(r"-?\d+", value):
                doubt.reasons.append("a whole number written with a point or an exponent")
            return cells.whole(Decimal(value), kind)
        if kind.name == "DECIMAL":
            exponent = Decimal(value).as_tuple().exponent
            if isinstance(exponent, int) and (-exponent > kind.scale or "e" in value.lower()):
                doubt.reasons.append("a decimal written with more digits than the type has, or an exponent")
            return cells.fixed(Decimal(value), kind)
        raise No(f"a number is no {kind.name}")
    if isinstance(value, Constant) or kind.name in ("FLOAT", "DOUBLE", "DECIMAL", *cells.RANGES):
        doubt.reasons.append("a number written as text")
    return _text(value, kind, doubt)


def _text(value: str, kind: ddl.Type, doubt: Doubt) -> plain.Value:
    """A JSON string (or key) as the type."""
    if kind.name == "STRING":
        return _checked_text(value)
    if kind.name == "BINARY":
        return cells.encoded(value)
    if kind.name == "DATE":
        return cells.day(value, doubt)
    if kind.name in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        return cells.moment(value, kind, doubt)
    return cells.number(value, kind, doubt)
