"""Snapshots that Debezium takes beside the stream of changes: what they repeat ends as the source has it."""

import json
import random
from typing import Any

import pytest

from backfill_cli.contracts.decoder import Asked, Decode
from backfill_cli.decode import debezium, json_rows
from backfill_cli.formats.schemas import of_ddl

DDL = "id BIGINT, note STRING"
Row = dict[str, Any]
CHUNK = 3
"""Keys that are read at once."""


class Source:
    """A table, and the connector that writes its topic: by chunks, each between two marks in the log of changes.

    As the documentation has it: when the second mark is met in the log, the rows that were read go out, without
    those whose keys occur between the marks. The marks are rows of the signal table, here in the same topic.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.lsn = chance, 0
        self.rows: dict[int, Row] = {key: {"id": key, "note": "old"} for key in range(8)}
        self.topic: list[Row | None] = []
        self.touched: set[int] = set()

    def emit(self, op: str, before: Row | None, after: Row | None, snapshot: str, table: str = "t") -> None:
        self.lsn += 1
        source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": table, "ts_ms": 5}
        source |= {"snapshot": snapshot, "txId": self.lsn // 4, "lsn": self.lsn}
        told = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 6, "transaction": None}
        self.topic.append(told)
        self.topic += [None] if op == "d" else []

    def mark(self, kind: str) -> None:
        self.emit("c", None, {"id": f"{self.lsn}", "type": kind, "data": None}, "false", "debezium_signal")

    def change(self) -> None:
        key = self.chance.randrange(10)
        held = self.rows.get(key)
        note = self.chance.choice(["a", "b", None])
        self.touched.add(key)
        if held is None:
            self.rows[key] = {"id": key, "note": note}
            self.emit("c", None, self.rows[key], "false")
        elif self.chance.random() < 0.4:
            del self.rows[key]
            self.emit("d", held, None, "false")
        elif self.chance.random() < 0.3 and (other := key + 10) not in self.rows:
            self.rows[other] = {"id": other, "note": note}
            del self.rows[key]
            self.touched.add(other)
            self.emit("d", held, None, "false")
            self.emit("c", None, self.rows[other], "false")
        else:
            self.rows[key] = {"id": key, "note": note}
            self.emit("u", held, self.rows[key], "false")

    def some(self) -> None:
        for _ in range(self.chance.randrange(4)):
            self.change()

    def initial(self) -> None:
        """The snapshot before the stream, as its rows are marked."""
        rows = [*self.rows.values()]
        for number, row in enumerate(rows):
            name = "first" if number == 0 else "last" if number == len(rows) - 1 else "true"
            self.emit(
                "r", None, row, self.chance.choice([name, "first_in_data_collection", "last_in_data_collection"])
            )

    def incremental(self) -> None:
        begin = -1
        while begin < 20:
            self.touched.clear()
            self.mark("snapshot-window-open")
            self.some()
            chunk = {key: row for key, row in sorted(self.rows.items()) if begin < key <= begin + CHUNK}
            self.some()
            self.mark("snapshot-window-close")
            for key, row in chunk.items():
                if key not in self.touched:
                    self.emit("r", None, row, "incremental")
            if self.chance.random() < 0.8:  # else the connector died, and reads the chunk again
                begin += CHUNK
            else:
                self.again()

    def again(self) -> None:
        """What a connector that died sends again: its newest records, in their order."""
        self.topic += self.topic[-self.chance.randrange(1, 6) :]


def opened(decoder: Any, tables: tuple[str, ...], records: list[bytes | None]) -> Decode:
    asked = Asked("topic 't'", "t", "t", ("id",), of_ddl(DDL), {"tables": tables}, "upstream.value")
    there = [one for one in records if one is not None]
    found = decoder.columns(asked, lambda: there)
    made: Decode = decoder.open(asked, found.columns, found.facts).decode(lambda: there)
    return made


def table(decode: Decode, records: list[bytes | None]) -> dict[int, Row]:
    found = decode(records)
    assert found.error is None or found.error.null_count == len(found.error)
    held: dict[int, Row] = {}
    ops = ["U"] * len(found.columns["id"]) if found.op is None else found.op.to_pylist()
    for op, key, note in zip(ops, *(found.columns[name].to_pylist() for name in ("id", "note")), strict=True):
        held.pop(key, None)
        if op == "U":
            held[key] = {"id": key, "note": note}
    return held


@pytest.mark.parametrize("form", ["envelopes", "rows"])
def test_a_table_is_what_its_source_is_after_snapshots_beside_the_stream(form: str) -> None:
    for seed in range(60):
        source = Source(random.Random(seed))
        source.initial()
        for _ in range(2):
            source.some()
            source.incremental()
        source.some()
        if form == "envelopes":
            records = [None if one is None else json.dumps(one).encode() for one in source.topic]
            decode = opened(debezium.decoder, ("public.t",), records)
        else:
            flat = [
                {**(one["after"] or one["before"]), "__op": one["op"], "__deleted": str(one["op"] == "d").lower()}
                for one in source.topic
                if one is not None and one["source"]["table"] == "t"
            ]
            records = [json.dumps(one).encode() for one in flat]
            decode = opened(json_rows.decoder, (), records)
        assert table(decode, records) == source.rows, f"seed {seed}"
