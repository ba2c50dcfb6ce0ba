"""JSON without loss: numbers stay as they are written, and what only some parsers accept is refused."""

import json
import re
from collections import Counter
from typing import Any, NoReturn

from backfill_cli.decode.unreadable import Unreadable

NO_OBJECT = "not a JSON object"
CUT = "cut short: not a complete JSON object"
MORE = "text after the JSON object"
DEEP = "nested too deep"
_HALF = "half of a surrogate pair (\\ud800 to \\udfff) is not a character"
NO_TEXT = "not UTF-8 text"
_REGISTERED = (
    'written with a schema registry (schema id {}): for Avro set value.encoding = "avro"; for others write '
    "plain JSON (Kafka Connect's JsonConverter), or copy the topic to one that has it"
)
OPEN_PROTOCOL = "rows as TiCDC's open protocol has them, whose tables are in the records' keys"
_LONE_SURROGATE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_WHOLE_NUMBER = re.compile(r"-?[0-9]+")

Token = Any
"""None, bool, str, Number, Constant, list, or dict in the order of its members."""


class Number(str):
    """A number as it is written."""

    __slots__ = ()

    @property
    def is_whole(self) -> bool:
        return _WHOLE_NUMBER.fullmatch(self) is not None


class Constant(str):
    """NaN, Infinity or -Infinity, which many write though JSON has none."""

    __slots__ = ()


class Ambiguous(dict[str, Token]):
    """An object in which names occur twice: to read such a member, or all members, raises Unreadable.

    Arrow's parser does not see them either where nobody reads them.
    """

    __slots__ = ("_twice",)

    def __init__(self, pairs: list[tuple[str, Token]]) -> None:
        super().__init__(pairs)
        self._twice = {name for name, count in Counter(name for name, _ in pairs).items() if count > 1}

    def __getitem__(self, name: str) -> Token:
        self._refuse_twice(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Token = None) -> Token:
        self._refuse_twice(name)
        return super().get(name, default)

    def _refuse_twice(self, name: str) -> None:
        if name in self._twice:
            raise self._fault(name)

    def _fault(self, name: str) -> Unreadable:
        return Unreadable(f"the name {_quoted(name)} occurs twice in an object")

    def items(self) -> NoReturn:
        raise self._fault(min(self._twice))

    def values(self) -> NoReturn:
        raise self._fault(min(self._twice))


def members(pairs: list[tuple[str, Token]]) -> dict[str, Token]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else Ambiguous(pairs)


_DECODER = json.JSONDecoder(
    parse_float=Number, parse_int=Number, parse_constant=Constant, object_pairs_hook=members
)


def is_registered(raw: bytes) -> bool:
    """Whether a schema registry's client wrote these bytes."""
    return raw[:1] == b"\0" and len(raw) >= 5


def is_open_protocol(raw: bytes) -> bool:
    """Whether TiCDC wrote these bytes by its open protocol: JSON objects, the length of each before it.

    As what a registry's client wrote it would have the schema id 0, which no schema has.
    """
    length = int.from_bytes(raw[:8], "big")
    return raw[:5] == bytes(5) and 0 < length <= len(raw) - 8 and raw[8:9] == b"{"


def text_of(raw: bytes) -> str:
    """The bytes as text. Raises Unreadable for what is no text, or what a schema registry's client wrote."""
    if is_open_protocol(raw):
        raise Unreadable(f'{OPEN_PROTOCOL}: value.format = "open-protocol" reads them')
    if is_registered(raw):
        raise Unreadable(_REGISTERED.format(int.from_bytes(raw[1:5], "big")))
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Unreadable(NO_TEXT) from None


def parsed(text: str) -> Token:
    """One JSON value. Raises Unreadable for anything else, or half of a surrogate pair."""
    if "\\u" in text and _LONE_SURROGATE.search(text.replace("\\\\", "__")):
        raise Unreadable(_HALF)
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise Unreadable(DEEP) from None
    except ValueError as exc:
        if "\t" not in text:
            raise Unreadable(fault_of(exc)) from None
    # a tab inside a text is no JSON, but it cannot be mistaken
    try:
        return _DECODER.decode(_STRING.sub(lambda found: found[0].replace("\t", "\\t"), text))
    except RecursionError:
        raise Unreadable(DEEP) from None
    except ValueError as exc:
        raise Unreadable(fault_of(exc)) from None


def fault_of(error: ValueError) -> str:
    """What is wrong with a text that is no JSON, by the error of the json module."""
    if not isinstance(error, json.JSONDecodeError):
        return NO_TEXT if isinstance(error, UnicodeDecodeError) else str(error)
    if error.msg == "Extra data":
        return MORE
    if error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string"):
        return CUT
    said = error.msg[0].lower() + error.msg[1:].removesuffix(" at")
    return f"not JSON: {said} at character {error.pos + 1}"


def first_value(text: str, at: int) -> tuple[Token, int]:
    """The JSON value that begins at `at`, and where it ends. Raises Unreadable."""
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError:
        raise Unreadable(DEEP) from None
    except ValueError as exc:
        raise Unreadable(fault_of(exc)) from None


def whole_object(raw: bytes) -> dict[str, Token]:
    """The members of a record that is one JSON object. Raises Unreadable."""
    found = parsed(text_of(raw))
    if not isinstance(found, dict):
        raise Unreadable(NO_OBJECT)
    return found


def written(token: Token) -> str:
    """A token as JSON without blanks, numbers as they were."""
    if isinstance(token, Number | Constant):
        return str(token)
    if isinstance(token, list):
        return f"[{','.join(map(written, token))}]"
    if isinstance(token, dict):
        return "{" + ",".join(f"{_quoted(name)}:{written(one)}" for name, one in token.items()) + "}"
    return _quoted(token)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
