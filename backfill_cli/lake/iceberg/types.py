"""Iceberg's types as Spark reads them, and the types that Iceberg keeps for a Spark schema."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, FixedType, IcebergType, ListType, MapType, StructType, UUIDType

from backfill_cli.contracts import own
from backfill_cli.errors import BadData, UsageError
from backfill_cli.model.schema import Columns, SparkType, field, fields_of
from backfill_cli.spark.names import as_text, in_select, plain

SIMPLE = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamptz": "timestamp",
    "timestamp": "timestamp_ntz",
}
WIDENED = {"byte": "integer", "short": "integer"}
"""Iceberg has no integer of less than 32 bits: each value is kept, but the column's type is wider."""
METADATA = ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_change_type", "_change_ordinal")
TAKEN = (*METADATA, "_commit_snapshot_id", "_row_id", "_last_updated_sequence_number")
"""Names that Iceberg uses for columns of its own."""

OTHER_TYPE = "use a copy of the table without the column, or change its type"


def columns(table: str, schema: Schema) -> Columns:
    """A table's columns as Spark reads them. Raises BadData for a type that Spark does not read exactly."""
    return {
        one.name: field(one.name, spark_type(table, one.name, one.field_type), _logical(one.field_type))
        for one in schema.fields
    }


def spark_type(table: str, where: str, kind: IcebergType) -> SparkType:
    match kind:
        case DecimalType():
            return f"decimal({kind.precision},{kind.scale})"
        case UUIDType():
            return "string"
        case FixedType():
            return "binary"
        case ListType():
            element = spark_type(table, f"{where}[]", kind.element_type)
            return {"type": "array", "elementType": element, "containsNull": True}
        case MapType():
            key = spark_type(table, f"{where} (map key)", kind.key_type)
            value = spark_type(table, f"{where} (map value)", kind.value_type)
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        case StructType():
            inner = [field(f.name, spark_type(table, f"{where}.{f.name}", f.field_type)) for f in kind.fields]
            return {"type": "struct", "fields": inner}
        case _ if str(kind) in SIMPLE:
            return SIMPLE[str(kind)]
    raise BadData(
        f"table {table!r}, column {where!r}: Spark cannot read Iceberg's type {kind} exactly",
        OTHER_TYPE,
    )


def wanted(table: str, schema: str) -> Columns:
    """The columns of a Spark schema as Iceberg keeps them. Raises BadData for one that it cannot keep."""
    fields = fields_of(schema)
    refuse_names(table, [one["name"] for one in fields])
    own.refuse_fields(f"table {table!r}", fields)
    return {one["name"]: field(one["name"], _kept(table, one["name"], one["type"])) for one in fields}


def _kept(table: str, name: str, kind: Any, within: str = "") -> SparkType:
    """within: follows the column's name where the type is one inside the column's."""
    if isinstance(kind, str):
        if kind in SIMPLE.values() or kind.startswith("decimal("):
            return kind
        if kind.startswith(("char(", "varchar(")):
            return "string"
        if kind in WIDENED:
            return WIDENED[kind]
        raise _refused(table, name, within, kind)
    match kind["type"]:
        case "array":
            return {**kind, "elementType": _kept(table, name, kind["elementType"], f"{within}[]")}
        case "map":
            key = _kept(table, name, kind["keyType"], f"{within} (map key)")
            value = _kept(table, name, kind["valueType"], f"{within} (map value)")
            return {**kind, "keyType": key, "valueType": value}
        case "struct" if kind["fields"]:
            inner = [{**f, "type": _kept(table, name, f["type"], f"{within}.{f['name']}")} for f in kind["fields"]]
            return {**kind, "fields": inner}
        case other:
            raise _refused(table, name, within, "struct without fields" if other == "struct" else other)


def _logical(kind: IcebergType) -> Mapping[str, Any]:
    return {"logical": "uuid"} if str(kind) == "uuid" else {}


def _refused(table: str, name: str, within: str, kind: str) -> BadData:
    return BadData(
        f"table {table!r}, column {name + within!r}: Iceberg has no exact counterpart of Spark's type {kind}",
        as_text(name, kind),
    )


def refuse_names(table: str, names: Sequence[str]) -> None:
    """Raises UsageError for a name that a table of ours cannot have."""
    own.refuse_names(f"table {table!r}", names)
    for name in names:
        if name.lower() in TAKEN:
            raise UsageError(
                f"table {table!r}: a column cannot be called {name!r}, which Iceberg uses for one of its own",
                f"rename it in the transform: {in_select(plain(name), name.lstrip('_'))}",
            )
