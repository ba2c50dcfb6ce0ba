"""How a JSON or CSV file writes each column, and the expressions that read it back exactly.

An encoding comes from the file or the options; the target is the table's column type. `raw_type` is the type that
the parser reads, `convert` turns its values into the target's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backfill_cli.errors import in_config
from backfill_cli.formats import exact
from backfill_cli.formats.exact import Named
from backfill_cli.formats.schemas import Unsupported
from backfill_cli.model.schema import Columns, SparkType, field, shown
from backfill_cli.spark.api import Column, F

_NATIVE = frozenset({"boolean", "byte", "short", "integer", "long", "float", "double", "string"})


_AS_TEXT = in_config(
    'set decimal.handling.mode = string in the connector and upstream.changes.decimals = "string", and write such '
    "changes again"
)
_NO_SCALE = (
    "a NUMERIC without a scale is written as {scale, value}, which can be read only with schema "
    "blocks (value.converter.schemas.enable); or " + _AS_TEXT
)
DECIMALS_HINT = in_config(
    'set upstream.changes.decimals = "precise", or "double", if they are written so; or ' + _AS_TEXT
)


class Undecided(Unsupported):
    """The option `decimals` would say how it is written."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """How one column is written.

    kind: `plain` (as itself), `text`, `days`, `units` (time since 1970), `instant` (ISO text or units), `unscaled`
    (base64 decimal), `variable` (struct of scale and base64), `double` (the nearest one to a decimal), `base64`,
    `array`, `map`, `struct`.
    unit: ms, us or ns. scale: of `unscaled`, None: the target's. inner: of elements, values or fields (by name).
    """

    kind: str
    unit: str | None = None
    scale: int | None = None
    inner: tuple[tuple[str, "Encoding"], ...] = ()


def raw_type(how: Encoding, target: SparkType) -> SparkType:
    """The type that the JSON parser reads for a value of this encoding."""
    match how.kind:
        case "plain":
            return target
        case "days" | "units":
            return "long"
        case "double":
            return "double"
        case "variable":
            return {"type": "struct", "fields": [field("scale", "integer"), field("value", "string")]}
        case "array" | "map" | "struct":
            return _nested_raw(how, target)
        case _:
            return "string"


def read_as_text(columns: Columns, how: Mapping[str, Encoding]) -> list[str]:
    """The columns in which the parser reads some values as text, and none as a number with a fraction."""
    read = {name: _leaves(raw_type(how[name], column["type"])) for name, column in columns.items()}
    return [name for name, kinds in read.items() if "string" in kinds and not any(map(_has_fraction, kinds))]


def _leaves(kind: SparkType) -> list[str]:
    if isinstance(kind, str):
        return [kind]
    inner = [kind[part] for part in ("elementType", "valueType") if part in kind]
    return [leaf for one in (*inner, *(f["type"] for f in kind.get("fields", ()))) for leaf in _leaves(one)]


def _has_fraction(kind: str) -> bool:
    return kind in ("float", "double") or kind.startswith("decimal")


def _nested_raw(how: Encoding, target: SparkType) -> SparkType:
    assert isinstance(target, dict)
    inner = dict(how.inner)
    if how.kind == "array":
        return {**target, "elementType": raw_type(inner[""], target["elementType"])}
    if how.kind == "map":
        return {**target, "valueType": raw_type(inner[""], target["valueType"])}
    return {**target, "fields": [{**f, "type": raw_type(inner[f["name"]], f["type"])} for f in target["fields"]]}


def convert(raw: Column, how: Encoding, target: SparkType, named: Named) -> Column:
    """The raw value converted to the target. Raises, when evaluated, for one that would not be exact."""
    match how.kind:
        case "plain":
            return raw
        case "days":
            return exact.of_days(raw, named)
        case "units":
            return exact.of_units(raw, how.unit or "us", target, named)
        case "instant":
            return _instant(raw, how.unit, target, named)
        case "unscaled":
            if how.scale is None:
                return exact.of_unscaled(raw, exact.decimal_of(str(target))[1], target, named, _NO_SCALE)
            return exact.of_unscaled(raw, how.scale, target, named)
        case "variable":
            return exact.of_unscaled(raw["value"], raw["scale"], target, named)
        case "double":
            return exact.of_double(raw, target, named)
        case "array" | "map" | "struct":
            return _nested(raw, how, target, named)
        case _:
            return exact.of_text(raw, target, named)


def _instant(raw: Column, unit: str | None, target: SparkType, named: Named) -> Column:
    if unit is None:
        number = exact.failing(
            named,
            "a numeric timestamp of unknown unit",
            raw,
            in_config('set upstream.changes.timestamps = "ms", or "us", or "ns"'),
        )
    else:
        number = exact.of_units(raw.try_cast("bigint"), unit, target, named)
    return F.when(raw.rlike(r"^-?[0-9]+$"), number).otherwise(exact.of_text(raw, target, named))


def _nested(raw: Column, how: Encoding, target: SparkType, named: Named) -> Column:
    assert isinstance(target, dict)
    if _all_plain(how):
        return raw
    inner = dict(how.inner)
    if how.kind == "array":
        return F.transform(raw, lambda x: convert(x, inner[""], target["elementType"], named.inner("element")))
    if how.kind == "map":
        return F.transform_values(
            raw, lambda _, x: convert(x, inner[""], target["valueType"], named.inner("value"))
        )
    fields = [
        convert(raw.getField(f["name"]), inner[f["name"]], f["type"], named.inner(f["name"])).alias(f["name"])
        for f in target["fields"]
    ]
    return F.when(raw.isNotNull(), F.struct(*fields))


def _all_plain(how: Encoding) -> bool:
    return how.kind == "plain" or (bool(how.inner) and all(_all_plain(e) for _, e in how.inner))


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
        case "double" if exact.decimal_of(target)[0] <= exact.DOUBLE_DIGITS:
            return Encoding("double")
        case "double":
            raise Unsupported(
                f"a double does not keep every {shown(target)}: at most {exact.DOUBLE_DIGITS} digits are exact"
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
