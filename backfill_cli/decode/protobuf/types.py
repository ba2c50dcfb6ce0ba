"""Links .proto files: the message types and enums of a schema, by their full names."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

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


@dataclass(frozen=True)
class Field:
    """kind: one of SCALARS, `enum`, `message` or `group`. type: the full name of an enum or a message.

    presence: whether a message tells that the field is not there; otherwise it has its default value then.
    checked: whether texts must be UTF-8, which proto2 does not ask.
    """

    name: str
    number: int
    kind: str
    type: str = ""
    repeated: bool = False
    required: bool = False
    presence: bool = False
    oneof: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    checked: bool = True

    @property
    def scale(self) -> int | None:
        """Of a decimal, if the field states it."""
        told = self.params.get("scale", "")
        return int(told) if re.fullmatch("-?[0-9]{1,4}", told, re.ASCII) else None


@dataclass(frozen=True)
class Message:
    """fields: in the order of their definition. is_entry: of a map, with the fields `key` and `value`."""

    name: str
    fields: tuple[Field, ...]
    is_entry: bool
    reserved: Reserved = Reserved()  # noqa: RUF009

    @cached_property
    def by_number(self) -> Mapping[int, Field]:
        return {one.number: one for one in self.fields}

    @cached_property
    def oneofs(self) -> Mapping[int, tuple[int, ...]]:
        """A member's number → the numbers of the oneof's other members."""
        return {
            one.number: tuple(f.number for f in self.fields if f.oneof == one.oneof and f != one)
            for one in self.fields
            if one.oneof is not None
        }


@dataclass(frozen=True)
class Enum:
    """names: the first one of each number. default: the first number. closed: of proto2, which has no others."""

    name: str
    names: Mapping[int, str]
    default: int
    closed: bool


@dataclass(frozen=True)
class Types:
    """What a schema defines, and what it imports. root: the file itself."""

    messages: Mapping[str, Message]
    enums: Mapping[str, Enum]
    root: File

    def chosen(self, message: Sequence[int] | str | None) -> str:
        """The full name of a message type. Raises Unsupported.

        message: the indexes that a record has; or a full name; None: the only one that the file defines.
        """
        if message is not None and not isinstance(message, str):
            return self.indexed(message)
        defined = [_inside(self.root.package, one.name) for one in self.root.messages]
        if message is None and len(defined) == 1:
            return defined[0]
        if message is None:
            raise Unsupported(
                f"it defines {', '.join(defined) or 'no message'}; only records say which one they are"
            )
        if message not in self.messages:
            raise Unsupported(f"it does not define the message {message}")
        return message

    def indexed(self, indexes: Sequence[int]) -> str:
        """The full name of the message type that a record's message indexes name. Raises Unsupported.

        Some clients count the entry types that maps define among nested messages, others do not.
        """
        found = {
            name for name in (_indexed(self.root, indexes, True), _indexed(self.root, indexes, False)) if name
        }
        if len(found) == 1:
            return found.pop()
        shown = list(indexes)
        if found:
            names = " or ".join(sorted(found))
            raise Unsupported(f"message indexes {shown} are {names}, by how their writer counts the types of maps")
        raise Unsupported(f"the schema has no message with the indexes {shown}")


def _indexed(root: File, indexes: Sequence[int], with_entries: bool) -> str | None:
    name, nested = root.package, root.messages
    for index in indexes:
        known = [one for one in nested if with_entries or not one.is_entry]
        if not 0 <= index < len(known):
            return None
        name, nested = _inside(name, known[index].name), known[index].nested
        if known[index].is_entry:
            return None
    return name if indexes else None


def linked(root: File, imported: Mapping[str, File]) -> Types:
    """The types of a file. imported: files by the path of their import.

    An import that is not there matters only to those who use its types: then Unsupported is raised.
    """
    reached: dict[str, File] = {}
    ahead = list(root.imports)
    while ahead:
        path = ahead.pop()
        if path not in reached and path in imported:
            reached[path] = imported[path]
            ahead += imported[path].imports
    messages: dict[str, Message] = {}
    enums: dict[str, Enum] = {}
    for file in (root, *reached.values()):
        _Linked(file, reached, messages, enums).add(file.package, file.messages, file.enums)
    return Types(messages, enums, root)


class _Linked:
    """Adds the types of one file to those of all."""

    def __init__(
        self, file: File, imported: Mapping[str, File], messages: dict[str, Message], enums: dict[str, Enum]
    ) -> None:
        self._file, self._messages, self._enums = file, messages, enums
        self._missing = [path for path in file.imports if path not in imported]
        self._symbols: dict[str, str] = {}
        for seen in _visible(file, imported):
            self._symbols |= _symbols(seen)

    def add(self, scope: str, messages: Sequence[MessageText], enums: Sequence[EnumText]) -> None:
        for enum in enums:
            _refuse_numbers(f"enum {enum.name!r}", enum.values, -(1 << 31), (1 << 31) - 1)
            names = dict(reversed([(number, name) for name, number in enum.values]))
            full = _inside(scope, enum.name)
            default = enum.values[0][1] if enum.values else 0
            self._enums[full] = Enum(full, names, default, self._file.syntax == "proto2")
        for message in messages:
            full = _inside(scope, message.name)
            _refuse_fields(full, message.fields)
            fields = tuple(self._field(full, one, message.is_entry) for one in message.fields)
            self._messages[full] = Message(full, fields, message.is_entry, message.reserved)
            self.add(full, message.nested, message.enums)

    def _field(self, scope: str, told: FieldText, in_entry: bool) -> Field:
        kind, type_name = told.type, ""
        if kind not in SCALARS and kind != "group":
            kind, type_name = self._resolved(scope, told)
        repeated, required = told.label == "repeated", told.label == "required"
        presence = not (repeated or required or in_entry) and (
            self._file.syntax == "proto2"
            or told.label == "optional"
            or told.oneof is not None
            or kind == "message"
        )
        checked = self._file.syntax == "proto3"
        return Field(
            told.name, told.number, kind, type_name, repeated, required, presence, told.oneof, told.params, checked
        )

    def _resolved(self, scope: str, told: FieldText) -> tuple[str, str]:
        """(kind, full name) of a type, looked for from the innermost scope outwards, as protoc does."""
        name = told.type
        first = name.split(".")[0]
        while not name.startswith("."):
            if self._symbols.get(_inside(scope, first)) in (("message", "package") if first != name else _TYPES):
                full = _inside(scope, name)
                break
            if not scope:
                full = name
                break
            scope = scope.rpartition(".")[0]
        else:
            full = name[1:]
        kind = self._symbols.get(full)
        if kind not in _TYPES:
            why = f", and the file {self._missing[0]!r} that it imports is not known" if self._missing else ""
            raise Unsupported(f"the type {told.type!r} of the field {told.name!r} is not defined{why}")
        return kind, full


_TYPES = ("message", "enum")


def _refuse_fields(of: str, fields: Sequence[FieldText]) -> None:
    """Raises Unsupported for fields that protoc refuses, too."""
    _refuse_numbers(f"message {of!r}", [(one.name, one.number) for one in fields], 1, MOST_NUMBER)
    for what, found in (("names", [one.name for one in fields]), ("numbers", [one.number for one in fields])):
        if len(set(found)) < len(found):
            raise Unsupported(f"two fields of the message {of!r} have the same {what}")
    wrong = next((one for one in fields if one.oneof is not None and one.label), None)
    if wrong is not None:
        raise Unsupported(f"the field {wrong.name!r} of the message {of!r} is {wrong.label}, in a oneof")


def _refuse_numbers(of: str, found: Sequence[tuple[str, int]], least: int, most: int) -> None:
    wrong = next(((name, number) for name, number in found if not least <= number <= most), None)
    if wrong is not None:
        raise Unsupported(f"{wrong[0]!r} of the {of} has the number {wrong[1]}")


def _visible(file: File, imported: Mapping[str, File]) -> list[File]:
    """The file, and those whose types it can use."""
    found, ahead, seen = [file], list(file.imports), set[str]()
    while ahead:
        path = ahead.pop()
        if path not in seen and path in imported:
            seen.add(path)
            found.append(imported[path])
            ahead += imported[path].public
    return found


def _symbols(file: File) -> dict[str, str]:
    """Full name → what it is."""
    parts = file.package.split(".") if file.package else []
    found = {".".join(parts[: i + 1]): "package" for i in range(len(parts))}

    def add(scope: str, messages: Sequence[MessageText], enums: Sequence[EnumText]) -> None:
        found.update((_inside(scope, one.name), "enum") for one in enums)
        for one in messages:
            found[_inside(scope, one.name)] = "message"
            add(_inside(scope, one.name), one.nested, one.enums)

    add(file.package, file.messages, file.enums)
    return found


def _inside(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
