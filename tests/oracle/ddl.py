"""The columns that a config's `schema` names, read by a small parser of our own."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Type:
    """name: upper case, without parameters. of: an array's element; a map's key and value; a struct's fields."""

    name: str
    precision: int = 0
    scale: int = 0
    of: "tuple[Type, ...]" = ()
    fields: tuple[str, ...] = ()

    @property
    def duckdb(self) -> str:
        """The type that the sink's column must have."""
        match self.name:
            case "DECIMAL":
                return f"DECIMAL({self.precision},{self.scale})"
            case "ARRAY":
                return f"{self.of[0].duckdb}[]"
            case "MAP":
                return f"MAP({self.of[0].duckdb}, {self.of[1].duckdb})"
            case "STRUCT":
                inner = (f'"{name}" {kind.duckdb}' for name, kind in zip(self.fields, self.of, strict=True))
                return f"STRUCT({', '.join(inner)})"
        return _DUCKDB[self.name]


_DUCKDB = {
    "BOOLEAN": "BOOLEAN",
    "TINYINT": "TINYINT",
    "SMALLINT": "SMALLINT",
    "INT": "INTEGER",
    "BIGINT": "BIGINT",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "STRING": "VARCHAR",
    "BINARY": "BLOB",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP WITH TIME ZONE",
    "TIMESTAMP_NTZ": "TIMESTAMP",
}
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|\w+|[<>(),:])")


def columns(text: str) -> dict[str, Type]:
    """Name → type, of DDL like `id BIGINT, tags ARRAY<STRING>`."""
    tokens = _TOKEN.findall(text)[::-1]
    found: dict[str, Type] = {}
    while tokens:
        name = _name(tokens.pop())
        found[name] = _type(tokens)
        if tokens:
            assert tokens.pop() == ",", text
    return found


def _name(token: str) -> str:
    return token[1:-1].replace("``", "`") if token.startswith("`") else token


def _type(tokens: list[str]) -> Type:
    name = tokens.pop().upper()
    if name == "DECIMAL":
        assert tokens.pop() == "("
        precision = int(tokens.pop())
        scale = int(tokens.pop()) if tokens.pop() == "," else 0
        if scale or tokens[-1:] == [")"]:
            assert tokens.pop() == ")"
        return Type(name, precision, scale)
    if name not in ("ARRAY", "MAP", "STRUCT"):
        assert name in _DUCKDB, name
        return Type(name)
    assert tokens.pop() == "<"
    kinds, fields, token = [], [], ","
    while token == ",":
        if name == "STRUCT":
            fields.append(_name(tokens.pop()))
            if tokens[-1] == ":":
                tokens.pop()
        kinds.append(_type(tokens))
        token = tokens.pop()
    assert token == ">", token
    return Type(name, of=tuple(kinds), fields=tuple(fields))
