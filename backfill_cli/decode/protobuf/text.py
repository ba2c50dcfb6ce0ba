"""Parses the text of a .proto file: proto2 and proto3."""

import re
import sys
from collections.abc import Iterator
from typing import Any

from backfill_cli.decode.protobuf.files import (
    MOST_NUMBER,
    SCALARS,
    EnumText,
    FieldText,
    File,
    MessageText,
    Reserved,
)
from backfill_cli.formats.schemas import Unsupported

_TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<mark>[][{}()<>=;:,./+-])""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_LABELS = ("optional", "required", "repeated")
_OPENING = {"{": "}", "<": ">", "[": "]", "(": ")"}
_META = ("(confluent.field_meta)", "(.confluent.field_meta)")
_DEEP = 100
"""Messages within messages: as many as messages can be nested in a record."""

Option = tuple[tuple[str, ...], Any]
"""(the parts of its name, its value: a text, or the (name, value) pairs of `{…}`, or a list)"""


def parsed(text: str) -> File:
    """Raises Unsupported for a text that is no .proto file of proto2 or proto3; it names the line."""
    return _Parser(text).file()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = [*_tokens(text), ("end", "", text.count("\n") + 1)]
        self._at = 0

    # tokens

    @property
    def _next(self) -> str:
        return self._tokens[self._at][1]

    @property
    def _kind(self) -> str:
        return self._tokens[self._at][0]

    def _take(self) -> str:
        found = self._next
        self._at += self._kind != "end"
        return found

    def _fault(self, expected: str) -> Unsupported:
        kind, found, line = self._tokens[self._at]
        return Unsupported(f"line {line}: {expected} instead of {'the end' if kind == 'end' else repr(found)}")

    def _expect(self, mark: str) -> None:
        if not self._have(mark):
            raise self._fault(repr(mark))

    def _have(self, mark: str) -> bool:
        """Whether this is the next token, which is taken."""
        found = self._next == mark and self._kind != "text"
        self._at += found
        return found

    def _word(self, what: str = "a name") -> str:
        if self._kind != "word":
            raise self._fault(what)
        return self._take()

    def _name(self) -> str:
        """A name with dots, and perhaps one before it."""
        found = "." if self._have(".") else ""
        found += self._word()
        while self._have("."):
            found += "." + self._word()
        return found

    def _number(self) -> int:
        sign = -1 if self._have("-") else 1
        found = self._next
        try:
            value = int(found, 8 if re.fullmatch("0[0-7]+", found) else 0)
        except ValueError:
            raise self._fault("a number") from None
        self._at += 1
        return sign * value

    def _text(self) -> str:
        if self._kind != "text":
            raise self._fault("a text")
        found = ""
        while self._kind == "text":
            found += _ESCAPE.sub(_unescaped, self._take()[1:-1])
        return found

    # definitions

    def file(self) -> File:
        syntax, package = "proto2", ""
        imports: list[str] = []
        public: list[str] = []
        messages: list[MessageText] = []
        enums: list[EnumText] = []
        while self._kind != "end":
            if self._have("syntax"):
                self._expect("=")
                syntax = self._text()
                if syntax not in ("proto2", "proto3"):
                    raise Unsupported(f"the syntax {syntax!r} is not known")
                self._expect(";")
            elif self._have("edition"):
                self._expect("=")
                raise Unsupported(f"edition {self._text()} is not supported: only proto2 and proto3 are")
            elif self._have("package"):
                package = self._name()
                self._expect(";")
            elif self._have("import"):
                is_public = self._have("public")
                _ = is_public or self._have("weak")
                imports.append(self._text())
                public += imports[-1:] if is_public else []
                self._expect(";")
            elif not self._definition(messages, enums, 0):
                if not self._have("service"):
                    raise self._fault("a definition")
                self._word()
                self._block()
        return File(syntax, package, tuple(imports), tuple(public), tuple(messages), tuple(enums))

    def _definition(self, messages: list[MessageText], enums: list[EnumText], depth: int) -> bool:
        """Whether what both a file and a message can have comes next, which is taken."""
        if self._have(";"):
            return True
        if self._have("message"):
            messages.append(self._message(self._word(), depth + 1))
        elif self._have("enum"):
            enums.append(self._enum())
        elif self._have("extend"):
            self._name()
            self._block()
        elif self._have("option"):
            self._option()
            self._expect(";")
        else:
            return False
        return True

    def _block(self) -> None:
        """Takes `{…}`, whatever is in it."""
        if self._next != "{":
            raise self._fault("'{'")
        closing: list[str] = []
        while True:
            if self._kind == "end":
                raise self._fault(repr(closing[-1]))
            is_mark, found = self._kind == "mark", self._take()
            if is_mark and found in _OPENING and found != "<":
                closing.append(_OPENING[found])
            elif is_mark and found == closing[-1]:
                closing.pop()
                if not closing:
                    return

    def _message(self, name: str, depth: int) -> MessageText:
        if depth > _DEEP:
            raise Unsupported("messages are nested too deep")
        fields: list[FieldText] = []
        nested: list[MessageText] = []
        enums: list[EnumText] = []
        reserved = Reserved()
        self._expect("{")
        while not self._have("}"):
            if self._definition(nested, enums, depth):
                continue
            if self._have("reserved"):
                reserved = self._reserved(reserved)
            elif self._have("extensions"):
                self._skip_statement()
            elif self._have("oneof"):
                oneof = self._word()
                self._expect("{")
                while not self._have("}"):
                    if self._have("option"):
                        self._option()
                        self._expect(";")
                    elif not self._have(";"):
                        self._field(fields, nested, depth, oneof)
            else:
                self._field(fields, nested, depth)
        return MessageText(name, tuple(fields), tuple(nested), tuple(enums), reserved=reserved)

    def _reserved(self, before: Reserved) -> Reserved:
        """What is reserved with this statement, too: numbers, ranges of them, or names."""
        ranges, names = list(before.ranges), list(before.names)
        while True:
            if self._kind == "number":
                first = end = self._number()
                if self._have("to"):
                    end = MOST_NUMBER if self._have("max") else self._number()
                ranges.append((first, end))
            else:
                names.append(self._text())
            if not self._have(","):
                break
        self._expect(";")
        return Reserved(tuple(ranges), tuple(names))

    def _skip_statement(self) -> None:
        while not self._have(";"):
            if self._kind == "end":
                raise self._fault("';'")
            self._take()

    def _field(
        self, fields: list[FieldText], nested: list[MessageText], depth: int, oneof: str | None = None
    ) -> None:
        label = self._take() if self._next in _LABELS and self._kind == "word" else ""
        if self._next == "map" and self._tokens[self._at + 1][1] == "<":
            self._map(fields, nested)
            return
        if self._have("group"):
            name = self._word()
            self._expect("=")
            fields.append(FieldText(name.lower(), self._number(), "group", label, oneof))
            self._options()
            nested.append(self._message(name, depth + 1))
            return
        kind, name = self._name(), self._word()
        self._expect("=")
        number = self._number()
        fields.append(FieldText(name, number, kind, label, oneof, _params(self._options())))
        self._expect(";")

    def _map(self, fields: list[FieldText], nested: list[MessageText]) -> None:
        self._take()
        self._expect("<")
        key = self._word()
        if key not in SCALARS:
            raise self._fault("a type of keys")
        self._expect(",")
        value = self._name()
        self._expect(">")
        name = self._word()
        self._expect("=")
        entry = _entry_name(name)
        fields.append(FieldText(name, self._number(), entry, "repeated", None, _params(self._options())))
        of = (FieldText("key", 1, key, "optional"), FieldText("value", 2, value, "optional"))
        nested.append(MessageText(entry, of, is_entry=True))
        self._expect(";")

    def _enum(self) -> EnumText:
        name = self._word()
        values: list[tuple[str, int]] = []
        self._expect("{")
        while not self._have("}"):
            if self._have(";"):
                continue
            if self._next == "reserved" and self._tokens[self._at + 1][1] != "=":
                self._skip_statement()
            elif self._next == "option" and self._tokens[self._at + 1][1] != "=":
                self._take()
                self._option()
                self._expect(";")
            else:
                value = self._word()
                self._expect("=")
                values.append((value, self._number()))
                self._options()
                self._expect(";")
        return EnumText(name, tuple(values))

    # options

    def _options(self) -> list[Option]:
        """Those in brackets behind a field or a value, if there are any."""
        found: list[Option] = []
        if self._have("["):
            found.append(self._option())
            while self._have(","):
                found.append(self._option())
            self._expect("]")
        return found

    def _option(self) -> Option:
        parts: list[str] = []
        while True:
            if self._have("("):
                parts.append(f"({self._name()})")
                self._expect(")")
            else:
                parts.append(self._word())
            if not self._have("."):
                break
        self._expect("=")
        return tuple(parts), self._value(0)

    def _value(self, depth: int) -> Any:
        if depth > _DEEP:
            raise Unsupported("options are nested too deep")
        for opening in "{<":
            if self._have(opening):
                return self._members(_OPENING[opening], depth + 1)
        if self._have("["):
            items = []
            while not self._have("]"):
                items.append(self._value(depth + 1))
                self._have(",")
            return items
        if self._kind == "text":
            return self._text()
        sign = self._take() if self._next in ("-", "+") else ""
        if self._kind not in ("word", "number"):
            raise self._fault("a value")
        return sign + self._take()

    def _members(self, closing: str, depth: int) -> list[tuple[str, Any]]:
        """The members of a message in text format."""
        found: list[tuple[str, Any]] = []
        while not self._have(closing):
            if self._have("["):
                name = self._name()
                while self._have("/"):
                    name += "/" + self._name()
                self._expect("]")
            else:
                name = self._word()
            if not self._have(":") and self._next not in ("{", "<"):
                raise self._fault("':'")
            found.append((name, self._value(depth)))
            _ = self._have(",") or self._have(";")
        return found


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """(kind, token, line)"""
    at, line = 0, 1
    text = text.removeprefix("\ufeff")
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise Unsupported(f"line {line}: {text[at : at + 20].splitlines()[0]!r} is not known")
        if found.lastgroup != "blank":
            yield str(found.lastgroup), found[0], line
        line += found[0].count("\n")
        at = found.end()


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "xuU" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number <= sys.maxunicode else found[0]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPED.get(code, code)


def _entry_name(name: str) -> str:
    """What the entries of a map are called: `item_count` has ItemCountEntry."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"


def _params(options: list[Option]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in options:
        if name[0] in _META and name[1:] in ((), ("params",)):
            for entry in _entries(value if name[1:] else _members_of(value, "params")):
                key, told = ((_members_of(entry, part) or [""])[-1] for part in ("key", "value"))
                if isinstance(key, str) and isinstance(told, str):
                    found[key] = told
    return found


def _members_of(value: Any, name: str) -> list[Any]:
    """The members of this name, where a value has members."""
    pairs = value if isinstance(value, list) else []
    return [one[1] for one in pairs if isinstance(one, tuple) and one[0] == name]


def _entries(told: Any) -> Iterator[list[Any]]:
    """The entries of a map, however its option lists them."""
    if isinstance(told, list) and told:
        if isinstance(told[0], tuple):
            yield told
        else:
            for one in told:
                yield from _entries(one)
