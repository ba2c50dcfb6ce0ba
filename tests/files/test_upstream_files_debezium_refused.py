"""Debezium files that are broken or inexact: the file and the column, or the missing option, are named."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from files_values import FAILURES, ONE, event, failure, logical, opened, read, unscaled
from hint_typed import typed

from backfill_cli.errors import BadData, ConfigError
from backfill_cli.spark.failures import from_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKEN = {
    "not JSON": ('{"op": "c", "after": {"id": 1, "v"', "", "1.json"),
    "unknown op": (event("x", None, {"id": 1, "v": "a"}), "", "unknown op"),
    "a delete without a before image": (event("d", None, None), "", "so no key"),
    "an update without after": (event("u", {"id": 1, "v": "a"}, None), "", "no 'after'"),
    "a NULL key": (event("c", None, {"id": None, "v": "a"}), "", "the key is NULL"),
    "a value not sent": (
        event("c", None, {"id": 7, "v": "__debezium_unavailable_value"}),
        "REPLICA IDENTITY",
        "of id 7",
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
    assert hint in str(error.hint)
    if case == "a value not sent":
        from_a_new_snapshot(tmp_path, spark, error)


def from_a_new_snapshot(root: Path, spark: "SparkSession", error: BadData) -> None:
    """What the hint says after the cause is mended: the job that is then started reads later changes only."""
    with typed(error) as hint:
        hint.says("take a new snapshot, set upstream.snapshot.as_of to the newest change file before it")
        assert error.hint.starts_over
        (root / "changes" / "2.json").write_text(event("c", None, {"id": 9, "v": "z"}))
        again = opened(root, ONE, {"format": "debezium"}, as_of="1.json")
        assert read(again, spark, "id", "v") == [{"id": 9, "v": "z"}]


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


@pytest.mark.parametrize("token", ["1.0E-5", "1.0E-30", "0.12345", "1.0E11", "1e400", "0.100049999"])
def test_a_double_that_is_no_decimal_of_its_column_is_refused(
    tmp_path: Path, spark: "SparkSession", token: str
) -> None:
    columns = {"id": pa.int64(), "price": pa.decimal128(15, 4)}
    upstream = opened(tmp_path, columns, {"format": "debezium", "decimals": "double"})
    line = event("c", None, {"id": 1, "price": "?"}).replace('"?"', token)
    (tmp_path / "changes" / "1.json").write_text(line)
    said = "out of range for" if token == "1.0E11" else "not exactly"
    assert f"column 'price': {said} a decimal(15,4): {token}" in failure(upstream, spark).message


def test_a_timestamp_of_no_known_unit_is_an_error_that_names_the_option(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    upstream = opened(tmp_path, {"id": pa.int64(), "at": pa.timestamp("us")}, {"format": "debezium"})
    pin = upstream.pin()  # before there is a line that needs it
    (tmp_path / "changes" / "1.json").write_text(event("c", None, {"id": 1, "at": 5}))
    latest = upstream.observe(pin.position, False).latest
    with pytest.raises(FAILURES) as raised:
        upstream.changes(spark, "t", pin.position, latest, dict(pin.schema)["t"]).toArrow()
    error = from_spark(raised.value)
    assert error is not None
    assert "'at'" in error.message
    with typed(error) as hint:
        unit = hint.settings()["upstream.changes.timestamps"]
        columns = {"id": pa.int64(), "at": pa.timestamp("us")}
        after = opened(tmp_path, columns, {"format": "debezium", "timestamps": unit})
        assert read(after, spark, "at") == [{"at": dt.datetime(1970, 1, 1, 0, 0, 0, 5_000)}]


@pytest.mark.parametrize("written", [{"scale": 2, "value": "AJY="}, "1.50"], ids=["with its scale", "as text"])
def test_decimals_are_written_as_text(tmp_path: Path, spark: "SparkSession", written: Any) -> None:
    """The first line that has one comes after the start, which would have asked for the option."""
    columns = {"id": pa.int64(), "price": pa.decimal128(10, 2)}
    how = {"decimals": "precise"} if isinstance(written, dict) else {}
    upstream = opened(tmp_path, columns, {"format": "debezium", **how})
    pin = upstream.pin()
    (tmp_path / "changes" / "1.json").write_text(event("c", None, {"id": 1, "price": written}))
    latest = upstream.observe(pin.position, False).latest
    with pytest.raises(FAILURES) as raised:
        upstream.changes(spark, "t", pin.position, latest, dict(pin.schema)["t"]).toArrow()
    error = raised.value if isinstance(raised.value, BadData) else from_spark(raised.value)
    assert error is not None
    assert "1.json: " in error.message
    assert "column 'price': " in error.message
    with typed(error) as hint:
        told = hint.settings()["upstream.changes.decimals"]
        hint.says('upstream.changes.decimals = "string", and write such changes again')
        (tmp_path / "changes" / "1.json").write_text(event("c", None, {"id": 1, "price": "1.50"}))
        after = opened(tmp_path, columns, {"format": "debezium", "decimals": "string"})
        assert read(after, spark, "price") == [{"price": Decimal("1.50")}]
        assert told in ("precise", "string")


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


def test_a_number_with_a_fraction_where_text_is_read_is_refused(tmp_path: Path, spark: "SparkSession") -> None:
    """The parser would give 1.10 back as 1.1. In a text of a text it is no number."""
    upstream = opened(tmp_path, ONE, {"format": "debezium"})
    (tmp_path / "changes" / "1.json").write_text(event("c", None, {"id": 1, "v": '"v": 1.10'}))
    assert read(upstream, spark, "v") == [{"v": '"v": 1.10'}]
    (tmp_path / "changes" / "2.json").write_text(event("c", None, {"id": 2, "v": "?"}).replace('"?"', "1.10"))
    assert "2.json" in failure(upstream, spark).message
