"""The keys of tables whose config names none, by what a topic and a registry show."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from toy_registry import running
from unit.decode import registered_avro

from backfill_cli.errors import ConfigError
from backfill_cli.upstreams.kafka import connector, keys
from backfill_cli.upstreams.kafka.log import samples
from backfill_cli.upstreams.kafka.options import KafkaOptions

CUST, ORD = {"id": 1}, {"oid": 1, "ln": 2}
HEARTBEAT = ({"serverName": "s"}, {"ts_ms": 1})
MARK = ({"id": "1:1"}, {"status": "BEGIN", "id": "1:1", "ts_ms": 1})
MESSAGE = (None, {"op": "m", "ts_ms": 1, "source": {"db": "d", "schema": "", "table": ""}, "message": {}})
EMPTIED = (None, {"op": "t", "ts_ms": 1, "source": {"db": "d", "schema": "public", "table": "ord"}})


def change(table: str, key: dict[str, Any], op: str = "c") -> tuple[Any, Any]:
    source = {"db": "d", "schema": "public", "table": table}
    return key, {"before": None, "after": {**key, "x": 1}, "source": source, "op": op, "ts_ms": 1}


@dataclass
class Message:
    of: tuple[bytes | None, bytes | None]

    def key(self) -> bytes | None:
        return self.of[0]

    def value(self) -> bytes | None:
        return self.of[1]


class Topics:
    """Topics by name, each with records."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held: dict[str, list[Message]] = {}
        monkeypatch.setattr(keys, "Cluster", self._cluster)
        monkeypatch.setattr(samples, "glimpse", lambda connection, topic, seen, limit_s: self.held[topic])

    def json(self, topic: str, *records: tuple[Any, Any]) -> None:
        def told(one: Any) -> bytes | None:
            return None if one is None else json.dumps(one).encode()

        self.held[topic] = [Message((told(key), told(value))) for key, value in records]

    def _cluster(self, _connection: object, topics: Sequence[str]) -> Any:
        class Cluster:
            def must_exist(self) -> None: ...
            def look(self) -> dict[str, None]:
                return dict.fromkeys(topics)

            def close(self) -> None: ...

        return Cluster()


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> Topics:
    return Topics(monkeypatch)


def known(unkeyed: Sequence[str], tables: Sequence[str] = (), **more: Any) -> Any:
    told = {"bootstrap_servers": "b:1", "value": {"format": "debezium"}, **more}
    assert connector.primary_keys is not None
    return connector.primary_keys(KafkaOptions.model_validate(told), unkeyed, tables or unkeyed)


SHOP = (HEARTBEAT, change("cust", CUST), MARK, change("ord", ORD), MESSAGE, EMPTIED, change("cust", CUST, "u"))


def test_of_two_tables_in_a_topic_one_may_have_its_key_in_the_config(topics: Topics) -> None:
    topics.json("shop", *SHOP, (CUST, None))
    assert known(["ord"], ["cust", "ord"], topic="shop") == {"ord": ["oid", "ln"]}
    assert known(["cust"], ["cust", "ord"], topic="shop") == {"cust": ["id"]}
    assert known(["cust", "ord"], topic="shop") == {"cust": ["id"], "ord": ["oid", "ln"]}


def test_what_is_no_change_of_a_row_says_nothing_of_the_key(topics: Topics) -> None:
    topics.json("orders", HEARTBEAT, MARK, MESSAGE, EMPTIED, change("ord", ORD), (ORD, None))
    assert known(["orders"], topic="orders") == {"orders": ["oid", "ln"]}


def test_of_tables_with_topics_of_their_own_one_may_have_its_key_in_the_config(topics: Topics) -> None:
    topics.json("o", change("ord", ORD))
    named = {"cust": "c", "ord": "o"}
    assert known(["ord"], ["cust", "ord"], topics=named) == {"ord": ["oid", "ln"]}


def test_keys_with_several_forms_show_none(topics: Topics) -> None:
    topics.json("orders", change("ord", ORD), change("ord", {"oid": 1}))
    assert known(["orders"], topic="orders") == {}
    topics.json("orders", (None, change("ord", ORD)[1]))
    assert known(["orders"], topic="orders") == {}


def test_a_table_that_shares_a_topic_has_no_other_tables_key(topics: Topics) -> None:
    topics.json("shop", change("cust", CUST))
    assert known(["ord"], ["cust", "ord"], topic="shop") == {}


KEYS = {
    name: {"type": "record", "name": name, "fields": [{"name": field, "type": "long"} for field in key]}
    for name, key in (("cust", CUST), ("ord", ORD))
}
SOURCE = {"type": "record", "name": "Source", "fields": [{"name": n, "type": "string"} for n in ("db", "table")]}
VALUE = {
    "type": "record",
    "name": "Envelope",
    "fields": [{"name": "source", "type": SOURCE}, {"name": "op", "type": "string"}],
}


def test_of_tables_that_share_a_topic_in_avro_each_has_its_own_key(topics: Topics) -> None:
    with running() as registry:
        key, value = (registered_avro.Topic(registry, f"shop-{of}") for of in ("key", "value"))

        def told(table: str, of: dict[str, int], op: str = "c") -> Message:
            envelope = {"source": {"db": "d", "table": table}, "op": op}
            return Message((key.record(KEYS[table], of), value.record(VALUE, envelope)))

        topics.held["shop"] = [told("cust", CUST), told("ord", ORD), told("ord", ORD, "u")]
        avro = {"value": {"format": "debezium", "encoding": "avro"}, "key": {"format": "avro"}}
        found = known(["cust", "ord"], topic="shop", registry={"url": registry.url}, **avro)
        assert found == {"cust": ["id"], "ord": ["oid", "ln"]}


@pytest.mark.parametrize("told", [{}, {"tables": ["cust"]}], ids=["two tables of the job", "one of several"])
def test_the_newest_schema_of_keys_says_nothing_of_tables_that_share_the_topic(
    topics: Topics, told: dict[str, Any]
) -> None:
    """It is of one of them."""
    topics.held["shop"] = []
    value = {"format": "debezium", "encoding": "avro", **told}
    tables = ["cust"] if told else ["cust", "ord"]
    with running() as registry:
        registry.add("shop-key", json.dumps(KEYS["ord"]))
        at = {"topic": "shop", "key": {"format": "avro"}, "registry": {"url": registry.url}}
        assert known(["cust"], tables, value=value, **at) == {}


PROTOBUF = 'syntax = "proto3"; message Value { int64 id = 1; } message Key { int64 id = 1; } message Other {}'


def test_of_a_protobuf_schema_of_several_messages_the_records_tell_which_one_keys_are(topics: Topics) -> None:
    with running() as registry:
        id = registry.add("rows-key", PROTOBUF, "PROTOBUF")
        key = b"\0" + id.to_bytes(4, "big") + bytes([2, 2]) + bytes([8, 7])
        topics.held["rows"] = [Message((key, b"")), Message((key, None))]
        told = {"value": {"format": "rows", "encoding": "protobuf"}, "key": {"format": "protobuf"}}
        assert known(["rows"], topic="rows", registry={"url": registry.url}, **told) == {"rows": ["id"]}
        topics.held["rows"] = []
        with pytest.raises(ConfigError, match="'rows' needs key"):
            known(["rows"], topic="rows", registry={"url": registry.url}, **told)


def test_where_the_schema_shows_the_key_no_record_is_read(topics: Topics) -> None:
    with running() as registry:
        registry.add("rows-key", json.dumps(KEYS["ord"]))
        told = {"value": {"format": "rows", "encoding": "avro"}, "key": {"format": "avro"}}
        assert known(["rows"], topic="rows", registry={"url": registry.url}, **told) == {"rows": ["oid", "ln"]}
