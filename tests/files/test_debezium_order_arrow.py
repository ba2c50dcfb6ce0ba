"""A task of a topic says that no key was checked late only of changes that make the source's rows."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from files_values import block
from oracle.inputs import SEED, TIMES
from oracle.late_keys import COLUMNS, Row, Source

from backfill_cli.contracts import own
from backfill_cli.contracts.decoder import Asked, InOrder
from backfill_cli.decode import debezium
from backfill_cli.decode.source_table import Known
from backfill_cli.model.schema import columns_of
from backfill_cli.upstreams.kafka.reading import Reading

DECLARED = "id BIGINT, code STRING, state STRING, n INT, note STRING"
KINDS = {"id": "long", "code": "string", "state": "string", "n": "integer", "note": "string"}
SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": n, "type": k, "nullable": True, "metadata": {}} for n, k in KINDS.items()],
    }
)


def ran(chance: random.Random, identity: str, late: bool, **more: Any) -> Source:
    """A source after four transactions."""
    source = Source(chance, identity, late, 0, **more)
    source.run(4)
    return source


def reading(with_block: bool, **more: Any) -> Reading:
    """As a topic opens it. more: other options of the format."""
    declared = None if with_block else columns_of(SCHEMA)
    asked = Asked("topic 't'", "t", "t", ("id",), declared, {"timestamps": "us"} | more, "upstream.value")
    samples = [text(event, with_block) for event in ran(random.Random(1), "full", False).events]
    found = debezium.decoder.columns(asked, lambda: samples)
    decode = debezium.decoder.open(asked, found.columns, found.facts).decode(lambda: samples)
    return Reading(SCHEMA, decode, ("id",))


def text(event: dict[str, Any], with_block: bool, columns: Any = COLUMNS) -> bytes:
    told = {"schema": block(columns), "payload": event} if with_block else event
    return json.dumps(told).encode()


def changes(read: Reading, events: Sequence[dict[str, Any]], with_block: bool, columns: Any = COLUMNS) -> pa.Table:
    """The changes of these records, which are one partition. columns: of their blocks."""
    count = len(events)
    place = {
        "kafka_partition": pa.array([0] * count, pa.int32()),
        "kafka_offset": pa.array(range(count), pa.int64()),
        "kafka_timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
    }
    values = [text(event, with_block, columns) for event in events]
    rows = read.rows(pa.array([0] * count, pa.int32()), place, [None] * count, values, Counter())
    assert rows.column(own.ERROR).null_count == rows.num_rows
    return pa.Table.from_batches([rows])


def doubts(read: Reading, *parts: pa.Table) -> bool:
    """Whether Spark has to look, by what tasks tell of their parts of the log."""
    assert isinstance(read.decode, InOrder)
    ends: dict[int, str] = {}
    for part in parts:
        edges = read.decode.edges(part)
        if edges is None or not edges.follow(ends):
            return True
        ends |= edges.last
    return False


def replayed(events: Sequence[dict[str, Any]]) -> dict[int, Row]:
    """The rows that the last change of each key leaves."""
    found: dict[int, Row] = {}
    for event in events:
        if event["op"] == "d":
            found.pop(event["before"]["id"], None)
        else:
            found[event["after"]["id"]] = event["after"]
    return found


def held(source: Source) -> dict[int, Row]:
    return {row["id"]: row for row in source.rows}


@pytest.mark.parametrize("with_block", [True, False])
@pytest.mark.parametrize("system", ["postgresql", "oracle"])
def test_a_log_that_is_not_the_rows_is_in_doubt_wherever_it_is_cut(with_block: bool, system: str) -> None:
    read, wrong = reading(with_block), 0
    for number in range(max(30, int(60 * TIMES))):
        chance = random.Random(SEED + number)
        source = ran(chance, "full", True, system=system, told=with_block)
        if replayed(source.events) == held(source):
            continue
        wrong += 1
        rows = changes(read, source.events, with_block)
        assert doubts(read, rows), number
        at = chance.randrange(1, len(rows))
        assert doubts(read, rows.slice(0, at), rows.slice(at)), (number, at)
    assert wrong > 5


def between_transactions(source: Source) -> int:
    """Where the last one begins."""
    of = [event["source"]["txId"] for event in source.events]
    return of.index(of[-1])


@pytest.mark.parametrize("identity", ["default", "index", "full"])
def test_a_log_with_schemas_of_a_key_that_is_checked_row_by_row_is_not_in_doubt(identity: str) -> None:
    """So that its changes are netted where they are read."""
    read = reading(True)
    for number in range(int(20 * TIMES)):
        source = ran(random.Random(SEED + number), identity, False)
        assert replayed(source.events) == held(source)
        rows = changes(read, source.events, True)
        assert not doubts(read, rows), number
        if at := between_transactions(source):
            assert not doubts(read, rows.slice(0, at), rows.slice(at)), number


def test_inserts_are_not_in_doubt_without_a_schema() -> None:
    read = reading(False)
    events = [event for event in ran(random.Random(SEED), "full", False).events if event["op"] == "c"]
    rows = changes(read, events, False)
    assert not doubts(read, rows)
    assert not doubts(read, rows.slice(0, 2), rows.slice(2))
    assert not doubts(read, rows.slice(0, 0))


def change(op: str, table: str, tx: int | None, lsn: int | None, number: int, note: str | None) -> dict[str, Any]:
    row = {"id": number, "code": "x", "state": "new", "n": 7, "note": note}
    source = {
        "connector": "postgresql",
        "db": "d",
        "schema": "public",
        "table": table,
        "txId": tx,
        "lsn": lsn,
        "ts_ms": 1,
    }
    return {"op": op, "before": row if op == "d" else None, "after": None if op == "d" else row, "source": source}


@pytest.mark.parametrize("between", ["nothing", "a row of an incremental snapshot", "another source"])
def test_a_transaction_that_a_cut_divides_is_in_doubt_whatever_stands_between(between: str) -> None:
    """The row that is removed is of another table, or has another value, than the one that was put there."""
    several = between == "another source"
    read = reading(True, **({"tables": ["public.*"]} if several else {}))
    events = [change("c", "t", 5, 10, 1, "put")]
    if between == "a row of an incremental snapshot":
        events.append(change("r", "t", None, None, 9, None))
    if several:
        events.append(change("c", "u", 77, 3, 9, None))
    events.append(change("d", "t", 5, 11, 1, "gone"))
    rows = changes(read, events, True)
    assert doubts(read, rows)
    assert doubts(read, rows.slice(0, 1), rows.slice(1))


def test_an_empty_topic_that_may_come_to_hold_several_tables_is_one_of_several() -> None:
    """Only a source that was seen when the job began is certainly alone."""
    assert Known(source="d.a.t", named=("t", "t")).of_one
    assert Known(source="d.a.t", tables=("t",), shared=True).of_one
    for known in (Known(named=("t", "t")), Known("d.a.t"), Known(("a.*",), "d.a.t", ("t", "t"))):
        assert not known.of_one


def test_a_removal_from_another_table_is_in_doubt_without_old_values() -> None:
    read = reading(True, tables=["public.*"])
    removal = change("d", "u", 5, 11, 1, None)
    removal["before"] = {"id": 1, "code": "", "state": "new", "n": 7, "note": None}
    rows = changes(read, [change("c", "t", 5, 10, 1, "put"), removal], True)
    assert doubts(read, rows)
    assert doubts(read, rows.slice(0, 1), rows.slice(1))


def exchanged(note: str | None, other: str | None) -> list[dict[str, Any]]:
    """Rows 1 and 2, which differ in their notes alone, exchange their keys in one transaction."""
    told = [("d", 1, note), ("c", 2, note), ("d", 2, other), ("c", 1, other)]
    return [change(op, "t", 5, 10 + at, number, value) for at, (op, number, value) in enumerate(told)]


@pytest.mark.parametrize(("note", "other"), [(None, "x"), ("x", "y"), ("x", None)])
def test_an_exchange_of_keys_is_in_doubt_where_a_value_is_null(note: str | None, other: str | None) -> None:
    """An old NULL may stand for a value that is not in the log; a new one that a schema names does not."""
    read = reading(True)
    assert doubts(read, changes(read, exchanged(note, other), True)) is (other is not None)


def test_a_column_that_a_schema_lacks_is_not_null() -> None:
    """It may have been added in the transaction, with a default that the old row has."""
    read = reading(True)
    put, removed = change("c", "t", 5, 10, 1, None), change("d", "t", 5, 11, 1, "x")
    older = {name: field for name, field in COLUMNS.items() if name != "note"}
    del put["after"]["note"]
    rows = [changes(read, [event], True, columns) for event, columns in ((put, older), (removed, COLUMNS))]
    assert not doubts(read, pa.concat_tables(rows))
