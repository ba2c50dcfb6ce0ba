"""Text as values: whole columns, which Arrow converts, hold what single texts are, and refuse the same."""

from base64 import b64encode
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.decode import stored, texts
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.formats.schemas import arrow_type

ZONES = ["", "Z", "UTC", "+00", "+02:30", "-0130", "+18:00", "+18:01", "+01:02:03", " Z"]
DATES = st.one_of(
    st.dates().map(str), st.sampled_from(["2023-02-29", "0000-01-01", "-0044-03-15", "12024-12-31", "2024-1-1"])
)
TIMES = st.builds(
    "{}{}{}{}".format,
    DATES,
    st.sampled_from([" ", "T"]),
    st.one_of(st.times().map(str), st.sampled_from(["24:00:00", "12:30", "00:00:00.1234560", "00:00:00.1234567"])),
    st.sampled_from(ZONES),
)
NUMBERS = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.from_regex(r"[+-]?[0-9]{0,4}([.][0-9]{0,4}0{0,3})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.floats().map(str),
    st.sampled_from(
        ["nan", "Infinity", "-inf", "1e400", "0x1F", "1_0", "\u0661", " 1", "1\n", "", "-", ".", "9" * 5000]
    ),
)
WORDS = st.sampled_from(["true", "FALSE", "t", "n", "yes", "1", "0", ""])
NUMERIC = ["byte", "short", "integer", "long", "float", "double", "decimal(5,2)", "decimal(2,2)", "decimal(38,0)"]
CASES = [
    *((kind, NUMBERS) for kind in NUMERIC),
    ("boolean", WORDS),
    ("binary", st.one_of(st.binary(max_size=20).map(lambda raw: b64encode(raw).decode()), WORDS)),
    ("date", DATES),
    ("timestamp", st.one_of(TIMES, DATES)),
    ("timestamp_ntz", st.one_of(TIMES, DATES)),
]


@pytest.mark.parametrize(("kind", "values"), CASES, ids=[kind for kind, _ in CASES])
@given(data=st.data())
def test_a_column_holds_what_each_text_is(kind: str, values: st.SearchStrategy[str], data: st.DataObject) -> None:
    told = data.draw(st.lists(st.one_of(st.none(), values), max_size=6))
    column, faults = texts.column(pa.array(told, pa.string()), kind)
    assert column.type == arrow_type(kind)
    for index, text in enumerate(told):
        fault = None
        try:
            wanted = None if text is None else texts.of_text(text, kind)
        except Unreadable as error:
            wanted, fault = None, error.args[0]
        assert faults.get(index) == fault
        assert same(column[index], stored.array([wanted], kind)[0])


def same(one: Any, other: Any) -> bool:
    """Also for NaN, which is not equal to itself."""
    return bool(one.equals(other)) or str(one) == str(other) == "nan"


@given(number=st.decimals(allow_nan=False, allow_infinity=False, places=3), scale=st.integers(0, 4))
def test_a_decimal_keeps_all_its_digits_or_is_refused(number: Decimal, scale: int) -> None:
    exact = number.quantize(Decimal(1).scaleb(-scale)) == number if abs(number) < 10**20 else False
    try:
        found = texts.of_text(f"{number:f}", f"decimal(24,{scale})")
    except Unreadable:
        assert not exact or abs(number) >= 10 ** (24 - scale)
        return
    assert Decimal(found).scaleb(-scale) == number


def test_one_odd_text_leaves_the_others_to_arrow() -> None:
    """A text that Arrow refuses although it looks as usual."""
    told = ["2024-02-28"] * 500 + ["2023-02-29", "12024-01-01"] + ["2024-02-28"] * 500
    column, faults = texts.column(pa.array(told), "date")
    assert faults == {500: "not exactly a date: 2023-02-29"}
    assert column.null_count == 1
    assert column.cast(pa.int32())[501].as_py() == texts.of_text("12024-01-01", "date")
