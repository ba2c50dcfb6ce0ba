"""Parquet files chosen by hand: a value of each type, and what was wrong once or is what people ask about."""

import uuid
from decimal import Decimal
from typing import Any

from oracle.parquet_inputs import EXACT, ParquetFile, ParquetWide, Writer
from oracle.readers import parquet

_NAMES = [
    "a b",
    "a.b",
    "a`b",
    'a"b',
    "ü",
    "ID2",
    "select",
    "_op",
    "_read",
    "_BACKFILL_op",
    "a,b",
    "{x}",
    "x=1",
    "\\",
    "'",
]
_D = Decimal
PLAIN: dict[str, Any] = {
    **{f"{sign}int{bits}": 2 ** (bits - 1) - 1 for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "half": 1.5, "float": 0.5, "double": 0.1, "bool": True, "null": None,
    "string": "x", "large_string": "x", "dictionary": "x",
    "binary": b"\x00", "large_binary": b"\xff", "fixed(4)": b"abcd", "uuid": uuid.UUID(int=5),
    "decimal(9,2)": _D("1234567.89"), "decimal(18,0)": _D(10**18 - 1), "decimal(38,10)": _D("-1.0000000001"),
    "decimal(40,2)": _D("1.50"), "date32": 1, "date64": 86_400_000,
    **{f"timestamp({unit})": -1 for unit in ("s", "ms", "us")}, "timestamp(ns)": -1000,
    **{f"timestamp({unit}, UTC)": -1 for unit in ("ms", "us")}, "timestamp(ns, UTC)": -1000,
    "timestamp(us, Europe/Vienna)": 1,
    "time32": 1, "time64": 1, "duration": 1,
    "list": (_D("1.50"), None), "large_list": (1, None), "list(3)": (1, 2, 3), "list of list": (("x", None), None),
    "map": (("a", 1), ("b", None)), "struct": (1, (("x",), (None,))),
    "list of timestamp(ns)": (1000, None), "struct of uint64": (1,),
}  # fmt: skip
"""A value of each type."""

WIDE_EXAMPLES = [
    ParquetWide(tuple((kind, (PLAIN[kind], None, PLAIN[kind])) for kind in EXACT), writer)
    for writer in (Writer(), Writer("duckdb"))
]
EXAMPLES = [
    *(ParquetFile(kind, (value, value)) for kind, value in PLAIN.items()),
    ParquetFile("timestamp(us)", (1, None), Writer(int96=True)),
    ParquetFile("string", (b"\xff",)),
    ParquetFile("string", ("x",), Writer(codec="brotli")),
    ParquetFile("string", ("x" * 1_100_000, "", None)),
    ParquetFile("timestamp(ms)", (2**62,)),
    ParquetFile("timestamp(ns)", (1, 1000)),
    ParquetFile("timestamp(ns)", (1000, 2000)),
    ParquetFile("timestamp(ns, UTC)", (1000, 2000)),
    ParquetFile("uuid", (uuid.UUID(int=5), None), Writer("duckdb")),
    ParquetFile("uuid", (uuid.UUID(int=5), None)),
    ParquetFile("date32", (2932897,)),
    ParquetFile("date32", (-719163,)),
    ParquetFile("timestamp(us)", (parquet.LAST + 1,)),
    ParquetFile("timestamp(us)", (-3_000_000_000_000_000,), Writer(int96=True)),
    *(ParquetFile("int32", (1, None), name=name) for name in _NAMES),
]
"""Each was wrong once, or is what people ask about."""
