"""How a record writes the values of a column, by its schema block, by the options, or as plain JSON."""

from dataclasses import dataclass
from typing import Any

from backfill_cli.formats.schemas import Unsupported
from backfill_cli.model.schema import SparkType, decimal_of, shown

PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}

DOUBLE_DIGITS = 15
"""A decimal of up to this many digits is identified by its nearest double."""

_NATIVE = frozenset({"boolean", "byte", "short", "integer", "long", "float", "double", "string"})


class Undecided(Unsupported):
    """The option `decimals` would say how it is written."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """How one column is written.

    kind: `plain` (as itself), `text`, `days`, `units` (time since 1970), `instant` (ISO text or units), `unscaled`
    (base64 decimal), `number` (decimal as JSON's number), `variable` (struct of scale and base64), `double` (the
    nearest one to a decimal), `whole` (JSON Schema's integer: 2.0 is one), `base64`, `array`, `map`, `struct`.
    unit: ms, us or ns. scale: of `unscaled`, None: the target's. inner: of elements, values or fields (by name).
    """

    kind: str
    unit: str | None = None
    scale: int | None = None
    inner: tuple[tuple[str, "Encoding"], ...] = ()


def textual(target: SparkType) -> Encoding:
    """Plain JSON: numbers, strings and booleans as themselves, everything else as text."""
    if isinstance(target, str):
        if target == "binary":
            return Encoding("base64")
        return Encoding("plain" if target in _NATIVE else "text")
    return nested(target, textual)


def schemaless(target: SparkType, timestamps: str | None, decimals: str | None) -> Encoding:
    """Debezium's JSON without a schema block: what it means depends on the connector's settings.

    Raises Undecided if the options do not say enough for this type, Unsupported if it is not read as they say.
    """
    if isinstance(target, dict):
        return nested(target, lambda kind: schemaless(kind, timestamps, decimals))
    if target in _NATIVE:
        return Encoding("plain")
    if target == "date":
        return Encoding("days")
    if target.startswith("timestamp"):
        return Encoding("instant", unit=timestamps)
    if target == "binary":
        return Encoding("base64")
    match decimals:
        case "precise":
            return Encoding("unscaled")
        case "string":
            return Encoding("text")
        case "double" if decimal_of(target)[0] <= DOUBLE_DIGITS:
            return Encoding("double")
        case "double":
            raise Unsupported(
                f"a double does not keep every {shown(target)}: at most {DOUBLE_DIGITS} digits are exact"
            )
        case _:
            raise Undecided(f"nothing says how a {shown(target)} is written")


def nested(target: dict[str, Any], inner: Any) -> Encoding:
    """The encoding of a nested type whose parts are encoded by `inner(type)`."""
    if target["type"] == "array":
        return Encoding("array", inner=(("", inner(target["elementType"])),))
    if target["type"] == "map":
        return Encoding("map", inner=(("", inner(target["valueType"])),))
    return Encoding("struct", inner=tuple((f["name"], inner(f["type"])) for f in target["fields"]))
