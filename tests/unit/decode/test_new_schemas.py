"""Schemas that records bring while a job runs, and contradictory ones when it begins: each record is by itself."""

import datetime
import json
import random
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hint_typed import typed
from oracle.inputs import SEED, TIMES
from registered_avro import Topic as Avro
from toy_registry import ToyRegistry, running

from backfill_cli.contracts import TableSpec, own
from backfill_cli.errors import BackfillError, BadData, ColumnAdded, ConfigError
from backfill_cli.formats.schemas import of_ddl
from backfill_cli.kafka.cluster import Seen
from backfill_cli.kafka.ranges import Range
from backfill_cli.upstreams.kafka import columns
from backfill_cli.upstreams.kafka.changes_options import ChangesOptions
from backfill_cli.upstreams.kafka.log import samples
from backfill_cli.upstreams.kafka.options import KafkaOptions
from backfill_cli.upstreams.kafka.topics import Topics

SEEDS = 12
WIDE = {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 0}
KINDS: dict[str, dict[str, Any]] = {
    "avro": {"int": 1, "long": 2**40, "string": "a", "bytes": b"\1", "boolean": True, "wide": Decimal(7)},
    "json-schema": {"integer": 1, "string": "a", "boolean": True, "array": [1]},
    "protobuf": {"int32": 1, "string": "a", "bytes": b"\1", "bool": True},
}
"""By encoding: types, and a value of each. An array without `items` has no exact type, nor has `wide`."""

Fields = Mapping[str, str]


@pytest.fixture(scope="module")
def registry() -> Iterator[ToyRegistry]:
    with running() as made:
        yield made


def record(registry: ToyRegistry, encoding: str, form: str, fields: Fields, id: int, table: str = "t") -> bytes:
    """A record of a row with an `id` and these fields, whose schema it registers."""
    values = {"id": id} | {name: KINDS[encoding][kind] for name, kind in fields.items()}
    if encoding == "avro":
        return _avro(registry, form, fields, values, table)
    if encoding == "json-schema":
        kinds = {"id": "integer", **fields}
        schema = {"type": "object", "properties": {name: {"type": kind} for name, kind in kinds.items()}}
        body = json.dumps(values).encode()
        number = registry.add("of no topic", json.dumps(schema), "JSON")
    else:
        numbers = {name: 2 + "abcd".index(name) for name in fields}
        members = [f"optional {kind} {name} = {numbers[name]};" for name, kind in fields.items()]
        text = f'syntax = "proto3"; message V {{ int64 id = 1; {" ".join(members)} }}'
        parts = [b"\x08" + bytes([id])]
        for name in fields:
            told, value = numbers[name], values[name]
            if isinstance(value, int):
                parts.append(bytes([told << 3, int(value)]))
            else:
                raw = value.encode() if isinstance(value, str) else value
                parts.append(bytes([told << 3 | 2, len(raw)]) + raw)
        body, number = b"\0" + b"".join(parts), registry.add("of no topic", text, "PROTOBUF")
    return b"\0" + struct.pack(">I", number) + body


def _avro(registry: ToyRegistry, form: str, fields: Fields, values: Mapping[str, Any], table: str) -> bytes:
    nullable = [
        {"name": name, "type": ["null", WIDE if kind == "wide" else kind], "default": None}
        for name, kind in fields.items()
    ]
    row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}, *nullable]}
    topic = Avro(registry, "of no topic")
    if form != "debezium":
        return topic.record(row, dict(values))
    source = {"type": "record", "name": "Source", "fields": [{"name": "table", "type": "string"}]}
    members = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": source},
        {"name": "op", "type": "string"},
    ]
    envelope = {"type": "record", "name": "Envelope", "fields": members}
    change = {"before": None, "after": dict(values), "source": {"table": table}, "op": "c"}
    return topic.record(envelope, change)


@dataclass
class Job:
    """A job on the topic `t` of one partition, from which it reads what it is given."""

    registry: ToyRegistry
    patch: pytest.MonkeyPatch
    value: Mapping[str, Any]
    on_error: str = "quarantine"
    topics: Mapping[str, str] | None = None
    table: str = "t"
    rows: list[Any] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)

    def begin(self, seen: Sequence[bytes]) -> "Job":
        """As `start` does, by these records of the topic."""
        self.log = list(seen)
        self.patch.setattr(samples, "of_topic", lambda *_: list(self.log))
        self.patch.setattr(samples, "headers", lambda *_: set())
        self.patch.setattr(
            samples,
            "of_ranges",
            lambda _, of, ranges: [self.log[i] for r in ranges for i in range(r.after, r.up_to)],
        )
        registry = {} if self.value.get("encoding", "json") == "json" else {"registry": {"url": self.registry.url}}
        told = {"bootstrap_servers": "nowhere:1", "value": self.value, "on_error": self.on_error, **registry}
        told |= {"topic": "t"} if self.topics is None else {"topics": self.topics}
        key = () if self.value["format"] == "events" else ("id",)
        options, names = KafkaOptions.model_validate(told), self.topics or {self.table: "t"}
        self.topic = Topics(options, [TableSpec(name, key) for name in names]).of[self.table]
        self.topic.seen = Seen("cluster", "topic", {0: 0}, {0: len(seen)})
        source, found = columns.of_source(options, self.topic, None, self.topic.seen)
        self.identity = json.dumps(self.topic.identity(self.topic.seen, found))
        if self.topics is not None:
            self.identity = json.dumps({"topics": {self.table: json.loads(self.identity)}})
        self.columns = columns.of_value(source)
        return self

    def read(self, *batches: Sequence[bytes]) -> "Job":
        """A commit for each batch. Raises BadData, with on_error = "fail", for a record that cannot be read."""
        for batch in batches:
            begin = len(self.log)
            self.log += batch
            self.topic.seen = Seen("cluster", "topic", {0: 0}, {0: len(self.log)})
            made = self._rows(Range(0, 0, begin, len(self.log)), batch)
            shown = ["kafka_offset", *self.columns, own.ERROR]
            self.ops += made.column(own.OP).to_pylist() if own.OP in made.schema.names else []
            for row in made.select(shown).to_pylist():
                found = {name: value for name, value in row.items() if value is not None}
                if own.ERROR in found and self.on_error == "fail":
                    raise BadData(f"offset {row['kafka_offset']}: {found[own.ERROR]}", "")
                self.rows.append(found)
        return self

    def _rows(self, range: Range, batch: Sequence[bytes]) -> Any:
        place = {
            "kafka_partition": pa.repeat(pa.scalar(0, pa.int32()), len(batch)),
            "kafka_offset": pa.array([range.after + n for n, _ in enumerate(batch)], pa.int64()),
            "kafka_timestamp": pa.repeat(
                pa.scalar(datetime.datetime.now(datetime.UTC), pa.timestamp("us", "UTC")), len(batch)
            ),
        }
        read, keys = pa.repeat(pa.scalar(0, pa.int32()), len(batch)), [None] * len(batch)
        while True:
            reading = self.topic.reading([range], self.columns, self.identity, self.topic.asked(None))
            try:
                return reading.rows(read, place, keys, batch, Counter())
            except ColumnAdded as added:
                _, partition, offset = added.at or ("", 0, 0)
                new = Range(0, partition, offset, offset + 1)
                more = self.topic.added(self.columns, [range], new, self.identity)
                assert more, "a record's new columns are found, or it cannot be read"
                self.columns = {**self.columns, **more}


def shown(job: Job) -> tuple[Any, ...]:
    """The columns, the rows, and which records are none: several things can be wrong with one."""
    kinds = {name: one["type"] for name, one in job.columns.items()}
    return kinds, [row | {own.ERROR: True} if own.ERROR in row else row for row in job.rows]


@pytest.mark.parametrize(
    ("encoding", "form"),
    [("avro", "rows"), ("avro", "events"), ("avro", "debezium"), ("json-schema", "rows"), ("protobuf", "rows")],
)
def test_which_records_come_in_one_commit_decides_nothing(
    registry: ToyRegistry, monkeypatch: pytest.MonkeyPatch, encoding: str, form: str
) -> None:
    kinds, set_aside, added = list(KINDS[encoding]), 0, 0
    for seed in range(int(SEEDS * TIMES)):
        r = random.Random(seed + SEED)
        begun = [record(registry, encoding, form, {"a": kinds[0]}, 1)]
        later = []
        for n in range(r.randrange(2, 7)):
            fields = {name: r.choice(kinds) for name in "bcd" if r.random() < 0.4}
            fields |= {"a": kinds[0] if r.random() < 0.7 else r.choice(kinds)}
            table = "other" if form == "debezium" and r.random() < 0.3 else "t"
            later.append(record(registry, encoding, form, fields, n + 2, table))
        value = {"format": form, "encoding": encoding}
        alone = Job(registry, monkeypatch, value).begin(begun).read(*([one] for one in later))
        at = r.randrange(1, len(later))
        for batches in ([later], [later[:at], later[at:]]):
            assert shown(Job(registry, monkeypatch, value).begin(begun).read(*batches)) == shown(alone), (
                seed,
                later,
            )
        set_aside += sum(own.ERROR in row for row in alone.rows)
        added += len(alone.columns) - 2
        assert [row["kafka_offset"] for row in alone.rows] == list(range(1, len(later) + 1))
        failing = Job(registry, monkeypatch, value, "fail").begin(begun)
        bad = next((row for row in alone.rows if own.ERROR in row), None)
        if bad is None:
            assert shown(failing.read(later)) == shown(alone)
        else:
            with pytest.raises(BadData, match=f"offset {bad['kafka_offset']}: "):
                failing.read(later)
    assert set_aside > SEEDS * TIMES / 4
    assert added > SEEDS * TIMES / 4


def test_a_record_of_another_type_beside_a_schema_with_a_new_column_is_set_aside(
    registry: ToyRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(id: int, **fields: str) -> bytes:
        return record(registry, "avro", "rows", fields, id)

    job = Job(registry, monkeypatch, {"format": "rows", "encoding": "avro"}).begin([made(1, a="int")])
    job.read([made(2, a="int", b="string"), made(3, a="string"), made(4, a="int")], [made(5, b="wide")])
    assert list(job.columns) == ["id", "a", "b"]
    good, bad, also, wide = job.rows
    assert (good["b"], also["id"]) == ("a", 4)
    assert "column 'a': string does not fit int" in bad[own.ERROR]
    assert "column 'b'" in wide[own.ERROR]


def unwrapped(registry: ToyRegistry, fields: Mapping[str, Any], **values: Any) -> bytes:
    """A row that Debezium's transform took out of its envelope. fields: their types, or whole."""
    whole = {name: kind if isinstance(kind, dict) else {"type": kind} for name, kind in fields.items()}
    told = [{"name": name, **kind} for name, kind in whole.items()]
    return Avro(registry, "of no topic").record({"type": "record", "name": "Value", "fields": told}, values)


@pytest.mark.parametrize("mark", ["__deleted", "__op"])
def test_a_row_without_the_key_adds_no_column_and_deletes_after_it_are_applied(
    registry: ToyRegistry, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    stays, gone = {"__deleted": ("false", "true"), "__op": ("u", "d")}[mark]
    row = {"id": "long", "a": "long", mark: "string"}
    there = unwrapped(registry, row, **{"id": 1, "a": 1, mark: stays})
    stray = unwrapped(registry, {"x": "long", mark: "string"}, **{"x": 7, mark: stays})
    more = unwrapped(registry, {**row, "b": "long"}, **{"id": 2, "a": 1, "b": 2, mark: stays})
    job = Job(registry, monkeypatch, {"format": "rows", "encoding": "avro"}).begin([there])
    job.read([there], [stray], [more], [unwrapped(registry, row, **{"id": 1, "a": 1, mark: gone})])
    assert list(job.columns) == ["id", "a", "b"]
    assert job.ops == ["U", "U", "U", "D"]
    assert [row.get(own.ERROR) for row in job.rows] == [None, "column 'id': the key is NULL", None, None]


def test_a_key_that_is_renamed_beside_a_new_column_leaves_the_deletes_as_they_are(
    registry: ToyRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"id": "long", "a": "long", "__op": "string"}
    renamed = {"nr": {"type": "long", "aliases": ["id"]}, "a": "long", "b": "long", "__op": "string"}
    there = unwrapped(registry, row, id=1, a=1, __op="c")
    job = Job(registry, monkeypatch, {"format": "rows", "encoding": "avro"}).begin([there])
    job.read([unwrapped(registry, renamed, nr=1, a=2, b=3, __op="u")])
    job.read([unwrapped(registry, renamed, nr=1, a=2, b=3, __op="d")])
    assert list(job.columns) == ["id", "a", "b"]
    assert job.ops == ["U", "D"]
    assert job.rows[0] == {"kafka_offset": 1, "id": 1, "a": 2, "b": 3}
    assert job.rows[1]["id"] == 1


def test_each_event_has_what_the_transform_added(registry: ToyRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"id": "long", "__op": "string"}
    job = Job(registry, monkeypatch, {"format": "events", "encoding": "avro"})
    job.begin([unwrapped(registry, row, id=1, __op="c")])
    job.read([unwrapped(registry, {**row, "b": "long", "__lsn": "long"}, id=1, __op="d", b=2, __lsn=3)])
    assert list(job.columns) == ["id", "__op", "b", "__lsn"]
    assert job.rows == [{"kafka_offset": 1, "id": 1, "__op": "d", "b": 2, "__lsn": 3}]


@pytest.mark.parametrize("form", ["rows", "events", "debezium"])
@pytest.mark.parametrize(
    "name", ["A", "_backfill_op", "wide", "Kafka_Offset", "kafka_partition", "KAFKA_TIMESTAMP"]
)
def test_a_record_whose_new_column_no_table_can_have_is_set_aside(
    registry: ToyRegistry, monkeypatch: pytest.MonkeyPatch, name: str, form: str
) -> None:
    begun = record(registry, "avro", form, {"a": "int"}, 1)
    odd = record(registry, "avro", form, {"a": "int", name: "wide" if name == "wide" else "int"}, 2)
    job = Job(registry, monkeypatch, {"format": form, "encoding": "avro"}).begin([begun]).read([odd, begun])
    assert list(job.columns) == ["id", "a"]
    assert f"column '{name}' is new in schema id" in job.rows[0][own.ERROR]
    assert job.rows[1]["id"] == 1


def test_a_block_with_a_new_column_adds_it_unless_no_table_can_have_it(
    registry: ToyRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = [
        in_block("int32", A="int32"),
        in_block("int32", _backfill_op="int32"),
        in_block("int32", v="map"),
        in_block("int32", Kafka_Offset="int32"),
    ]
    job = Job(registry, monkeypatch, {"format": "debezium"}).begin([in_block("int32")])
    job.read(
        [*odd, in_block("string", b="string"), in_block("int32", b="int32"), in_block("int32", "other", c="int32")]
    )
    assert list(job.columns) == ["id", "a", "b"]
    assert [own.ERROR in row for row in job.rows] == [True, True, True, True, True, False, True]
    assert "differs from 'a' in case only" in job.rows[0][own.ERROR]


@pytest.mark.parametrize("form", ["rows", "events", "debezium"])
def test_a_topic_with_two_types_of_a_column_begins_where_one_is_declared_or_the_other_is_set_aside(
    registry: ToyRegistry, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    log = [
        record(registry, "avro", form, {"a": kind}, id) for id, kind in ((1, "string"), (2, "bytes"), (3, "int"))
    ]
    value = {"format": form, "encoding": "avro"}
    with pytest.raises(BadData, match="column 'a' changes its type") as refused:
        Job(registry, monkeypatch, value, "fail").begin(log)
    with typed(refused.value) as hint:
        settings = hint.settings()
        aside = Job(registry, monkeypatch, value, str(settings["upstream.on_error"])).begin(log)
        schema = str(settings["upstream.value.schema"]).replace("note STRING", "a BINARY")
        hint.says("if an older type is the one that is meant, also declare all columns")
        declared = Job(registry, monkeypatch, value | {"schema": schema}, str(settings["upstream.on_error"]))
        assert [own.ERROR in row for row in declared.begin(log).read(log).rows] == [True, False, True]
    assert [own.ERROR in row for row in aside.read(log).rows].count(False) == 1
    with pytest.raises(BadData, match="offset 3: column 'a'"):
        Job(registry, monkeypatch, value | {"schema": schema}, "fail").begin(log).read(log)


@pytest.mark.parametrize("form", ["rows", "events"])
def test_a_record_of_another_subject_does_not_say_what_the_columns_are(
    monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Its schema was registered after the topic's newest one."""
    fields, strange = {"id": "long", "a": "int"}, {"id": "string", "who": "string"}
    row, other = (
        {"type": "record", "name": "Value", "fields": [{"name": n, "type": k} for n, k in one.items()]}
        for one in (fields, strange)
    )
    with running() as registry:
        mine, stray = Avro(registry, "t-value"), Avro(registry, "audit-value")
        log = [mine.record(row, {"id": n, "a": n}) for n in range(3)]
        log.append(stray.record(other, {"id": "stray", "who": "x"}))
        job = Job(registry, monkeypatch, {"format": form, "encoding": "avro"}).begin(log)
        assert {name: one["type"] for name, one in job.columns.items()} == {"id": "long", "a": "integer"}
        assert [own.ERROR in row for row in job.read(log).rows] == [False, False, False, True]


def in_block(kind: str, table: str = "t", **more: str) -> bytes:
    fields = [{"field": "id", "type": "int64"}, {"field": "a", "type": kind}]
    fields += [{"field": name, "type": more_kind} for name, more_kind in more.items()]
    block = {"type": "struct", "fields": [{"type": "struct", "field": "after", "fields": fields}]}
    row = {"id": 1, "a": {"int32": 1, "string": "a", "bytes": "AA=="}[kind], **dict.fromkeys(more)}
    payload = {"op": "c", "before": None, "after": row, "source": {"db": "d", "schema": "public", "table": table}}
    return json.dumps({"schema": block, "payload": payload}).encode()


def test_blocks_with_two_types_of_a_column_begin_a_job_in_the_same_ways(
    registry: ToyRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, value = [in_block("bytes"), in_block("int32")], {"format": "debezium"}
    with pytest.raises(BadData, match="column 'a' changes its type: the schema blocks say") as refused:
        Job(registry, monkeypatch, value, "fail").begin(log)
    with typed(refused.value) as hint:
        aside = Job(registry, monkeypatch, value, str(hint.settings()["upstream.on_error"])).begin(log)
    assert [own.ERROR in row for row in aside.read(log).rows] == [True, False]
    declared = Job(registry, monkeypatch, value | {"schema": "id BIGINT, a BINARY"}).begin(log)
    assert [own.ERROR in row for row in declared.read(log).rows] == [False, True]


@dataclass(frozen=True)
class Counted:
    """A type of numbers. counts: what its numbers count; empty if its schema says nothing of it.

    logical: Avro's logical type, or Connect's. value: one of its. told: what the value is, where it is a time.
    """

    kind: str
    logical: str
    counts: str
    value: int | str
    told: datetime.date | None = None


_DAY, _MOMENT = datetime.date(2022, 1, 8), datetime.datetime(2023, 11, 14, 22, 13, 20)
_MS, _US = 1_700_000_000_000, 1_700_000_000_000_000
IN_BLOCKS = [
    Counted("int32", "", "", 7),
    Counted("int64", "", "", 8),
    Counted("string", "", "", "x"),
    Counted("int32", "io.debezium.time.Year", "", 2024),
    Counted("int32", "io.debezium.time.Date", "days", 19_000, _DAY),
    Counted("int64", "org.apache.kafka.connect.data.Timestamp", "ms", _MS, _MOMENT),
    Counted("int64", "io.debezium.time.Timestamp", "ms", _MS, _MOMENT),
    Counted("int64", "io.debezium.time.MicroTimestamp", "us", _US, _MOMENT),
    Counted("int32", "io.debezium.time.Time", "ms of a day", 3_600_000),
    Counted("int64", "io.debezium.time.MicroTime", "us of a day", 3_600_000_000),
]
IN_AVRO = [
    Counted("int", "", "", 7),
    Counted("long", "", "", 8),
    Counted("string", "", "", "x"),
    Counted("int", "date", "days", 19_000, _DAY),
    Counted("long", "timestamp-millis", "ms", _MS, _MOMENT),
    Counted("long", "timestamp-micros", "us", _US, _MOMENT),
    Counted("long", "local-timestamp-millis", "ms on a wall", _MS, _MOMENT),
    Counted("int", "time-millis", "ms of a day", 3_600_000),
    Counted("long", "time-micros", "us of a day", 3_600_000_000),
]


def counted(registry: ToyRegistry, of: Counted, in_avro: bool) -> bytes:
    if in_avro:
        kind: Any = {"type": of.kind, "logicalType": of.logical} if of.logical else of.kind
        return unwrapped(registry, {"id": "long", "a": {"type": kind}}, id=1, a=of.value)
    made = json.loads(in_block("int32"))
    made["payload"]["after"]["a"] = of.value
    made["schema"]["fields"][0]["fields"][1] |= {"type": of.kind} | ({"name": of.logical} if of.logical else {})
    return json.dumps(made).encode()


@pytest.mark.parametrize("types", [IN_BLOCKS, IN_AVRO], ids=["blocks", "avro"])
@pytest.mark.parametrize(
    "declared", [None, "INT", "BIGINT", "DOUBLE", "STRING", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"]
)
def test_numbers_in_one_column_count_the_same(
    registry: ToyRegistry, monkeypatch: pytest.MonkeyPatch, types: list[Counted], declared: str | None
) -> None:
    value = {"format": "rows", "encoding": "avro"} if types is IN_AVRO else {"format": "debezium"}
    value |= {} if declared is None else {"schema": f"id BIGINT, a {declared}"}
    log = {of: counted(registry, of, types is IN_AVRO) for of in types}
    for one in types:
        for other in types:
            both = [one, other]
            for begun in ([log[one]], [log[one], log[other]]):
                try:
                    job = Job(registry, monkeypatch, value).begin(begun).read([log[of] for of in both])
                except (BadData, ConfigError):
                    continue
                read = [(of, row["a"]) for of, row in zip(both, job.rows, strict=True) if own.ERROR not in row]
                assert read if one is not other else len(read) == 2, (both, job.rows)
                kept = set()
                for of, found in read:
                    if isinstance(found, datetime.date):
                        wall = found.replace(tzinfo=None) if isinstance(found, datetime.datetime) else found
                        assert wall == of.told, (both, found)
                    else:
                        kept.add(of.counts)
                        assert found == (str(of.value) if isinstance(found, str) else of.value), (both, found)
                assert len(kept) <= 1, (both, job.rows)
                if declared == "BIGINT" and types is IN_AVRO and one.counts == other.counts:
                    assert len(read) == 2 or "string" in (one.kind, other.kind), (both, job.rows)


@pytest.mark.parametrize("begun", ["nothing", "a record without a block"])
def test_numbers_count_nothing_in_a_column_of_which_no_block_said_it(
    registry: ToyRegistry, monkeypatch: pytest.MonkeyPatch, begun: str
) -> None:
    """In milliseconds and microseconds: nothing tells which of them the job met first."""
    value = {"format": "debezium", "schema": "id BIGINT, a BIGINT"}
    log = [] if begun == "nothing" else [json.dumps(json.loads(in_block("int32"))["payload"]).encode()]
    for of in (of for of in IN_BLOCKS if isinstance(of.value, int)):
        record = [counted(registry, of, False)]
        (row,) = Job(registry, monkeypatch, value).begin(log).read(record).rows
        assert row.get("a") == (None if of.counts else of.value), of
        if of.counts:
            assert "no schema said what the column's numbers count when the job began" in row[own.ERROR]
            (again,) = Job(registry, monkeypatch, value).begin(record).read(record).rows
            assert (again["a"], own.ERROR in again) == (of.value, False), "started over, the schema says it"


@dataclass
class Message:
    """What the client has of a record."""

    of: int
    ms: int
    raw: bytes

    def partition(self) -> int:
        return self.of

    def timestamp(self) -> tuple[int, int]:
        return 1, self.ms

    def value(self) -> bytes:
        return self.raw


@pytest.mark.parametrize(
    "log",
    [
        {0: [("int32", 1), ("string", 9)], 1: [("int32", 2)]},
        {0: [("int32", 9), ("string", 1)]},
        {0: [("int32", 5)], 1: [("int32", 2), ("string", 3), ("string", 6)], 2: [("int32", -1)]},
    ],
    ids=["partitions", "a clock that goes back", "in between"],
)
@pytest.mark.parametrize("many", [False, True])
def test_the_newest_block_is_that_of_the_newest_record_whichever_partition_has_it(
    monkeypatch: pytest.MonkeyPatch, log: dict[int, list[tuple[str, int]]], many: bool
) -> None:
    held = {p: [Message(p, ms, in_block(kind)) for kind, ms in records] for p, records in log.items()}
    monkeypatch.setattr(samples, "client", lambda: SimpleNamespace(Message=Message))
    monkeypatch.setattr(samples, "messages", lambda _, of, one: [held[one.partition][one.after : one.up_to]])
    monkeypatch.setattr(samples, "glimpse", lambda *_: [one for records in held.values() for one in records])
    told = {"bootstrap_servers": "nowhere:1", "topic": "t", "value": {"format": "debezium"}}
    options = KafkaOptions.model_validate(told | {"on_error": "quarantine"})
    topic = Topics(options, [TableSpec("t", ("id",))]).of["t"]
    topic.shared = many
    topic.seen = Seen("cluster", "topic", dict.fromkeys(held, 0), {p: len(of) for p, of in held.items()})
    source, _ = columns.of_source(options, topic, None, topic.seen)
    assert source["a"]["type"] == "string"


@pytest.mark.parametrize("several", [False, True], ids=["one table", "several tables"])
def test_a_record_of_another_table_is_set_aside_when_a_job_begins_too(
    registry: ToyRegistry, monkeypatch: pytest.MonkeyPatch, several: bool
) -> None:
    log, value = [in_block("int32"), in_block("int32", "other", more="int32")], {"format": "debezium"}
    topics = {"t": "z_t", "u": "z_u"} if several else None
    with pytest.raises(
        ConfigError, match=r"holds records of several tables: d\.public\.other, d\.public\.t"
    ) as refused:
        Job(registry, monkeypatch, value, "fail", topics).begin(log)
    with typed(refused.value) as hint:
        settings = hint.settings()
        assert ("upstream.value.tables" in settings) is not several
        job = Job(registry, monkeypatch, value, str(settings["upstream.on_error"]), topics).begin(log)
    assert list(job.columns) == ["id", "a"]
    assert [own.ERROR in row for row in job.read(log).rows] == [False, True]
    assert "tables" not in job.rows[1][own.ERROR]
    assert "of another table than 'd.public.t': d.public.other" in job.rows[1][own.ERROR]


def test_a_table_of_several_that_no_record_names_is_named_in_full(
    registry: ToyRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, value = [in_block("int32", "orders"), in_block("int32", "other")], {"format": "debezium"}
    with pytest.raises(BackfillError) as refused:
        Job(registry, monkeypatch, value, topics={"t": "z_t", "u": "z_u"}).begin(log)
    with typed(refused.value) as hint:
        hint.says('name = "d.public.orders", target = "t"')
        hint.says("its topic in upstream.topics")
        topics = {"d.public.orders": "z_t", "u": "z_u"}
        job = Job(registry, monkeypatch, value, topics=topics, table="d.public.orders").begin(log).read(log)
    assert [own.ERROR in row for row in job.rows] == [False, True]


def test_a_table_that_follows_a_snapshot_needs_a_topic_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    log = [in_block("int32"), in_block("int32", "other")]
    names = {"t": "z_t", "u": "z_u"}
    monkeypatch.setattr(samples, "of_topic", lambda *_: list(log))
    told = {"type": "kafka", "bootstrap_servers": "x:1", "topics": names, "from": "earliest"}
    options = ChangesOptions.model_validate({**told, "value": {"format": "debezium"}})
    topic = Topics(options, [TableSpec(name, ("id",)) for name in names]).of["t"]
    seen, snapshot = Seen("cluster", "topic", {0: 0}, {0: 2}), of_ddl("id BIGINT, a INT")
    with pytest.raises(ConfigError, match="holds records of several tables") as refused:
        columns.of_changes(options, topic, snapshot, seen)
    with typed(refused.value) as hint:
        hint.says("let each of these topics have the records of one table")
        log.pop()
        assert list(columns.of_changes(options, topic, snapshot, seen).columns) == ["id", "a"]
