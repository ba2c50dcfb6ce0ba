"""Parquet, value by value, as pyarrow reads it; what each type becomes in DuckDB, by docs/types.md and the
format's own text.

Files of one table have the same columns: by name, whatever their order. No exact rows: a type that
docs/files.md refuses, a time finer than a microsecond, text that is no UTF-8, a column twice.
"""

import io
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from oracle import plain
from oracle.answer import Answer, Refused, Rows
from oracle.readers.cells import Doubt, No

_WHOLE = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "SMALLINT",
    pa.uint16(): "INTEGER",
    pa.uint32(): "BIGINT",
}
_TICKS = {"s": 1_000_000, "ms": 1000, "us": 1}
FIRST, LAST = -62135596800_000_000, 253402300799_999_999
"""Microseconds since 1970 of the years 1 to 9999: beyond, not every client of DuckDB has a value."""


def read(files: Mapping[str, bytes]) -> Answer:
    doubt = Doubt()
    rows: list[plain.Row] = []
    types: dict[str, str] = {}
    for path, content in sorted(files.items()):
        column = ""
        try:
            with pq.ParquetFile(io.BytesIO(content)) as opened:
                leaves = [opened.schema.column(i) for i in range(len(opened.schema.names))]
                stored = {leaf.path: leaf.physical_type for leaf in leaves}
                marks = {leaf.path: str(leaf.converted_type) for leaf in leaves}
                table = opened.read()
            names = table.column_names
            if len({name.lower() for name in names}) < len(names):
                raise No("a column twice, or twice but for its letters")
            told, here = {}, {}
            for column in names:
                if column.lower().startswith("_backfill_"):
                    raise No("a name that is the engine's own")
                int96 = stored.get(column) == "INT96"
                kind, values = table.schema.field(column).type, table.column(column)
                if "INTERVAL" in marks.get(column, ""):
                    raise No("no counterpart of INTERVAL")
                if int96:
                    doubt.reasons.append("INT96")
                told[column] = "TIMESTAMP WITH TIME ZONE" if int96 else of_type(kind, doubt)
                _valid(values)
                read_here = [of_value(value, doubt) for value in values]
                if int96:
                    read_here = [None if one is None else ("at", one[1]) for one in read_here]
                here[column] = read_here
            types = types or told
            rows += [dict(zip(here, one, strict=True)) for one in zip(*here.values(), strict=True)]
        except No as exc:
            return Refused(str(exc), (column,))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as exc:
            return Refused(f"not readable: {exc}", (path.rsplit("/", 1)[-1],))
    return Rows(tuple(rows), tuple(types.items()), str(doubt))


def of_type(kind: pa.DataType, doubt: Doubt) -> str:
    """DuckDB's type of a column."""
    if isinstance(kind, pa.BaseExtensionType):
        doubt.reasons.append(f"{kind.extension_name}, a type of Arrow's own")
        return (
            "UUID" if "uuid" in str(kind) else "JSON" if "json" in str(kind) else of_type(kind.storage_type, doubt)
        )
    if kind in _WHOLE:
        return _WHOLE[kind]
    if pa.types.is_dictionary(kind):
        return of_type(kind.value_type, doubt)
    if pa.types.is_boolean(kind):
        return "BOOLEAN"
    if pa.types.is_float16(kind):
        doubt.reasons.append("half floats")
        return "FLOAT"
    if pa.types.is_floating(kind):
        return "FLOAT" if pa.types.is_float32(kind) else "DOUBLE"
    if pa.types.is_decimal(kind):
        if kind.precision > 38:
            raise No("a decimal of more than 38 digits")
        return f"DECIMAL({kind.precision},{kind.scale})"
    if _is_text(kind):
        return "VARCHAR"
    if _is_bytes(kind):
        return "BLOB"
    if pa.types.is_date(kind):
        return "DATE"
    if pa.types.is_timestamp(kind):
        if kind.unit == "ns":
            doubt.reasons.append("nanoseconds")
        return "TIMESTAMP" if kind.tz is None else "TIMESTAMP WITH TIME ZONE"
    if pa.types.is_map(kind):
        return f"MAP({of_type(kind.key_type, doubt)}, {of_type(kind.item_type, doubt)})"
    if _is_list(kind):
        return of_type(kind.value_type, doubt) + "[]"
    if pa.types.is_struct(kind) and kind.num_fields:
        return f"STRUCT({', '.join(_quoted(field.name) + ' ' + of_type(field.type, doubt) for field in kind)})"
    raise No(f"no counterpart of {kind}")


def of_value(value: pa.Scalar, doubt: Doubt) -> plain.Value:
    kind = value.type
    if not value.is_valid:
        return None
    if isinstance(kind, pa.BaseExtensionType):
        inner = of_value(value.value, doubt)
        return ("uuid", plain.hyphened(inner[1])) if "uuid" in str(kind) else inner
    if pa.types.is_dictionary(kind):
        return of_value(pa.scalar(value.as_py(), kind.value_type), doubt)
    if pa.types.is_integer(kind):
        return ("int", value.as_py())
    if pa.types.is_float16(kind):
        return plain.single(float(value.as_py()))
    if pa.types.is_date(kind):
        days = value.value if pa.types.is_date32(kind) else _whole(value.value, 86_400_000)
        if not FIRST <= days * 86_400_000_000 <= LAST:
            doubt.reasons.append("a year before 1 or after 9999")
        if not -5_877_641 <= days <= 2_147_483_646:
            raise No("beyond DATE")
        return ("day", days)
    if pa.types.is_timestamp(kind):
        micros = _whole(value.value, 1000) if kind.unit == "ns" else value.value * _TICKS[kind.unit]
        if not FIRST <= micros <= LAST:
            doubt.reasons.append("a year before 1 or after 9999")
        if not -(2**63) < micros < 2**63 - 1:
            raise No("beyond TIMESTAMP")
        return ("wall" if kind.tz is None else "at", micros)
    if pa.types.is_map(kind):
        pairs = [(of_value(one["key"], doubt), of_value(one["value"], doubt)) for one in value.values]
        if len({repr(key) for key, _ in pairs}) < len(pairs):
            doubt.reasons.append("a key twice in a map")
        return plain.mapped(pairs)
    if _is_list(kind):
        return ("list", tuple(of_value(one, doubt) for one in value.values))
    if pa.types.is_struct(kind):
        return ("struct", tuple((field.name, of_value(value[field.name], doubt)) for field in kind))
    return plain.of_arrow(value)


def _valid(values: pa.ChunkedArray) -> None:
    """Raises No where text is no UTF-8, at any depth."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as exc:
        raise No(f"no values: {exc}") from None


def _whole(value: int, ticks: int) -> int:
    if value % ticks:
        raise No("finer than its type in DuckDB")
    return value // ticks


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: Any) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
