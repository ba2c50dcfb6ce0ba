"""Debezium's records in a topic: what their schema block says, whose table they are of, what was not sent."""

import base64
import datetime as dt
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from broker import Broker
from hint_typed import typed
from kafka_topics import TABLE, Topic, new_topic
from oracle.inputs import SEED
from oracle.late_keys import Source, shift
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from backfill_cli.errors import BadData, ConfigError
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.schema import columns_of
from backfill_cli.upstreams.kafka import connector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FAILURES = (BadData, PySparkException, Py4JError)
DECIMAL = "org.apache.kafka.connect.data.Decimal"
FIELDS = {
    "id": {"type": "int64", "optional": False},
    "amount": {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2", "connect.decimal.precision": "20"}},
    "at": {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1},
    "day": {"type": "int32", "name": "io.debezium.time.Date"},
    "name": {"type": "string", "optional": True, "default": "none"},
    "tags": {"type": "array", "items": {"type": "string", "optional": True}},
}


@pytest.fixture
def topic(broker: Broker) -> Topic:
    return new_topic(broker)


def unscaled(number: int) -> str:
    return base64.b64encode(number.to_bytes(9, "big", signed=True)).decode()


ROW = {"id": 1, "amount": unscaled(-110), "at": 1_700_000_000_123_456, "day": -1, "name": "a", "tags": ["x", None]}


def record(after: Any, fields: dict[str, Any] | None = None, op: str = "c", **source: str) -> bytes:
    """An envelope as Debezium writes it. fields: of the schema block, None for none."""
    of = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "orders", "ts_ms": 5, **source}
    told = {"before": None, "after": after, "source": of, "op": op, "ts_ms": 6}
    if fields is None:
        return json.dumps(told).encode()
    row = [{**one, "field": name} for name, one in fields.items()]
    parts = [{"type": "struct", "fields": row, "optional": True, "field": side} for side in ("before", "after")]
    block = {"type": "struct", "fields": [*parts, {"type": "string", "field": "op"}], "name": "shop.Envelope"}
    return json.dumps({"schema": block, "payload": told}).encode()


def read(
    topic: Topic, spark: "SparkSession", values: Sequence[bytes], more: Sequence[bytes] = (), **how: Any
) -> list[dict[str, Any]]:
    """The changes of these records, and of those that come once the job has begun."""
    topic.write(values)
    upstream = topic.open(["id"], value={"format": "debezium", **how})
    pin = upstream.pin()
    topic.write(more)
    latest = upstream.observe(pin.position, True).latest
    frame = upstream.changes(spark, TABLE, pin.position, latest, pin.schema[TABLE])
    rows: list[dict[str, Any]] = frame.orderBy("_backfill_seq").toArrow().to_pylist()
    return rows


def faults(rows: Sequence[dict[str, Any]]) -> list[str | None]:
    return [row["_backfill_error"] for row in rows]


def test_the_schema_block_says_columns_and_how_they_are_written(topic: Topic, spark: "SparkSession") -> None:
    (row,) = read(topic, spark, [record(ROW, FIELDS)])
    assert row["_backfill_error"] is None
    assert {name: row[name] for name in ROW} == {
        "id": 1,
        "amount": Decimal("-1.10"),
        "at": dt.datetime(2023, 11, 14, 22, 13, 20, 123456),
        "day": dt.date(1969, 12, 31),
        "name": "a",
        "tags": ["x", None],
    }


def test_the_block_and_not_the_options_says_how_a_declared_column_is_written(
    topic: Topic, spark: "SparkSession"
) -> None:
    """A scale that the table's type does not have: ten times too much, were the block not read."""
    (row,) = read(
        topic, spark, [record(ROW, FIELDS)], schema="id BIGINT, amount DECIMAL(20,3)", decimals="precise"
    )
    assert (row["_backfill_error"], row["amount"]) == (None, Decimal("-1.100"))


OTHER = [
    (
        {"amount": {**FIELDS["amount"], "parameters": {"scale": "3"}}},
        "column 'amount': its schema block says bytes",
    ),
    ({"at": {"type": "int64", "name": "io.debezium.time.Timestamp"}}, "column 'at': its schema block says int64"),
    ({"at": {"type": "int64"}}, "column 'at': its schema block says int64"),
    ({"tags": {"type": "array", "items": {"type": "double"}}}, "column 'tags': its schema block says array"),
]


def test_a_block_that_says_otherwise_than_the_first_ones_is_a_fault(topic: Topic, spark: "SparkSession") -> None:
    later = [record(ROW, {**FIELDS, **other}) for other, _ in OTHER]
    rows = read(topic, spark, [record(ROW, FIELDS)] * 2, later)
    assert faults(rows)[:2] == [None, None]
    for found, (_, told) in zip(faults(rows)[2:], OTHER, strict=True):
        assert (found or "").startswith(told)


def test_a_column_that_a_later_block_adds_is_one_of_the_table(topic: Topic, spark: "SparkSession") -> None:
    topic.write([record(ROW, FIELDS)])
    upstream = topic.open(["id"], value={"format": "debezium"})
    pin = upstream.pin()
    other = {**FIELDS, "at": {"type": "int64"}}
    wide = record({**ROW, "fresh": 5}, {**FIELDS, "fresh": {"type": "int64", "default": 7}})
    topic.write([record(ROW, FIELDS), wide, record(ROW, other)])
    latest = upstream.observe(pin.position, True).latest
    with pytest.raises(FAILURES, match="partition 0, offset 2: column 'fresh' is new in its schema block"):
        upstream.changes(spark, TABLE, pin.position, latest, pin.schema[TABLE]).toArrow()
    reads = [SnapshotRead(TABLE, "0", 0, 4)]
    schemas = upstream.widened(pin.schema, reads, SnapshotRead(TABLE, "0", 2, 3))
    assert schemas is not None
    assert [*columns_of(schemas[TABLE])][-2:] == ["tags", "fresh"]
    frame = upstream.changes(spark, TABLE, pin.position, latest, schemas[TABLE])
    rows = frame.orderBy("_backfill_seq").toArrow().to_pylist()
    assert [row["fresh"] for row in rows] == [None, None, 5, None]
    assert faults(rows)[:3] == [None] * 3
    assert (faults(rows)[3] or "").startswith("column 'at': its schema block says int64")


def test_what_a_block_may_say_otherwise_is_no_fault(topic: Topic, spark: "SparkSession") -> None:
    """A column that is not there yet, another default, a number that is narrower than its column."""
    fields = {**FIELDS, "name": {"type": "string"}, "id": {"type": "int32", "optional": True}}
    del fields["tags"]
    after = {name: value for name, value in ROW.items() if name != "tags"}
    rows = read(topic, spark, [record(ROW, FIELDS)], [record(after, fields)])
    assert faults(rows) == [None, None]
    assert rows[1]["tags"] is None


def test_a_record_without_a_block_among_those_with_one_is_read_only_if_it_means_the_same(
    topic: Topic, spark: "SparkSession"
) -> None:
    ddl = "id BIGINT, amount DECIMAL(20,2)"
    (_, bare) = read(topic, spark, [record(ROW, FIELDS)], [record(ROW)], schema=ddl)
    assert bare["_backfill_error"] == "no schema block, which is needed to say how these are written: amount"
    other = new_topic(topic.broker)
    rows = read(other, spark, [record(ROW, FIELDS)], [record(ROW)], schema=ddl, decimals="precise")
    assert [(r["_backfill_error"], r["amount"]) for r in rows] == [(None, Decimal("-1.10"))] * 2


def test_blocks_that_come_once_the_job_has_begun_must_say_what_the_options_do(
    topic: Topic, spark: "SparkSession"
) -> None:
    other = {**FIELDS, "amount": {"type": "string"}}
    ddl = "id BIGINT, amount DECIMAL(20,2), at TIMESTAMP_NTZ, name STRING"
    late = [record(ROW, FIELDS), record(ROW, other), record(ROW, {"id": FIELDS["id"]})]
    rows = read(topic, spark, [], late, schema=ddl, decimals="precise", timestamps="us")
    assert faults(rows)[0] is None
    assert rows[0]["amount"] == Decimal("-1.10")
    assert (faults(rows)[1] or "").startswith("column 'amount': its schema block says string")
    assert faults(rows)[2] == "column 'amount' is not in its schema block"


def test_a_topic_that_says_no_columns_needs_them_declared(topic: Topic) -> None:
    for values in ([], [record(ROW)]):
        topic.write(values)
        with pytest.raises(ConfigError, match=r"value\.schema: missing, and no record of topic") as refused:
            topic.open(["id"], value={"format": "debezium"}).pin()
        with typed(refused.value) as hint:
            schema = hint.settings()["upstream.value.schema"]
            declared = {"format": "debezium", "schema": "id BIGINT" if values else schema}  # its own columns
            topic.open(["id"], value=declared).pin()


@pytest.mark.parametrize("fields", [FIELDS, None], ids=["block", "no block"])
def test_a_declared_column_that_no_record_has_is_refused(topic: Topic, fields: Any) -> None:
    topic.write([record(ROW, fields)])
    with pytest.raises(ConfigError, match=r"no record of topic .* has a column 'nmae'") as caught:
        topic.open(["id"], value={"format": "debezium", "schema": "id BIGINT, nmae STRING"}).pin()
    with typed(caught.value) as hint:
        hint.says("its columns are: name")
        topic.open(["id"], value={"format": "debezium", "schema": "id BIGINT, name STRING"}).pin()


def test_a_column_that_changes_its_type_between_first_and_last_record_is_refused(topic: Topic) -> None:
    topic.write([record(ROW, FIELDS), record(ROW, {**FIELDS, "amount": {"type": "string"}})])
    with pytest.raises(BadData, match="column 'amount' changes its type: the schema blocks say bytes") as refused:
        topic.open(["id"], value={"format": "debezium"}).pin()
    with typed(refused.value) as hint:
        aside = str(hint.settings()["upstream.on_error"])
        topic.open(["id"], value={"format": "debezium"}, on_error=aside).pin()


# Of which table


def test_a_record_of_another_table_is_a_fault(topic: Topic, spark: "SparkSession") -> None:
    mine, other = record(ROW), record({**ROW, "id": 2}, table="customers")
    rows = read(
        topic, spark, [mine], [other, record(ROW, schema="private"), mine], schema="id BIGINT, name STRING"
    )
    assert faults(rows)[::3] == [None, None]
    assert "a record of another table than 'shop.public.orders': shop.public.customers" in faults(rows)[1]
    assert "a record of another table than 'shop.public.orders': shop.private.orders" in faults(rows)[2]


def test_a_topic_of_several_tables_is_refused_until_the_options_name_those_that_are_meant(
    topic: Topic, spark: "SparkSession"
) -> None:
    names = ["orders", "customers", "orders_2"]
    values = [record({**ROW, "id": n}, table=table) for n, table in enumerate(names)]
    topic.write(values)
    with pytest.raises(
        ConfigError, match=r"several tables: shop\.public\.customers, shop\.public\.orders"
    ) as caught:
        topic.open(["id"], value={"format": "debezium", "schema": "id BIGINT"}).pin()
    with typed(caught.value) as hint:
        value = {"format": "debezium", "schema": "id BIGINT", "tables": hint.settings()["upstream.value.tables"]}
        assert value["tables"] == ["shop.public.orders"]
        topic.open(["id"], value=value).pin()
    for tables, ids in (
        (["orders"], [0]),
        (["public.orders"], [0]),
        (["shop.public.orders", "customers"], [0, 1]),
        (["orders*"], [0, 2]),
        (["rders"], []),
        (["public*orders"], []),
    ):
        rows = read(new_topic(topic.broker), spark, values, schema="id BIGINT", tables=tables)
        assert [(r["id"], r["_backfill_error"]) for r in rows] == [(n, None) for n in ids], tables


def test_before_a_topic_has_a_record_its_name_or_the_tables_tells_whose_they_may_be(
    topic: Topic, spark: "SparkSession"
) -> None:
    late = [record(ROW), record({**ROW, "id": 2}, table="customers")]
    rows = read(topic, spark, [], late, schema="id BIGINT")
    assert faults(rows)[0] is None
    assert "a record of another table than 'orders': shop.public.customers" in faults(rows)[1]


def test_a_job_from_before_tables_were_looked_at_goes_on(topic: Topic, spark: "SparkSession") -> None:
    upstream = topic.open(["id"], value={"format": "debezium", "schema": "id BIGINT"})
    pin = upstream.pin()
    identity = {name: told for name, told in json.loads(pin.identity).items() if name != "source"}
    upstream.restore(replace(pin, identity=json.dumps(identity)))
    topic.write([record(ROW, table="any")])
    latest = upstream.observe(pin.position, True).latest
    rows = upstream.changes(spark, TABLE, pin.position, latest, pin.schema[TABLE]).toArrow().to_pylist()
    assert [(row["id"], row["_backfill_error"]) for row in rows] == [(1, None)]


def test_the_option_of_tables_does_not_make_another_job_of_one_without_it() -> None:
    told = {"bootstrap_servers": "x", "topic": "t", "value": {"format": "debezium", "schema": "id BIGINT"}}
    without = connector.fingerprint(connector.options.model_validate(told))
    assert "tables" not in without["value"]
    told["value"] = {**told["value"], "tables": ["orders"]}
    assert connector.fingerprint(connector.options.model_validate(told))["value"]["tables"] == ["orders"]


# Values


BROKEN = [
    (b'{"op":"c","after":{"id":1}} {"op":"c","after":{"id":2}}', "text after the JSON object"),
    (b'{"op":"c","after":{"id":1}} trailing', "text after the JSON object"),
    (b'{"op":"c","after":{"id":1,"s":"\\ud800"}}', "half of a surrogate pair"),
    (b'{"op":"c","after":{"id":1,"s":1.10}}', "a number with a fraction in a column that is read as text"),
    (b'{"op":"c","after":{"id":1,"t":["a",1.10]}}', "a number with a fraction in a column that is read as text"),
    (b'{"op":"c","after":{"id":1,"f":1e400}}', "column 'f': out of range for a double: 1e400"),
    (b'{"op":"c","after":{"id":1,"s":"x, inf","f":1e400}}', "column 'f': out of range for a double: 1e400"),
    (b'{"op":"c","after":{"id":1,"g":1e39}}', "column 'g': out of range for a float: 1e39"),
    (b'{"op":"c","after":{"id":1,"a":[1.0,-1e309]}}', "column 'a': out of range for a double: [1.0,-1e309]"),
    (b'{"id":1,"s":"flat"}', "no 'op': not a Debezium envelope; rows that ExtractNewRecordState"),
    (
        b'{"after":"{\\"_id\\":1}","op":"c","source":{"connector":"mongodb"}}',
        "an envelope of MongoDB, which holds documents as text",
    ),
    (b"\x00\x00\x00\x00\x07abc", "written with a schema registry (schema id 7)"),
]


def test_what_an_envelope_cannot_hold_exactly_is_named(topic: Topic, spark: "SparkSession") -> None:
    ddl = "id BIGINT, s STRING, f DOUBLE, g FLOAT, a ARRAY<DOUBLE>, t ARRAY<STRING>"
    rows = read(topic, spark, [], [value for value, _ in BROKEN], schema=ddl)
    for row, (value, told) in zip(rows, BROKEN, strict=True):
        assert told in (row["_backfill_error"] or ""), value
        assert row["_backfill_raw"] == value


OTHER_KINDS = ({"y": 2026}, [1], True, 1.5, "x")


def test_a_time_of_another_kind_is_named_with_its_column(topic: Topic, spark: "SparkSession") -> None:
    ddl = "id BIGINT, day DATE, at TIMESTAMP, wall TIMESTAMP_NTZ"
    values = [(name, value) for name in ("day", "at", "wall") for value in OTHER_KINDS]
    records = [record({"id": 1, name: value}) for name, value in values]
    rows = read(topic, spark, [], records, schema=ddl, timestamps="us")
    for row, (name, value) in zip(rows, values, strict=True):
        assert f"column '{name}': " in (row["_backfill_error"] or ""), (name, value)


def test_numbers_beside_a_text_of_their_name_are_no_fault(topic: Topic, spark: "SparkSession") -> None:
    value = {"id": 1, "s": "x 1.10", "m": {"s": 1.5}}
    (row,) = read(topic, spark, [record(value)], schema="id BIGINT, s STRING, m MAP<STRING, DOUBLE>")
    assert (row["_backfill_error"], row["s"], row["m"]) == (None, "x 1.10", [("s", 1.5)])


def test_an_infinity_that_is_said_is_read(topic: Topic, spark: "SparkSession") -> None:
    (row,) = read(topic, spark, [record({"id": 1, "f": "Infinity"})], schema="id BIGINT, f DOUBLE")
    assert (row["_backfill_error"], row["f"]) == (None, float("inf"))


def test_an_update_that_moves_all_keys_by_one_stops_at_its_record(topic: Topic, spark: "SparkSession") -> None:
    """A source that checks the key late: each new row comes before the delete of the row that had its key."""
    events = [json.dumps(event).encode() for event in shift(10).events]
    ddl = {"schema": "id BIGINT, code STRING, state STRING, n INT, note STRING", "tables": ["public.t"]}
    with pytest.raises(FAILURES) as caught:
        read(topic, spark, events[:11], events[11:], **ddl)
    assert (
        "the record at partition 0, offset 12: one transaction put a row at this key and then removed another row "
        "from it; key: 2"
    ) in str(caught.value)


CODED = {"id": {"type": "int64", "optional": False}, "code": {"type": "string", "optional": False}}


def placed(op: str, old: dict[str, Any] | None, new: dict[str, Any] | None, tx: int, lsn: int) -> bytes:
    told = json.loads(record(new, CODED, op, txId=str(tx), lsn=str(lsn)))
    told["payload"]["before"] = old
    return json.dumps(told).encode()


def test_a_late_key_is_seen_after_any_number_of_windows_of_inserts(topic: Topic, spark: "SparkSession") -> None:
    topic.write([placed("c", None, {"id": 1, "code": "a"}, 1, 1)])
    upstream = topic.open(["id"], value={"format": "debezium"})
    pin = upstream.pin()
    at = pin.position

    def window(*values: bytes) -> "DataFrame":
        nonlocal at
        after = at
        topic.write(values)
        at = upstream.observe(at, True).latest
        found: DataFrame = upstream.changes(spark, TABLE, after, at, pin.schema[TABLE])
        return found.select("_backfill_op", "id").orderBy("_backfill_seq")

    for n in range(2, 23):
        window(placed("c", None, {"id": n, "code": "a"}, n, n))
    key_only = window(
        placed("c", None, {"id": 50, "code": "b"}, 50, 50), placed("d", {"id": 50, "code": ""}, None, 50, 51)
    )
    assert [tuple(row) for row in key_only.collect()] == [("U", 50), ("D", 50)]
    late = window(
        placed("c", None, {"id": 1, "code": "b"}, 60, 60), placed("d", {"id": 1, "code": "a"}, None, 60, 61)
    )
    with pytest.raises(FAILURES, match="put a row at this key and then removed another row from it; key: 1"):
        late.collect()


def test_the_keys_of_a_source_that_checks_each_row_are_followed(topic: Topic, spark: "SparkSession") -> None:
    source = Source(random.Random(SEED), "full", False, 0)
    source.run(20)
    events = [json.dumps(event).encode() for event in source.delivered()]
    found: dict[int, dict[str, Any]] = {}
    ddl = {"schema": "id BIGINT, code STRING, state STRING, n INT, note STRING", "tables": ["public.t"]}
    for row in read(topic, spark, events[:9], events[9:], **ddl):
        assert row["_backfill_error"] is None
        found.pop(row["id"], None)
        if row["_backfill_op"] == "U":
            found[row["id"]] = {name: row[name] for name in source.rows[0]}
    assert found == {row["id"]: row for row in source.rows}
