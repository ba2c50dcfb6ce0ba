"""The key of a table whose config names none, by the schemas of its topic's keys."""

import json
from typing import Any

import pytest
from toy_registry import running

from backfill_cli.upstreams.kafka.keys import of_registry
from backfill_cli.upstreams.kafka.options import KafkaOptions

KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({"topics": {"orders": "shop", "lines": "other"}}, {"orders": ["id"]}),
        ({"topics": {"orders": "shop", "lines": "shop"}}, {}),
        ({"topic": "shop"}, {}),
    ],
)
def test_the_newest_schema_of_keys_is_of_one_table_and_says_nothing_of_those_that_share_its_topic(
    told: dict[str, Any], found: dict[str, list[str]]
) -> None:
    with running() as registry:
        registry.add("shop-key", json.dumps(KEY))
        value, at = {"format": "debezium", "encoding": "avro"}, {"url": registry.url}
        options = {"bootstrap_servers": "b:1", "value": value, "key": {"format": "avro"}, "registry": at, **told}
        assert of_registry(KafkaOptions.model_validate(options), ["orders", "lines"]) == found
        one = KafkaOptions.model_validate({**options, "topic": "shop", "topics": None})
        assert of_registry(one, ["orders"]) == {"orders": ["id"]}
        several = KafkaOptions.model_validate(
            {**options, "topic": "shop", "topics": None, "value": {**value, "tables": ["orders"]}}
        )
        assert of_registry(several, ["orders"]) == {}
