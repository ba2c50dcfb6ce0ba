"""What brokers say of their settings: other brokers than Apache's leave values out, or tell none."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from sink_contract import a_table

from backfill_cli.errors import BackfillError, Transient
from backfill_cli.kafka.admin import Admin
from backfill_cli.kafka.connection import Connection
from backfill_cli.sinks.kafka import KafkaSinkOptions, connector
from backfill_cli.sinks.kafka.sink import KafkaSink
from backfill_cli.sinks.kafka.topics import Topics

OPTIONS = KafkaSinkOptions(bootstrap_servers="127.0.0.1:1")


class Brokers:
    """A client whose cluster has one broker, which has these settings, or answers with this error."""

    def __init__(self, told: Any) -> None:
        self.told = told

    def poll(self, _timeout: float) -> None:
        pass

    def describe_cluster(self, **_told: Any) -> Any:
        return SimpleNamespace(result=lambda: SimpleNamespace(nodes=[SimpleNamespace(id=1)]))

    def describe_configs(self, wanted: list[Any], **_told: Any) -> Any:
        return dict.fromkeys(wanted, SimpleNamespace(result=self.result))

    def result(self) -> Any:
        if isinstance(self.told, int):
            raise KafkaException(KafkaError(self.told))
        return {name: SimpleNamespace(value=value) for name, value in self.told.items()}


def admin_of(told: Any) -> Admin:
    admin: Any = Admin(Connection(OPTIONS))
    admin._client = Brokers(told)
    return admin  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "told",
    [
        {"transaction.max.timeout.ms": None},
        {"transaction.max.timeout.ms": "none"},
        {"transaction.max.timeout.ms": "-1"},
        {},
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.INVALID_REQUEST,
        KafkaError.UNKNOWN,
        KafkaError._UNSUPPORTED_FEATURE,
    ],
)
def test_brokers_that_do_not_tell_a_setting_do_not_stop_a_start(
    told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Topics, "missing", lambda *_: None)
    sink = connector.open(OPTIONS)
    assert isinstance(sink, KafkaSink)
    sink._admin = admin_of(told)
    sink.check("job", (), into_existing=False)
    found = sink._admin.settings_of(["t"])
    assert found == ({"t": None} if isinstance(told, int) else {"t": {k: v for k, v in told.items() if v}})


def test_topics_that_lose_rows_by_their_retention_are_told_with_what_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def told(there: dict[str, str], **properties: Any) -> list[str]:
        options = KafkaSinkOptions(bootstrap_servers="127.0.0.1:1", **properties)
        monkeypatch.setattr(Admin, "found", lambda *_: there and {"orders": None})
        return Topics(options, admin_of(there)).losing((a_table("orders"),))

    week = {"cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1"}
    (line,) = told(week)
    assert line == (
        "topic 'orders' loses rows by its retention (cleanup.policy = delete, retention.ms = 604800000): set its "
        "cleanup.policy to compact, or its retention.ms and retention.bytes to -1"
    )
    for kept in ({"cleanup.policy": "compact"}, {"retention.ms": "-1"}):
        assert told(week | kept) == []
    for lost in ({"cleanup.policy": "compact,delete"}, {"retention.ms": "-1", "retention.bytes": "9"}):
        assert len(told(week | lost)) == 1
    assert told({}) == [], "topics that the job makes are compacted"
    assert told({}, properties={"cleanup.policy": "delete", "retention.ms": "-1"}) == []
    assert len(told({}, properties={"compression.type": "lz4"})) == 1


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    ],
)
def test_what_passes_by_itself_is_tried_again(code: int) -> None:
    with pytest.raises(Transient):
        admin_of(code).broker_setting("transaction.max.timeout.ms")
    with pytest.raises(Transient):
        admin_of(code).settings_of(["t"])


@pytest.mark.parametrize("code", [KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED])
def test_brokers_that_do_not_answer_do(code: int) -> None:
    with pytest.raises(BackfillError):
        admin_of(code).broker_setting("transaction.max.timeout.ms")
    with pytest.raises(BackfillError):
        admin_of(code).settings_of(["t"])
