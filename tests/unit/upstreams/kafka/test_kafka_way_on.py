"""Hints of the Kafka upstream that need no cluster: columns that are declared, and the client's package."""

import builtins
from types import ModuleType
from typing import Any

import pytest
from hint_typed import typed

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import BackfillError, BadData, ConfigError, UsageError
from backfill_cli.model.schema import field
from backfill_cli.upstreams.kafka import columns
from backfill_cli.upstreams.kafka.decode import debezium
from backfill_cli.upstreams.kafka.log.edge import client
from backfill_cli.upstreams.kafka.log.samples import Samples
from backfill_cli.upstreams.kafka.options import KafkaOptions, Values

DECIMAL = {"field": "d", "type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}


def source(samples: Samples | None = None, **value: str) -> list[str]:
    told = {"bootstrap_servers": "nowhere:1", "topic": "t", "value": value}
    return list(columns.of_source(KafkaOptions.model_validate(told), TableSpec("t", ("id",)), None, samples))


@pytest.mark.parametrize(
    ("value", "samples", "error"),
    [
        ({"format": "json", "schema": "id BIGINT, note TEXTS"}, None, ConfigError),
        ({"format": "debezium"}, Samples({"id": {"type": "int64"}, "d": DECIMAL}), BadData),
    ],
    ids=["no type", "no exact type"],
)
def test_columns_that_are_not_all_known_are_declared(
    value: dict[str, str], samples: Samples | None, error: type[BackfillError]
) -> None:
    with pytest.raises(error) as refused:
        source(samples, **value)
    with typed(refused.value) as hint:
        schema = str(hint.settings()["upstream.value.schema"])
        assert {"id", "note"} <= set(source(format="json", schema=schema))
    assert source(samples, **value | {"schema": "id BIGINT, d DECIMAL(20,2)"})[-1] == "d"


def test_a_column_with_the_name_of_a_records_place_is_left_out() -> None:
    with pytest.raises(
        UsageError, match="column 'Kafka_Offset' has the name of the column that says where"
    ) as refused:
        source(format="json", schema="id BIGINT, Kafka_Offset BIGINT")
    with typed(refused.value) as hint:
        hint.says("if upstream.value.schema declares it, leave it out there")
        assert source(format="json", schema="id BIGINT")[-1] == "id"


def test_how_decimals_are_written_is_told_by_the_option_that_the_error_names() -> None:
    columns = {"p": field("p", "decimal(10,2)")}

    def encodings(**value: str) -> str:
        told = Values.model_validate(value)
        return debezium.encodings(columns, told, "upstream")[0]["p"].kind

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
        assert hint.packages() == {"confluent-kafka"}
        assert client().__name__ == "confluent_kafka"
