"""Makes schemas from Parquet footers and DDL without a Spark session; refuses types that are not kept exactly."""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from backfill_cli.errors import BadData
from backfill_cli.formats.frames import struct_type
from backfill_cli.model.schema import Columns, SparkType, decimal_of, field

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_EXACT = {
    "bool": "boolean",
    "int8": "byte",
    "int16": "short",
    "int32": "integer",
    "int64": "long",
    "uint8": "short",
    "uint16": "integer",
    "uint32": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "large_string": "string",
    "string_view": "string",
    "binary": "binary",
    "large_binary": "binary",
    "binary_view": "binary",
    "date32[day]": "date",
}


WIDER = "write the column with a type that holds all its values"


class Unsupported(ValueError):
    """A type that is not kept exactly; the text says which and why."""


def of_footer(path: str, footer: "pq.FileMetaData", by_workers: bool = False) -> Columns:
    """The columns of a Parquet file as they are read.

    by_workers: whether pyarrow can read the file; if not, columns that Spark's own reader cannot read are refused.
    Raises BadData naming file, column and type for a column that would not be kept exactly.
    """
    _refuse_lossy_leaves(path, footer)
    _refuse_foreign_leaves(path, footer, by_workers and calendar_is_plain(footer))
    uuids = {path for path, logical in _foreign_leaves(footer) if logical == "UUID"}
    int96 = any(footer.schema.column(i).physical_type == "INT96" for i in range(footer.num_columns))
    columns: Columns = {}
    for column in footer.schema.to_arrow_schema():
        if column.name in columns:
            raise BadData(f"{path}: duplicate column '{column.name}'", "give one of them another name")
        try:
            if column.name in uuids:
                columns[column.name] = field(column.name, "string", {"logical": "uuid"})
            else:
                columns[column.name] = field(column.name, _of_arrow(column.type, int96), _logical(column.type))
        except Unsupported as exc:
            raise BadData(f"{path}: column '{column.name}': {exc}", WIDER) from exc
    return columns


def arrow_schema(columns: Columns) -> "pa.Schema":
    """The columns as PySpark's `to_arrow_schema` has them, without loading PySpark, for all but rare types."""
    import pyarrow as pa

    try:
        return pa.schema([_field(name, one["type"], one["nullable"]) for name, one in columns.items()])
    except KeyError:
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(struct_type(columns))


def _field(name: str, kind: SparkType, nullable: bool) -> "pa.Field":
    """Raises KeyError for a rare type."""
    import pyarrow as pa

    if isinstance(kind, str):
        return pa.field(name, arrow_type(kind), nullable)
    if kind["type"] == "array":
        return pa.field(name, pa.list_(_field("element", kind["elementType"], kind["containsNull"])), nullable)
    if kind["type"] == "map":
        key, value = _field("key", kind["keyType"], False), kind["valueContainsNull"]
        return pa.field(name, pa.map_(key, _field("value", kind["valueType"], value)), nullable)
    if kind["type"] != "struct":
        raise KeyError(kind["type"])
    fields = [_field(one["name"], one["type"], one["nullable"]) for one in kind["fields"]]
    return pa.field(name, pa.struct(fields), nullable)


def leaf_of(schema: "pa.Schema", name: str) -> int | None:
    """The index of a plain top-level column among a file's leaves; None if there is none, or it is nested.

    Not by the leaves' paths: a field `b` of a column `a` has the path of a column `a.b`.
    """
    at = 0
    for one in schema:
        leaves = _leaves(one.type)
        if one.name == name:
            return at if leaves == 1 and not one.type.num_fields else None
        at += leaves
    return None


def _leaves(kind: "pa.DataType") -> int:
    import pyarrow as pa

    if pa.types.is_map(kind):
        return _leaves(kind.key_type) + _leaves(kind.item_type)
    inner = [kind.field(at).type for at in range(kind.num_fields)]
    return sum(map(_leaves, inner)) if inner else 1


def written_by_spark(footer: "pq.FileMetaData") -> bool:
    return b"org.apache.spark.version" in (footer.metadata or {})


def calendar_is_plain(footer: "pq.FileMetaData") -> bool:
    """Whether dates need no rebasing: no old Spark wrote the file with the calendar used before 1582."""
    keys = footer.metadata or {}
    if any(key.startswith(b"org.apache.spark.legacy") for key in keys):
        return False
    version = keys.get(b"org.apache.spark.version")
    if version is None:
        return b"org.apache.spark.sql.parquet.row.metadata" not in keys
    int96 = any(footer.schema.column(i).physical_type == "INT96" for i in range(footer.num_columns))
    return bool(version >= (b"3.1.0" if int96 else b"3.0.0"))  # compared as text, as Spark does


def _refuse_lossy_leaves(path: str, footer: "pq.FileMetaData") -> None:
    for index in range(footer.num_columns):
        leaf = footer.schema.column(index)
        logical = str(leaf.logical_type)
        if leaf.physical_type == "INT96" and not written_by_spark(footer):
            raise BadData(
                f"{path}: column '{leaf.path}': an INT96 timestamp counts nanoseconds, only microseconds are kept",
                "write the column as a timestamp in microseconds",
            )
        if logical == "Interval":
            raise BadData(f"{path}: column '{leaf.path}': type INTERVAL is not kept exactly", WIDER)


def spark_reads(footer: "pq.FileMetaData") -> bool:
    """Whether Spark's own reader can read all columns; if not, pyarrow reads them."""
    return not _foreign_leaves(footer)


def _foreign_leaves(footer: "pq.FileMetaData") -> list[tuple[str, str]]:
    """(path, logical type) of the columns that Spark's reader refuses, or reads as bytes."""
    leaves = (footer.schema.column(i) for i in range(footer.num_columns))
    told = ((leaf.path, str(leaf.logical_type)) for leaf in leaves)
    return [
        (path, logical)
        for path, logical in told
        if logical == "UUID" or logical.startswith("Geo") or ("Timestamp" in logical and "nanosec" in logical)
    ]


def _refuse_foreign_leaves(path: str, footer: "pq.FileMetaData", by_workers: bool) -> None:
    columns = set(footer.schema.to_arrow_schema().names)
    for leaf, logical in _foreign_leaves(footer):
        if by_workers and (logical != "UUID" or leaf in columns):
            continue
        hint = WIDER
        if logical == "UUID":
            what, hint = "a UUID inside another value, or in a change file, is not read", "write it as a string"
        elif logical.startswith("Geo"):
            what = f"type {logical} is not supported"
        else:
            what = "a timestamp in nanoseconds would be cut to microseconds"
            hint = "write the column as a timestamp in microseconds"
        raise BadData(f"{path}: column '{leaf}': {what}", hint)


def _logical(kind: "pa.DataType") -> dict[str, str]:
    return {"logical": "json"} if getattr(kind, "extension_name", "") == "arrow.json" else {}


def _of_arrow(kind: "pa.DataType", int96: bool) -> SparkType:
    """int96: whether a type in nanoseconds is Spark's INT96, an instant."""
    import pyarrow as pa

    known = _EXACT.get(str(kind))
    if known:
        return known
    if getattr(kind, "extension_name", "") == "arrow.json":
        return "string"
    if pa.types.is_dictionary(kind):
        return _of_arrow(kind.value_type, int96)
    if pa.types.is_decimal(kind) and kind.precision <= 38 and kind.scale >= 0:
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz or (int96 and kind.unit == "ns") else "timestamp_ntz"
    if pa.types.is_date64(kind):
        return "date"
    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return {"type": "array", "elementType": _of_arrow(kind.value_type, int96), "containsNull": True}
    if pa.types.is_map(kind):
        return {
            "type": "map",
            "keyType": _of_arrow(kind.key_type, int96),
            "valueType": _of_arrow(kind.item_type, int96),
            "valueContainsNull": True,
        }
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [field(f.name, _of_arrow(f.type, int96)) for f in kind]}
    raise Unsupported(f"type {kind} is not kept exactly")


_DDL = {
    "BOOLEAN": "boolean",
    "TINYINT": "byte",
    "SMALLINT": "short",
    "INT": "integer",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "TEXT": "string",
    "VARCHAR": "string",
    "BINARY": "binary",
    "VARBINARY": "binary",
    "DATE": "date",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMPLTZ": "timestamp",
    "TIMESTAMP": "timestamp_ntz",
    "TIMESTAMPNTZ": "timestamp_ntz",
}


@cache
def _simple() -> "dict[str, pa.DataType]":
    import pyarrow as pa

    return {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }


def arrow_type(kind: SparkType) -> "pa.DataType":
    """The Arrow type of a column's Spark type."""
    import pyarrow as pa

    if isinstance(kind, str):
        return pa.decimal128(*decimal_of(kind)) if kind.startswith("decimal") else _simple()[kind]
    if kind["type"] == "array":
        return pa.list_(pa.field("element", arrow_type(kind["elementType"])))
    if kind["type"] == "map":
        return pa.map_(arrow_type(kind["keyType"]), arrow_type(kind["valueType"]))
    return pa.struct([pa.field(one["name"], arrow_type(one["type"])) for one in kind["fields"]])


def of_ddl(ddl: str) -> Columns:
    """The columns of Spark DDL: `id BIGINT, tags ARRAY<STRING>`.

    Raises Unsupported for invalid DDL, an unknown type or a duplicate name.
    """
    import sqlglot
    from sqlglot import exp

    try:
        tree = sqlglot.parse_one(f"CREATE TABLE t ({ddl})", dialect="spark")
    except sqlglot.errors.SqlglotError as exc:
        raise Unsupported(f"not a list of columns in Spark DDL: {ddl!r}") from exc
    defs = tree.this.expressions if isinstance(tree.this, exp.Schema) else []
    if not defs or not all(isinstance(d, exp.ColumnDef) and d.kind is not None for d in defs):
        raise Unsupported(f"not a list of columns in Spark DDL: {ddl!r}")
    columns: Columns = {}
    for definition in defs:
        if definition.name in columns:
            raise Unsupported(f"duplicate column '{definition.name}' in {ddl!r}")
        columns[definition.name] = field(definition.name, _of_sql(definition.kind))
    return columns


def _of_sql(kind: Any) -> SparkType:
    from sqlglot import exp

    name: str = kind.this.value if isinstance(kind.this, exp.DataType.Type) else str(kind.this)
    inner: Sequence[Any] = kind.expressions
    if name in _DDL:
        return _DDL[name]
    if name == "DECIMAL":
        precision, scale = ([int(p.name) for p in inner] + [10, 0][len(inner) :])[:2]
        if not 0 <= scale <= precision <= 38:
            raise Unsupported(f"decimal({precision},{scale}) is not kept exactly: at most 38 digits")
        return f"decimal({precision},{scale})"
    if name in ("ARRAY", "LIST") and len(inner) == 1:
        return {"type": "array", "elementType": _of_sql(inner[0]), "containsNull": True}
    if name == "MAP" and len(inner) == 2:
        return {
            "type": "map",
            "keyType": _of_sql(inner[0]),
            "valueType": _of_sql(inner[1]),
            "valueContainsNull": True,
        }
    if name == "STRUCT" and all(isinstance(f, exp.ColumnDef) for f in inner):
        return {"type": "struct", "fields": [field(f.name, _of_sql(f.kind)) for f in inner]}
    raise Unsupported(f"type {kind.sql(dialect='spark')} is not known")
