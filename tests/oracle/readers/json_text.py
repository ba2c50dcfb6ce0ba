"""JSON of RFC 8259 by Python's own parser, nothing lost: numbers stay text, members that stand twice are seen."""

import json
import re
from dataclasses import dataclass
from typing import Any

from oracle import plain
from oracle.readers import kinds
from oracle.readers.kinds import Doubts, Kind, No


@dataclass(frozen=True)
class Number:
    """As it is written."""

    text: str


@dataclass(frozen=True)
class Constant:
    """NaN, Infinity or -Infinity, which Python and others write though JSON has none: refused, or just that."""

    text: str


@dataclass(frozen=True)
class Members:
    """An object's members in order; a name may stand twice."""

    pairs: tuple[tuple[str, Any], ...]

    def get(self, name: str, doubts: Doubts) -> Any:
        """The last of that name, None without one."""
        found = [value for key, value in self.pairs if key == name]
        if len(found) > 1:
            doubts.append(f"{name!r} stands twice")
        return found[-1] if found else None

    def has(self, name: str) -> bool:
        return any(key == name for key, _ in self.pairs)


def parsed(raw: bytes) -> Any:
    """One JSON text. Raises No."""
    try:
        told = raw.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise No(f"not UTF-8: {exc}") from None

    try:
        return json.loads(
            told, parse_float=Number, parse_int=Number, parse_constant=Constant,
            object_pairs_hook=lambda pairs: Members(tuple(pairs)),
        )  # fmt: skip
    except ValueError as exc:
        raise No(f"not one JSON text: {exc}") from None
    except RecursionError:
        raise No("too deep") from None


def well_formed(token: Any) -> None:
    """Raises No for half a surrogate pair anywhere."""
    if isinstance(token, str):
        kinds.text(token)
    elif isinstance(token, list):
        for one in token:
            well_formed(one)
    elif isinstance(token, Members):
        for name, one in token.pairs:
            kinds.text(name)
            well_formed(one)


def row_of(columns: dict[str, Kind], token: Any, doubts: Doubts) -> plain.Row:
    """An object as a row: members that are no column are left out, columns without a member are NULL."""
    if not isinstance(token, Members):
        raise No("not a JSON object")
    folded = {name.lower() for name in columns}
    for name, _ in token.pairs:
        if name not in columns and name.lower() in folded:
            raise No(f"{name!r} is a column but for the case of its letters")
    return {name: value_of(kind, token.get(name, doubts), doubts) for name, kind in columns.items()}


def value_of(kind: Kind, token: Any, doubts: Doubts) -> Any:
    """A plain value; raises No where the token is not exactly one of that kind."""
    if token is None:
        return None
    if isinstance(kind, tuple):
        return _inner(kind, token, doubts)
    if kind in kinds.BITS and isinstance(token, Number):
        return kinds.integer(kind, token.text, doubts)
    if kind in ("float", "double"):
        return floating(kind, token, doubts)
    if kind == "boolean" and isinstance(token, bool):
        return ("bool", token)
    if kind == "string":
        if isinstance(token, str):
            return kinds.text(token)
        doubts.append("text that is not written as text")
        return ("text", written(token))
    if isinstance(token, str):
        if kind == "binary":
            return ("bytes", kinds.of_base64(token, doubts).hex())
        if kind == "date":
            return kinds.date(token, doubts)
        if kind in ("timestamp", "timestamp_ntz"):
            return kinds.time(token, kind == "timestamp", doubts)
    raise No(f"{token!r} is no {kind}")


def floating(kind: str, token: Any, doubts: Doubts) -> Any:
    made = kinds.single if kind == "float" else kinds.double
    if isinstance(token, Number):
        return made(token.text, doubts)
    named = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
    told = token.text if isinstance(token, Constant) else token
    if isinstance(told, str) and told in named:
        doubts.append("JSON has no such number")
        return plain.single(named[told]) if kind == "float" else plain.double(named[told])
    raise No(f"{token!r} is no {kind}")


def _inner(kind: Any, token: Any, doubts: Doubts) -> Any:
    if kind[0] == "decimal" and isinstance(token, (Number, str)):
        told = token if isinstance(token, str) else token.text
        if re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", told) is None:
            raise No(f"{told!r} is no decimal")
        if not re.fullmatch(r"-?[0-9.]+", told):
            doubts.append("a decimal in an unusual form")
        return kinds.decimal(kind[1], kind[2], kinds.number_of(told))
    if kind[0] == "array" and isinstance(token, list):
        if kind[1][0] == "decimal" and any(isinstance(one, str) for one in token):
            doubts.append("decimals as text within a list")
        return ("list", tuple(value_of(kind[1], one, doubts) for one in token))
    if kind[0] == "map" and isinstance(token, Members):
        names = [name for name, _ in token.pairs]
        if len(set(names)) < len(names):
            doubts.append("a map's key stands twice")
        last = dict(token.pairs)
        return plain.mapped((kinds.text(name), value_of(kind[1], one, doubts)) for name, one in last.items())
    if kind[0] == "struct" and isinstance(token, Members):
        return (
            "struct",
            tuple((name, value_of(inner, token.get(name, doubts), doubts)) for name, inner in kind[1]),
        )
    raise No(f"{token!r} is no {kind}")


def written(token: Any) -> str:
    """A token as JSON without blanks, numbers as they were."""
    if isinstance(token, (Number, Constant)):
        return token.text
    if isinstance(token, list):
        return "[" + ",".join(map(written, token)) + "]"
    if isinstance(token, Members):
        return "{" + ",".join(f"{json.dumps(n, ensure_ascii=False)}:{written(v)}" for n, v in token.pairs) + "}"
    return json.dumps(token, ensure_ascii=False)
