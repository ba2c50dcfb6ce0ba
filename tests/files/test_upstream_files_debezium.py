"""Values and lines of Debezium files come out exactly, whatever columns, keys and tables they have."""

import base64
import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from files_values import ONE, UTC, changes_of, event, failure, logical, opened, read, unscaled

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


def test_case_57_times_before_1970_in_the_unit_that_the_options_say(tmp_path: Path, spark: "SparkSession") -> None:
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


def test_case_56_a_decimal_whose_scale_comes_with_each_value_is_exact(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    """As Debezium writes Oracle's NUMBER and PostgreSQL's numeric: a struct, whose scale may be below zero."""
    columns = {"id": pa.int64(), "price": pa.decimal128(15, 4)}
    parts = [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}]
    variable = {**logical("struct", "io.debezium.data.VariableScaleDecimal"), "fields": parts, "optional": True}
    told = {"id": {"type": "int64"}, "price": variable}
    upstream = opened(tmp_path, columns, {"format": "debezium"})
    given = [(15, 1), (-1, 4), (0, 0), (12, -3), (-99999999999_9999, 4), (2**31, 2), None]
    lines = [
        event(
            "c",
            None,
            {"id": id, "price": one and {"scale": one[1], "value": unscaled(Decimal(one[0]), 0)}},
            told,
        )
        for id, one in enumerate(given)
    ]
    (tmp_path / "changes" / "1.json").write_text("\n".join(lines))
    found = [row["price"] for row in read(upstream, spark, "price")]
    assert found == [None if one is None else Decimal(one[0]).scaleb(-one[1]) for one in given]


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
    found = (
        changes_of(upstream, spark).drop("_backfill_seq", "_backfill_ms", "_backfill_unsent").toArrow().to_pylist()
    )
    gone = {"c`d": None, "Sum (€)": None}
    assert found == [
        {"_backfill_op": "D", "a.b": 1, **gone},
        {"_backfill_op": "U", **new},
        {"_backfill_op": "D", "a.b": 2, **gone},
    ]


def of(table: str, key: int, op: str = "c", **more: Any) -> str:
    source = {"ts_ms": 5, "db": "shop", "schema": "public", "table": table}
    return json.dumps({"op": op, "before": None, "after": {"id": key, "v": table, **more}, "source": source})


def test_a_line_of_another_table_between_others_is_refused_by_name(tmp_path: Path, spark: "SparkSession") -> None:
    upstream = opened(tmp_path, ONE, {"format": "debezium"})
    (tmp_path / "changes" / "1.json").write_text("\n".join([of("t", 1), of("customers", 1), of("t", 2)]))
    error = failure(upstream, spark)
    said = "1.json: line 2 (of id 1): a record of another table than 'shop.public.t': shop.public.customers"
    assert error.message == said
    assert "upstream.changes.tables" in str(error.hint)


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
