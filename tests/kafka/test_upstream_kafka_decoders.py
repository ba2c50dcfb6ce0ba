"""Formats of values and keys: of a package of its own, and of two kinds in one topic."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from broker import Broker
from kafka_topics import TABLE, Topic, history, new_topic, scanned
from pydantic import ValidationError
from pyspark import cloudpickle

from backfill_cli import registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = Path(__file__).parent.parent / "decoder_package"
VALUE = {"format": "logfmt", "schema": "id BIGINT, note STRING"}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package with the format `logfmt` is there, in workers too."""
    monkeypatch.syspath_prepend(str(PACKAGE))
    registry._every.cache_clear()
    import logfmt_decoder

    cloudpickle.register_pickle_by_value(logfmt_decoder)
    yield
    cloudpickle.unregister_pickle_by_value(logfmt_decoder)
    registry._every.cache_clear()


@pytest.fixture
def topic(broker: Broker) -> Topic:
    return new_topic(broker)


def changes(topic: Topic, spark: "SparkSession", **options: Any) -> list[tuple[Any, ...]]:
    upstream = topic.open(["id"], **options)
    pin = upstream.pin()
    latest = upstream.observe(pin.position, True).latest
    frame = upstream.changes(spark, TABLE, pin.position, latest, pin.schema[TABLE]).orderBy("_backfill_seq")
    rows = frame.select("_backfill_op", "id", "note", "_backfill_error").toArrow().to_pylist()
    return [tuple(row.values()) for row in rows]


@pytest.mark.usefixtures("installed")
def test_a_format_of_another_package_is_named_like_our_own(topic: Topic, spark: "SparkSession") -> None:
    topic.write([b"id=1 note=a", b"id=x", None])
    upstream = topic.open(value=VALUE)
    rows = scanned(upstream, spark, history(upstream), "id", "note", "_backfill_error")
    assert [tuple(row.values()) for row in rows] == [
        (1, "a", None),
        (None, None, "column 'id': not exactly a bigint"),
        (None, None, None),
    ]


def test_a_format_that_nobody_has_is_told(topic: Topic) -> None:
    with pytest.raises(ValidationError, match="must be '"):
        topic.open(value=VALUE)


@pytest.mark.usefixtures("installed")
def test_keys_have_a_format_of_their_own(topic: Topic, spark: "SparkSession") -> None:
    topic.write([b"id=1 note=a", None, None], keys=[b"1", b'{"id": 1}', b"id=2"])
    assert changes(topic, spark, value=VALUE)[:2] == [("U", 1, "a", None), ("D", 1, None, None)]
    assert changes(topic, spark, value=VALUE, keys="logfmt")[2] == ("D", 2, None, None)


def test_a_key_as_it_is_is_no_json(topic: Topic, spark: "SparkSession") -> None:
    topic.write([None, None], keys=[b'"1"', b"\xff"])
    value = {"format": "rows", "schema": "id STRING, note STRING"}
    (first, second) = changes(topic, spark, value=value, keys="bytes")
    assert first == ("D", '"1"', None, None)
    assert second == ("D", None, None, "the key of a tombstone: not UTF-8 text")


def test_a_deleted_document_is_known_by_its_records_key(topic: Topic, spark: "SparkSession") -> None:
    source = {"connector": "mongodb", "db": "shop", "collection": topic.name}
    envelopes = [{"op": "c", "source": source, "after": '{"_id": {"$oid": "%s"}, "n": 5}' % ("a" * 24)}]
    envelopes.append({"op": "d", "source": source, "after": None})
    key = json.dumps({"id": json.dumps({"$oid": "a" * 24})}).encode()
    topic.write([json.dumps(one).encode() for one in envelopes] + [None], keys=[key] * 3)
    value = {"format": "debezium-mongodb", "schema": "_id STRING, n BIGINT"}
    upstream = topic.open(["_id"], value=value)
    pin = upstream.pin()
    latest = upstream.observe(pin.position, True).latest
    frame = upstream.changes(spark, TABLE, pin.position, latest, pin.schema[TABLE]).orderBy("_backfill_seq")
    rows = frame.select("_backfill_op", "_id", "n", "_backfill_error").toArrow().to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("U", "a" * 24, 5, None),
        ("D", "a" * 24, None, None),
        ("D", "a" * 24, None, None),
    ]
