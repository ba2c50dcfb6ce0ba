"""Generated Debezium logs: a few rows of a load, then files of changes of them."""

import base64
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from oracle import tokens
from oracle.answer import Answer
from oracle.inputs import KEYS, Files, Input
from oracle.readers import debezium
from oracle.readers.kinds import BITS, Kind
from oracle.records import drawn
from oracle.tokens import Texts

COLUMNS: dict[str, Kind] = {
    "id": "bigint", "s": "string", "h": "smallint", "i": "int", "l": "bigint", "g": "float", "f": "double",
    "o": "boolean",
    "d": ("decimal", 10, 2), "w": ("decimal", 38, 10), "day": "date", "at": "timestamp", "wall": "timestamp_ntz",
    "x": "binary", "ai": ("array", "int"), "as": ("array", "string"), "m": ("map", "string"),
    "t": ("struct", (("n", "bigint"), ("wall", "timestamp_ntz"))),
}  # fmt: skip
ARROW: dict[Kind, pa.DataType] = {
    "bigint": pa.int64(), "int": pa.int32(), "smallint": pa.int16(), "tinyint": pa.int8(), "string": pa.string(),
    "float": pa.float32(), "double": pa.float64(), "boolean": pa.bool_(), "date": pa.date32(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
UNSENT = {
    "s": [json.dumps(text) for text in debezium.NOT_SENT],
    "x": [json.dumps(debezium.NOT_SENT[1])],
    "as": [json.dumps([debezium.WORD])],
    "ai": [json.dumps([*debezium.WORD_BYTES])],
    "m": [json.dumps({debezium.WORD: debezium.WORD})],
}
"""What stands for a value that was not sent."""
TRUNCATES = 0.005
"""Few: logs are merged, and one empties all their tables."""
LOG_KEYS = 4
"""Keys that one log uses."""
MANNERS: tuple[tuple[str, str], ...] = (("ms", "string"), ("us", "precise"), ("ns", "precise"), ("us", "block"))
"""Unit of timestamps and form of decimals; the last with a schema block in each line."""


def arrow(kind: Kind) -> pa.DataType:
    if isinstance(kind, str):
        return ARROW[kind]
    if kind[0] == "decimal":
        return pa.decimal128(kind[1], kind[2])
    if kind[0] == "array":
        return pa.list_(arrow(kind[1]))
    if kind[0] == "map":
        return pa.map_(pa.string(), arrow(kind[1]))
    return pa.struct([(name, arrow(inner)) for name, inner in kind[1]])


SCHEMA = pa.schema([(name, arrow(kind)) for name, kind in COLUMNS.items()])


@cache
def good(kind: Kind, unit: str, form: str) -> Texts:
    """A JSON text that a column of this type holds, as Debezium writes it."""
    if kind[0] == "decimal":
        return _decimal(kind[1], kind[2], form)
    if kind[0] == "array":
        return st.lists(st.one_of(good(kind[1], unit, form), st.just("null")), max_size=3).map(
            lambda f: f"[{','.join(f)}]"
        )
    if kind[0] == "map":
        return st.dictionaries(tokens.strings(), st.one_of(st.none(), tokens.strings()), max_size=3).map(
            json.dumps
        )
    if kind[0] == "struct":
        inner = st.tuples(*(good(k, unit, form).map(lambda text, n=n: f'"{n}":{text}') for n, k in kind[1]))
        return inner.map(lambda found: "{" + ",".join(found) + "}")
    if kind in BITS:
        edge = 1 << (BITS[kind] - 1)
        return st.one_of(st.sampled_from([0, edge - 1, -edge]), st.integers(-edge, edge - 1)).map(str)
    if kind in ("float", "double"):
        return st.floats(width=32 if kind == "float" else 64, allow_nan=False, allow_infinity=False).map(repr)
    micros = st.one_of(
        st.sampled_from([0, -1, 999_999]), st.integers(-62135596800000, 253402300799999).map(lambda m: m * 1000)
    )
    made: dict[str, Texts] = {
        "boolean": st.sampled_from(["true", "false"]),
        "string": tokens.text(),
        "binary": st.binary(max_size=12).map(lambda raw: json.dumps(base64.b64encode(raw).decode())),
        "date": st.integers(-719162, 2932896).map(str),
        "timestamp": tokens.moments(["Z", "+02:00"]).filter(lambda t: _is_time(t)).map(json.dumps),
        "timestamp_ntz": {
            "ms": st.integers(-62135596800000, 253402300799999),
            "us": micros,
            "ns": st.integers(-(2**53), 2**53).map(lambda m: m * 1000),
        }[unit].map(str),
    }
    return made[kind]


def _is_time(text: str) -> bool:
    try:
        debezium.kinds.time(text, True, doubts := [])
    except debezium.No:
        return False
    return not doubts


def _decimal(digits: int, scale: int, form: str) -> Texts:
    unscaled = st.one_of(
        st.sampled_from([0, 1, -1, 10**digits - 1, 1 - 10**digits]), st.integers(1 - 10**digits, 10**digits - 1)
    )
    if form in ("precise", "block"):
        return unscaled.map(
            lambda n: json.dumps(
                base64.b64encode(n.to_bytes((n.bit_length() + 8) // 8, "big", signed=True)).decode()
            )
        )
    if form == "double":
        return st.integers(-(10**digits) + 1, 10**digits - 1).map(
            lambda n: repr((n % 10 ** min(12, digits)) / 10**scale) if scale <= 4 else str(n % 10**12)
        )
    return unscaled.map(lambda n: json.dumps(_pointed(n, scale)))


def _pointed(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def told(name: str, kind: Kind) -> dict[str, Any]:
    """A field of Kafka Connect's schema, as the connector for Postgres gives it."""
    return {"field": name, "optional": True, **_told(kind)}


def _told(kind: Kind) -> dict[str, Any]:
    if kind[0] == "decimal":
        return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1,
                "parameters": {"scale": str(kind[2]), "connect.decimal.precision": str(kind[1])}}  # fmt: skip
    if kind[0] == "array":
        return {"type": "array", "items": {"optional": True, **_told(kind[1])}}
    if kind[0] == "map":
        return {
            "type": "map",
            "keys": {"type": "string", "optional": False},
            "values": {"type": "string", "optional": True},
        }
    if kind[0] == "struct":
        return {"type": "struct", "fields": [told(n, k) for n, k in kind[1]]}
    word = {"bigint": "int64", "int": "int32", "smallint": "int16", "binary": "bytes", "timestamp": "string"}.get(
        kind, kind
    )
    if kind == "date":
        return {"type": "int32", "name": "io.debezium.time.Date", "version": 1}
    if kind == "timestamp":
        return {"type": "string", "name": "io.debezium.time.ZonedTimestamp", "version": 1}
    if kind == "timestamp_ntz":
        return {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1}
    return {"type": word}


ROW_BLOCK = [told(name, kind) for name, kind in COLUMNS.items()]
BLOCK = json.dumps({
    "type": "struct",
    "fields": [{"type": "struct", "fields": ROW_BLOCK, "optional": True, "field": image} for image in ("before",
    "after")]
    + [{"type": "string", "optional": False, "field": "op"}],
    "optional": False, "name": "server.public.t.Envelope",
})  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One change. op: c, r, u, d, or k: the key becomes `to`. lf: what ends its line."""

    op: str
    key: int
    to: int
    texts: tuple[tuple[str, str], ...]
    image: bool
    newline: str
    new_file: bool


@dataclass(frozen=True, repr=False)
class DebeziumLog(Input):
    """load: keys that the load has. manner: index of MANNERS."""

    load: tuple[int, ...]
    steps: tuple[Step, ...]
    manner: int
    transformed: bool
    form: ClassVar[str] = "debezium"

    def __repr__(self) -> str:
        return f"DebeziumLog({MANNERS[self.manner]}, load={self.load})"

    @property
    def options(self) -> Mapping[str, Any]:
        unit, form = MANNERS[self.manner]
        how = {} if form == "block" else {"timestamps": unit, "decimals": form}
        upstream = {
            "type": "files",
            "snapshot": {"path": "snapshot", "format": "parquet"},
            "changes": {"path": "changes", "format": "debezium", **how},
        }
        more = {"transform": TRANSFORM} if self.transformed else {}
        return {"upstream": upstream, **more}

    def files(self, number: int) -> Files:
        base = number * KEYS
        loaded = pa.Table.from_pylist([{"id": base + key, "s": "loaded"} for key in self.load], SCHEMA)
        sink = pa.BufferOutputStream()
        pq.write_table(loaded, sink)
        return {f"snapshot/{number:05d}.parquet": sink.getvalue().to_pybytes(), **self.log(base, number)}

    def log(self, base: int, number: int) -> dict[str, bytes]:
        texts: list[str] = [""]
        for step in self.steps:
            if step.new_file:
                texts.append("")
            texts[-1] += self.line(step, base) + step.newline
        return {f"changes/{number:05d}-{i}.json": text.encode() for i, text in enumerate(texts)}

    def line(self, step: Step, base: int) -> str:
        def image(key: int, texts: tuple[tuple[str, str], ...]) -> str:
            members = dict.fromkeys(COLUMNS, "null") | {"id": str(base + key)} | dict(texts)
            return "{" + ",".join(f'"{n}":{t}' for n, t in members.items()) + "}"

        if step.op == "tombstone":
            return "null"
        op = "u" if step.op == "k" else step.op
        seen = step.op in ("k", "d") or (step.op == "u" and step.image)
        before = image(step.key, ()) if seen else "null"
        after = "null" if op in ("d", "t") else image(step.to if step.op == "k" else step.key, step.texts)
        source = '{"connector":"postgresql","schema":"public","table":"t","ts_ms":5}'
        made = f'{{"before":{before},"after":{after},"source":{source},"op":"{op}","ts_ms":6,"transaction":null}}'
        return f'{{"schema":{BLOCK},"payload":{made}}}' if MANNERS[self.manner][1] == "block" else made

    @lru_cache(4)  # noqa: B019  # of some logs that several routes are judged by
    def answer(self, number: int) -> Answer:
        unit, form = MANNERS[self.manner]
        base = number * KEYS
        rows = [dict.fromkeys(COLUMNS) | {"id": ("int", base + key), "s": ("text", "loaded")} for key in self.load]
        found = debezium.table(COLUMNS, "id", rows, self.log(base, number), {"timestamps": unit, "decimals": form})
        return shaped(found) if self.transformed else found


TRANSFORM = {"select": ["*", "id + 1 AS next", "concat(s, '!') AS up"], "where": "o IS NULL OR o"}


def shaped(answer: Answer) -> Answer:
    """TRANSFORM, in Python."""
    if not isinstance(answer, debezium.Rows):
        return answer
    rows = []
    for row in answer.rows:
        if row["o"] in (None, ("bool", True)):
            up = None if row["s"] is None else ("text", row["s"][1] + "!")
            rows.append({**row, "next": ("int", row["id"][1] + 1), "up": up})
    return debezium.Rows(tuple(rows), answer.types, answer.or_refused)


@cache
def pools(unit: str, form: str, count: int) -> dict[str, list[str]]:
    return {n: drawn(good(k, unit, form), count) for n, k in COLUMNS.items() if n != "id"}


def log(chance: random.Random, pool: dict[str, list[str]], manner: int, transformed: bool) -> DebeziumLog:
    """A log of one to six changes of up to four keys, put together from drawn values.

    Updates of rows that are there leave values out; not where a transform needs them.
    """
    load = tuple(key for key in range(LOG_KEYS) if chance.random() < 0.4)
    live = set(load)

    def step(first: bool) -> Step:
        op = chance.choice(["c", "c", "r", "u", "u", "u", "k", "d", "d", "tombstone"])
        op = "t" if chance.random() < TRUNCATES else op
        names = chance.sample(sorted(pool), chance.choice([1, 2, 3]))
        texts = tuple((name, chance.choice(pool[name])) for name in names)
        newline = chance.choice(["\n"] * 6 + ["\r\n", "\n\n", "\n \n", "\n\r\n"])
        key, to = chance.randrange(LOG_KEYS), chance.randrange(LOG_KEYS)
        if op == "u" and key in live and not transformed and chance.random() < 0.4:
            name = chance.choice(sorted(UNSENT))
            texts = (*texts, (name, chance.choice(UNSENT[name])))
        if op == "t":
            live.clear()
        if op in ("d", "k"):
            live.discard(key)
        if op not in ("d", "t", "tombstone"):
            live.add(to if op == "k" else key)
        begins = not first and chance.random() < 0.3
        return Step(op, key, to, texts, chance.random() < 0.5, newline, begins)

    return DebeziumLog(load, tuple(step(i == 0) for i in range(chance.randrange(1, 7))), manner, transformed)


def _of_rows_that_are_there(load: tuple[int, ...], steps: list[Step]) -> Iterator[Step]:
    """The steps; an update leaves values out only where another log's truncate has not removed its row."""
    live = set(load)
    for step in steps:
        if step.op == "u" and step.key not in live:
            texts = tuple((name, text) for name, text in step.texts if text not in UNSENT.get(name, ()))
            step = replace(step, texts=texts)
        yield step
        if step.op == "t":
            live.clear()
        elif step.op in ("d", "k"):
            live.discard(step.key)
        if step.op not in ("d", "t", "tombstone"):
            live.add(step.to if step.op == "k" else step.key)


def merged(logs: list[DebeziumLog]) -> DebeziumLog:
    """All logs in the files of one, so that Spark opens few; each with keys of its own."""
    files: dict[int, list[Step]] = defaultdict(list)
    for number, one in enumerate(logs):
        file = 0
        for step in one.steps:
            file += step.new_file
            at = number * LOG_KEYS
            files[file].append(replace(step, key=step.key + at, to=step.to + at, new_file=False))
    steps = [
        replace(s, new_file=i == 0 and file > 0) for file, own in sorted(files.items()) for i, s in enumerate(own)
    ]
    load = tuple(number * LOG_KEYS + key for number, one in enumerate(logs) for key in one.load)
    steps = list(_of_rows_that_are_there(load, steps))
    return DebeziumLog(load, tuple(steps), logs[0].manner, logs[0].transformed)
