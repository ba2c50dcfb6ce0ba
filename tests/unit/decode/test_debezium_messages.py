"""What Debezium writes beside the changes of rows is skipped; a topic of nothing else is refused."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hint_typed import typed

from backfill_cli.contracts.decoder import Asked, Fault
from backfill_cli.decode.debezium import decoder
from backfill_cli.errors import ConfigError
from backfill_cli.formats.schemas import of_ddl

SOURCE = {"connector": "mysql", "db": "shop", "table": "t", "ts_ms": 5}
CHANGE = {"before": None, "after": {"id": 1}, "source": SOURCE, "op": "c", "ts_ms": 6}
MESSAGES: dict[str, dict[str, Any]] = {
    "heartbeats": {"ts_ms": 1_700_000_000_000},
    "marks of transactions": {
        "status": "END",
        "id": "571:53195832",
        "event_count": 2,
        "data_collections": [{"data_collection": "public.t", "event_count": 2}],
    },
    "where transactions begin": {
        "status": "BEGIN",
        "id": "571:53195829",
        "ts_ms": 1486500577125,
        "event_count": None,
        "data_collections": None,
    },
    "changes of schemas": {
        "source": SOURCE,
        "ts_ms": 7,
        "databaseName": "shop",
        "schemaName": None,
        "ddl": "ALTER TABLE t ADD middle_name varchar(255)",
        "tableChanges": [{"type": "ALTER", "id": '"shop"."t"', "table": {}}],
    },
    "messages of the source's log": {"op": "m", "source": {**SOURCE, "table": ""}, "message": {"prefix": "p"}},
}
"""As Debezium's documentation shows them."""
SAID = {"where transactions begin": "marks of transactions"}


def asked() -> Asked:
    return Asked("topic 't'", "t", "t", ("id",), of_ddl("id BIGINT"), {}, "upstream.value")


def written(record: dict[str, Any], block: bool) -> bytes:
    schema = {"type": "struct", "fields": []}
    return json.dumps({"schema": schema, "payload": record} if block else record).encode()


@pytest.mark.parametrize("block", [False, True], ids=["alone", "in a schema block"])
def test_what_changes_no_row_is_skipped_among_changes(block: bool) -> None:
    records = [json.dumps(CHANGE).encode()]
    for one in MESSAGES.values():
        records += [written(one, block), json.dumps(CHANGE).encode()]
    found = decoder.columns(asked(), lambda: records)
    for batch in (records, *([one] for one in records)):
        done = decoder.open(asked(), found.columns, found.facts).decode(lambda: records)(batch)
        assert done.columns["id"].to_pylist() == [1] * sum(one == records[0] for one in batch)
        assert done.error is None or done.error.null_count == len(done.error)


@pytest.mark.parametrize("block", [False, True], ids=["alone", "in a schema block"])
@pytest.mark.parametrize("kind", MESSAGES)
def test_a_topic_of_nothing_else_is_refused(kind: str, block: bool) -> None:
    only = [written(MESSAGES[kind], block)] * 3
    with pytest.raises(ConfigError, match=f"'t' holds {SAID.get(kind, kind)}, no changes of a table") as refused:
        decoder.columns(asked(), lambda: only)
    with typed(refused.value) as hint:
        hint.says("name the topic of a table")
        decoder.columns(asked(), lambda: [*only, json.dumps(CHANGE).encode()])


def test_a_truncate_of_one_of_several_tables_removes_no_rows_of_others() -> None:
    record = {"before": None, "after": None, "source": SOURCE, "op": "t", "ts_ms": 6}
    for tables, fault in (((), None), (("shop.t",), None), (("shop.*",), Fault.ONE_OF_SEVERAL)):
        ask = replace(asked(), options={"tables": tables}, ordered=True)
        found = decoder.open(ask, of_ddl("id BIGINT"), {"source": None}).decode(list)(
            [json.dumps(record).encode()]
        )
        assert found.op is not None
        assert found.fault is not None
        assert (found.fault.to_pylist(), found.op.to_pylist()) == ([fault], ["U" if fault else "T"])
