"""What brokers say of their settings: other brokers than Apache's leave values out, or tell none."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from backfill_cli.errors import BackfillError
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


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._AUTHENTICATION])
def test_brokers_that_do_not_answer_do(code: int) -> None:
    with pytest.raises(BackfillError):
        admin_of(code).broker_setting("transaction.max.timeout.ms")
    with pytest.raises(BackfillError):
        admin_of(code).settings_of(["t"])
