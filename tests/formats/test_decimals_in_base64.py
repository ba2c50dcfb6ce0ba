"""Debezium's decimals: an integer's bytes in base64 and a scale, against Python's integers and decimals."""

import base64
import binascii
import random
from decimal import Context, Decimal
from typing import TYPE_CHECKING

import pytest

from backfill_cli.formats import exact
from backfill_cli.formats.exact import Named
from backfill_cli.formats.values import Encoding, convert
from backfill_cli.spark.failures import from_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WIDE = Context(prec=2_000)
EDGES = [
    0, 1, -1, 255, 256, -128, -129, 2**31, -(2**31), 2**63 - 1, -(2**63), 2**96, -(2**96),
    10**38 - 1, 1 - 10**38, 10**38, -(10**38), 2**127 - 1, -(2**127), 2**127, 10**27, 10**28 - 1, 10**28,
]  # fmt: skip
NONE = ["", "!", "1.234", "AQ==AQ==", base64.b64encode(bytes(17)).decode()]
SCALES = [
    None,
    0,
    1,
    2,
    10,
    11,
    38,
    39,
    60,
    1_000,
    1_001,
    -1,
    -10,
    -28,
    -1_001,
    2_000_000_000,
    2**31 - 1,
    -(2**31),
]


def in_base64(number: int) -> str:
    return base64.b64encode(number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)).decode()


def expected(text: str | None, scale: int | None, digits: int, places: int) -> Decimal | None:
    """The decimal(digits, places), None where there is none."""
    if text is None or scale is None or not -1_000 <= scale <= 1_000:
        return None
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    number = int.from_bytes(raw, "big", signed=True)
    if not 1 <= len(raw) <= 16 or abs(number) >= 10**38:
        return None
    moved = Decimal(number).scaleb(places - scale, WIDE)
    exact = moved == moved.to_integral_value(context=WIDE) and WIDE.abs(moved) < 10**digits
    return WIDE.scaleb(moved, -places) if exact else None


def texts() -> list[str | None]:
    draw = random.Random(11)
    more = [draw.randint(-(10**size), 10**size) for size in range(1, 40) for _ in range(3)]
    return [None, *NONE, *map(in_base64, [*EDGES, *more])]


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Named:
    """What is refused is NULL, so that one job shows which values are."""
    from pyspark.sql import functions as F

    monkeypatch.setattr(exact, "refused", lambda *_: F.lit(None))
    return Named(F.lit("0.json"), "price")


@pytest.mark.parametrize("kind", [(38, 10), (38, 0), (10, 2)], ids=str)
def test_a_decimal_whose_scale_is_its_own(spark: "SparkSession", kind: tuple[int, int], named: Named) -> None:
    from pyspark.sql import functions as F

    pairs = [(text, scale) for text in texts() for scale in SCALES]
    frame = spark.createDataFrame(pairs, "value string, scale int").coalesce(1)
    raw, target = F.struct("scale", "value"), "decimal({},{})".format(*kind)
    found = frame.select(convert(raw, Encoding("variable"), target, named).alias("d")).collect()
    wrong = [
        (p, r.d, expected(*p, *kind)) for p, r in zip(pairs, found, strict=True) if r.d != expected(*p, *kind)
    ]
    assert wrong == []


@pytest.mark.parametrize("kind", [(38, 10), (38, 0), (10, 2)], ids=str)
def test_a_decimal_with_the_scale_of_its_column(
    spark: "SparkSession", kind: tuple[int, int], named: Named
) -> None:
    from pyspark.sql import functions as F

    given = texts()
    frame = spark.createDataFrame([(text,) for text in given], "value string").coalesce(1)
    target = "decimal({},{})".format(*kind)
    found = frame.select(convert(F.col("value"), Encoding("unscaled"), target, named).alias("d")).collect()
    wrong = [(t, r.d) for t, r in zip(given, found, strict=True) if r.d != expected(t, kind[1], *kind)]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "scale"), [("", 2), ("!", 2), (in_base64(10**38), 0), ("AQ==", 2_000_000_000), ("AQ==", None)]
)
def test_what_is_no_decimal_is_refused_by_name(spark: "SparkSession", text: str, scale: int | None) -> None:
    from pyspark.sql import functions as F

    frame = spark.createDataFrame([(text, scale)], "value string, scale int")
    named = Named(F.lit("0.json"), "price")
    value = convert(F.struct("scale", "value"), Encoding("variable"), "decimal(10,2)", named)
    with pytest.raises(Exception, match="price") as caught:
        frame.select(value).collect()
    assert "0.json: column 'price': not a decimal" in str(from_spark(caught.value))
