"""The Kafka upstream as changes of a table: the latest record by key, tombstones, Debezium envelopes."""

import json
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from broker import Broker
from hint_typed import typed
from kafka_topics import TABLE, Topic, new_topic

from backfill_cli.contracts import Source
from backfill_cli.errors import ConfigError, Fatal
from backfill_cli.model.position import Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def topic(broker: Broker) -> Topic:
    return new_topic(broker, 2)


def changes(upstream: Source, spark: "SparkSession", *columns: str) -> list[dict[str, Any]]:
    pin = upstream.pin()
    latest = upstream.observe(pin.position, True).latest
    frame = upstream.changes(spark, TABLE, pin.position, latest, pin.schema[TABLE]).orderBy("_backfill_seq")
    rows: list[dict[str, Any]] = frame.select(*(columns or ("*",))).toArrow().to_pylist()
    return rows


def upserts(topic: Topic, spark: "SparkSession", key: str = "id", ddl: str = "id BIGINT, name STRING") -> Any:
    upstream = topic.open([key], value={"format": "rows", "schema": ddl})
    assert not upstream.capabilities.partitions.appends
    return changes(upstream, spark)


def test_case_33_a_value_is_the_row_and_a_tombstone_deletes_by_the_records_key(
    topic: Topic, spark: "SparkSession"
) -> None:
    topic.write([b'{"id": 1, "name": "a"}', b'{"id": 1, "name": "b"}', None], keys=[b'{"id": 1}'] * 3)
    rows = upserts(topic, spark)
    assert [(r["_backfill_op"], r["id"], r["name"], r["_backfill_error"]) for r in rows] == [
        ("U", 1, "a", None),
        ("U", 1, "b", None),
        ("D", 1, None, None),
    ]
    assert all(isinstance(r["_backfill_ms"], int) for r in rows)
    assert [r["kafka_offset"] for r in rows] == [0, 1, 2]


@pytest.mark.parametrize(
    ("ddl", "keys", "values"),
    [
        ("id BIGINT", [b"17", b'{"id": 17, "more": 1}'], [17, 17]),
        (
            "id STRING",
            [b"plain text", b'"quoted \\"text\\""', b"17", b'{"id": "x"}'],
            ["plain text", 'quoted "text"', "17", "x"],
        ),
        ("id DECIMAL(5,2)", [b"1.50"], [Decimal("1.50")]),
        ('`odd "name` STRING', [b"x"], ["x"]),
    ],
)
def test_case_33_a_tombstones_key_is_an_object_or_the_one_columns_value(
    topic: Topic, spark: "SparkSession", ddl: str, keys: list[bytes], values: list[object]
) -> None:
    topic.write([None] * len(keys), keys=keys)
    name = "id" if ddl.startswith("id") else 'odd "name'
    rows = upserts(topic, spark, name, ddl)
    assert [(r["_backfill_op"], r[name], r["_backfill_error"]) for r in rows] == [
        ("D", value, None) for value in values
    ]


NO_JSON = "not JSON: expecting value at character 1"
FAULTS = [
    (None, None, "a tombstone without a key"),
    (b"abc", None, "the key of a tombstone: not JSON: expecting value at character 1"),
    (b'{"other": 1}', None, "the key of a tombstone: column 'id': the key is NULL"),
    (b"\xff", None, "the key of a tombstone: not UTF-8 text"),
    (b"1.5", None, "the key of a tombstone: column 'id': not written as a whole number: 1.5"),
    (None, b'{"name": "x"}', "column 'id': the key is NULL"),
    (None, b'{"id": null}', "column 'id': the key is NULL"),
    (b"1", b"broken", NO_JSON),
]


def test_case_33_a_change_whose_key_cannot_be_read_says_so(topic: Topic, spark: "SparkSession") -> None:
    topic.write([value for _, value, _ in FAULTS], keys=[key for key, _, _ in FAULTS])
    rows = upserts(topic, spark)
    assert [r["_backfill_error"] for r in rows] == [fault for _, _, fault in FAULTS]
    assert [r["_backfill_raw"] for r in rows] == [key if value is None else value for key, value, _ in FAULTS]
    assert {r["id"] for r in rows} == {None}


def test_a_key_that_is_in_the_records_key_alone_is_named_as_that(topic: Topic, spark: "SparkSession") -> None:
    topic.write([b'{"name": "x"}'], keys=[b'{"id": 1}'])
    (row,) = upserts(topic, spark)
    assert row["_backfill_error"].startswith("column 'id': the key is NULL in the value: a key that is only in")


def test_a_row_that_says_that_it_is_deleted_deletes(topic: Topic, spark: "SparkSession") -> None:
    """As ExtractNewRecordState writes deletes in the mode `rewrite`."""
    topic.write([b'{"id": 1, "__deleted": "false"}', b'{"id": 1, "__deleted": "true"}'])
    rows = upserts(topic, spark)
    assert [(r["_backfill_op"], r["id"], r["_backfill_error"]) for r in rows] == [("U", 1, None), ("D", 1, None)]
    declared = upserts(topic, spark, ddl="id BIGINT, __deleted STRING")
    assert [(r["__deleted"], r["_backfill_error"]) for r in declared] == [("false", None), ("true", None)]


# A topic that grows


def test_rows_by_key_stop_at_a_partition_that_comes_and_change_nothing(topic: Topic) -> None:
    topic.write([b'{"id": 1}'])
    upstream = topic.open(["id"])
    pin = upstream.pin()
    assert upstream.observe(pin.position, True).latest
    topic.grow(3)
    with pytest.raises(Fatal, match=r"has a new partition 2: it had 2, now it has 3") as caught:
        upstream.observe(pin.position, True)
    with typed(caught.value) as hint:
        assert hint.settings() == {"upstream.accept_growth": True}
        later = topic.open(["id"], accept_growth=True)
        later.restore(pin)
        assert dict(later.observe(pin.position, True).latest).keys() == {"0", "1", "2"}
    known = Position.of({"0": 1, "1": 0, "2": 0})  # taken up when it was accepted: the option may go again
    assert upstream.observe(known, False).added == 1


def test_events_follow_a_topic_that_grows(topic: Topic) -> None:
    upstream = topic.open()
    pin = upstream.pin()
    topic.grow(3)
    assert dict(upstream.observe(pin.position, True).latest).keys() == {"0", "1", "2"}


def test_plan_is_told_what_rows_by_key_rest_on(topic: Topic, broker: Broker) -> None:
    def advice(upstream: Source) -> list[str]:
        upstream.pin()
        return list(upstream.extras.warnings())

    (told,) = advice(topic.open(["id"]))
    assert "2 partitions" in told
    assert "upstream.accept_growth" in told
    assert advice(topic.open(["id"], accept_growth=True)) == []
    assert advice(topic.open()) == []
    assert advice(new_topic(broker, 1).open(["id"])) == []


def test_case_33_a_null_key_beside_a_value_is_no_fault(topic: Topic, spark: "SparkSession") -> None:
    topic.write([b'{"id": 1, "name": "a"}'])
    assert [(r["_backfill_op"], r["id"], r["_backfill_error"]) for r in upserts(topic, spark)] == [("U", 1, None)]


def test_case_33_one_key_in_two_partitions_is_ordered_by_partition_then_offset(
    topic: Topic, spark: "SparkSession"
) -> None:
    topic.write([b'{"id": 1, "name": "later"}'] * 2, 1)
    topic.write([b'{"id": 1, "name": "first"}'], 0)
    rows = upserts(topic, spark)
    assert [(r["_backfill_seq"]["kafka_partition"], r["_backfill_seq"]["kafka_offset"]) for r in rows] == [
        (0, 0),
        (1, 0),
        (1, 1),
    ]


def test_case_33_offsets_decide_where_a_later_record_has_an_earlier_time(
    topic: Topic, spark: "SparkSession"
) -> None:
    now_ms = int(time.time() * 1000)
    topic.write([b'{"id": 1, "name": "old"}'], timestamp=now_ms)
    topic.write([b'{"id": 1, "name": "new"}'], timestamp=now_ms - 60_000)
    assert [r["name"] for r in upserts(topic, spark)] == ["old", "new"]


def test_windows_read_just_their_partitions_and_offsets(topic: Topic, spark: "SparkSession") -> None:
    for partition in (0, 1):
        topic.write([json.dumps({"id": i}).encode() for i in range(10)], partition)
    upstream = topic.open(["id"])
    pin = upstream.pin()
    frame = upstream.changes(spark, TABLE, Position.of({"1": 3}), Position.of({"1": 5}), pin.schema[TABLE])
    rows = frame.orderBy("_backfill_seq").toArrow().to_pylist()
    assert [(r["kafka_partition"], r["kafka_offset"]) for r in rows] == [(1, 3), (1, 4)]


def test_a_key_that_is_no_column_is_told(topic: Topic) -> None:
    with pytest.raises(ConfigError, match="key column 'idd'") as refused:
        topic.open(["idd"]).pin()
    with typed(refused.value) as hint:
        hint.says("name one of its columns: id")
        topic.open(["id"]).pin()


# Debezium


def envelope(op: str, before: Any, after: Any, block: bool = False) -> bytes:
    told = {"op": op, "before": before, "after": after, "source": {"ts_ms": 5}, "ts_ms": 6}
    row = [{"field": "id", "type": "int64"}, {"field": "name", "type": "string"}]
    schema = {"type": "struct", "fields": [{"type": "struct", "fields": row, "field": "after"}]}
    return json.dumps({"schema": schema, "payload": told} if block else told).encode()


def debezium(
    topic: Topic,
    spark: "SparkSession",
    values: Sequence[bytes | None],
    ddl: str = "id BIGINT, name STRING",
    **how: str,
) -> list[Mapping[str, Any]]:
    topic.write(values)
    upstream = topic.open(["id"], value={"format": "debezium", "schema": ddl, **how})
    return list(changes(upstream, spark))


@pytest.mark.parametrize("block", [False, True])
def test_debezium_envelopes_are_changes(topic: Topic, spark: "SparkSession", block: bool) -> None:
    one, two = {"id": 1, "name": "a"}, {"id": 1, "name": "b"}
    values = [
        envelope("r", None, one, block),
        envelope("u", one, two, block),
        envelope("d", two, None, block),
        None,
    ]
    rows = debezium(topic, spark, values)
    assert [(r["_backfill_op"], r["id"], r["name"], r["_backfill_ms"], r["_backfill_error"]) for r in rows] == [
        ("U", 1, "a", 5, None),
        ("U", 1, "b", 5, None),
        ("D", 1, None, 5, None),
    ]


def test_case_04_a_debezium_key_change_deletes_the_old_key(topic: Topic, spark: "SparkSession") -> None:
    rows = debezium(topic, spark, [envelope("u", {"id": 1, "name": "a"}, {"id": 2, "name": "a"})])
    assert [(r["_backfill_op"], r["id"], r["name"]) for r in rows] == [("D", 1, None), ("U", 2, "a")]


def test_case_25_debezium_values_are_exact_or_a_fault(topic: Topic, spark: "SparkSession") -> None:
    import base64
    import datetime as dt

    ddl = "id BIGINT, amount DECIMAL(20,2), at TIMESTAMP_LTZ, day DATE, small TINYINT"
    amount = base64.b64encode((-12345678901234567890).to_bytes(9, "big", signed=True)).decode()
    good = {"id": 1, "amount": amount, "at": 1_700_000_000_123_456, "day": -1, "small": 5}
    values = [
        envelope("c", None, good),
        envelope("c", None, {**good, "small": 200}),
        envelope("c", None, {**good, "amount": "!"}),
    ]
    rows = debezium(topic, spark, values, ddl, timestamps="us", decimals="precise")
    assert (rows[0]["amount"], rows[0]["day"]) == (Decimal("-123456789012345678.90"), dt.date(1969, 12, 31))
    assert rows[0]["at"] == dt.datetime(2023, 11, 14, 22, 13, 20, 123456, dt.UTC)
    assert [r["_backfill_error"] for r in rows] == [
        None,
        "column 'small': out of range for a tinyint: 200",
        "column 'amount': not a decimal of at most 38 digits in base64: !",
    ]


REFUSED = [
    (b"broken", NO_JSON),
    (
        b'{"op": "c", "after": {"id": "x"}}',
        "not a Debezium envelope of the table's columns: column 'id': not a whole number: \"x\"",
    ),
    (envelope("c", None, None), "no 'after' in an envelope with op c"),
    (envelope("d", None, None), "no 'before', so no key, in an envelope with op d"),
    (envelope("c", None, {"id": None, "name": "x"}), "column 'id': the key is NULL"),
    (envelope("x", None, None), "unknown op x"),
]


def test_case_23_an_envelope_that_cannot_be_applied_says_why(topic: Topic, spark: "SparkSession") -> None:
    rows = debezium(topic, spark, [value for value, _ in REFUSED])
    assert [(r["_backfill_error"], r["_backfill_raw"]) for r in rows] == [
        (fault, value) for value, fault in REFUSED
    ]


def test_case_08_a_value_that_was_not_sent_is_named_or_a_fault(topic: Topic, spark: "SparkSession") -> None:
    after = {"id": 1, "name": "__debezium_unavailable_value"}
    changed, new = debezium(topic, spark, [envelope("u", None, after), envelope("c", None, after)])
    assert (changed["_backfill_unsent"], changed["name"], changed["_backfill_error"]) == (["name"], None, None)
    assert new["_backfill_error"].startswith("column 'name': __debezium_unavailable_value")


def test_debezium_without_a_key_or_a_unit_is_told(topic: Topic) -> None:
    value = {"format": "debezium", "schema": "id BIGINT, d DECIMAL(5,2)"}
    with pytest.raises(ConfigError, match="needs key") as refused:
        topic.open(value=value).pin()
    with typed(refused.value) as hint:
        hint.says('for example key = ["id"]')
        topic.open(["id"], value=value | {"decimals": "string"}).pin()
    with pytest.raises(ConfigError, match=r"value\.decimals"):
        topic.open(["id"], value=value).pin()
    topic.write([envelope("c", None, {"id": 1, "d": "1.25"})])
    with pytest.raises(ConfigError, match=r'like "1\.25"\): set upstream\.value\.decimals = "string"'):
        topic.open(["id"], value=value).pin()


def test_plan_is_told_of_rows_that_debezium_has_unwrapped(topic: Topic) -> None:
    def advice(key: list[str], **value: str) -> list[str]:
        told = {"format": "rows", "schema": "id BIGINT, name STRING", **value}
        upstream = topic.open(key, value=told) if key else topic.open(value=told)
        upstream.pin()
        return list(upstream.extras.warnings())

    topic.write([b'{"id": 1, "name": "a"}', b"17", b"not JSON"])
    assert [one for one in advice(["id"]) if "unwrapped" in one] == []
    topic.write([b'{"id": 2, "name": "b", "__op": "c"}'])
    (told,) = [one for one in advice(["id"]) if "unwrapped" in one]
    assert "(they have __op)" in told
    assert 'delete.tombstone.handling.mode = "rewrite" or "tombstone"' in told
    assert 'upstream.value.format = "debezium"' in told
    topic.write([b'{"id": 2, "name": "b", "__op": "c", "__deleted": "false"}'])
    assert [one for one in advice(["id"]) if "unwrapped" in one] == []
    (told,) = advice([])
    assert "each change becomes a row" in told
    assert advice([], schema="id BIGINT, __op STRING") == []
