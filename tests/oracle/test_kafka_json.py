"""Kafka records of JSON by every way: each record's row exact, or the record set aside by its place."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_cli.errors import BadData
from oracle import plain, tokens
from oracle.inputs import SEED
from oracle.kafka_inputs import HOSTILE, RECORDS, TOLERATED
from oracle.readers import kafka_json, kinds
from oracle.topics import PLACE, Found, Message, read, written

if TYPE_CHECKING:
    from broker import Broker
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def records() -> list[bytes | None]:
    return [None, *HOSTILE, *(text.encode() for text in tokens.records(tokens.COLUMNS, RECORDS))]


def differences(columns: dict[str, Any], records: list[bytes | None], found: Found) -> list[str]:
    """What became of each record, against what the reader says; what else there is."""
    rows = {tuple(row.pop(name)[1] for name in PLACE): row for row in found.rows}
    told = []
    for offset, raw in enumerate(records):
        right = kafka_json.event(columns, raw)
        row, reason = rows.pop((0, offset), None), found.aside.get((0, offset))
        if (row is None) == (reason is None):
            told.append(f"{raw!r:.150}: {'lost' if row is None else 'there and set aside'}")
        elif row is None:
            if right.row is not None and not right.may_be_refused:
                told.append(f"{raw!r:.150}: refused ({reason}), though {_set(right.row)}")
        elif raw in TOLERATED and _set(row) == TOLERATED[raw]:
            continue
        elif right.row is None:
            told.append(f"{raw!r:.150}: {_set(row)}, and must be refused: {right.why}")
        elif {name: row[name] for name in columns} != right.row:
            told.append(f"{raw!r:.150}: {_set(row)}, not {_set(right.row)}")
    return told + [f"a row from nowhere: {place} {row}" for place, row in rows.items()]


def _set(row: plain.Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None and not name.startswith("kafka_")}


def agrees(
    columns: dict[str, Any], records: list[bytes | None], found: Found, judged: Callable[[int], None]
) -> None:
    judged(len(records))
    wrong = differences(columns, records, found)
    assert not wrong, f"{len(wrong)} of {len(records)}:\n" + "\n".join(one[:600] for one in wrong[:60])


def good(columns: dict[str, Any], records: list[bytes | None]) -> list[bytes | None]:
    """Those of which no way may refuse one."""
    told = [(raw, kafka_json.event(columns, raw)) for raw in records]
    return [raw for raw, right in told if right.row is not None and not right.may_be_refused]


@pytest.mark.parametrize(
    "transform", [None, {"select": ["*"], "where": "true"}], ids=["as they are", "transformed"]
)
def test_records_by_workers_and_by_spark(
    broker: "Broker",
    spark: "SparkSession",
    tmp_path: Path,
    records: list[bytes | None],
    transform: dict[str, Any] | None,
    judged: Callable[[int], None],
) -> None:
    topic = written(broker, [Message(raw) for raw in records])
    value = {"format": "events", "schema": kinds.ddl_of(tokens.COLUMNS)}
    found = read(topic, tmp_path / "job", value, transform=transform)
    agrees(tokens.COLUMNS, records, found, judged)


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_records_of_an_archive(
    broker: "Broker",
    spark: "SparkSession",
    tmp_path: Path,
    records: list[bytes | None],
    form: str,
    judged: Callable[[int], None],
) -> None:
    """The log holds other values at the same places, so that what is read from it shows."""
    kept = [raw for raw in good(tokens.COLUMNS, records) if raw is None or raw.lstrip().startswith(b"{")]
    kept = [raw for raw in kept if raw is not None or form == "parquet"]
    (tmp_path / "archive").mkdir()
    if form == "json":
        kept = [raw for raw in kept if raw and raw.strip() != b"{}" and b"\n" not in raw and b"\r" not in raw]
        lines = [
            b'{"kafka_partition": 0, "kafka_offset": %d, ' % i + raw.strip()[1:]
            for i, raw in enumerate(kept)
            if raw
        ]
        half = len(lines) // 2
        (tmp_path / "archive" / "0.json").write_bytes(b"\n".join(lines[:half]) + b"\n")
        (tmp_path / "archive" / "1.json").write_bytes(b"\n".join(lines[half:]))
        more: dict[str, Any] = {}
    else:
        whole = {
            "kafka_partition": [0] * len(kept),
            "kafka_offset": list(range(len(kept))),
            "v": pa.array(kept, pa.binary()),
        }
        pq.write_table(pa.table(whole), tmp_path / "archive" / "0.parquet")
        more = {"value": "v"}
    topic = written(broker, [Message(b'{"s": "from the log"}')] * len(kept))
    found = read(
        topic,
        tmp_path / "job",
        {"format": "events", "schema": kinds.ddl_of(tokens.COLUMNS)},
        archive={"path": str(tmp_path / "archive"), "format": form, **more},
    )
    agrees(tokens.COLUMNS, kept, found, judged)


def test_keyed_records_are_the_last_of_their_key(
    broker: "Broker",
    spark: "SparkSession",
    tmp_path: Path,
    records: list[bytes | None],
    judged: Callable[[int], None],
) -> None:
    """Each record in a row with a key of its own, overwritten, deleted and written again."""
    chance = random.Random(SEED)
    messages, held, aside = [], {}, set()
    columns = {"key": "bigint", **tokens.COLUMNS}
    for _ in range(RECORDS):
        key = chance.randrange(RECORDS // 3)
        at = (key % 2, sum(m.partition == key % 2 for m in messages))
        told = str(key).encode() if chance.random() < 0.5 else b'{"key": %d}' % key
        raw = drawn = chance.choice(records)
        if raw is None or chance.random() < 0.2:
            messages.append(Message(None, told, key % 2))
            held.pop(key, None)
            continue
        body = raw.strip()
        raw = b'{"key": %d, ' % key + body[1:] if body.startswith(b"{") and body[1:].strip() != b"}" else raw
        right = kafka_json.event(columns, raw)
        if right.may_be_refused or drawn in TOLERATED or b"'" in raw[:20]:
            continue
        messages.append(Message(raw, told, key % 2))
        if right.row is None or right.row["key"] is None:
            aside.add(at)
        else:
            held[key] = right.row
    topic = written(broker, messages, 2)
    value = {"format": "rows", "schema": kinds.ddl_of(columns)}
    found = read(topic, tmp_path / "job", value, key=["key"])
    judged(len(messages))
    assert aside == set(found.aside)
    got = {row["key"][1]: {name: row[name] for name in columns} for row in found.rows}
    wrong = [
        f"{key}: {got.get(key)}, not {held.get(key)}" for key in {*got, *held} if got.get(key) != held.get(key)
    ]
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(one[:800] for one in wrong[:20])


STOPS = [raw for raw in HOSTILE if kafka_json.event(tokens.COLUMNS, raw).row is None and raw not in TOLERATED][:6]


@pytest.mark.parametrize("raw", STOPS, ids=map(repr, STOPS))
def test_a_record_that_cannot_be_read_stops_the_job_by_its_place(
    broker: "Broker", spark: "SparkSession", tmp_path: Path, raw: bytes
) -> None:
    topic = written(broker, [Message(b"{}"), Message(raw)])
    value = {"format": "events", "schema": kinds.ddl_of(tokens.COLUMNS)}
    with pytest.raises(BadData, match="partition 0, offset 1 cannot be read"):
        read(topic, tmp_path / "job", value, on_error="fail")
