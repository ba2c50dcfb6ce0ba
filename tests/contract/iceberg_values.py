"""A column of each type that an Iceberg table can store, with edge values."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from backfill_cli.model.schema import SparkType, field

STRUCT: SparkType = {"type": "struct", "fields": [field("x y", "integer"), field("z", "timestamp_ntz")]}
ARRAY: SparkType = {"type": "array", "elementType": "string", "containsNull": True}
MAP: SparkType = {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True}
MOMENT = datetime(1582, 10, 4, 1, 2, 3, 456789)
VALUES: dict[str, tuple[SparkType, Any, tuple[Any, Any]]] = {
    "id": ("long", pa.int64(), (0, 1)),
    "tiny": ("byte", pa.int8(), (-128, None)),
    "small": ("short", pa.int16(), (-32768, 32767)),
    "real": ("float", pa.float32(), (float("nan"), -0.0)),
    "double": ("double", pa.float64(), (-0.0, float("-inf"))),
    "money": (
        "decimal(38,10)",
        pa.decimal128(38, 10),
        (Decimal("-9999999999999999999999999999.0000000001"), None),
    ),
    "a.b `c` é": ("string", pa.string(), ("", "\u0000 '\\ \U0001f600")),
    "raw": ("binary", pa.binary(), (b"", b"\x00\xff")),
    "day": ("date", pa.date32(), (date(1, 1, 1), date(9999, 12, 31))),
    "local": ("timestamp_ntz", pa.timestamp("us"), (MOMENT, None)),
    "at": ("timestamp", pa.timestamp("us", "UTC"), (MOMENT.replace(tzinfo=ZoneInfo("UTC")), None)),
    "yes": ("boolean", pa.bool_(), (False, None)),
    "list": (ARRAY, pa.list_(pa.string()), ([], ["", None])),
    "map": (MAP, pa.map_(pa.string(), pa.float64()), ([], [("", None)])),
    "in": (
        STRUCT,
        pa.struct([("x y", pa.int32()), ("z", pa.timestamp("us"))]),
        ({"x y": None, "z": MOMENT}, None),
    ),
}
