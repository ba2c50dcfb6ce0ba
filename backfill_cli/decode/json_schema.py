"""What Kafka Connect calls the types of a JSON Schema: by its converter's own hints, or by the types of JSON.

Objects are structs, or maps where only their values are described. A default says nothing of what is lacking. What
only says which values are not allowed (`enum`, `const`, `required`, choices beside a `type`) changes no type.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from backfill_cli.decode.connect import DEEPEST, MOST_MEMBERS, NUMBER, OTHERS, RECURSIVE, TOO_LARGE, Connect
from backfill_cli.decode.tokens import Token, parsed, text_of
from backfill_cli.formats.schemas import Unsupported

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES = {"integer": "int64", "number": "double", "string": "string", "boolean": "boolean"}
_CONNECT = {"int8", "int16", "int32", "int64", "bytes", "string", "boolean"}
_FLOATS = {"float32": "float", "float64": "double"}
_NULL = {"type": "null"}


def connect(text: str, references: Mapping[str, str]) -> Connect:
    """The type of a document. references: the schemas that it refers to, by the names it has for them.

    Raises Unsupported for what is no schema, or has no type of its own.
    """
    root = _parsed(text)
    try:
        return _Types({name: _parsed(one) for name, one in references.items()}).of(root, root, ())
    except RecursionError:  # what only says that there are other members is followed to any depth
        raise Unsupported(TOO_LARGE) from None


def _parsed(text: str) -> Any:
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode()
        return found
    except (ValueError, RecursionError):  # a half of a surrogate pair, too
        raise Unsupported("not a JSON Schema: no JSON") from None


class JsonSchema:
    """Reads documents of one schema, which may lack members of it, and have others."""

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        """Raises Unsupported for what is no schema."""
        self.schema = connect(text, references)

    def read(self, payloads: Sequence[bytes], wanted: "pa.Schema") -> "tuple[dict[str, pa.Array], Sequence[int]]":
        from backfill_cli.decode import arrow_json

        return arrow_json.parse(payloads, b"\n".join(payloads), wanted)

    def token(self, payload: bytes) -> Token:
        return parsed(text_of(payload))


class _Types:
    def __init__(self, references: Mapping[str, Any]) -> None:
        self._references = references
        self._count = 0

    def of(self, told: Any, root: Any, above: tuple[int, ...]) -> Connect:
        """told: a schema within `root`. above: those that it is in."""
        if not isinstance(told, dict):
            raise Unsupported("anything")
        if id(told) in above:
            return {"type": RECURSIVE}
        self._count += 1
        if len(above) > DEEPEST or self._count > MOST_MEMBERS:
            raise Unsupported(TOO_LARGE)
        above = (*above, id(told))
        if "$ref" in told:
            beside = next((one for one in _SHAPES if one in told), None)
            if beside is not None:  # some drafts of JSON Schema ignore it there, others do not
                raise Unsupported(f"$ref beside {beside}")
            return self.of(*self._referred(str(told["$ref"]), root), above)
        if "type" not in told and "allOf" in told:
            alone = told["allOf"] if isinstance(told["allOf"], list) else ()
            if len(alone) != 1 or any(one in told for one in ("oneOf", "anyOf", "properties")):
                raise Unsupported(f"allOf of {len(alone)} types")
            return self.of(alone[0], root, above)
        for choice in ("oneOf", "anyOf") if "type" not in told else ():
            if choice in told:
                if any(one in told for one in _SHAPES if one != choice):
                    raise Unsupported(
                        f"{choice} beside {next(one for one in _SHAPES if one in told and one != choice)}"
                    )
                choices = told[choice] if isinstance(told[choice], list) else ()
                kinds = [one for one in choices if one != _NULL]
                if len(kinds) != 1:
                    raise Unsupported(f"{choice} of {len(kinds)} types")
                return {**self.of(kinds[0], root, above), "optional": True}
        kind = told.get("type")
        if isinstance(kind, list):
            kinds = [one for one in kind if one != "null"]
            if len(kinds) != 1:
                raise Unsupported(f"one of {len(kinds)} types")
            kind = kinds[0]
        return self._typed(told, str(kind), root, above)

    def _referred(self, ref: str, root: Any) -> tuple[Any, Any]:
        """(the schema that a reference names, the whole that it is in)."""
        name, _, path = ref.partition("#")
        found = whole = self._references.get(name) if name else root
        begin, *steps = path.split("/")
        for step in steps:
            step = step.replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, dict) else None
        if found is None or begin:
            raise Unsupported(f"$ref {ref!r} names no schema")
        return found, whole

    def _typed(self, told: Mapping[str, Any], kind: str, root: Any, above: tuple[int, ...]) -> Connect:
        hint, title = told.get("connect.type"), told.get("title")
        hint = hint if isinstance(hint, str) else None
        named: dict[str, Any] = {"name": title} if hint is not None and isinstance(title, str) else {}
        if isinstance(told.get("connect.parameters"), dict):
            named["parameters"] = told["connect.parameters"]
        if hint == "bytes" and kind in ("number", "integer"):  # as Confluent's decimal.format = NUMERIC
            return {"type": NUMBER, **named}
        if kind in ("number", "integer"):
            named["json"] = True
        if hint in _CONNECT or hint in _FLOATS:
            return {"type": _FLOATS.get(hint, hint), **named}
        if kind in _TYPES:
            word = {} if kind == _TYPES[kind] else {"written": kind}
            return {"type": _TYPES[kind], **word, **named}
        if kind == "array":
            return {"type": "array", "items": self.of(told.get("items"), root, above)}
        if kind == "object" and "properties" in told:
            fields = self._fields(told["properties"], root, above)
            return {"type": "struct", "fields": fields + _others(told, {str(one["field"]) for one in fields})}
        if kind == "object" and isinstance(told.get("additionalProperties"), dict):
            values = self.of(told["additionalProperties"], root, above)
            if more := _others({**told, "additionalProperties": None}, ()):
                raise Unsupported(f"a map with {more[0]['field']}")
            return {"type": "map", "keys": {"type": "string"}, "values": values}
        raise Unsupported(kind if "type" in told else "anything")

    def _fields(self, told: Any, root: Any, above: tuple[int, ...]) -> list[Connect]:
        if not isinstance(told, dict):
            raise Unsupported("not a JSON Schema: properties that are no object")
        order = {name: one.get("connect.index", 0) if isinstance(one, dict) else 0 for name, one in told.items()}
        found: list[Connect] = []
        for name in sorted(told, key=lambda name: order[name] if isinstance(order[name], int) else 0):
            try:
                of = self.of(told[name], root, above)
            except Unsupported as exc:  # known by name: the column is refused, unless `schema` leaves it out
                of = {"type": str(exc)}
            found.append({**of, "field": name})
        return found


_SHAPES = ("type", "properties", "items", "additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf")
"""What says which values there are, beside what only says which of them are not."""
_MORE = (*_SHAPES[3:], "if", "then", "else", "dependentSchemas", "dependencies")
_MEMBERS = ("properties", "patternProperties", "$ref")
_BY_MEMBER = ("dependentSchemas", "dependencies")
"""What has a schema for each of some members, where these are there."""


def _others(told: Mapping[str, Any], names: Collection[str]) -> list[Connect]:
    """What else says that an object has members: fields without a type, so that they are refused, or left out."""
    found: list[Connect] = []
    for name in _MORE:
        of = told.get(name)
        has = _has_type(of) if name == "additionalProperties" else name == "patternProperties" or _has_members(of)
        if isinstance(of, dict | list) and of and has and name not in names:
            found.append({"field": name, "type": f"{OTHERS}{name}", "names": _described(name, of)})
    return found


def _described(word: str, of: Any) -> list[str] | None:
    """The members of an object that a word beside its properties describes; None: any."""
    if word in ("additionalProperties", "patternProperties"):
        return [] if word == "additionalProperties" and not _has_type(of) else None
    schemas = of if isinstance(of, list) else of.values() if word in _BY_MEMBER and isinstance(of, dict) else [of]
    found = set[str]()
    for told in schemas:
        for inner, one in told.items() if isinstance(told, dict) else ():
            names: Collection[str] | None = ()
            if inner == "properties" and isinstance(one, dict):
                names = one.keys()
            elif inner in _MORE:
                names = _described(inner, one)
            if names is None or inner == "$ref":
                return None
            found.update(names)
    return sorted(found)


def _has_type(told: Any) -> bool:
    return isinstance(told, dict) and told not in ({}, {"not": {}})


def _has_members(told: Any) -> bool:
    if isinstance(told, dict):
        return any(name in told for name in _MEMBERS) or any(map(_has_members, told.values()))
    return isinstance(told, list) and any(map(_has_members, told))
