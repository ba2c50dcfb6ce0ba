"""A writer's schema in Avro's JSON, with the named types of other schemas that it refers to, as `Type`s.

By the specification of Avro 1.12: names and namespaces, and logical types, of which one that does not fit its type
is as if it were not there.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, log10
from typing import Any, TypeGuard

from backfill_cli.decode.connect import DEEPEST, MOST_MEMBERS, TOO_LARGE
from backfill_cli.formats.schemas import Unsupported

_MOST_BYTES = 2**31 - 1
"""Of a fixed."""

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


@dataclass(slots=True, eq=False)
class Type:
    """A type of Avro. Recursive ones contain themselves, so that a type is equal to itself alone.

    kind: one of PRIMITIVES, `record`, `enum`, `array`, `map`, `fixed`, `union`. name: the full name of a record,
    an enum or a fixed. logical: its logical type, empty without a valid one. told: its JSON, for other attributes.
    symbols: of an enum. size: of a fixed, in bytes. parts: the elements of an array, the values of a map, the
    branches of a union. branches: those of a union that are not null, each as (its index, what it is called, its
    type): by their simple names or, where these are not distinct, by their full ones. fields: of a record.
    """

    kind: str
    name: str = ""
    logical: str = ""
    told: Mapping[str, Any] = field(default_factory=dict, repr=False)
    symbols: tuple[str, ...] = ()
    size: int = 0
    parts: "tuple[Type, ...]" = ()
    branches: "tuple[tuple[int, str, Type], ...]" = field(default=(), repr=False)
    fields: "tuple[Field, ...]" = field(default=(), repr=False)

    @property
    def without_bytes(self) -> bool:
        """Whether its values are written as nothing at all."""
        return _without_bytes(self, ())


@dataclass(frozen=True, slots=True)
class Field:
    """told: its JSON, with `default` and `aliases` if it has them."""

    name: str
    type: Type
    told: Mapping[str, Any]


def parsed(text: str, references: Sequence[str] = ()) -> Type:
    """The type that a schema describes.

    references: schemas whose named types it refers to, in any order. Raises Unsupported for what is no schema.
    """
    known: dict[str, Type] = {}
    waiting = list(references)
    try:
        while waiting:
            later = [one for one in waiting if not _is_read(one, known)]
            if len(later) == len(waiting):
                break  # what the rest lacks is named, if the schema itself refers to the rest
            waiting = later
        found = _Names(known).type(_json(text), "")
        members, levels = _extent(found, {})
    except RecursionError:
        raise Unsupported(TOO_LARGE) from None
    if members > MOST_MEMBERS or levels > DEEPEST:
        raise Unsupported(TOO_LARGE)
    return found


def _extent(kind: Type, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """(how many types, how many within one another) where each name is what it stands for, but within itself."""
    if id(kind) not in known:
        known[id(kind)] = 1, 1
        inner = [_extent(one, known) for one in (*kind.parts, *(one.type for one in kind.fields))]
        known[id(kind)] = 1 + sum(one for one, _ in inner), 1 + max((one for _, one in inner), default=0)
    return known[id(kind)]


def _json(text: str) -> Any:
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode()
        return found
    except UnicodeEncodeError:
        raise Unsupported("the schema has a name or a text with half of a surrogate pair") from None
    except ValueError:
        bare = text.strip()
        if bare in PRIMITIVES:
            return bare
        raise Unsupported("the schema is not JSON") from None


def _is_read(text: str, known: dict[str, Type]) -> bool:
    """Whether all that a schema refers to is known by now: then its own types are, too."""
    more = dict(known)
    try:
        _Names(more).type(_json(text), "")
    except _Unknown:
        return False
    known.update(more)
    return True


class _Unknown(Unsupported):
    """A name that no schema defines."""


class _Names:
    """Reads types. known: named types so far, by full names; those that are read are added."""

    def __init__(self, known: dict[str, Type]) -> None:
        self._known, self._depth = known, 0

    def type(self, told: Any, namespace: str) -> Type:
        self._depth += 1
        if self._depth > DEEPEST:
            raise Unsupported(TOO_LARGE)
        found = self._of(told, namespace)
        self._depth -= 1
        return found

    def _of(self, told: Any, namespace: str) -> Type:
        if isinstance(told, str):
            return self._named(told, namespace)
        if isinstance(told, list):
            return self._union(told, namespace)
        if not isinstance(told, dict):
            raise Unsupported(f"no type: {json.dumps(told)[:100]}")
        kind = told.get("type")
        match kind:
            case "record" | "error" | "enum" | "fixed":
                return self._new(told, kind, namespace)
            case "array" | "map":
                part = told.get("items" if kind == "array" else "values")
                return Type(kind, told=told, parts=(self.type(part, namespace),))
            case str() if kind in PRIMITIVES:
                return Type(kind, logical=_logical(told, kind, 0), told=told)
        return self.type(kind, namespace)  # {"type": {"type": …}}, or a name in an object

    def _named(self, name: str, namespace: str) -> Type:
        if name in PRIMITIVES:
            return Type(name)
        full = _full(name, namespace)
        found = self._known.get(full) or self._known.get(name)
        if found is None:
            raise _Unknown(f"type '{full}' is not defined")
        return found

    def _union(self, told: list[Any], namespace: str) -> Type:
        parts = tuple(self.type(one, namespace) for one in told)
        names = [one.name or one.kind for one in parts]
        if "union" in names:
            raise Unsupported("a union directly within a union")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise Unsupported(f"a union of two branches that are both {twice}")
        simple = [name.rpartition(".")[2] for name in names]
        if len(set(simple)) == len(simple):
            names = simple
        branches = [(i, names[i], one) for i, one in enumerate(parts) if one.kind != "null"]
        return Type("union", parts=parts, branches=tuple(branches))

    def _new(self, told: Mapping[str, Any], kind: str, namespace: str) -> Type:
        name = told.get("name")
        if not isinstance(name, str) or not name.rpartition(".")[2]:
            raise Unsupported(f"{_a(kind)} without a name")
        if "." not in name and isinstance(told.get("namespace"), str):
            namespace = told["namespace"]
        full = _full(name, namespace)
        if full in self._known:
            raise Unsupported(f"type '{full}' is defined twice")
        made = self._known[full] = Type("record" if kind == "error" else kind, full, told=told)
        within = full.rpartition(".")[0]
        if kind == "enum":
            symbols = _listed(told, "symbols", full)
            if not all(isinstance(one, str) for one in symbols):
                raise Unsupported(f"enum '{full}' with symbols that are no texts")
            made.symbols = tuple(symbols)
        elif kind == "fixed":
            if not _is_count(told.get("size")) or told["size"] > _MOST_BYTES:
                raise Unsupported(f"fixed '{full}' without a size")
            made.size = told["size"]
            made.logical = _logical(told, kind, made.size)
        else:
            made.fields = tuple(self._fields(_listed(told, "fields", full), full, within))
        return made

    def _fields(self, told: list[Any], of: str, namespace: str) -> Iterator[Field]:
        names = set[str]()
        for one in told:
            name = one.get("name") if isinstance(one, dict) else None
            if not isinstance(name, str) or "type" not in one:
                raise Unsupported(f"record '{of}' with a field without a name or a type")
            if name in names:
                raise Unsupported(f"record '{of}' with two fields '{name}'")
            names.add(name)
            yield Field(name, self.type(one["type"], namespace), one)


def _full(name: str, namespace: str) -> str:
    return name.removeprefix(".") if "." in name or not namespace else f"{namespace}.{name}"


def _listed(told: Mapping[str, Any], what: str, of: str) -> list[Any]:
    found = told.get(what)
    if not isinstance(found, list):
        raise Unsupported(f"type '{of}' without {what}")
    return found


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_LOGICAL = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
    "uuid": ("string", "fixed"),
    "duration": ("fixed",),
    "decimal": ("bytes", "fixed"),
}
"""Logical types, and what they stand on."""

_WIDTHS = {"uuid": 16, "duration": 12}
"""Of a fixed."""


def _logical(told: Mapping[str, Any], kind: str, size: int) -> str:
    """The logical type that a type has; empty for one that the specification does not allow there, or not know."""
    name = told.get("logicalType")
    if not isinstance(name, str) or kind not in _LOGICAL.get(name, ()):
        return ""
    if name == "decimal":
        precision, scale = told.get("precision"), told.get("scale", 0)
        if not _is_count(precision) or not _is_count(scale) or not max(scale, 1) <= precision:
            return ""
        return name if kind == "bytes" or precision <= _digits(size) else ""
    return "" if kind == "fixed" and size != _WIDTHS[name] else name


def _digits(size: int) -> int:
    """How many decimal digits a signed number of so many bytes holds."""
    return floor((8 * size - 1) * log10(2)) if size else 0


def _without_bytes(kind: Type, above: tuple[Type, ...]) -> bool:
    if kind.kind == "record":
        return kind not in above and all(_without_bytes(one.type, (*above, kind)) for one in kind.fields)
    return kind.kind == "null" or (kind.kind == "fixed" and not kind.size)
