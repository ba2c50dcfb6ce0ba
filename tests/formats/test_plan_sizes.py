"""Expressions stay small: one that is used twice is written out twice, and the optimizer, the code generator and
each task work through all of it, whatever the rows.

A decimal in base64 took 544,000 characters once.
"""

import io
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import pytest

from backfill_cli.formats import exact
from backfill_cli.formats.exact import Named
from backfill_cli.formats.values import Encoding, convert, raw_type
from backfill_cli.model.schema import field

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MOST = 12_000
"""Characters of one column's optimized plan; the largest has 7,000."""

ENCODINGS = [
    (Encoding("unscaled"), "decimal(38,10)"),
    (Encoding("variable"), "decimal(10,2)"),
    (Encoding("text"), "decimal(10,2)"),
    (Encoding("double"), "decimal(10,2)"),
    (Encoding("days"), "date"),
    (Encoding("units", unit="ns"), "timestamp_ntz"),
    (Encoding("instant", unit="us"), "timestamp"),
    (Encoding("base64"), "binary"),
]


def optimized(frame: "DataFrame") -> str:
    told = io.StringIO()
    with redirect_stdout(told):
        frame.explain(True)
    return told.getvalue().partition("== Optimized Logical Plan ==")[2].partition("== Physical Plan ==")[0]


@pytest.mark.parametrize(("how", "kind"), ENCODINGS, ids=str)
def test_a_value_of_debezium(spark: "SparkSession", how: Encoding, kind: str) -> None:
    from pyspark.sql import functions as F

    from backfill_cli.formats.frames import struct_type

    rows = spark.createDataFrame([], struct_type({"raw": field("raw", raw_type(how, kind))}))
    named = Named(F.lit("f"), "c")
    size = len(optimized(rows.select(convert(F.col("raw"), how, kind, named).alias("c"))))
    assert 0 < size < MOST


def test_a_value_that_is_bound_is_computed_once(spark: "SparkSession") -> None:
    from pyspark.sql import functions as F

    def doubled(value: "Column") -> "Column":
        return F.concat(value, value)

    value = F.col("s")
    for _ in range(12):
        value = exact.once(value, doubled)
    frame = spark.createDataFrame([("a",)], "s string").select(value.alias("c"))
    assert len(optimized(frame)) < MOST
    assert [len(row.c) for row in frame.collect()] == [4096]
