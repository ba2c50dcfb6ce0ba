"""A snapshot that has times in another form than the topic of its changes is refused."""

import json
from typing import Any

import pytest
from hint_typed import typed

from backfill_cli.contracts import TableSpec
from backfill_cli.contracts.decoder import Found
from backfill_cli.errors import ConfigError
from backfill_cli.kafka.cluster import Seen
from backfill_cli.model.schema import Columns, field
from backfill_cli.upstreams.kafka.changes_options import ChangesOptions
from backfill_cli.upstreams.kafka.columns import of_changes
from backfill_cli.upstreams.kafka.log import samples
from backfill_cli.upstreams.kafka.topics import Topics

OPTIONS = ChangesOptions.model_validate(
    {
        "type": "kafka",
        "bootstrap_servers": "localhost:9092",
        "topic": "t",
        "from": "earliest",
        "value": {"format": "debezium"},
    }
)
DAYS = {"type": "int32", "name": "io.debezium.time.Date"}
MICROS = {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}


def read(told: dict[str, Any], kind: str) -> Columns:
    row = {"type": "struct", "field": "after", "fields": [{"field": "at", **told}]}
    record = {"schema": {"type": "struct", "fields": [row]}, "payload": {"op": "c", "after": {"at": 1}}}
    topic, seen = Topics(OPTIONS, [TableSpec("t", ("at",))]).of["t"], Seen("cluster", "topic", {}, {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samples, "of_topic", lambda *_: [json.dumps(record).encode()])
        return of_changes(OPTIONS, topic, {"at": field("at", kind)}, seen).columns


@pytest.mark.parametrize(
    ("told", "kind", "fits"),
    [
        (DAYS, "string", "date"),
        (DAYS, "integer", "date"),
        (MICROS, "string", "timestamp"),
        (MICROS, "long", "timestamp_ntz"),
        ({"type": "int32", "name": "io.debezium.time.Time"}, "string", "integer"),
    ],
)
def test_a_number_since_1970_is_not_taken_for_the_text_or_the_number_of_a_snapshot(
    told: dict[str, Any], kind: str, fits: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        read(told, kind)
    assert f"column 'at' of the snapshot: {told['name']} does not fit" in refused.value.message
    with typed(refused.value) as hint:
        hint.says("take a snapshot in which these columns have the types of the source")
        assert read(told, fits)


def test_what_a_format_remembers_never_hides_which_topic_it_is() -> None:
    topic, seen = Topics(OPTIONS, [TableSpec("t", ("at",))]).of["t"], Seen("cluster", "topic", {}, {})
    facts = {"topic_id": "other", "cluster": "other", "topic": "other", "source": "public.t"}
    told = {"cluster": "cluster", "topic": "t", "topic_id": "topic", "source": "public.t"}
    assert topic.identity(seen, Found({}, facts=facts)) == told
