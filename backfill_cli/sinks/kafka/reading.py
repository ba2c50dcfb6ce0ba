"""Topics read back, in Spark's workers: rows for `verify`, and keys for the check at the end of a snapshot."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from backfill_cli.cdc.net import net
from backfill_cli.contracts import EpochCommit, SinkTable, own
from backfill_cli.contracts.refusals import duplicate_keys
from backfill_cli.decode.json_rows import JsonRows
from backfill_cli.decode.upserts import upserts
from backfill_cli.errors import RETRIED, START_OVER, BadData, Transient
from backfill_cli.formats.frames import struct_type
from backfill_cli.kafka.admin import Admin, Place
from backfill_cli.kafka.connection import Connection
from backfill_cli.kafka.edge import client
from backfill_cli.kafka.messages import messages
from backfill_cli.kafka.ranges import Range, cut
from backfill_cli.model.plan import StagedTable
from backfill_cli.model.schema import SparkType, columns_of, field, schema_text
from backfill_cli.sinks.kafka.encodings import Records, Writes
from backfill_cli.sinks.kafka.state import Held, JobRecord
from backfill_cli.sinks.kafka.writing import EPOCH, JOB, OP, SNAPSHOT, batches
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import DataFrame, F, SparkSession

if TYPE_CHECKING:
    from confluent_kafka import Message

NAMED_KEYS = 5
_PATIENCE_S = 120.0
_STRANGER = "another program wrote this record: delete it, or let it write rows as this job does; or " + START_OVER
_SEQ: SparkType = {"type": "struct", "fields": [field("epoch", "long"), field("offset", "long")]}


# -- rows at an epoch ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """A table's rows as of the epoch `up_to`: records of later epochs do not count."""

    connection: Connection
    topic: str
    table: SinkTable
    up_to: int
    records: Records

    def frame(self, spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
        """The newest row of each key, with the table's columns. ranges: of the topic's partitions."""
        columns = columns_of(self.table.schema)
        marks = {own.OP: field(own.OP, "string"), own.SEQ: field(own.SEQ, _SEQ)}
        shape = struct_type({**marks, **columns})
        parts = cut(ranges, arrow_tasks.cores(spark))
        if not parts:
            return spark.createDataFrame([], struct_type(columns))
        changes = arrow_tasks.frame(spark, self.rows, parts, shape)
        return net(changes, self.table.key).where(F.col(own.OP) == "U").drop(own.OP)

    def rows(self, part: Range) -> Iterator[pa.RecordBatch]:
        """Runs in a worker."""
        columns, documents = columns_of(self.table.schema), self.records.documents
        read_as = self.records.read_as(columns)
        of_value = JsonRows(schema_text(read_as), self.table.key, kept_apart=False, documents=documents)
        key = {name: read_as[name] for name in self.table.key}
        of_key = JsonRows(schema_text(key), kept_apart=False, scalar=True, documents=documents)
        of = client().Message
        for found in messages(self.connection, self.topic, part):
            told = [_number(_headers(one).get(EPOCH)) for one in found]
            kept = [(one, epoch) for one, epoch in zip(found, told, strict=True) if epoch <= self.up_to]
            if not kept:
                continue
            values, keys = (self.records.bare([read(one) for one, _ in kept]) for read in (of.value, of.key))
            decoded = upserts(read_as, self.table.key, of_value, of_key, values, keys)
            if decoded.error is not None and decoded.error.null_count < len(decoded.error):
                raise self._unreadable(decoded.error, [one for one, _ in kept], decoded.record)
            record = pa.array(range(len(kept)), pa.int32()) if decoded.record is None else decoded.record
            numbers = (pa.array([epoch for _, epoch in kept]), pa.array([of.offset(one) for one, _ in kept]))
            seq = pa.StructArray.from_arrays([one.take(record) for one in numbers], ["epoch", "offset"])
            op = pa.repeat(pa.scalar("U"), len(record)) if decoded.op is None else decoded.op
            try:
                values_of = self.records.again(decoded.columns, columns)
            except pa.ArrowInvalid as exc:
                raise BadData(f"topic '{self.topic}', partition {part.partition}: {exc}", _STRANGER) from exc
            yield pa.RecordBatch.from_pydict({own.OP: op, own.SEQ: seq, **values_of})

    def _unreadable(self, error: pa.Array, found: "Sequence[Message]", record: pa.Array | None) -> BadData:
        at = next(i for i, one in enumerate(error) if one.is_valid)
        one = found[at if record is None else record[at].as_py()]
        return BadData(
            f"topic '{self.topic}', partition {one.partition()}, offset {one.offset()}: {error[at].as_py()}",
            _STRANGER,
        )


def _headers(message: "Message") -> dict[str, bytes]:
    told: Any = message.headers()
    return dict(told or ())


def _number(text: bytes | None) -> int:
    return int(text) if text is not None and text.isdigit() else 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """The job's record, and the span of offsets of each partition with all that it says is there."""

    record: JobRecord
    spans: Mapping[Place, tuple[int, int]]

    def ranges(self, topic: str) -> list[Range]:
        return [Range(0, p, *span) for (name, p), span in sorted(self.spans.items()) if name == topic]


def bounds(admin: Admin, uncommitted: Connection, read: Callable[[], JobRecord | None]) -> Bounds | None:
    """The job as it is between two commits; None if there is no record of it. Raises Transient if it never is.

    A commit becomes visible partition by partition. read: the job's record.
    """
    until = time.monotonic() + _PATIENCE_S
    while (record := read()) is not None:
        spans = _visible(admin, uncommitted, record)
        if spans is not None and read() == record:
            return Bounds(record, spans)
        if time.monotonic() > until:
            raise Transient(f"job {record.job!r}: its topics are never at one commit", RETRIED)
        time.sleep(0.02)
    return None


def _visible(admin: Admin, uncommitted: Connection, record: JobRecord) -> dict[Place, tuple[int, int]] | None:
    """The committed span of each partition; None if one does not show the record's epoch yet."""
    epochs = {held.topic: held.epoch for held in record.tables.values()}
    there = admin.found(epochs)
    places = [(topic, p) for topic, found in there.items() for p in found.partitions]
    lasts, ends = admin.ends(places, committed=False), admin.ends(places, committed=True)
    for topic, p in places:
        end = ends[topic, p]
        if end < lasts[topic, p]:
            first = next(messages(uncommitted, topic, Range(0, p, end, end + 1)), [None])[0]
            if first is None or _number(_headers(first).get(EPOCH)) <= epochs[topic]:
                return None
    begins = admin.begins(places)
    return {place: (begins[place], ends[place]) for place in places}


# -- keys of snapshot rows ----------------------------------------------------------------------------------------


def refuse_duplicates(
    spark: SparkSession,
    connection: Connection,
    admin: Admin,
    commit: EpochCommit,
    table: SinkTable,
    held: Held,
    records: Records,
) -> None:
    """Raises BadData for a key that two snapshot rows have: of this epoch, or of earlier ones in the topic.

    Where the topic was compacted meanwhile, the older one of the two may be gone; then their numbers tell, unless
    changes followed: their keys hide it.
    """
    staged = commit.staged.tables.get(table.name) or StagedTable()
    frames, written = [], staged.rows
    if staged.inserts:
        make = partial(_staged_keys, Path(commit.folder), records.keys)
        frames.append(arrow_tasks.frame(spark, make, staged.inserts, "key BINARY"))
    if table.plain_inserts and held.rows:
        written += held.rows
        ends = admin.ends([(held.topic, p) for p in held.begins], committed=True)
        spans = [Range(0, p, begin, ends[held.topic, p]) for p, begin in held.begins.items()]
        of_topic = partial(_topic_keys, connection, held.topic, commit.job)
        if parts := cut([one for one in spans if one.after < one.up_to], arrow_tasks.cores(spark)):
            frames.append(arrow_tasks.frame(spark, of_topic, parts, "key BINARY"))
    if not frames:
        return
    keys = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
    counted = keys.groupBy("key").agg(F.count(F.lit(1)).alias("n"))
    (told,) = counted.agg(F.sum("n").alias("n"), F.count(F.lit(1)).alias("keys")).toArrow().to_pylist()
    if told["keys"] < (told["n"] or 0):
        twice = counted.where("n > 1").limit(NAMED_KEYS).toArrow().to_pylist()
        raise duplicate_keys(table, sorted((_shown(one["key"], records), one["n"]) for one in twice))
    if told["keys"] < written and not held.changes + staged.changed + staged.deleted:
        raise duplicate_keys(table, [("of rows that compaction has merged", written - told["keys"] + 1)])


def _shown(key: bytes, records: Records) -> str:
    """A key for people: of Avro or Protobuf, its bytes."""
    if records.binary:
        return f"\\x{key[len(records.keys.prefix) :].hex()}"
    return ", ".join(str(value) for value in json.loads(key[len(records.keys.prefix) :]).values())


def _staged_keys(folder: Path, keys: Writes, file: Any) -> Iterator[pa.RecordBatch]:
    """Runs in a worker."""
    for batch in batches(folder, [file]):
        yield pa.RecordBatch.from_pydict({"key": pa.array(keys.of(batch), pa.binary())})


def _topic_keys(connection: Connection, topic: str, job: str, part: Range) -> Iterator[pa.RecordBatch]:
    """Runs in a worker."""
    wanted = (SNAPSHOT, job.encode())
    for found in messages(connection, topic, part):
        told = ((one, _headers(one)) for one in found)
        keys = [one.key() for one, of in told if (of.get(OP), of.get(JOB)) == wanted]
        yield pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.binary())})
