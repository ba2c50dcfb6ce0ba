"""What the oracle knows by itself is right: cases from the formats' definitions, worked out by hand."""

import math
import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle import ddl, plain
from oracle.answer import Refused, Rows
from oracle.readers import cells, json_lines


@given(st.decimals(allow_nan=False, allow_infinity=False) | st.floats(width=32, allow_nan=False).map(Decimal))
def test_a_float_is_rounded_once(value: Decimal) -> None:
    if abs(value) == Decimal("Infinity") or abs(value.adjusted()) > 60:
        return
    found = cells.to_single(value)
    if found is None:
        assert abs(value) > Decimal("3.4e38")
        return
    assert struct.unpack(">f", struct.pack(">f", found))[0] == found
    here = abs(Decimal(found) - value)
    for towards in (math.inf, -math.inf):
        step = math.ulp(found) * 2**29 if found else 2.0**-149
        assert here <= abs(Decimal(found) + Decimal(math.copysign(step, towards)) - value)


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ('{"id": 1, "v": 200}', "TINYINT"),
        ('{"id": 1, "v": 1e400}', "DOUBLE"),
        ('{"id": 1, "v": 1e39}', "FLOAT"),
        ('{"id": 1, "v": 1.111}', "DECIMAL(4,2)"),
        ('{"id": 1, "v": "\\ud800"}', "STRING"),
        ('{"id": 1, "v": "2026-02-29"}', "DATE"),
        ('{"id": 1, "v": "2026-01-01T00:00:00.0000001"}', "TIMESTAMP"),
        ('{"id": 1, "v": "2026-01-01T00:00:00Z"}', "TIMESTAMP_NTZ"),
        ('{"id": 1, "v": 1} {"id": 2, "v": 1}', "INT"),
        ('{"id": 1, "w": 1}', "INT"),
        ('{"id": 1, "v": 1', "INT"),
        ("7", "INT"),
    ],
)
def test_what_has_no_exact_value_is_refused(line: str, column: str) -> None:
    assert isinstance(json_lines.read({"in/1.json": line.encode()}, f"id BIGINT, v {column}"), Refused)


def test_what_json_says_is_what_is_read() -> None:
    schema = "id BIGINT, v STRUCT<a: ARRAY<DECIMAL(4,2)>, `b c`: MAP<STRING, DOUBLE>>, t TIMESTAMP"
    line = '{"id":1,"v":{"a":[1.1,null],"b c":{"k":-0.0}},"t":"1970-01-01T02:00:00.5+02:00"}'
    answer = json_lines.read({"1.json": line.encode()}, schema)
    assert answer == Rows(
        (
            {
                "id": ("int", 1),
                "v": (
                    "struct",
                    (
                        ("a", ("list", (("dec", "1.10"), None))),
                        ("b c", ("map", ((("text", "k"), ("f8", "8000000000000000")),))),
                    ),
                ),
                "t": ("at", 500_000),
            },
        ),
        (
            ("id", "BIGINT"),
            ("v", 'STRUCT("a" DECIMAL(4,2)[], "b c" MAP(VARCHAR, DOUBLE))'),
            ("t", "TIMESTAMP WITH TIME ZONE"),
        ),
    )


@pytest.mark.parametrize(
    ("value", "scale", "text"),
    [("1.5", 3, "1.500"), ("-0.001", 3, "-0.001"), ("-0.0", 1, "0.0"), ("12E3", 0, "12000"), ("1.500", 1, "1.5")],
)
def test_decimals_keep_their_scale(value: str, scale: int, text: str) -> None:
    assert plain.decimal(Decimal(value), scale) == ("dec", text)


def test_a_schema_is_read_with_its_nesting() -> None:
    found = ddl.columns("id BIGINT, `a b` ARRAY<STRUCT<x: INT, y: MAP<STRING, DECIMAL(5,2)>>>, d DECIMAL(9)")
    assert [kind.duckdb for kind in found.values()] == [
        "BIGINT",
        'STRUCT("x" INTEGER, "y" MAP(VARCHAR, DECIMAL(5,2)))[]',
        "DECIMAL(9,0)",
    ]


@pytest.mark.parametrize(
    ("text", "days"),
    [("1970-01-01", 0), ("10000-01-01", 2932897), ("0000-01-01", -719528), ("-0001-01-01", -719893)],
)
def test_years_beyond_four_digits_are_counted(text: str, days: int) -> None:
    assert cells.day(text, cells.Doubt()) == ("day", days)
