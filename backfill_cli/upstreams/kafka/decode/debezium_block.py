"""Debezium's schema block in records: the columns it describes, and whether a record's block agrees with them.

The blocks of a few records are read when a job begins. What they say about a column (`connect` in its metadata)
decides how it is read; a record whose block says something else is a fault, as its values would be misread.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import own
from backfill_cli.errors import BadData
from backfill_cli.formats.debezium_order import Sure
from backfill_cli.formats.debezium_types import DECIMAL, Connect, encoding, forms, own_type
from backfill_cli.formats.frames import struct_type
from backfill_cli.formats.schemas import Unsupported
from backfill_cli.formats.values import Encoding, raw_type, schemaless
from backfill_cli.model.schema import Columns, SparkType, field, shown
from backfill_cli.upstreams.kafka.decode.columns_of_row import IN_BLOCK, new_column
from backfill_cli.upstreams.kafka.options import DECLARE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_WHOLE, _WIDE = ("int8", "int16", "int32", "int64"), ("byte", "short", "integer", "long")


def envelope_of(value: bytes | None) -> tuple[Mapping[str, Any], Mapping[str, Any] | None] | None:
    """(envelope, schema block or None) of a record; None if it is not a Debezium envelope."""
    try:
        told = json.loads(value or b"null")
    except ValueError:
        return None
    block = None
    if isinstance(told, dict) and "payload" in told and "op" not in told:
        told, block = told["payload"], told.get("schema")
    if not isinstance(told, dict) or "op" not in told:
        return None
    return told, block if isinstance(block, dict) and "fields" in block else None


def row_fields(block: Mapping[str, Any]) -> dict[str, Connect]:
    """What a block says about each column of the row."""
    for part in block["fields"]:
        if part.get("field") == "after":
            return {one["field"]: meaning(one) for one in part.get("fields", ())}
    return {}


def meaning(told: Connect) -> dict[str, Any]:
    """A field without what does not describe its type: defaults, docs, whether it is nullable."""
    kept: dict[str, Any] = {k: told[k] for k in ("field", "type", "name") if told.get(k) is not None}
    if "scale" in (told.get("parameters") or {}):
        kept["parameters"] = {
            k: v for k, v in told["parameters"].items() if k in ("scale", "connect.decimal.precision")
        }
    for part in ("items", "keys", "values"):
        if isinstance(told.get(part), dict):
            kept[part] = meaning(told[part])
    if "fields" in told:
        kept["fields"] = [meaning(one) for one in told["fields"]]
    return kept


def together(topic: str, blocks: Iterable[Mapping[str, Any]]) -> dict[str, Connect]:
    """The columns of all blocks. Raises BadData for one that changes its type between them."""
    found: dict[str, Connect] = {}
    for block in blocks:
        for name, told in row_fields(block).items():
            if _kind(found.setdefault(name, told)) != _kind(told):
                both = f"{_said(found[name])} and {_said(told)}"
                raise BadData(
                    f"topic '{topic}': column '{name}' changes its type: the schema blocks say {both}",
                    "fill a new topic by a new snapshot of Debezium, whose records have one type",
                )
    return found


def columns_of(topic: str, told: Mapping[str, Connect]) -> Columns:
    """The columns that the blocks describe. Raises BadData for one whose block gives no exact type."""
    columns: Columns = {}
    for name, one in told.items():
        try:
            kind, metadata = own_type(one)
        except Unsupported as exc:
            raise BadData(f"topic '{topic}': column '{name}': {exc}", DECLARE) from exc
        columns[name] = field(name, kind, metadata)
    return columns


def with_told(columns: Columns, told: Mapping[str, Connect]) -> Columns:
    """The columns, each with what the blocks say about it."""
    return {
        name: {**c, "metadata": {**c["metadata"], "connect": told[name]}} if name in told else c
        for name, c in columns.items()
    }


def told_of(column: Mapping[str, Any]) -> Connect | None:
    found: Connect | None = column["metadata"].get("connect")
    return found


def encoding_of(told: Connect, target: SparkType) -> Encoding:
    """How to read a column that a block describes. Raises Unsupported if it does not fit the type.

    A number or a text with a logical type may be kept as the number or the text that it is.
    """
    try:
        return encoding(told, target)
    except Unsupported:
        kind = str(told.get("type"))
        if isinstance(target, str) and target.startswith("decimal") and kind == "double":
            return schemaless(target, None, "double")
        if kind in (*_WHOLE, "boolean", "string") and target == "string":
            return Encoding("plain")
        if kind in _WHOLE and target in _WIDE[_WHOLE.index(kind) :]:
            return Encoding("plain")
        raise


def with_block(frame: "DataFrame", text: str, columns: Columns) -> "DataFrame":
    """The frame with what `fault` needs: `own.BLOCK`, what the schema block says about the row; NULL without one.

    text: the column that holds the block's JSON.
    """
    from pyspark.sql import functions as F

    depth = 1 + max(_depth(column["type"]) for column in columns.values())
    shape = struct_type({"fields": field("fields", _array(_field(depth)))})
    parts = F.filter(F.from_json(text, shape)["fields"], lambda one: one["field"] == "after")
    frame = frame.withColumn(own.FIELDS, F.get(parts, F.lit(0))["fields"])
    mine = [F.get(F.filter(own.FIELDS, _named(name)), F.lit(0)).alias(str(i)) for i, name in enumerate(columns)]
    names = F.transform(own.FIELDS, lambda one: one["field"]).alias("names")
    return frame.withColumn(own.BLOCK, F.when(F.col(text).isNotNull(), F.struct(names, *mine)))


def fault(columns: Columns, how: Mapping[str, Encoding], others: frozenset[str] | None) -> "Column":
    """How a record's block differs from how the record is read; NULL for no difference, and without a block.

    others: the columns that the table may have besides these; any other is a fault. None: any.
    """
    from pyspark.sql import functions as F

    block, faults = F.col(own.BLOCK), []
    for i, (name, column) in enumerate(columns.items()):
        mine = block[str(i)]
        said = F.concat_ws(" ", mine["type"], mine["name"], mine["parameters"]["scale"])
        text = F.concat(F.lit(f"column '{name}': its schema block says "), said, F.lit(", but it is read as "))
        other = mine.isNotNull() & ~_agrees(mine, how[name], column["type"])
        faults.append(F.when(other, F.concat(text, F.lit(_shown(column, how[name])))))
        if told_of(column) is None:
            faults.append(F.when(mine.isNull(), F.lit(f"column '{name}' is not {IN_BLOCK}")))
    if others is not None:
        faults.append(new_column(block["names"], columns, others, IN_BLOCK))
    return F.when(block.isNotNull(), F.coalesce(*faults))


def sure(columns: Columns, how: Mapping[str, Encoding]) -> Sure:
    """By a record's block: see debezium_order, and there `blanks`, which says the same of a parsed one."""
    from pyspark.sql import functions as F

    place = {name: str(i) for i, name in enumerate(columns)}

    def is_sure(name: str, raw: "Column") -> "Column":
        told = F.col(own.BLOCK)[place[name]]
        kind = str(raw_type(how[name], columns[name]["type"]))
        zero = F.when(told["type"].isin("string", "bytes"), "").otherwise("0")
        blank = F.when(told["default"].isNotNull(), told["default"]).when(told["name"].isNull(), zero)
        nullable = told["default"].isNull() & (told["optional"] == "true")
        none = F.when(told["optional"].isNotNull() | told["default"].isNotNull(), blank).try_cast(kind)
        return F.coalesce(nullable | (raw != none), F.lit(False))

    return is_sure


def _field(depth: int) -> SparkType:
    """A field of a block as `from_json` reads it."""
    scale: SparkType = {"type": "struct", "fields": [field("scale", "string")]}
    parts = [
        field("field", "string"),
        field("type", "string"),
        field("name", "string"),
        field("default", "string"),
        field("optional", "string"),
        field("parameters", scale),
    ]
    if depth > 1:
        inner = _field(depth - 1)
        parts += [field("items", inner), field("values", inner), field("fields", _array(inner))]
    return {"type": "struct", "fields": parts}


def _array(element: SparkType) -> SparkType:
    return {"type": "array", "elementType": element, "containsNull": True}


def _depth(kind: SparkType) -> int:
    if isinstance(kind, str):
        return 1
    inner = [kind.get("elementType"), kind.get("valueType"), *(f["type"] for f in kind.get("fields", ()))]
    return 1 + max(_depth(part) for part in inner if part is not None)


def _agrees(mine: "Column", how: Encoding, target: SparkType) -> "Column":
    """Whether a block's description of a field agrees with how it is read."""
    from pyspark.sql import functions as F

    kind, name = F.coalesce(mine["type"], F.lit("")), F.coalesce(mine["name"], F.lit(""))
    if isinstance(target, str):
        scale = F.coalesce(mine["parameters"]["scale"], F.lit(""))
        known = ["|".join(form) for form in forms(how, target, encoding_of)]
        # a logical name of such a type says nothing about how it is written
        free = kind.isin("float", "double", "boolean", "bytes") & (name != DECIMAL)
        return F.concat_ws("|", kind, F.when(free, "").otherwise(name), scale).isin(known)
    inner = dict(how.inner)
    if target["type"] == "array":
        return (kind == "array") & _agrees(mine["items"], inner[""], target["elementType"])
    if target["type"] == "map":
        return (kind == "map") & _agrees(mine["values"], inner[""], target["valueType"])
    same = kind == "struct"
    for one in target["fields"]:
        part = F.get(F.filter(mine["fields"], _named(one["name"])), F.lit(0))
        same &= part.isNotNull() & _agrees(part, inner[one["name"]], one["type"])
    return F.coalesce(same, F.lit(False))


def _named(name: str) -> "Callable[[Column], Column]":
    return lambda one: one["field"] == name


def _kind(told: Connect) -> tuple[Any, ...]:
    """What must be the same in all records."""
    scale = (told.get("parameters") or {}).get("scale")
    inner = tuple(_kind(told[part]) for part in ("items", "values") if part in told)
    parts: Sequence[Connect] = told.get("fields", ())
    return told.get("type"), told.get("name"), scale, inner, tuple((p["field"], _kind(p)) for p in parts)


def _said(told: Connect) -> str:
    return " ".join(str(part) for part in _kind(told)[:3] if part is not None)


def _shown(column: Mapping[str, Any], how: Encoding) -> str:
    told = told_of(column)
    if told is not None:
        return _said(told)
    return " ".join(
        str(part) for part in (shown(column["type"]), how.kind, how.unit, how.scale) if part is not None
    )
