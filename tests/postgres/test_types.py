"""Values of every type through the real server: from ADBC and from text, against Python's reading of its text."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from postgres_database import Database
from typed_columns import by_adbc, column, db, filled, texts

from backfill_cli.errors import BadData
from backfill_cli.upstreams.postgres.types import arrow_type, spark_field
from backfill_cli.upstreams.postgres.values import from_text

__all__ = ["db"]


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def plain(text: str) -> str:
    return text


GOOD: dict[str, tuple[str, Any, list[str | None]]] = {
    # kind: (Spark's type, what Python makes of the server's text, literals)
    "boolean": ("boolean", lambda t: t == "t", ["t", "f", None]),
    "smallint": ("short", int, ["-32768", "32767", "0", None]),
    "integer": ("integer", int, ["-2147483648", "2147483647", None]),
    "bigint": ("long", int, ["-9223372036854775808", "9223372036854775807", None]),
    "posint": ("integer", int, ["1", "2147483647", None]),
    "real": (
        "float",
        lambda t: float(t),
        ["0.5", "-0", "Infinity", "-Infinity", "NaN", "3.40282347e+38", "1e-45"],
    ),
    "double precision": (
        "double",
        float,
        [
            "0.1",
            "-0",
            "Infinity",
            "-Infinity",
            "NaN",
            "1.7976931348623157e308",
            "5e-324",
            "0.30000000000000004",
            None,
        ],
    ),
    "numeric(10,2)": ("decimal(10,2)", Decimal, ["0", "-0.01", "99999999.99", "-99999999.99", "10000", None]),
    "numeric(38,0)": ("decimal(38,0)", Decimal, ["9" * 38, "-" + "9" * 38, None]),
    "numeric(38,38)": ("decimal(38,38)", Decimal, ["0." + "9" * 38, "-0." + "0" * 37 + "1", "0", None]),
    "numeric(5)": ("decimal(5,0)", Decimal, ["99999", None]),
    "price": ("decimal(12,2)", Decimal, ["1.10", "-1"]),
    "numeric": (
        "string",
        plain,
        ["NaN", "Infinity", "-Infinity", "1.10", "1.100", "0.00000000000000000001", "9" * 60],
    ),
    "numeric(39,2)": ("string", plain, ["1", "NaN", None]),
    "numeric(3,5)": ("string", plain, ["0.00123", None]),
    "numeric(3,-2)": ("string", plain, ["12345", None]),
    "text": ("string", plain, ["", " a ", "NULL", "ü€😀", "a\nb\\c'\"", "x" * 10_000, None]),
    "varchar(5)": ("string", plain, ["", "a  ", "äöüß€", None]),
    "char(5)": ("string", plain, ["", "a", "äöü", None]),
    "bpchar": ("string", plain, ["a  ", "", None]),
    '"char"': ("string", plain, ["a", "", None]),
    "name": ("string", plain, ["pg_class", "", None]),
    "citext": ("string", plain, ["Ab", "", None]),
    "mood": ("string", plain, ["sad", "so so", "it's", None]),
    "uuid": ("string", plain, ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "00000000000000000000000000000000", None]),
    "json": ("string", plain, ['{"a": 1.10, "a":  2}', "null", '"ü"', "[1,\n2]", None]),
    "jsonb": ("string", plain, ['{"b": 1.10, "a":  1e400}', "null", '"ü"', "[]", None]),
    "bytea": ("binary", lambda t: bytes.fromhex(t[2:]), ["", "\\x00ff", "\\x5c78", None]),
    "date": ("date", date.fromisoformat, ["0001-01-01", "9999-12-31", "1970-01-01", "2024-02-29", None]),
    "timestamp": (
        "timestamp_ntz",
        instant,
        [
            "0001-01-01 00:00:00",
            "9999-12-31 23:59:59.999999",
            "1969-12-31 23:59:59.999999",
            "2024-01-01 1:2:3.1",
            None,
        ],
    ),
    "timestamp(0)": ("timestamp_ntz", instant, ["2024-01-01 01:02:03.6", None]),
    "timestamptz": (
        "timestamp",
        instant,
        [
            "0001-01-01 00:00:00+00",
            "9999-12-31 23:59:59.999999+00",
            "2024-07-01 12:00:00.000001 Europe/Vienna",
            None,
        ],
    ),
    "time": ("string", plain, ["00:00:00", "24:00:00", "23:59:59.999999", "01:02:03.000004", None]),
    "timetz": ("string", plain, ["00:00:00+15:59:59", "23:59:59.999999-08", None]),
    "interval": ("string", plain, ["1 year -2 mons 3 days -04:05:06.789", "0", "178000000 years", "-1 day", None]),
    "inet": ("string", plain, ["10.0.0.1", "10.0.0.1/8", "::1", "::ffff:1.2.3.4/128", None]),
    "cidr": ("string", plain, ["10.0.0.0/8", "1.2.3.4", "::/0", None]),
    "macaddr": ("string", plain, ["08:00:2b:01:02:03", None]),
    "macaddr8": ("string", plain, ["08:00:2b:01:02:03:04:05", None]),
    "xml": ("string", plain, ['<?xml version="1.0" encoding="utf-8"?><a>ü</a>', "<a/>", "text", None]),
    "bit(5)": ("string", plain, ["10101", None]),
    "varbit": ("string", plain, ["", "1" * 70, None]),
    "money": ("string", plain, ["12.34", "-1000", None]),
    "tsvector": ("string", plain, ["'a':1A 'b''c':2", "", None]),
    "tsquery": ("string", plain, ["'a' & !'b'", None]),
    "hstore": ("string", plain, ['"a"=>"1", "b"=>NULL', "", None]),
    "ltree": ("string", plain, ["a.b.c", None]),
    "int4range": ("string", plain, ["[1,5)", "empty", "(,)", None]),
    "tstzrange": ("string", plain, ["[2024-01-01 00:00:00+02,infinity)", None]),
    "datemultirange": ("string", plain, ["{[2024-01-01,2024-02-01), [2024-03-01,2024-04-01)}", "{}", None]),
    "pair": ("string", plain, ["(,)", '(1,"a b")', '(,"")', None]),
    "point": ("string", plain, ["(0.1,1e300)", None]),
    "box": ("string", plain, ["(1,1),(0,0)", None]),
    "oid": ("string", plain, ["0", "4294967295", None]),
    "pg_lsn": ("string", plain, ["16/B374D848", None]),
    "xid8": ("string", plain, ["18446744073709551615", None]),
    "int2vector": ("string", plain, ["1 2 3", None]),
    "jsonpath": ("string", plain, ['$."a"[*] ? (@ > 1)', None]),
}
ARRAYS: dict[str, tuple[str, list[str | None], list[list[Any] | None]]] = {
    # kind: (the element's type, literals, values)
    "int[]": ("integer", ["{}", "{1,NULL,-3}", None, "{NULL}"], [[], [1, None, -3], None, [None]]),
    "bigint[3]": ("long", ["{9223372036854775807}"], [[9223372036854775807]]),
    "bool[]": ("boolean", ["{t,f,NULL}"], [[True, False, None]]),
    "float8[]": ("double", ["{0.1,NULL,-Infinity}"], [[0.1, None, float("-inf")]]),
    "numeric(10,2)[]": ("decimal(10,2)", ["{1.1,NULL}"], [[Decimal("1.10"), None]]),
    "money2[]": ("decimal(12,2)", ["{1.1}"], [[Decimal("1.10")]]),
    "numeric[]": ("string", ["{1.10,NaN}"], [["1.10", "NaN"]]),
    "text[]": (
        "string",
        ['{"",NULL,"NULL",null,nULL2}', '{a b," c ","a,b","{x}","q\\"q","b\\\\s","l\nf"}', '{"ü€😀"}'],
        [["", None, "NULL", None, "nULL2"], ["a b", " c ", "a,b", "{x}", 'q"q', "b\\s", "l\nf"], ["ü€😀"]],
    ),
    "tags": ("string", ["{a}", None], [["a"], None]),
    "char(3)[]": ("string", ["{a,NULL}"], [["a  ", None]]),
    "uuid[]": (
        "string",
        ["{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}"],
        [["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]],
    ),
    "jsonb[]": ("string", ['{"{\\"a\\": [1, 2]}"}'], [['{"a": [1, 2]}']]),
    "bytea[]": ("binary", ['{"\\\\x00ff",NULL,"\\\\x"}'], [[b"\x00\xff", None, b""]]),
    "date[]": ("date", ["{2024-02-29,NULL}"], [[date(2024, 2, 29), None]]),
    "timestamp[]": ("timestamp_ntz", ['{"2024-01-01 00:00:00.1"}'], [[datetime(2024, 1, 1, 0, 0, 0, 100000)]]),
    "timestamptz[]": ("timestamp", ['{"2024-01-01 00:00:00+01"}'], [[datetime(2023, 12, 31, 23, tzinfo=UTC)]]),
    "mood[]": ("string", ['{"so so",sad}'], [["so so", "sad"]]),
    "pair[]": ("string", ['{"(1,\\"a b\\")",NULL}'], [['(1,"a b")', None]]),
    "box[]": ("string", ["{(1,1),(0,0);(3,3),(2,2)}"], [["(1,1),(0,0)", "(3,3),(2,2)"]]),
    "inet[]": ("string", ["{10.0.0.1,10.0.0.0/8}"], [["10.0.0.1", "10.0.0.0/8"]]),
}
BAD: dict[str, list[str]] = {
    "date": ["infinity", "-infinity", "10000-01-01", "0001-12-31 BC", "5874897-12-31"],
    "timestamp": ["infinity", "-infinity", "10000-01-01", "0001-12-31 BC", "294276-12-31 23:59:59.999999"],
    "timestamptz": ["infinity", "-infinity", "10000-01-01 00:00+00", "0001-12-31 23:59:59+00 BC"],
    "numeric(10,2)": ["NaN"],
    "int[]": ["{{1,2},{3,4}}", "[2:3]={1,2}", "[0:0]={1}"],
    "text[]": ['{{"a","b c"},{c,d}}', '[2:2]={"a b"}'],
    "date[]": ["{infinity}"],
    "numeric(10,2)[]": ["{NaN}"],
}


def bits(value: Any) -> Any:
    """Comparable: NaN equals NaN, -0 is not 0."""
    return value.hex() if isinstance(value, float) else value


@pytest.mark.parametrize("kind", GOOD)
def test_case_50_values_are_the_servers_both_ways_a_null_of_json_too(db: Database, kind: str) -> None:
    spark, read, literals = GOOD[kind]
    one = column(db, kind)
    filled(db, literals)
    text = texts(db)
    expected = [None if value is None else bits(read(value)) for value in text]
    if kind == "real":  # Python has no float of 32 bits: the nearest double to the nearest float
        expected = [
            bits(v) for v in pa.array(map(read, text), pa.float64()).cast(pa.float32(), safe=False).to_pylist()
        ]
    assert spark_field(one)["type"] == spark
    for array in (by_adbc(db, one), from_text(one, text), from_text(one, [v and v.encode() for v in text])):
        assert [bits(value) for value in array.to_pylist()] == expected
        assert array.type == arrow_type(one)
        array.validate(full=True)


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_are_lists_both_ways(db: Database, kind: str) -> None:
    spark, literals, expected = ARRAYS[kind]
    one = column(db, kind)
    filled(db, literals)
    assert spark_field(one)["type"] == {"type": "array", "elementType": spark, "containsNull": True}
    for array in (by_adbc(db, one), from_text(one, texts(db))):
        assert array.to_pylist() == expected
        assert array.type == arrow_type(one)
        array.validate(full=True)


@pytest.mark.parametrize(("kind", "literal"), [(kind, one) for kind, literals in BAD.items() for one in literals])
def test_a_value_that_spark_cannot_hold_is_refused_both_ways(db: Database, kind: str, literal: str) -> None:
    one = column(db, kind)
    filled(db, [None, literal, None])
    (_, text, _) = texts(db)
    assert text is not None
    with pytest.raises(BadData, match="column 'v'") as by_text:
        from_text(one, [None, text, None])
    text = text.strip("{}") if kind in ("date[]", "numeric(10,2)[]") else text
    assert text in by_text.value.message
    with pytest.raises(BadData, match="column 'v'") as by_chunk:
        by_adbc(db, one)
    meant = {
        "1": "after the year 9999",
        "5": "after the year 9999",
        "2": "after the year 9999",
        "0": "before the year 1",
    }
    native = "[" not in kind and "numeric" not in kind
    assert (text if not native or "infinity" in text else meant[text[0]]) in by_chunk.value.message
