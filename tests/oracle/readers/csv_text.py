"""CSV by RFC 4180 and the options of docs/config.md, read character by character.

Doubtful, so that a refusal is right too: a quote inside a field without quotes, lone CR as a line end, empty
lines, columns named in another order or in other letters than `schema` has them. No exact rows: a quote that
nothing closes, text after a closing quote, a line end in quotes without `multi_line`, too few or too many
fields, a header that is not the schema's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from oracle import ddl, plain
from oracle.answer import Answer, Refused, Rows
from oracle.readers import cells
from oracle.readers.cells import Doubt, No


@dataclass(frozen=True)
class Options:
    """As in docs/config.md."""

    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    null_value: str = ""
    multi_line: bool = False


@dataclass(frozen=True)
class Field:
    text: str
    quoted: bool


Record = list[Field]


def read(files: Mapping[str, bytes], schema: str, options: Options) -> Answer:
    columns = ddl.columns(schema)
    doubt = Doubt()
    rows: list[plain.Row] = []
    for path, content in sorted(files.items()):
        try:
            rows += _rows(content, columns, options, doubt)
        except No as exc:
            return Refused(exc.args[0], tuple(map(str, exc.args[1:])) or (path.rsplit("/", 1)[-1],))
    return Rows(tuple(rows), tuple((name, kind.duckdb) for name, kind in columns.items()), str(doubt))


def _rows(content: bytes, columns: Mapping[str, ddl.Type], options: Options, doubt: Doubt) -> list[plain.Row]:
    try:
        text = content.decode("utf-8", "strict").removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise No("bytes that are no text") from None
    records = _records(text, options, doubt)
    order = list(columns)
    if options.header:
        if not records:
            return []
        order = _order([field.text for field in records.pop(0)], order, doubt)
    rows = []
    for record in records:
        if len(record) != len(order):
            raise No(f"{len(record)} fields, not {len(order)}")
        told = dict(zip(order, record, strict=True))
        rows.append({name: _value(told[name], kind, options, doubt) for name, kind in columns.items()})
    return rows


def _order(header: list[str], columns: list[str], doubt: Doubt) -> list[str]:
    """The schema's columns in the order of the file."""
    folded = {name.lower(): name for name in columns}
    order = []
    for name in header:
        found = name if name in columns else folded.get(name.strip().lower())
        if found is None:
            raise No(f"a column {name!r} that the schema lacks")
        if found != name:
            doubt.reasons.append("a column's name in other letters")
        order.append(found)
    if len(set(order)) < len(order):
        raise No("a column twice")
    if len(order) < len(columns):
        raise No(
            "a column of the schema that the header lacks", next(name for name in columns if name not in order)
        )
    if order != columns:
        doubt.reasons.append("columns in another order")
    return order


def _records(text: str, options: Options, doubt: Doubt) -> list[Record]:
    records: list[Record] = []
    at, end = 0, len(text)
    record: Record = []
    while at < end:
        field, at = _field(text, at, options, doubt)
        record.append(field)
        if at < end and text[at] == options.delimiter:
            at += 1
            if at < end:
                continue
            record.append(Field("", False))
        elif at < end:
            if text.startswith("\r\n", at):
                at += 2
            else:
                if text[at] == "\r":
                    doubt.reasons.append("a lone CR")
                at += 1
        if record == [Field("", False)]:
            doubt.reasons.append("an empty line")
        else:
            records.append(record)
        record = []
    return records


def _field(text: str, at: int, options: Options, doubt: Doubt) -> tuple[Field, int]:
    """The field that begins at `at`, and where its delimiter, its line end or the text's end is."""
    if not text.startswith(options.quote, at):
        begin = at
        while at < len(text) and text[at] not in (options.delimiter, "\n", "\r"):
            if text[at] == options.quote:
                doubt.reasons.append("a quote inside a field without quotes")
            at += 1
        return Field(text[begin:at], False), at
    held, at = [], at + 1
    while True:
        if at >= len(text):
            raise No("a quote that nothing closes")
        here, then = text[at], text[at + 1 : at + 2]
        if here == options.escape and then == options.quote:
            held.append(options.quote)
            at += 2
        elif here == options.quote:
            at += 1
            break
        else:
            if here == options.escape and options.escape != options.quote:
                doubt.reasons.append("an escape that is not before a quote")
            if here in "\r\n" and not options.multi_line:
                raise No("a line end in quotes, and multi_line is off")
            held.append(here)
            at += 1
    if at < len(text) and text[at] not in (options.delimiter, "\n", "\r"):
        raise No("text after a closing quote")
    return Field("".join(held), True), at


def _value(field: Field, kind: ddl.Type, options: Options, doubt: Doubt) -> plain.Value:
    if not field.quoted and field.text == options.null_value:
        return None
    if kind.name == "STRING":
        if not field.quoted and not field.text:
            doubt.reasons.append("an empty field where NULL is another text")
        return ("text", field.text)
    text = field.text
    match kind.name:
        case "BOOLEAN":
            return _boolean(text, doubt)
        case "DATE":
            return cells.day(text, doubt)
        case "TIMESTAMP" | "TIMESTAMP_NTZ":
            return cells.moment(text, kind, doubt)
        case "BINARY":
            raise No("text is no BINARY")
    return cells.number(text, kind, doubt)


def _boolean(text: str, doubt: Doubt) -> plain.Value:
    if text in ("true", "false"):
        return ("bool", text == "true")
    words = {"true": True, "1": True, "t": True, "yes": True, "y": True}
    words |= {"false": False, "0": False, "f": False, "no": False, "n": False}
    if text.lower() not in words:
        raise No(f"{text!r} is no BOOLEAN")
    doubt.reasons.append("a boolean in other words")
    return ("bool", words[text.lower()])
