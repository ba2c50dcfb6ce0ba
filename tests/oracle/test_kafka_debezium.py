"""Debezium's envelopes as Kafka records: the table of plain Python, or the record is set aside."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oracle import debezium_inputs
from oracle.debezium_inputs import COLUMNS, MANNERS, DebeziumLog, Step
from oracle.inputs import SEED, TIMES
from oracle.readers import debezium, json_text, kinds
from oracle.readers.debezium import NOT_SENT, WORD, WORD_BYTES
from oracle.readers.kinds import No
from oracle.topics import Message, read, written

if TYPE_CHECKING:
    from broker import Broker
    from pyspark.sql import SparkSession

RECORDS = int(500 * TIMES)

# Not here: true where bytes are told, which is taken as the text "true"; Debezium never writes it.
HOSTILE: dict[str, list[str]] = {
    "s": [json.dumps(text) for text in NOT_SENT] + ['"\\ud800"'],
    "x": [json.dumps(NOT_SENT[1]), '"!"'],
    "as": [f'["{WORD}"]', f'["a","{NOT_SENT[1]}"]', f'["{NOT_SENT[3]}"]'],
    "ai": [json.dumps(list(WORD_BYTES))],
    "m": [f'{{"{WORD}":"{WORD}"}}', f'{{"k":"{WORD}"}}'],
    "h": ["32768", "1.5", '"1"', "1e400"],
    "i": ["2147483648", "-2147483649"],
    "l": ["9223372036854775808"],
    "g": ["1e39", "1e400"],
    "f": ["1e400", '"x"'],
    "o": ["2", '"true"'],
    "day": ["2147483647", "-2147483648", '"x"', "1.5"],
    "wall": ["9223372036854775807", "9223372036825200000", '"x"'],
    "at": ['"2026-02-30T00:00:00Z"', '"2026-01-01T00:00:00.1234567Z"', '"x"'],
    "d": ['"!"', '"AQAAAAAAAAAAAAAAAA=="', "1e300", '"1.234"'],
}
ENVELOPES = (
    b"", b"5", b"{}", b'{"op":"c"}',
    b'{"op":"t","before":null,"after":null,"source":{"schema":"public","table":"t"}}',
    b'{"op":"x","after":{"id":1}}',
    b'{"op":"c","after":null}', b'{"op":"d","before":null,"after":null}', b'{"op":"c","after":{"id":null}}',
    b'{"op":"c","after":{"s":"no key"}}', b'{"op":"c","after":{"id":-1}}{"op":"c","after":{"id":-2}}',
    b'{"op":"c","after":{"id":-3}', b'{"op":"c","after":[1]}', b'{"op":5,"after":{"id":-4}}',
    b'{"id":-5,"s":"flattened"}',
    b'{"op":"c","after":"{\\"_id\\": 1}"}', b'{"status":"BEGIN","id":"1"}', b'{"ts_ms":5}',
    b'{"op":"c","after":{"id":-6},"source":{"table":"other","schema":"public"}}', b"\x00\x00\x00\x00\x01{}",
    b'{"status":"END","id":"1","event_count":2,"data_collections":[]}', b'{"status":"OPEN","id":"1"}',
    b'{"status":"BEGIN","id":"571:1","ts_ms":5,"event_count":null,"data_collections":null}', b'{"id":1,"op":"m"}',
    b'{"status":"BEGIN","id":5,"event_count":null,"data_collections":null}', b'{"id":"1","status":"END","n":1}',
    b'{"source":"web","databaseName":"shop","ddl":null}', b'{"ts_ms":"2026"}',
    b'{"op":"m","source":{"table":""},"message":{"prefix":"p","content":"eA=="}}', b'{"ts_ms":5,"id":1}',
    b'{"source":{"table":"t"},"databaseName":"shop","ddl":"CREATE TABLE t (id int)","tableChanges":[]}',
    b'{"op":"c","after":{"id":-7,"s":"\xff"}}', b'{"op":"c","after":{"id":9223372036854775808}}',
)  # fmt: skip


def messages(chance: random.Random, manner: int) -> list[bytes | None]:
    """Envelopes of logs of 200 keys, one in six with a value that no column can hold, and ENVELOPES among them.

    None of ENVELOPES stands near an end of the topic, where samples are taken: one is of another table.
    """
    unit, form = MANNERS[manner]
    pool = debezium_inputs.pools(unit, form, 60)
    writer = DebeziumLog((), (), manner, False)
    made: list[bytes | None] = []
    for _ in range(RECORDS):
        names = chance.sample(sorted(pool), chance.choice([1, 2, 3]))
        texts = {name: chance.choice(pool[name]) for name in names}
        if chance.random() < 0.17:
            name = chance.choice(sorted(HOSTILE))
            texts[name] = chance.choice(HOSTILE[name])
        op = chance.choice(["c", "r", "u", "u", "k", "d"])
        step = Step(
            op,
            chance.randrange(200),
            chance.randrange(200),
            tuple(texts.items()),
            chance.random() < 0.5,
            "",
            False,
        )
        made.append(None if chance.random() < 0.05 else writer.line(step, 0).encode())
    for raw in ENVELOPES:
        made.insert(chance.randrange(len(made) // 4, len(made) // 2), raw)
    return made


EACH = [
    pytest.param(manner, id="-".join(told), marks=[pytest.mark.long] if told[0] == "ns" else [])
    for manner, told in enumerate(MANNERS)
]
"""In another unit alone: long."""


@pytest.mark.parametrize("manner", EACH)
def test_envelopes_of_debezium(
    broker: "Broker", spark: "SparkSession", tmp_path: Path, manner: int, judged: Callable[[int], None]
) -> None:
    unit, form = MANNERS[manner]
    raws, kept, held, aside = messages(random.Random(SEED + manner), manner), [], {}, {}
    for raw in raws:
        doubts: list[str] = []
        try:
            token = None if raw is None else json_text.parsed(raw)
            json_text.well_formed(token)
            done = (
                debezium.changes(COLUMNS, "id", token, {"timestamps": unit, "decimals": form}, doubts)
                if raw is not None
                else []
            )
        except No as exc:
            aside[len(kept)], done = str(exc), []
        if doubts and len(kept) not in aside:
            continue
        if debezium.apply(held, done):  # the sink has no row to complete otherwise: the job stops
            kept.append(raw)
    how = (
        {"timestamps": "us", "decimals": "precise"} if form == "block" else {"timestamps": unit, "decimals": form}
    )
    topic = written(broker, [Message(raw) for raw in kept])
    value = {"format": "debezium", "schema": kinds.ddl_of(COLUMNS), **how}
    found = read(topic, tmp_path / "job", value, key=["id"])
    judged(len(kept))
    refused = {offset: reason for (_, offset), reason in found.aside.items()}
    wrong = [f"must be refused ({aside[o]}): {kept[o]!r:.500}" for o in sorted(aside.keys() - refused.keys())]
    wrong += [f"refused ({refused[o]}): {kept[o]!r:.500}" for o in sorted(refused.keys() - aside.keys())]
    got: dict[Any, Any] = {row["id"]: {name: row[name] for name in COLUMNS} for row in found.rows}
    if not wrong:
        wrong = [
            f"{key}: {got.get(key)}, not {held.get(key)}" for key in {*got, *held} if got.get(key) != held.get(key)
        ]
    assert not wrong, f"{len(wrong)} of {len(kept)}:\n" + "\n".join(one[-900:] for one in wrong[:30])
