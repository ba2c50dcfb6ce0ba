"""Columns with the names of our own code in the records of a topic: as values, and each once in a key."""

import json
from typing import TYPE_CHECKING

import pytest
from broker import Broker
from code_names import Row, Table, names, tables
from kafka_topics import EVENTS, TABLE, new_topic

from backfill_cli.cdc.net import net

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def halves() -> list[Table]:
    place = (*EVENTS, "kafka_timestamp")
    of = [name for name in names("postgres", "delta", "iceberg", "lake", "duckdb", "files") if name not in place]
    half = -(-len(of) // 2)
    return tables(of, half, half, rows=9)


def record(table: Table, op: str, row: Row) -> tuple[bytes, bytes | None]:
    """Key and value: a tombstone has only the first."""
    key = {name: row[name] for name in table.key}
    return json.dumps(key).encode(), json.dumps(row).encode() if op == "U" else None


@pytest.mark.parametrize("table", halves(), ids=["first half", "second half"])
def test_no_name_of_our_code_is_taken_for_ours(table: Table, broker: Broker, spark: "SparkSession") -> None:
    topic = new_topic(broker)
    changes = [*(("U", row) for row in table.snapshot()), *table.changes()]
    keys, values = zip(*(record(table, op, row) for op, row in changes), strict=True)
    topic.write(values, keys=keys)
    ddl = ", ".join(f"`{name}` INT" for name in table.columns)
    upstream = topic.open(table.key, value={"format": "rows", "schema": ddl})
    pin = upstream.pin()
    latest = upstream.observe(pin.position, True).latest
    frame = upstream.changes(spark, TABLE, pin.position, latest, pin.schema[TABLE])
    marked = net(frame, table.key).toArrow().to_pylist()
    assert not [row["_backfill_error"] for row in marked if row["_backfill_error"]]
    assert table.ordered([row for row in marked if row["_backfill_op"] == "U"]) == table.after()
    gone = {table.key_of(row) for row in marked if row["_backfill_op"] == "D"}
    assert gone == {table.key_of(row) for row in table.snapshot()} - {table.key_of(row) for row in table.after()}
