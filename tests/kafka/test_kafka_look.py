"""`init --from kafka://…`: what a topic shows, or why it shows nothing."""

import json
import re
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from broker import Broker
from hint_typed import typed
from hypothesis import given
from hypothesis import strategies as st
from kafka_secured import PASSWORD, USER, properties
from kafka_topics import Topic, new_topic
from sink_contract import a_table

from backfill_cli.config import JobConfig, load
from backfill_cli.config.draft import Asked, drafted
from backfill_cli.config.template import template
from backfill_cli.contracts import FoundTable, Looked, Named, Told
from backfill_cli.errors import UsageError
from backfill_cli.kafka.url import Url
from backfill_cli.upstreams.kafka import connector


@pytest.fixture
def topic(broker: Broker) -> Topic:
    return new_topic(broker, partitions=2)


def look(url: str, **named: Any) -> Looked:
    assert connector.look is not None
    return connector.look(Named(url, url, **named))


def url_of(topic: Topic) -> str:
    return f"kafka://{topic.broker.bootstrap}/{topic.name}"


def told(looked: Looked) -> dict[str, object]:
    return {name: one.value for name, one in looked.options.items()}


def test_a_property_that_the_client_may_not_have_is_named_with_how_to_write_the_url(topic: Topic) -> None:
    with pytest.raises(UsageError, match=r"'batch\.size' is not a client property that can be set") as refused:
        look(f"{url_of(topic)}?batch.size=5")
    with typed(refused.value) as hint:
        place = hint.options()["--from"]
        assert told(look(place.replace("HOST:PORT", topic.broker.bootstrap).replace("TOPIC", topic.name)))


def test_rows_of_both_ends_of_all_partitions_give_the_columns(topic: Topic) -> None:
    topic.write_json([{"id": n, "price": n + 0.5} for n in range(3_000)])
    topic.write_json([{"id": "last", "note": "x"}], partition=1)
    looked = look(url_of(topic))
    (table,) = looked.tables
    assert (table.name, table.key.value) == (topic.name, ())
    assert told(looked) == {
        "bootstrap_servers": topic.broker.bootstrap,
        "topic": topic.name,
        "value.format": "events",
        "value.schema": "id STRING, price DECIMAL(18,1), note STRING",
    }
    assert looked.said[0] == f"topic {topic.name} on {topic.broker.bootstrap}: 2 partitions, 3,001 records"
    assert looked.said[1].endswith("read: JSON objects with 3 columns; each record is a row")
    assert "'id' has values of several kinds" in looked.options["value.schema"].why
    connector.options.model_validate(nested(looked))


def nested(looked: Looked) -> dict[str, Any]:
    """The options as a config has them."""
    made: dict[str, Any] = {}
    for name, one in looked.options.items():
        *tables, last = name.split(".")
        at = made
        for part in tables:
            at = at.setdefault(part, {})
        at[last] = one.value
    return made


def test_an_empty_topic_and_one_of_tombstones_leave_the_format_open(topic: Topic) -> None:
    assert look(url_of(topic)).options["value.format"].value is None
    topic.write([None, None], keys=[b"1", b"2"])
    looked = look(url_of(topic))
    assert looked.options["value.format"].value is None
    assert "no records with a value yet" in looked.options["value.format"].why


def test_a_topic_of_aborted_transactions_has_no_records(topic: Topic) -> None:
    topic.transaction([b"1", b"2"], how="abort")
    assert "no records yet" in look(url_of(topic)).options["value.format"].why


def test_a_topic_fills_one_table(topic: Topic) -> None:
    topic.write_json([{"id": 1}])
    with pytest.raises(UsageError, match="a topic fills one table, not a, b") as refused:
        look(url_of(topic), tables=("a", "b"))
    with typed(refused.value) as hint:
        assert look(url_of(topic), tables=(hint.options()["--table"],)).tables[0].name == "a"


def test_a_topic_for_each_table_is_found_by_the_pattern_of_their_names(broker: Broker) -> None:
    prefix = f"many.{new_topic(broker).name}"
    topics = {table: f"{prefix}.{table}" for table in ("a", "b", "empty", "changes")}
    for name in topics.values():
        broker.create(name, 1)
    Topic(broker, topics["a"]).write([b'{"id":1,"name":"x"}', None], keys=[b'{"id":1}', b'{"id":2}'])
    Topic(broker, topics["b"]).write([b'{"id":1,"sum":2}', None], keys=[b'{"id":1}', b'{"id":2}'])
    url = f"kafka://{broker.bootstrap}/{prefix}.{{table}}"
    looked = look(url)
    assert [(one.name, one.key.value) for one in looked.tables] == [("a", ["id"]), ("b", ["id"])]
    assert told(looked) == {
        "bootstrap_servers": broker.bootstrap,
        "topics": f"{prefix}.{{table}}",
        "value.format": "rows",
        "value.schema": {"a": "id BIGINT, name STRING", "b": "id BIGINT, sum BIGINT"},
    }
    assert looked.said[1].endswith("how they are written: changes, empty")
    connector.options.model_validate(nested(looked))
    Topic(broker, topics["changes"]).write(
        [b'{"op":"c","after":{"id":1},"before":null,"source":{"table":"changes"}}']
    )
    with pytest.raises(
        UsageError, match=r"not written alike: upstream\.value\.format is rows of a, but debezium"
    ) as refused:
        look(url)
    with typed(refused.value) as hint:
        hint.says("--table a")
        assert [one.name for one in look(url, tables=("a", "b")).tables] == ["a", "b"]
    with pytest.raises(UsageError, match="does not exist"):
        look(f"kafka://{broker.bootstrap}/none-of-them.{{table}}")
    empty = look(url, tables=("empty",))
    assert (empty.options["topics"].value, empty.options["value.format"].value) == (f"{prefix}.{{table}}", None)


def test_a_topic_that_begins_with_tombstones_is_a_table_by_key(topic: Topic) -> None:
    topic.write([None] * 50, keys=[json.dumps({"id": n}).encode() for n in range(50)])
    rows = [{"id": n, "v": "x"} for n in range(60, 90)]
    topic.write(
        [json.dumps(row).encode() for row in rows], keys=[json.dumps({"id": n}).encode() for n in range(60, 90)]
    )
    looked = look(url_of(topic))
    assert looked.tables[0].key.value == ["id"]
    assert "some records delete" in looked.tables[0].key.why
    assert told(looked)["value.schema"] == "id BIGINT, v STRING"


def test_a_compacted_topic_is_a_table_by_its_text_keys(broker: Broker) -> None:
    topic = new_topic(broker, cleanup_policy="compact")
    topic.write([b'{"code": "a", "n": 1}', b'{"code": "b", "n": 1}'], keys=[b"a", b"b"])
    looked = look(url_of(topic))
    assert looked.tables[0].key.value == ["code"]
    assert told(looked)["key.format"] == "bytes"
    assert looked.said[0].endswith("2 records, compacted")


def test_records_of_a_megabyte_are_looked_at_within_the_limits(topic: Topic) -> None:
    topic.write([json.dumps({"id": n, "text": "x" * 900_000}).encode() for n in range(30)])
    begun = time.monotonic()
    looked = look(url_of(topic))
    assert told(looked)["value.schema"] == "id BIGINT, text STRING"
    assert time.monotonic() - begun < 20


def test_two_formats_in_one_topic_are_for_the_user_to_settle(topic: Topic) -> None:
    envelope = {"op": "c", "before": None, "after": {"id": 1}, "source": {"table": "t"}}
    topic.write_json([{"id": 1}, envelope])
    told_format = look(url_of(topic)).options["value.format"]
    assert told_format.value is None
    assert "1 Debezium envelope (the first at partition 0, offset 1)" in told_format.why


def test_a_topic_that_does_not_exist_has_the_nearest_named(topic: Topic) -> None:
    with pytest.raises(UsageError, match=f"topic '{topic.name}x' does not exist; did you mean ") as missing:
        look(f"{url_of(topic)}x")
    with typed(missing.value) as hint:
        ((init, _from, url),) = hint.commands()
        assert init == "init"
        look(url)


def test_without_a_topic_the_topics_are_listed(topic: Topic) -> None:
    with pytest.raises(UsageError, match=r"topics?; which one\?") as listed:
        look(f"kafka://{topic.broker.bootstrap}")
    with typed(listed.value) as hint:
        ((*_, url),) = hint.commands()
        # the first topic can be another test's, with records that only a registry explains
        assert f"\n  {url.rpartition('/')[2]}: " in listed.value.message


def test_changes_of_a_snapshot_ask_where_the_snapshot_began(topic: Topic) -> None:
    topic.write_json([{"op": "c", "after": {"id": 1}, "before": None, "source": {"table": "orders"}}])
    assert connector.changes is not None
    assert connector.changes.look is not None
    snapshot = Looked([FoundTable("orders", Told(["id"]))], {"snapshot.path": Told("data/orders")})
    looked = connector.changes.look(Named(url_of(topic), url_of(topic)), snapshot)
    assert looked.tables == snapshot.tables
    assert looked.options["from"].value is None
    given = nested(looked) | {"type": "kafka", "from": "earliest"}
    assert given["value"] == {"format": "debezium"}
    connector.changes.options.model_validate(given)


def test_a_cluster_without_topics_and_a_topic_that_sends_nothing_say_so(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.write_json([{"id": 1}])
    with monkeypatch.context() as patched:
        patched.setattr("backfill_cli.kafka.cluster.Cluster.topics", lambda _self: {})
        with pytest.raises(UsageError, match="has no topics that this user may see") as none:
            look(f"kafka://{topic.broker.bootstrap}")
    with monkeypatch.context() as patched:
        patched.setattr("backfill_cli.upstreams.kafka.look.SAMPLE_S", 0.0)
        with pytest.raises(UsageError, match="sent no record within ") as silent:
            look(url_of(topic))
    for refused, says in ((none, "create the topic first"), (silent, "name broker and topic")):
        with typed(refused.value) as hint:
            hint.says(says)
            look(url_of(topic))


def test_a_key_that_is_no_column_is_refused(topic: Topic) -> None:
    topic.write_json([{"id": 1, "v": 2}])
    assert look(url_of(topic), key=("id",)).tables[0].key.value == ["id"]
    with pytest.raises(UsageError, match="--key: column 'ix' does not exist; columns: id, v") as refused:
        look(url_of(topic), key=("ix",))
    with typed(refused.value) as hint:
        assert look(url_of(topic), key=(hint.options()["--key"],)).tables[0].key.value == ["id"]


def test_a_server_that_wants_tls_is_recognised(topic: Topic) -> None:
    topic.write_json([{"id": 1}])
    secured = topic.broker.secured
    with pytest.raises(UsageError, match=str(secured)) as refused:
        look(f"kafka://{secured}/{topic.name}")
    with typed(refused.value) as hint:
        hint.says("it wants TLS: ")
        _plain, (*_, login) = hint.commands()
        told = properties(topic.broker)
        url = login.replace("USER", USER).replace("${env:KAFKA_PASSWORD}", PASSWORD)
        authority = f"&ssl.ca.location={quote(told['ssl.ca.location'])}"
        assert connector.look is not None
        looked = connector.look(Named(url + authority, login.replace("USER", USER) + authority))
    options = looked.options["options"].value
    assert options == {**told, "sasl.password": "${env:KAFKA_PASSWORD}"}
    assert PASSWORD not in str(looked)
    with pytest.raises(UsageError, match="access denied") as wrong:
        connector.look(Named(url.replace(PASSWORD, "wrong") + authority, login + authority))
    assert "wrong" not in str(wrong.value)
    with typed(wrong.value) as hint:
        hint.says("what the client needs to be let in follows")
        connector.look(Named(url + authority, login + authority))


def test_a_password_in_the_url_is_refused_and_not_shown(topic: Topic) -> None:
    with pytest.raises(UsageError, match="a secret, which is stored in no config") as refused:
        look(f"{url_of(topic)}?sasl.password={PASSWORD}")
    assert PASSWORD not in str(refused.value)
    with typed(refused.value) as hint:
        hint.says("sasl.password=${env:KAFKA_PASSWORD}")
    with pytest.raises(UsageError, match="has no user before an @") as user:
        look(f"kafka://app:{PASSWORD}@{topic.broker.bootstrap}/{topic.name}")
    assert PASSWORD not in str(user.value)
    with typed(user.value) as hint:
        hint.says("sasl.username=USER")


def test_a_server_that_refuses_or_is_silent_is_given_up_soon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        begun = time.monotonic()
        with pytest.raises(UsageError, match=f"127.0.0.1:{port}") as refused:
            look(f"kafka://127.0.0.1:{port}/orders")
        assert time.monotonic() - begun < 30
    with typed(refused.value) as hint:
        hint.says("if it wants a user and a password: ")
    with pytest.raises(UsageError, match="does not answer: connection refused") as nobody:
        look(f"kafka://127.0.0.1:{port}/orders")
    with typed(nobody.value) as hint:
        hint.says("start the broker, or name broker and topic: --from kafka://HOST:PORT/TOPIC")


@pytest.mark.parametrize("scheme", ["kafka://", ""])  # `kafka:HOST/TOPIC` names the type, and has no scheme
def test_what_a_variable_holds_is_one_value_whatever_is_in_it(scheme: str) -> None:
    """A password with a & is no two properties, of which the second would be shown."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"{scheme}127.0.0.1:{port}/orders?sasl.password="
        named = Named(f"{url}hunter2&abc%41", f"{url}${{env:PW}}", values={"${env:PW}": "hunter2&abc%41"})
        assert connector.look is not None
        with pytest.raises(UsageError, match=f"127.0.0.1:{port}") as refused:
            connector.look(named)
    assert not re.search("hunter2|abc", str(refused.value))
    with typed(refused.value) as hint:
        hint.says("kafka://HOST:PORT/TOPIC")


def test_servers_of_a_variable_get_no_port_and_files_are_those_of_this_folder() -> None:
    url = Url.of("kafka://${env:BROKERS},h/t?ssl.ca.location=ca.pem&ssl.key.location=${env:KEY}")
    assert url.servers == "${env:BROKERS},h:9092"
    assert url.properties == {"ssl.ca.location": str(Path("ca.pem").absolute()), "ssl.key.location": "${env:KEY}"}


@given(st.text(st.sampled_from("ab&%=?#/+: \u00fc{}$"), max_size=12))
def test_a_url_of_another_topic_has_the_same_properties(value: str) -> None:
    url = Url(
        "h:9092",
        "t",
        {"sasl.username": value, "sasl.password": "${env:PW}", "ssl.key.password": f"{value}${{env:X}}"},
    )
    assert Url.of(url.with_topic("other")).properties == url.properties


@pytest.mark.parametrize(
    "url",
    [
        "kafka:///orders",
        "kafka://",
        "kafka://,/orders",
        "kafka://h:1/orders?group.id=x",
        "kafka://h:1/a b",
        "kafka://a..b:1/t",
    ],
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        look(url)
    with typed(refused.value) as hint:
        hint.says("kafka://HOST:PORT/TOPIC")


# `--to kafka://…`


def config_of(topic: Topic, to: str, folder: Path) -> JobConfig:
    """The config that `init` writes, as it is read."""
    file = folder / "job.toml"
    file.write_text(template(drafted(Asked(url_of(topic), to=to, key=("id",)), folder), full=False))
    return load(file)


def test_a_sink_that_is_named_by_its_url_is_a_config_as_it_is(topic: Topic, tmp_path: Path) -> None:
    topic.write_json([{"id": 1}])
    begin, mine = f"kafka://{topic.broker.bootstrap}", (replace(a_table(), target=topic.name),)
    for place, named in (
        ("", {}),
        ("/", {}),
        (f"/{topic.name}.out", {"topic": f"{topic.name}.out"}),
        (
            f"/{topic.name}.{{table}}?linger.ms=5",
            {"topics": f"{topic.name}.{{table}}", "options": {"linger.ms": "5"}},
        ),
    ):
        config = config_of(topic, begin + place, tmp_path)
        told = {"type": "kafka", "bootstrap_servers": topic.broker.bootstrap, **named}
        assert config.tree["sink"] == told
        if named:
            config.open_sink().check("orders", mine, into_existing=False)


def test_a_sink_whose_servers_want_a_password_says_how_to_name_it(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.write_json([{"id": 1}])
    with pytest.raises(UsageError, match=str(topic.broker.secured)) as refused:
        config_of(topic, f"kafka://{topic.broker.secured}/{topic.name}.out", tmp_path)
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    properties_of = properties(topic.broker)
    with typed(refused.value) as hint:
        hint.says("it wants TLS: ")
        _plain, (*_, login) = hint.commands()
        url = login.replace("USER", USER) + f"&ssl.ca.location={quote(properties_of['ssl.ca.location'])}"
        config = config_of(topic, url, tmp_path)
    assert config.tree["sink"]["options"] == properties_of | {"sasl.password": "${env:KAFKA_PASSWORD}"}
    monkeypatch.setenv("KAFKA_PASSWORD", "wrong-4711")
    with pytest.raises(UsageError, match="access denied") as wrong:
        config_of(topic, url, tmp_path)
    assert "wrong-4711" not in f"{wrong.value}{wrong.value.hint}"
    with pytest.raises(UsageError, match=r"a secret, which is stored in no config|holds a password") as told:
        config_of(topic, url.replace("${env:KAFKA_PASSWORD}", "hunter2"), tmp_path)
    assert "hunter2" not in f"{told.value}{told.value.hint}"


def test_a_sink_whose_servers_do_not_answer_is_told_soon(topic: Topic, tmp_path: Path) -> None:
    topic.write_json([{"id": 1}])
    with pytest.raises(UsageError, match=r"127\.0\.0\.1:1: does not answer") as nobody:
        config_of(topic, "kafka://127.0.0.1:1/orders", tmp_path)
    with typed(nobody.value) as hint:
        hint.says("start the broker, or name broker and topic: --to kafka://HOST:PORT/TOPIC")
        config_of(topic, f"kafka://{topic.broker.bootstrap}/orders", tmp_path)
