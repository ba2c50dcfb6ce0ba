"""A registry that is down, lies, or comes back, as a job meets it: waited for by name, or refused."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker import Broker
from hint_typed import typed
from kafka_topics import Topic, new_topic
from registry_job import Job
from toy_registry import Raw, ToyRegistry, error, running

from backfill_cli.errors import BadData, Fatal, Transient, UsageError
from backfill_cli.schema_registry import http

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
DOWN = error(503, 50302, "no leader")


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[ToyRegistry]:
    monkeypatch.setattr(http, "SILENCE_S", 2.0)
    with running() as made:
        yield made


@pytest.fixture
def topic(broker: Broker, toy: ToyRegistry) -> Topic:
    """Two rows."""
    made = new_topic(broker)
    id = toy.add(f"{made.name}-value", SCHEMA)
    made.write([b"\0" + struct.pack(">I", id) + number for number in (b"\2", b"\4")])
    return made


def job(topic: Topic, toy: ToyRegistry, folder: Path, **more: object) -> Job:
    value = {"format": "events", "encoding": "avro"}
    return Job(topic.broker.bootstrap, topic.name, folder, value=value, registry={"url": toy.url}, **more)


def ids(of: Job) -> list[int]:
    return [row["id"] for row in of.rows()]


def test_a_registry_that_is_down_for_a_while_is_waited_for(topic: Topic, toy: ToyRegistry, tmp_path: Path) -> None:
    toy.script = [DOWN] * 3
    assert ids(job(topic, toy, tmp_path, retry_limit="60s")) == [1, 2]
    assert not toy.script


def test_one_that_stays_down_ends_the_run_which_goes_on_later(
    topic: Topic, toy: ToyRegistry, tmp_path: Path
) -> None:
    began = job(topic, toy, tmp_path)
    assert ids(began) == [1, 2]
    other = toy.add(f"{topic.name}-value", SCHEMA.replace("long", "int"))
    topic.write([b"\0" + struct.pack(">I", other) + b"\6"])
    toy.always = DOWN
    with pytest.raises(Transient, match=f"{toy.url}: the schema registry answers HTTP 503: no leader") as refused:
        ids(began)
    assert refused.value.exit_code == 6
    with typed(refused.value) as hint:
        hint.says("start the schema registry")
        toy.always = None
        assert ids(began) == [1, 2, 3]


@pytest.mark.parametrize(
    "lie", [Raw(200, [b"<html>"]), Raw(302, [], {"Location": "http://127.0.0.1:1/"}), error(401, 401, "who?")]
)
def test_what_is_no_registry_refuses_the_start(topic: Topic, toy: ToyRegistry, tmp_path: Path, lie: Raw) -> None:
    toy.always = lie
    with pytest.raises(Fatal, match=toy.url):
        job(topic, toy, tmp_path).rows()


def test_ids_in_headers_are_refused_before_a_job_begins(
    broker: Broker, topic: Topic, toy: ToyRegistry, tmp_path: Path
) -> None:
    """As Apicurio's converters write by default: without its id a record can look like one of another schema."""
    bare = new_topic(broker)
    toy.add(f"{bare.name}-value", SCHEMA)
    bare.write([b"\0"], headers=[("apicurio.value.globalId", struct.pack(">q", 1))])
    with pytest.raises(UsageError, match=r"in headers \(apicurio.value.globalId\), which are not read") as refused:
        job(bare, toy, tmp_path / "bare").rows()
    with typed(refused.value) as hint:
        hint.says("let the serializer write them before the value")
        assert ids(job(topic, toy, tmp_path / "job")) == [1, 2]


def test_a_record_with_an_unknown_id_is_named_with_its_place(
    topic: Topic, toy: ToyRegistry, tmp_path: Path
) -> None:
    topic.write([b"\0\0\0\0\x63\2"])
    said = "partition 0, offset 2 cannot be read: schema id 99 is not in the registry"
    with pytest.raises(BadData, match=said) as refused:
        job(topic, toy, tmp_path / "fail").rows()
    with typed(refused.value) as hint:
        told = {name.removeprefix("upstream."): value for name, value in hint.settings().items()}
        assert ids(job(topic, toy, tmp_path / "aside", **told)) == [1, 2]
