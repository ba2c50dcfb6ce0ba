"""Values of Debezium files come out exactly, or the file and the column are named."""

import base64
import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from files_values import FAILURES, ONE, UTC, changes_of, event, failure, logical, opened, read, unscaled

from backfill_cli.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "flag": pa.bool_(),
    "small": pa.int16(),
    "ratio": pa.float64(),
    "price": pa.decimal128(38, 4),
    "day": pa.date32(),
    "local": pa.timestamp("us"),
    "instant": pa.timestamp("us", "UTC"),
    "raw": pa.binary(),
    "tags": pa.list_(pa.string()),
    "prices": pa.list_(pa.decimal128(10, 2)),
    "point": pa.struct([("x", pa.float64()), ("at", pa.timestamp("us"))]),
    "labels": pa.map_(pa.string(), pa.int64()),
}
VALUES: dict[str, Any] = {
    "id": -(2**63),
    "flag": True,
    "small": -32768,
    "ratio": 0.1,
    "price": Decimal("-9999999999999999999999999999999999.9999"),
    "day": dt.date(1500, 2, 28),
    "local": dt.datetime(1500, 1, 1, 0, 0, 0, 1),
    "instant": dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "raw": b"\x00\xff",
    "tags": ["a", None, ""],
    "prices": [Decimal("-0.01"), None, Decimal("12.30")],
    "point": {"x": -0.5, "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999999)},
    "labels": [("k", 1), ("l", None)],
}
NULLS: dict[str, Any] = dict.fromkeys(COLUMNS) | {"id": 1}


def micros(value: dt.datetime | dt.date) -> int:
    if not isinstance(value, dt.datetime):
        return (value - dt.date(1970, 1, 1)).days
    zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (zoned - dt.datetime(1970, 1, 1, tzinfo=UTC)) // dt.timedelta(microseconds=1)


def as_debezium(row: dict[str, Any]) -> dict[str, Any]:
    if row["price"] is None:
        return row
    return row | {
        "price": unscaled(row["price"], 4),
        "day": micros(row["day"]),
        "local": micros(row["local"]),
        "instant": row["instant"].isoformat().replace("+00:00", "Z"),
        "raw": base64.b64encode(row["raw"]).decode(),
        "prices": [None if v is None else unscaled(v, 2) for v in row["prices"]],
        "point": {"x": row["point"]["x"], "at": micros(row["point"]["at"])},
        "labels": dict(row["labels"]),
    }


TOLD: dict[str, dict[str, Any]] = {
    "id": {"type": "int64"},
    "flag": {"type": "boolean"},
    "small": {"type": "int16"},
    "ratio": {"type": "double"},
    "price": logical("bytes", "org.apache.kafka.connect.data.Decimal", scale="4"),
    "day": logical("int32", "io.debezium.time.Date"),
    "local": logical("int64", "io.debezium.time.MicroTimestamp"),
    "instant": logical("string", "io.debezium.time.ZonedTimestamp"),
    "raw": {"type": "bytes"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "prices": {"type": "array", "items": logical("bytes", "org.apache.kafka.connect.data.Decimal", scale="2")},
    "point": {
        "type": "struct",
        "fields": [
            {"type": "double", "field": "x"},
            {"field": "at", **logical("int64", "io.debezium.time.MicroTimestamp")},
        ],
    },
    "labels": {"type": "map", "keys": {"type": "string"}, "values": {"type": "int64"}},
}


@pytest.mark.parametrize("told", [None, TOLD], ids=["schemaless", "with schema block"])
def test_case_25_every_type_comes_out_of_debezium_exactly(
    tmp_path: Path, spark: "SparkSession", told: dict[str, Any] | None
) -> None:
    options = {"timestamps": "us", "decimals": "precise"} if told is None else {}
    upstream = opened(tmp_path, COLUMNS, {"format": "debezium", **options})
    lines = [event("c", None, as_debezium(VALUES), told), event("r", None, as_debezium(NULLS), told), "", "null"]
    (tmp_path / "changes" / "1.json").write_text("\n".join(lines))
    assert read(upstream, spark, *COLUMNS) == [VALUES, NULLS]


BROKEN = {
    "not JSON": ('{"op": "c", "after": {"id": 1, "v"', "", "1.json"),
    "unknown op": (event("x", None, {"id": 1, "v": "a"}), "", "unknown op"),
    "a delete without a before image": (event("d", None, None), "", "so no key"),
    "an update without after": (event("u", {"id": 1, "v": "a"}, None), "", "no 'after'"),
    "a NULL key": (event("c", None, {"id": None, "v": "a"}), "", "the key is NULL"),
    "a value not sent": (
        event("u", None, {"id": 7, "v": "__debezium_unavailable_value"}),
        "REPLICA IDENTITY",
        "key: 7",
    ),
    "a text for a number": (event("c", None, {"id": "seven", "v": "a"}), "", "columns"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_debezium_line_is_named(tmp_path: Path, spark: "SparkSession", case: str) -> None:
    line, hint, text = BROKEN[case]
    upstream = opened(tmp_path, ONE, {"format": "debezium"})
    good = event("c", None, {"id": 2, "v": "b"})
    last = [] if case == "not JSON" else [good]
    (tmp_path / "changes" / "1.json").write_text("\n".join([good, line, *last]))
    error = failure(upstream, spark)
    assert "1.json" in error.message
    assert text in error.message
    assert hint in error.hint


def test_case_23_a_truncate_stops_the_job_and_is_named(tmp_path: Path, spark: "SparkSession") -> None:
    upstream = opened(tmp_path, ONE, {"format": "debezium"})
    (tmp_path / "changes" / "1.json").write_text(event("t", None, None))
    error = failure(upstream, spark)
    assert "1.json: truncate is not supported" in error.message


INEXACT: dict[str, tuple[pa.DataType, dict[str, Any], Any]] = {
    "a decimal with more digits": (pa.decimal128(10, 2), {"type": "string"}, "1.234"),
    "a decimal that is too large": (pa.decimal128(4, 2), {"type": "string"}, "123.45"),
    "a decimal of another scale": (
        pa.decimal128(10, 2),
        logical("bytes", "org.apache.kafka.connect.data.Decimal", scale="3"),
        unscaled(Decimal("1.234"), 3),
    ),
    "a decimal as text where its bytes are told": (
        pa.decimal128(10, 3),
        logical("bytes", "org.apache.kafka.connect.data.Decimal", scale="3"),
        "1.234",
    ),
    "nanoseconds": (pa.timestamp("us"), logical("int64", "io.debezium.time.NanoTimestamp"), 1001),
    "an infinite date": (pa.date32(), logical("int32", "io.debezium.time.Date"), 2147483647),
    "an infinite timestamp": (
        pa.timestamp("us"),
        logical("int64", "io.debezium.time.MicroTimestamp"),
        9223371331200000000,
    ),
    "a fraction below microseconds": (
        pa.timestamp("us", "UTC"),
        logical("string", "io.debezium.time.ZonedTimestamp"),
        "2026-01-01T00:00:00.1234567Z",
    ),
    "a number too large": (pa.int16(), {"type": "int16"}, 40000),
}


@pytest.mark.parametrize("case", INEXACT)
def test_what_debezium_sends_and_the_column_cannot_hold_is_named(
    tmp_path: Path, spark: "SparkSession", case: str
) -> None:
    kind, told, value = INEXACT[case]
    upstream = opened(tmp_path, {"id": pa.int64(), "v": kind}, {"format": "debezium"})
    line = event("c", None, {"id": 1, "v": value}, {"id": {"type": "int64"}, "v": told})
    (tmp_path / "changes" / "1.json").write_text(line)
    error = failure(upstream, spark)
    assert "1.json" in error.message
    assert "'v'" in error.message or '"v"' in error.message


def test_units_and_forms_of_schemaless_debezium_follow_the_options(tmp_path: Path, spark: "SparkSession") -> None:
    columns = {"id": pa.int64(), "at": pa.timestamp("us"), "price": pa.decimal128(15, 2)}
    upstream = opened(tmp_path, columns, {"format": "debezium", "timestamps": "ms", "decimals": "double"})
    lines = [
        event("c", None, {"id": 1, "at": -1, "price": -1234567890123.45}),
        event("u", None, {"id": 1, "at": 1, "price": 2}),
    ]
    (tmp_path / "changes" / "1.json").write_text("\n".join(lines))
    assert read(upstream, spark, "at", "price") == [
        {"at": dt.datetime(1969, 12, 31, 23, 59, 59, 999000), "price": Decimal("-1234567890123.45")},
        {"at": dt.datetime(1970, 1, 1, 0, 0, 0, 1000), "price": Decimal("2.00")},
    ]


def test_a_decimal_as_a_double_is_read_as_java_writes_it(tmp_path: Path, spark: "SparkSession") -> None:
    """Java writes doubles of 10^7 and more, and of less than 10^-3, with an exponent."""
    columns = {"id": pa.int64(), "price": pa.decimal128(15, 4)}
    upstream = opened(tmp_path, columns, {"format": "debezium", "decimals": "double"})
    written = ["-1.23456789012345E10", "1.0E-4", "0.1", "-0.0", "99999999999.9999", "1.0E7", "null"]
    lines = [
        event("c", None, {"id": number, "price": "?"}).replace('"?"', token)
        for number, token in enumerate(written)
    ]
    (tmp_path / "changes" / "1.json").write_text("\n".join(lines))
    found = [row["price"] for row in read(upstream, spark, "price")]
    assert found == [None if token == "null" else Decimal(token) for token in written]


@pytest.mark.parametrize("token", ["1.0E-5", "1.0E-30", "0.12345", "1.0E11", "1e400", "0.100049999"])
def test_a_double_that_is_no_decimal_of_its_column_is_refused(
    tmp_path: Path, spark: "SparkSession", token: str
) -> None:
    columns = {"id": pa.int64(), "price": pa.decimal128(15, 4)}
    upstream = opened(tmp_path, columns, {"format": "debezium", "decimals": "double"})
    line = event("c", None, {"id": 1, "price": "?"}).replace('"?"', token)
    (tmp_path / "changes" / "1.json").write_text(line)
    assert "1.json: column 'price': not exactly a decimal(15,4)" in failure(upstream, spark).message


def test_a_timestamp_of_no_known_unit_is_an_error_that_names_the_option(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    upstream = opened(tmp_path, {"id": pa.int64(), "at": pa.timestamp("us")}, {"format": "debezium"})
    pin = upstream.pin()  # before there is a line that needs it
    (tmp_path / "changes" / "1.json").write_text(event("c", None, {"id": 1, "at": 5}))
    latest = upstream.observe(pin.position, False).latest
    with pytest.raises(FAILURES) as raised:
        upstream.changes(spark, "t", pin.position, latest, dict(pin.schema)["t"]).toArrow()
    error = upstream.failure(raised.value)
    assert error is not None
    assert "'at'" in error.message
    assert "upstream.changes.timestamps" in error.hint


def test_everything_that_the_options_lack_is_told_when_a_job_begins(tmp_path: Path) -> None:
    columns = {"id": pa.int64(), "at": pa.timestamp("us"), "price": pa.decimal128(5, 2)}
    upstream = opened(tmp_path, columns, {"format": "debezium"})
    told = {"id": {"type": "int64"}, "v": {"type": "string"}}
    (tmp_path / "changes" / "0.json").write_text(event("c", None, {"id": 1, "v": "a"}, told))
    (tmp_path / "changes" / "1.json").write_text(event("c", None, {"id": 2, "at": 1_767_225_600_000_000}))
    more = {"id": 2, "at": None, "price": "1.25", "new": 7}
    (tmp_path / "changes" / "2.json").write_text(event("u", {"id": 2}, more) + "\n" + event("d", {"id": 2}, None))
    with pytest.raises(ConfigError) as refused:
        upstream.pin()
    assert [fault.rpartition("set ")[2] for fault in refused.value.faults] == [
        'upstream.changes.decimals = "string"',
        'upstream.changes.columns = "new BIGINT", or their actual types',
    ]


def test_case_26_a_column_added_in_the_log_is_null_before_and_exact_after(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    upstream = opened(tmp_path, ONE, {"format": "debezium"})
    old = {"id": {"type": "int64"}, "v": {"type": "string"}}
    new = old | {"n": logical("bytes", "org.apache.kafka.connect.data.Decimal", scale="1")}
    (tmp_path / "changes" / "1.json").write_text(event("c", None, {"id": 1, "v": "a"}, old))
    lines = [
        event("c", None, {"id": 2, "v": "b"}, old),
        event("c", None, {"id": 3, "v": "c", "n": unscaled(Decimal("1.5"), 1)}, new),
    ]
    (tmp_path / "changes" / "2.json").write_text("\n".join(lines))
    assert read(upstream, spark, "id", "n") == [
        {"id": 1, "n": None},
        {"id": 2, "n": None},
        {"id": 3, "n": Decimal("1.5")},
    ]


def test_a_composite_key_with_odd_column_names_is_read(tmp_path: Path, spark: "SparkSession") -> None:
    columns = {"a.b": pa.int64(), "c`d": pa.string(), "Sum (€)": pa.float64()}
    upstream = opened(tmp_path, columns, {"format": "debezium"}, key="a.b")
    old, new = {"a.b": 1, "c`d": "x", "Sum (€)": 1.5}, {"a.b": 2, "c`d": "y", "Sum (€)": None}
    (tmp_path / "changes" / "1.json").write_text("\n".join([event("u", old, new), event("d", new, None)]))
    found = changes_of(upstream, spark).drop("_seq", "_ms").toArrow().to_pylist()
    gone = {"c`d": None, "Sum (€)": None}
    assert found == [{"_op": "D", "a.b": 1, **gone}, {"_op": "U", **new}, {"_op": "D", "a.b": 2, **gone}]


def of(table: str, key: int, op: str = "c", **more: Any) -> str:
    source = {"ts_ms": 5, "db": "shop", "schema": "public", "table": table}
    return json.dumps({"op": op, "before": None, "after": {"id": key, "v": table, **more}, "source": source})


def test_a_line_of_another_table_between_others_is_refused_by_name(tmp_path: Path, spark: "SparkSession") -> None:
    upstream = opened(tmp_path, ONE, {"format": "debezium"})
    (tmp_path / "changes" / "1.json").write_text("\n".join([of("t", 1), of("customers", 1), of("t", 2)]))
    error = failure(upstream, spark)
    assert "1.json: a line of another table than 'shop.public.t': shop.public.customers" in error.message
    assert "upstream.changes.tables" in error.hint


def test_of_the_tables_that_are_named_all_lines_are_read_and_no_others(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    upstream = opened(tmp_path, ONE, {"format": "debezium", "tables": ["public.t_*"]})
    lines = [of("customers", 1, note="x"), of("t_1", 2), of("t_2", 3), of("customers", 3, v=[7])]
    (tmp_path / "changes" / "1.json").write_text("\n".join(lines))
    (tmp_path / "changes" / "2.json").write_text(of("customers", 4))
    assert read(upstream, spark, "id", "v") == [{"id": 2, "v": "t_1"}, {"id": 3, "v": "t_2"}]


def test_a_message_in_the_log_is_of_no_table(tmp_path: Path, spark: "SparkSession") -> None:
    message = json.dumps({"op": "m", "source": {"db": "shop", "schema": "", "table": ""}, "message": {}})
    upstream = opened(tmp_path, ONE, {"format": "debezium"})
    (tmp_path / "changes" / "1.json").write_text("\n".join([message, of("t", 1), message]))
    assert read(upstream, spark, "id") == [{"id": 1}]


def test_a_number_with_a_fraction_where_text_is_read_is_refused(tmp_path: Path, spark: "SparkSession") -> None:
    """The parser would give 1.10 back as 1.1. In a text of a text it is no number."""
    upstream = opened(tmp_path, ONE, {"format": "debezium"})
    (tmp_path / "changes" / "1.json").write_text(event("c", None, {"id": 1, "v": '"v": 1.10'}))
    assert read(upstream, spark, "v") == [{"v": '"v": 1.10'}]
    (tmp_path / "changes" / "2.json").write_text(event("c", None, {"id": 2, "v": "?"}).replace('"?"', "1.10"))
    assert "2.json" in failure(upstream, spark).message
