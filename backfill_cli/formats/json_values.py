"""Converts JSON text to typed columns by Spark expressions: exactly, or with a fault that names the column.

`from_json` alone would round decimals to their scale, read 200 as the TINYINT -56, rewrite numbers in a STRING
column, make "" a row of NULLs, read 1e400 as infinity, and ignore the second of two objects. So decimals are read
wider than their column and compared, and text is read as VARIANT, which keeps the original.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import or_
from typing import Any

from backfill_cli.contracts import own
from backfill_cli.formats.exact import QUIET, article, decimal_of, of_text, once
from backfill_cli.formats.frames import struct_type
from backfill_cli.formats.json_text import is_whole_object, why_not_whole
from backfill_cli.model.balanced import balanced
from backfill_cli.model.schema import Columns, SparkType, field, schema_text, shown
from backfill_cli.spark.api import Column, DataFrame, F
from backfill_cli.spark.names import quoted
from backfill_cli.spark.reuse import reused

_WHOLE = ("byte", "short", "integer")

_ENDLESS = r'[:\[,]\s*"?[+-]?[Ii][Nn][Ff]'
_TOO_LARGE = r"[0-9][.]?[eE][+]?[0-9]{2}|[0-9]{39}"
"""An infinity as a value; a number that becomes one (with a wide margin: used only if an infinity was read)."""


@dataclass(frozen=True, slots=True)
class JsonColumns:
    """One JSON object as columns.

    fault: STRING, NULL if every column holds exactly the object's value. values: by name, of the column's type;
    meaningless with a fault.
    """

    fault: Column
    values: dict[str, Column]


def with_parsed(frame: DataFrame, text: str, columns: Columns) -> DataFrame:
    """The frame with the columns that `of_parsed` needs, named after `text`, the name of a STRING column."""
    marks, parsed = reused(("parsed", text, schema_text(columns)), lambda: _parsing(text, columns))
    return frame.withColumns(marks).withColumns(parsed)


def _parsing(text: str, columns: Columns) -> tuple[dict[str, Column], dict[str, Column]]:
    """The columns to add first, and those that need them."""
    told = F.col(text)
    least = _least_spare_digits([column["type"] for column in columns.values()])
    long = (
        F.lit(False) if least is None else told.rlike(rf"[0-9](?:[.][0-9]{{{least + 1}}}|[.0-9]*[eE]-[0-9]{{2}})")
    )
    marks = {f"{text}_whole": is_whole_object(told), f"{text}_long": long}
    whole, long = F.col(f"{text}_whole"), F.col(f"{text}_long")
    return marks, {
        f"{text}_wide": _parsed(F.when(whole, told), columns, True),
        f"{text}_exact": _parsed(F.when(whole & long, told), columns, False),
    }


def endless(raw: Column, kind: SparkType) -> Column:
    """Whether a value of this type, which holds floats, is or contains an infinity; never NULL."""
    if isinstance(kind, str):
        found = _infinite(raw) if kind in ("float", "double") else F.lit(False)
    elif kind["type"] == "array":
        found = F.exists(raw, lambda x: endless(x, kind["elementType"]))
    elif kind["type"] == "map":
        found = F.exists(F.map_values(raw), lambda x: endless(x, kind["valueType"]))
    else:
        found = balanced(or_, (endless(raw.getField(f["name"]), f["type"]) for f in kind["fields"]))
    return F.coalesce(found, F.lit(False))


def says_endless(text: str) -> Column:
    """Whether an infinity in an object's columns is one in its text, not a number too large for its column."""
    return _says_endless(F.col(text))


def _says_endless(told: Column) -> Column:
    return told.rlike(_ENDLESS) & ~told.rlike(_TOO_LARGE)


def _infinite(number: Column) -> Column:
    return F.abs(number) == F.lit(float("inf"))


def of_parsed(text: str, columns: Columns) -> JsonColumns:
    """The columns, from what `with_parsed` added."""
    return reused(("values", text, schema_text(columns)), lambda: _of_parsed(text, columns))


def _of_parsed(text: str, columns: Columns) -> JsonColumns:
    told, long, wide, exact = F.col(text), F.col(f"{text}_long"), f"{text}_wide", f"{text}_exact"
    shape = F.lit("not a JSON object of the columns " + _listed(columns))
    faults = [
        F.when(~F.col(f"{text}_whole"), why_not_whole(told)),
        F.when(F.col(f"{wide}.{own.BROKEN}").isNotNull(), shape),
        F.when(F.col(f"{exact}.{own.BROKEN}").isNotNull(), shape),
    ]
    values = {}
    for name, column in columns.items():
        kind = column["type"]
        raw = quoted(name, wide)
        value, bad = _checked(raw, kind, True, told)
        if _least_spare_digits([kind]) is not None:
            raw_long = quoted(name, exact)
            value_long, bad_long = _checked(raw_long, kind, False, told)
            value, bad = F.when(long, value_long).otherwise(value), F.when(long, bad_long).otherwise(bad)
        faults.append(F.when(bad, F.lit(f"column '{name}': not exactly {article(shown(kind))}")))
        values[name] = value
    faults.append(_recased(told, values))
    return JsonColumns(F.when(told.isNotNull(), F.coalesce(*faults)), values)


def _recased(told: Column, values: Mapping[str, Column]) -> Column:
    """The fault of an object with a member whose name differs from a column's only in case: that would be NULL.

    Checked only for objects with a NULL, by searching the text first: a search costs less than parsing again.
    """
    lacking = balanced(or_, (value.isNull() for value in values.values()))
    names = "|".join(re.escape(name) for name in values)
    looks = told.rlike(rf'(?iu)"(?!(?-i:(?:{names})"))(?:{names})"\s*:')
    known, folded = list(values), [name.lower() for name in values]
    keys = F.json_object_keys(F.when(lacking & looks, told))
    odd = F.get(F.filter(keys, lambda key: F.lower(key).isin(folded) & ~key.isin(known)), F.lit(0))
    return F.concat(F.lit("member '"), odd, F.lit("' differs from a column only in case: it would be NULL"))


def _checked(raw: Column, kind: SparkType, wide: bool, told: Column) -> tuple[Column, Column]:
    value = _value(raw, kind, wide, told)
    variants = ("string", "binary") if wide else ("string", "binary", "decimal")
    return value, F.coalesce(lost(raw, value, kind, variants), F.lit(False))


def _parsed(text: Column, columns: Columns, wide: bool) -> Column:
    read = {name: field(name, _read_as(column["type"], wide)) for name, column in columns.items()}
    shape = struct_type({**read, own.BROKEN: field(own.BROKEN, "string")})
    return F.from_json(text, shape, {"columnNameOfCorruptRecord": own.BROKEN, "mode": "PERMISSIVE"})


def _read_as(kind: SparkType, wide: bool) -> SparkType:
    """The type that `from_json` reads for a column. wide: decimals with as many digits as fit, else VARIANT."""
    if isinstance(kind, dict):
        if kind["type"] == "array":
            return {**kind, "elementType": _read_as(kind["elementType"], wide)}
        if kind["type"] == "map":
            return {**kind, "valueType": _read_as(kind["valueType"], wide)}
        return {**kind, "fields": [{**f, "type": _read_as(f["type"], wide)} for f in kind["fields"]]}
    if kind in _WHOLE:
        return "integer"
    if kind.startswith("decimal"):
        return f"decimal(38,{_spare_digits(kind)})" if wide else "variant"
    if kind == "float":
        return "double"
    if kind in ("boolean", "long", "double"):
        return kind
    return "variant" if kind in ("string", "binary") else "string"


def _value(raw: Column, kind: SparkType, wide: bool, told: Column) -> Column:
    """The column's value; NULL if the object's value does not fit exactly."""
    if isinstance(kind, dict):
        return _nested_value(raw, kind, wide, told)
    if kind in _WHOLE:
        return raw.try_cast(kind)
    if kind.startswith("decimal"):
        if not wide:
            return once(_variant_text(raw, told), lambda text: of_text(text, kind, QUIET))
        narrow = raw.try_cast(kind)
        return F.when(narrow == raw, narrow)
    if kind in ("double", "float"):
        narrow = raw.cast(kind)
        fits = ~_infinite(narrow) | _says_endless(told)
        return F.when(fits if kind == "double" else fits & ~_rounded_twice(raw, narrow, told), narrow)
    if kind in ("boolean", "long"):
        return raw
    if kind == "binary":  # a number or a literal is not base64
        return of_text(F.when(F.schema_of_variant(raw) == "STRING", raw.cast("string")), kind, QUIET)
    return _variant_text(raw, told, trailing=True) if kind == "string" else of_text(raw, kind, QUIET)


def _rounded_twice(raw: Column, narrow: Column, told: Column) -> Column:
    """Whether a FLOAT may not be the nearest to its number, because its DOUBLE lies halfway between two FLOATs.

    Then another FLOAT lies as far beyond `raw` as `narrow` lies before it. Only numbers of many digits do this.
    """
    twin = raw * 2 - narrow
    return (raw != narrow) & (twin.cast("float") == twin) & told.rlike("[0-9.]{17}")


def _nested_value(raw: Column, kind: dict[str, Any], wide: bool, told: Column) -> Column:
    if kind["type"] == "array":
        return F.transform(raw, lambda x: _value(x, kind["elementType"], wide, told))
    if kind["type"] == "map":
        return F.transform_values(raw, lambda _, x: _value(x, kind["valueType"], wide, told))
    fields = [_value(raw.getField(f["name"]), f["type"], wide, told).alias(f["name"]) for f in kind["fields"]]
    return F.when(raw.isNotNull(), F.struct(*fields))


def _variant_text(raw: Column, told: Column, trailing: bool = False) -> Column:
    """The text of a JSON string, or the JSON of any other token; NULL if a number in it lost digits.

    trailing: zeros at a fraction's end, which VARIANT drops, count as digits.
    """
    kind = F.schema_of_variant(raw)
    lost = kind.contains("DOUBLE")
    if trailing:
        lost |= kind.contains("DECIMAL") & told.rlike(r"[.][0-9]*0(?![0-9])")
    return F.when(~lost, raw.cast("string"))


def lost(raw: Column, value: Column, kind: SparkType, variants: tuple[str, ...] = ()) -> Column:
    """Whether the value lacks something that the object holds, or a map has a duplicate key.

    variants: prefixes of the types that were read as VARIANT.
    """
    if not isinstance(kind, dict):
        # a JSON null is a VARIANT that is not NULL
        there = ~F.is_variant_null(raw) if variants and kind.startswith(variants) else F.lit(True)
        return raw.isNotNull() & value.isNull() & there
    if kind["type"] == "array":
        inner = kind["elementType"]
        return F.exists(F.zip_with(raw, value, lambda r, v: lost(r, v, inner, variants)), lambda x: x)
    if kind["type"] == "map":
        inner = kind["valueType"]
        pairs = F.zip_with(F.map_values(raw), F.map_values(value), lambda r, v: lost(r, v, inner, variants))
        keys = F.map_keys(raw)
        return F.exists(pairs, lambda x: x) | (F.size(F.array_distinct(keys)) < F.size(keys))
    inner = (lost(raw.getField(f["name"]), value.getField(f["name"]), f["type"], variants) for f in kind["fields"])
    return balanced(or_, (F.coalesce(one, F.lit(False)) for one in inner))


def _spare_digits(kind: str) -> int:
    """Digits after the point if a decimal is widened to 38 digits, with its own number before the point."""
    precision, scale = decimal_of(kind)
    return 38 - (precision - scale)


def _least_spare_digits(kinds: Sequence[SparkType]) -> int | None:
    """The fewest spare digits of all decimals in these types; None without a decimal."""
    found = []
    for kind in kinds:
        if isinstance(kind, str):
            found += [_spare_digits(kind)] if kind.startswith("decimal") else []
            continue
        inner = [kind.get("elementType"), kind.get("valueType"), *(f["type"] for f in kind.get("fields", ()))]
        least = _least_spare_digits([i for i in inner if i is not None])
        found += [] if least is None else [least]
    return min(found, default=None)


def _listed(columns: Columns) -> str:
    return ", ".join(f"{name} {shown(column['type'])}" for name, column in columns.items())
