"""Debezium's decimals: an integer's bytes in base64 and a scale, against Python's integers and decimals."""

import base64
import binascii
import random
from decimal import Context, Decimal
from typing import Any

import pytest

from backfill_cli.decode import stored, values
from backfill_cli.decode.encodings import Encoding
from backfill_cli.decode.tokens import Number
from backfill_cli.decode.unreadable import Unreadable

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
    if not 1 <= len(raw) <= 16:
        return None
    moved = Decimal(number).scaleb(places - scale, WIDE)
    exact = moved == moved.to_integral_value(context=WIDE) and WIDE.abs(moved) < 10**digits
    return WIDE.scaleb(moved, -places) if exact else None


def texts() -> list[str | None]:
    draw = random.Random(11)
    more = [draw.randint(-(10**size), 10**size) for size in range(1, 40) for _ in range(3)]
    return [None, *NONE, *map(in_base64, [*EDGES, *more])]


def read(token: Any, how: Encoding, kind: str) -> Decimal | None:
    """None for what is refused."""
    try:
        value = values.of_debezium(kind, how)(token)
    except Unreadable:
        return None
    found: Decimal | None = stored.array([value], kind)[0].as_py()
    return found


@pytest.mark.parametrize("kind", [(38, 10), (38, 0), (10, 2)], ids=str)
def test_a_decimal_whose_scale_is_its_own(kind: tuple[int, int]) -> None:
    wrong = []
    for text in texts():
        for scale in SCALES:
            token = {"scale": None if scale is None else Number(scale), "value": text}
            found = read(token, Encoding("variable"), "decimal({},{})".format(*kind))
            if found != (right := expected(text, scale, *kind)):
                wrong.append((text, scale, found, right))
    assert wrong == []


@pytest.mark.parametrize("kind", [(38, 10), (38, 0), (10, 2)], ids=str)
def test_a_decimal_with_the_scale_of_its_column(kind: tuple[int, int]) -> None:
    target = "decimal({},{})".format(*kind)
    found = {text: read(text, Encoding("unscaled"), target) for text in texts()}
    assert found == {text: expected(text, kind[1], *kind) for text in texts()}


@pytest.mark.parametrize(("text", "scale"), [("", 2), ("!", 2), ("AQ==", 2_000_000_000)])
def test_what_is_no_decimal_says_so(text: str, scale: int) -> None:
    of = values.of_debezium("decimal(10,2)", Encoding("variable"))
    with pytest.raises(Unreadable, match="not a decimal of at most 38 digits in base64"):
        of({"scale": Number(scale), "value": text})
