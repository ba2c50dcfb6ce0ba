"""Hints of the Kafka upstream that need no cluster: columns that are declared, and the client's package."""

import builtins
import json
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hint_typed import typed
from pydantic import ValidationError
from pyspark.errors import AnalysisException

from backfill_cli.contracts import TableSpec
from backfill_cli.contracts.options import STORED
from backfill_cli.decode import debezium
from backfill_cli.errors import BackfillError, BadData, ConfigError, UsageError
from backfill_cli.kafka.cluster import Seen
from backfill_cli.kafka.edge import client
from backfill_cli.kafka.ranges import Range
from backfill_cli.model.schema import field
from backfill_cli.upstreams.kafka import columns, connector
from backfill_cli.upstreams.kafka.log import samples, spark_source
from backfill_cli.upstreams.kafka.options import KafkaOptions
from backfill_cli.upstreams.kafka.topics import Topics

ROW = [
    {"field": "id", "type": "int64"},
    {"field": "d", "type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
]
BLOCK = {"type": "struct", "fields": [{"type": "struct", "field": "after", "fields": ROW}]}
RECORD = json.dumps({"schema": BLOCK, "payload": {"op": "c", "after": {"id": 1, "d": None}}}).encode()


@pytest.fixture(autouse=True)
def records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "of_topic", lambda *_: [RECORD])


def source(**value: str) -> list[str]:
    told = {"bootstrap_servers": "nowhere:1", "topic": "t", "value": value}
    options, seen = KafkaOptions.model_validate(told), Seen("cluster", "topic", {}, {})
    return list(columns.of_source(options, Topics(options, [TableSpec("t", ("id",))]).of["t"], None, seen)[0])


@pytest.mark.parametrize(
    ("value", "error"),
    [({"format": "rows", "schema": "id BIGINT, note TEXTS"}, ConfigError), ({"format": "debezium"}, BadData)],
    ids=["no type", "no exact type"],
)
def test_columns_that_are_not_all_known_are_declared(value: dict[str, str], error: type[BackfillError]) -> None:
    with pytest.raises(error) as refused:
        source(**value)
    with typed(refused.value) as hint:
        schema = str(hint.settings()["upstream.value.schema"])
        assert {"id", "note"} <= set(source(format="rows", schema=schema))
    assert source(**value | {"schema": "id BIGINT, d DECIMAL(20,2)"})[-1] == "d"


def test_a_key_as_it_is_is_the_one_column_of_a_text() -> None:
    def read(schema: str, *key: str) -> list[str]:
        told = {"bootstrap_servers": "nowhere:1", "topic": "t", "key": {"format": "bytes"}}
        options = KafkaOptions.model_validate({**told, "value": {"format": "rows", "schema": schema}})
        seen = Seen("cluster", "topic", {}, {})
        return list(columns.of_source(options, Topics(options, [TableSpec("t", key)]).of["t"], None, seen)[0])

    for schema, key in (("id BIGINT", ["id"]), ("a STRING, b STRING", ["a", "b"])):
        with pytest.raises(
            ConfigError, match="bytes are the value of one key column, STRING or BINARY"
        ) as refused:
            read(schema, *key)
        with typed(refused.value) as hint:
            assert hint.settings() == {"upstream.key.format": "json"}
    assert read("id STRING", "id")[-1] == "id"


def test_a_column_with_the_name_of_a_records_place_is_left_out() -> None:
    with pytest.raises(
        UsageError, match="column 'Kafka_Offset' has the name of the column that says where"
    ) as refused:
        source(format="rows", schema="id BIGINT, Kafka_Offset BIGINT")
    with typed(refused.value) as hint:
        hint.says("if upstream.value.schema declares it, leave it out there")
        assert source(format="rows", schema="id BIGINT")[-1] == "id"


def test_how_decimals_are_written_is_told_by_the_option_that_the_error_names() -> None:
    columns = {"p": field("p", "decimal(10,2)")}

    def encodings(decimals: str | None = None) -> str:
        return debezium.encodings(columns, None, decimals, "upstream.value")[0]["p"].kind

    with pytest.raises(ConfigError) as refused:
        encodings()
    assert refused.value.faults == (
        "upstream.value: column 'p': nothing says how a decimal(10,2) is written: set upstream.value.decimals = "
        '"precise", or "string", or "double"',
    )
    assert [encodings(decimals=one) for one in ("precise", "string", "double")] == ["unscaled", "text", "double"]


def test_a_client_that_is_not_installed_comes_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *told: Any) -> ModuleType:
        if name.startswith("confluent_kafka"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *told)

    with monkeypatch.context() as lacking:
        lacking.setattr(builtins, "__import__", without)
        with pytest.raises(UsageError, match="needs confluent-kafka, which is not installed") as refused:
            client()
    with typed(refused.value) as hint:
        assert hint.packages() >= {"confluent-kafka"}
        assert client().__name__ == "confluent_kafka"


def test_a_reader_whose_jars_are_missing_is_changed_in_the_config() -> None:
    """`resume` takes the stored config, and would be refused again."""

    class Read:
        def format(self, _name: str) -> "Read":
            return self

        def options(self, **_told: str) -> "Read":
            return self

        def load(self) -> None:
            raise AnalysisException("Failed to find data source: kafka")

    told = {"bootstrap_servers": "nowhere:1", "topic": "t", "value": {"format": "rows", "schema": "id BIGINT"}}
    options, spark = KafkaOptions.model_validate(told), SimpleNamespace(read=Read())
    with pytest.raises(UsageError, match="no Kafka source") as refused:
        spark_source.frame(spark, options, "t", [Range(0, 0, 0, 1)], 1)  # type: ignore[arg-type]
    assert str(refused.value.way_on("orders")).endswith("; then: backfill start --config FILE")


def test_rows_need_a_key_and_events_have_their_place() -> None:
    def keys(form: str) -> object:
        told = {"bootstrap_servers": "b:1", "topic": "t", "value": {"format": form, "schema": "id BIGINT"}}
        options = KafkaOptions.model_validate(told)
        assert connector.primary_keys is not None
        return connector.event_key(options) or connector.primary_keys(options, ["t"], ["t"])

    with pytest.raises(ConfigError, match="'t' needs key: of rows, the newest of each key counts") as refused:
        keys("rows")
    with typed(refused.value) as hint:
        assert hint.settings()["upstream.value.format"] == "events"
        assert keys("events") == ("kafka_partition", "kafka_offset")
    with pytest.raises(ConfigError, match="'t' has key id, but each event is a row of its own") as refused:
        source(format="events", schema="id BIGINT")
    with typed(refused.value) as hint:
        assert hint.settings() == {"upstream.value.format": "rows"}
        assert source(format="rows", schema="id BIGINT")[-1] == "id"


def test_a_job_of_an_earlier_version_keeps_its_format() -> None:
    value = {"format": "json", "schema": "id BIGINT"}
    told = {"bootstrap_servers": "b:1", "topic": "t", "value": value}
    with pytest.raises(ValidationError):
        KafkaOptions.model_validate(told)
    stored = KafkaOptions.model_validate(told, context=STORED)
    assert connector.event_key(stored) == ("kafka_partition", "kafka_offset")
    for form in ("rows", "events"):
        now = KafkaOptions.model_validate({**told, "value": {**value, "format": form}})
        assert connector.fingerprint(now) == connector.fingerprint(stored)


def test_a_topic_that_several_tables_share_is_one_place_and_no_twin() -> None:
    told = {"bootstrap_servers": "nowhere:1", "topic": "shop", "value": {"format": "debezium"}}
    topics = Topics(KafkaOptions.model_validate(told), [TableSpec("a", ("id",)), TableSpec("b", ("id",))])
    for one in topics.of.values():
        one.seen = Seen("cluster", "topic", {}, {})
    assert topics.places() == {"a": frozenset({"kafka:cluster/shop"}), "b": frozenset()}
