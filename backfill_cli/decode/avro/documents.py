"""Avro records one by one, in plain Python: documents as Kafka Connect's JsonConverter writes them, or why not."""

import struct
from typing import Any

from backfill_cli.decode.avro.columns import DEEPEST
from backfill_cli.decode.avro.connect import binary, floating
from backfill_cli.decode.avro.schema import Type
from backfill_cli.decode.tokens import DEEP, NO_TEXT, Number, Token, members
from backfill_cli.decode.unreadable import Unreadable


def document(kind: Type, payload: bytes) -> Token:
    """The value that a record is. Raises Unreadable, which says what is wrong and where."""
    reading = _Document(payload)
    try:
        found = reading.value(kind, 0)
        if reading.at < len(payload):
            raise Unreadable(f"{len(payload) - reading.at:,} bytes too many")
    except Unreadable as exc:
        where = "".join(reversed(reading.path)).removeprefix(".")
        place = f" in '{where}'" if where else ""
        raise Unreadable(f"not Avro of its schema: {exc.args[0]}{place} at byte {reading.at:,}") from None
    return found


class _Document:
    """at: of the next byte, or of what could not be read. path: of that, its innermost name first."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self.at = 0
        self.path: list[str] = []

    def value(self, kind: Type, depth: int) -> Token:
        match kind.kind:
            case "null":
                return None
            case "boolean":
                return self._boolean()
            case "int" | "long":
                return Number(self._whole(kind))
            case "float" | "double":
                width, form = (4, "<f") if kind.kind == "float" else (8, "<d")
                return floating(struct.unpack(form, self._bytes(width))[0])
            case "bytes":
                return binary(kind, self._bytes(self._number()))
            case "fixed":
                return binary(kind, self._bytes(kind.size))
            case "string":
                return self._text()
            case "enum":
                return self._one_of(kind.symbols, "symbols")
            case "union":
                return self._union(kind, depth)
            case "array" | "map":
                return self._blocks(kind, depth)
        if depth > DEEPEST:
            raise Unreadable(DEEP)
        return {one.name: self._member(one.type, f".{one.name}", depth + 1) for one in kind.fields}

    def _member(self, kind: Type, name: str, depth: int) -> Token:
        begin = self.at
        try:
            return self.value(kind, depth)
        except Unreadable:
            if not self.path:
                self.at = begin
            self.path.append(name)
            raise

    def _number(self) -> int:
        found = 0
        for shift in range(0, 70, 7):
            byte = self._bytes(1)[0]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            found = 1 << 64
        if found >> 64:
            raise Unreadable("a number of more than 64 bits")
        return (found >> 1) ^ -(found & 1)

    def _whole(self, kind: Type) -> int:
        found = self._number()
        if kind.kind == "int" and not -(1 << 31) <= found < 1 << 31:
            raise Unreadable(f"{found} is no int")
        return found

    def _bytes(self, size: int) -> bytes:
        if size < 0:
            raise Unreadable(f"a length of {size}")
        if size > len(self._raw) - self.at:
            raise Unreadable("cut short")
        self.at += size
        return self._raw[self.at - size : self.at]

    def _text(self) -> str:
        raw = self._bytes(self._number())
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise Unreadable(NO_TEXT) from None

    def _boolean(self) -> bool:
        byte = self._bytes(1)[0]
        if byte > 1:
            raise Unreadable(f"{byte} is no boolean")
        return byte == 1

    def _one_of(self, known: tuple[Any, ...], what: str) -> Any:
        index = self._number()
        if not 0 <= index < len(known):
            raise Unreadable(f"the schema has {len(known)} {what} here, not one of number {index}")
        return known[index]

    def _union(self, kind: Type, depth: int) -> Token:
        branch = self._one_of(kind.parts, "branches")
        if branch.kind == "null":
            return None
        if len(kind.branches) == 1:
            return self.value(branch, depth)
        chosen = next(name for _, name, one in kind.branches if one is branch)
        return {**{name: None for _, name, _ in kind.branches}, chosen: self._member(branch, f".{chosen}", depth)}

    def _blocks(self, kind: Type, depth: int) -> Token:
        found: list[Any] = []
        while True:
            count, end = self._number(), None
            if count < 0:
                count, size = -count, self._number()
                end = self.at + size
                if size < 0 or end > len(self._raw):
                    raise Unreadable(f"a block of {size} bytes")
            if count > len(self._raw) - self.at or count >> 63:
                raise Unreadable(f"a block of {count} elements")
            if not count:
                break
            if kind.kind == "array" and kind.parts[0].without_bytes:
                raise Unreadable(f"{count} elements that have no bytes")
            for _ in range(count):
                if kind.kind == "map":
                    found.append((self._text(), self._member(kind.parts[0], "{}", depth)))
                else:
                    found.append(self._member(kind.parts[0], f"[{len(found)}]", depth))
            if end not in (None, self.at):
                raise Unreadable("a block that does not end where it says")
        return members(found) if kind.kind == "map" else found
