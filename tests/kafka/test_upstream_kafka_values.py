"""What JSON says and what the columns hold: exactly that, or a fault that names partition, offset and column."""

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from broker import Broker
from kafka_topics import history, new_topic, scanned

from backfill_cli.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = dt.UTC
DDL = (
    "s STRING, d DECIMAL(10,2), w DECIMAL(38,10), b TINYINT, i INT, l BIGINT, f DOUBLE, g FLOAT, o BOOLEAN, "
    "day DATE, at TIMESTAMP_LTZ, wall TIMESTAMP_NTZ, x BINARY, a ARRAY<DECIMAL(5,2)>, m MAP<STRING,INT>, "
    "t STRUCT<n:BIGINT,s:STRING>"
)

GOOD: list[tuple[str, Any]] = [
    ('{"s": "üñí \\u6f22 \\ud83d\\ude00"}', {"s": "üñí 漢 😀"}),
    ('{"s": ""}', {"s": ""}),
    ('{"s": "null"}', {"s": "null"}),
    ('{"s": null}', {"s": None}),
    ("{}", {"s": None}),
    (' {"s" : "spaces"} \n', {"s": "spaces"}),
    ('{"s": 5}', {"s": "5"}),
    ('{"s": {"k": [1, true]}}', {"s": '{"k":[1,true]}'}),
    ('{"s": "\\\\ud800"}', {"s": "\\ud800"}),
    ('{"d": 1.10}', {"d": Decimal("1.10")}),
    ('{"d": "1.10"}', {"d": Decimal("1.10")}),
    ('{"d": 1e2}', {"d": Decimal("100.00")}),
    ('{"d": -99999999.99}', {"d": Decimal("-99999999.99")}),
    ('{"d": 1.1000000000000000000000000000000000000}', {"d": Decimal("1.10")}),
    ('{"d": 1.1, "f": 1e-300}', {"d": Decimal("1.10"), "f": 1e-300}),
    ('{"w": 1234567890123456789012345678.0123456789}', {"w": Decimal("1234567890123456789012345678.0123456789")}),
    ('{"b": -128}', {"b": -128}),
    ('{"i": 2147483647}', {"i": 2147483647}),
    ('{"l": 9223372036854775807}', {"l": 9223372036854775807}),
    ('{"f": 0.1}', {"f": 0.1}),
    ('{"f": -0.0}', {"f": -0.0}),
    ('{"f": "Infinity"}', {"f": float("inf")}),
    ('{"g": 0.5}', {"g": 0.5}),
    ('{"o": false}', {"o": False}),
    ('{"day": "0001-01-01"}', {"day": dt.date(1, 1, 1)}),
    ('{"day": "1500-02-28"}', {"day": dt.date(1500, 2, 28)}),
    ('{"at": "2026-01-31T23:59:59.999999Z"}', {"at": dt.datetime(2026, 1, 31, 23, 59, 59, 999999, UTC)}),
    ('{"at": "2026-01-31 12:00:00+02:00"}', {"at": dt.datetime(2026, 1, 31, 10, tzinfo=UTC)}),
    ('{"wall": "2026-01-31T23:59:59.999999"}', {"wall": dt.datetime(2026, 1, 31, 23, 59, 59, 999999)}),
    ('{"x": "AAH/"}', {"x": b"\x00\x01\xff"}),
    ('{"a": [1.5, null, 2]}', {"a": [Decimal("1.50"), None, Decimal("2.00")]}),
    ('{"a": []}', {"a": []}),
    ('{"w": 0.00000000010, "a": [-1, null, null], "d": null}', {"a": [Decimal(-1), None, None], "d": None}),
    ('{"x": null}', {"x": None}),
    ('{"m": null}', {"m": None}),
    ('{"m": {"k": 1, "l": null}}', {"m": [("k", 1), ("l", None)]}),
    ('{"t": {"n": 1, "s": "x"}, "unknown": 5}', {"t": {"n": 1, "s": "x"}}),
]

BAD: list[tuple[bytes, str]] = [
    (b"", "cut short"),
    (b"   ", "cut short"),
    (b"null", "not a JSON object"),
    (b"5", "not a JSON object"),
    (b'[{"s": "x"}]', "not a JSON object"),
    (b'{"s": "x"', "cut short"),
    (b'{"s": "x"} {"s": "y"}', "text after the JSON object"),
    (b'{"s": "x"} trailing', "text after the JSON object"),
    (b'{"s": "\\ud800"}', "half of a surrogate pair"),
    (b'{"s": "\xff"}', "not UTF-8 text"),
    (b'{"s": 1234567890123456789012345678901234567890.5}', "column 's': not exactly a string"),
    (b'{"d": 1.005}', "column 'd': not exactly a decimal(10,2)"),
    (b'{"d": 1.0000000000000000000000000000000000000000001}', "column 'd': not exactly a decimal(10,2)"),
    (b'{"d": 1e-40}', "column 'd': not exactly a decimal(10,2)"),
    (b'{"d": 100000000}', "column 'd': out of range for a decimal(10,2): 100000000"),
    (b'{"d": "abc"}', "column 'd': not a number: abc"),
    (b'{"w": 1.12345678901}', "column 'w': not exactly a decimal(38,10)"),
    (b'{"b": 200}', "column 'b': out of range for a tinyint"),
    (b'{"i": 2147483648}', "column 'i': out of range for an int: 2147483648"),
    (b'{"i": 1.5}', "column 'i': not written as a whole number: 1.5"),
    (b'{"i": "1"}', "column 'i': not a whole number: \"1\""),
    (b'{"l": 9223372036854775808}', "column 'l': out of range for a bigint: 9223372036854775808"),
    (b'{"f": 1e400}', "column 'f': out of range for a double"),
    (b'{"f": 1e400, "s": "x, inf"}', "column 'f': out of range for a double"),
    (b'{"f": 1e400, "g": "Infinity"}', "column 'f': out of range for a double"),
    (b'{"s": "x", "s": "y"}', "column 's': the name \"s\" occurs twice"),
    (b"\x00\x00\x00\x00\x2a{}", "written with a schema registry (schema id 42)"),
    (b'{"schema": {"type": "struct"}, "payload": {"i": 1}}', "a row wrapped in Kafka Connect's schema block"),
    (b'{"op": "c", "before": null, "after": {"i": 1}}', "an envelope of Debezium, not a row"),
    (b'{"g": 1e300}', "column 'g': out of range for a float"),
    (b'{"o": "yes"}', "column 'o': not true or false: \"yes\""),
    (b'{"day": "2026-02-30"}', "column 'day': not exactly a date"),
    (b'{"day": 5}', "column 'day': not exactly a date"),
    (b'{"at": "2026-01-31T00:00:00.1234567Z"}', "column 'at': not exactly a timestamp"),
    (b'{"at": 1700000000}', "column 'at': not exactly a timestamp"),
    (b'{"x": "not base64!"}', "column 'x': not exactly a binary"),
    (b'{"x": true}', "column 'x': not exactly a binary"),
    (b'{"x": 1234}', "column 'x': not exactly a binary"),
    (b'{"m": {"k": 1, "k": 2}}', "column 'm': the name \"k\" occurs twice"),
    (b'{"a": [1.5, 1.555]}', "column 'a': not exactly a decimal(5,2)"),
    (b'{"t": {"n": "x"}}', "column 't.n': not a whole number: \"x\""),
]


def read(
    broker: Broker, spark: "SparkSession", values: list[bytes | None], ddl: str = DDL
) -> list[dict[str, Any]]:
    topic = new_topic(broker)
    topic.write(values)
    upstream = topic.open(value={"format": "rows", "schema": ddl})
    return scanned(upstream, spark, history(upstream))


def test_case_25_every_json_value_comes_back_exactly(broker: Broker, spark: "SparkSession") -> None:
    rows = read(broker, spark, [text.encode() for text, _ in GOOD])
    for (text, told), row in zip(GOOD, rows, strict=True):
        assert row["_backfill_error"] is None, text
        assert {name: row[name] for name in told} == told, text
        assert row["_backfill_raw"] is None


def test_case_25_a_json_value_that_does_not_fit_is_named_and_never_null(
    broker: Broker, spark: "SparkSession"
) -> None:
    rows = read(broker, spark, [value for value, _ in BAD])
    for index, ((value, told), row) in enumerate(zip(BAD, rows, strict=True)):
        assert row["_backfill_error"] is not None, value
        assert told in row["_backfill_error"], value
        assert row["_backfill_raw"] == value
        assert row["kafka_offset"] == index
        assert row["s"] is None


def test_case_58_members_that_nobody_reads_may_hold_any_number(broker: Broker, spark: "SparkSession") -> None:
    numbers = [
        "18446744073709551616",
        "-99999999999999999999999999999999999999999",
        "1e400",
        "1e-400",
        "0." + "3" * 80,
    ]
    values = [f'{{"i": {n}, "more": {number}, "in": {{"x": [{number}]}}}}' for n, number in enumerate(numbers)]
    rows = read(broker, spark, [value.encode() for value in values], "i INT")
    assert [(row["i"], row["_backfill_error"]) for row in rows] == [(n, None) for n in range(len(numbers))]


def test_bad_records_do_not_touch_their_neighbours(broker: Broker, spark: "SparkSession") -> None:
    rows = read(broker, spark, [b'{"i": 1}', b"broken", b'{"i": 3}'], "i INT")
    assert [(r["i"], r["_backfill_error"] is None) for r in rows] == [(1, True), (None, False), (3, True)]


def test_case_33_a_tombstone_among_events_is_a_row_without_values(broker: Broker, spark: "SparkSession") -> None:
    rows = read(broker, spark, [None, b'{"i": 1}'], "i INT")
    assert [(r["i"], r["_backfill_error"], r["kafka_offset"]) for r in rows] == [(None, None, 0), (1, None, 1)]


def test_odd_column_names_are_read(broker: Broker, spark: "SparkSession") -> None:
    rows = read(
        broker, spark, [b'{"a.b": 1, "c`d": "x", "e f": 2.50}'], "`a.b` INT, `c``d` STRING, `e f` DECIMAL(5,2)"
    )
    assert (rows[0]["a.b"], rows[0]["c`d"], rows[0]["e f"]) == (1, "x", Decimal("2.50"))


@pytest.mark.parametrize("name", ["_backfill_error", "_BACKFILL_RAW", "kafka_offset", "KAFKA_PARTITION"])
def test_a_column_that_would_be_taken_for_one_of_ours_is_refused(broker: Broker, name: str) -> None:
    topic = new_topic(broker)
    with pytest.raises(UsageError, match=name):
        topic.open(value={"format": "rows", "schema": f"{name} STRING"}).pin()


def test_a_schema_that_is_none_is_told(broker: Broker) -> None:
    topic = new_topic(broker)
    with pytest.raises(ConfigError, match=r"upstream\.value\.schema"):
        topic.open(value={"format": "rows", "schema": "id BIGGINT"}).pin()


PLAIN = (
    "s STRING, d DECIMAL(10,2), b TINYINT, i INT, l BIGINT, f DOUBLE, g FLOAT, o BOOLEAN, day DATE, "
    "at TIMESTAMP_LTZ"
)


def test_case_25_both_ways_of_reading_json_give_the_same_columns(broker: Broker, spark: "SparkSession") -> None:
    """By Arrow's parser, and one by one, as a column that it cannot read makes all records be read."""
    told = [text.encode() for text, values in GOOD if not values.keys() & {"w", "wall", "x", "a", "m", "t"}]
    topic = new_topic(broker)
    topic.write([*told, None])
    found = []
    for more in ("", ", m MAP<STRING,INT>"):
        upstream = topic.open(value={"format": "rows", "schema": PLAIN + more})
        found.append(
            scanned(upstream, spark, history(upstream), "kafka_offset", "_backfill_error", *PLAIN.split()[::2])
        )
    assert [r["_backfill_error"] for r in found[0]] == [None] * (len(told) + 1)
    assert found[0] == found[1]
