"""How a topic's records become rows: in the worker that read them, by the formats of their values and keys.

Rows of events are `(own.READ, own.ERROR, own.RAW, kafka columns, the value's columns)`, changes of a table
`(own.OP, own.SEQ, own.MS, own.ERROR, own.RAW, kafka columns, the value's columns, Decode.beside)`. `own.SEQ` is
partition, offset, and the number within the record: the log's order if a key stays in one partition, as Kafka's
own compaction assumes. A record that cannot be read keeps its place and its bytes; its columns are then NULL.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_cli.contracts import own
from backfill_cli.contracts.decoder import Decode, Decoded, Fault, InOrder
from backfill_cli.contracts.domain import Domain
from backfill_cli.errors import ColumnAdded
from backfill_cli.formats.frames import struct_type
from backfill_cli.formats.schemas import arrow_type
from backfill_cli.formats.skip_counts import Place
from backfill_cli.model.schema import Columns, SparkType, columns_of, field
from backfill_cli.spark.api import Column, DataFrame, F
from backfill_cli.spark.names import quoted
from backfill_cli.upstreams.kafka.options import DECLARE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

PLACE: Columns = {
    "kafka_partition": field("kafka_partition", "integer"),
    "kafka_offset": field("kafka_offset", "long"),
    "kafka_timestamp": field("kafka_timestamp", "timestamp"),
}
"""Where each row's record is."""

RECORDS = (
    f"{own.READ} INT, kafka_partition INT, kafka_offset BIGINT, kafka_timestamp TIMESTAMP, "
    f"{own.KEY} BINARY, {own.VALUE} BINARY"
)
"""Spark schema of records that another reader than ours has read."""

_MARKS = {own.ERROR: "string", own.RAW: "binary"}
_FAULTS = {own.FAULT: "string"}


@dataclass(frozen=True, slots=True)
class Reading:
    """What workers do with records. schema: of the value's columns.

    key: the table's key columns, empty for events. of_key: reads those columns from the key of a record without a
    value; None if the format's changes have deletes of their own. faults: whether rows also have `own.FAULT
    STRING`, which `Fault` an error is. follows: the table of which a column that is new in a record's schema is
    one from then on; empty if that is a fault. domain: of the values. skips: where it tells what it skips. keyed:
    see Decoder.
    """

    schema: str
    decode: Decode
    key: tuple[str, ...] = ()
    of_key: Decode | None = None
    faults: bool = False
    follows: str = ""
    domain: Domain = Domain()  # noqa: RUF009
    skips: Place | None = None
    keyed: bool = False

    @property
    def columns(self) -> Columns:
        """All columns of the rows."""
        marks = {name: field(name, kind) for name, kind in self._marks.items()}
        of_table = {**marks, **PLACE, **columns_of(self.schema)}
        if not self.key:
            return {own.READ: field(own.READ, "integer"), **of_table}
        return {
            own.OP: field(own.OP, "string"),
            own.SEQ: field(own.SEQ, _SEQ),
            own.MS: field(own.MS, "long"),
            **of_table,
            **self.decode.beside,
        }

    @property
    def by_ranges(self) -> bool:
        """Whether a task can say of its own rows that nothing is wrong with their order."""
        return not self.key or self.decode.beside.keys() <= {own.UNSENT} or isinstance(self.decode, InOrder)

    @property
    def _marks(self) -> dict[str, str]:
        return _MARKS | _FAULTS if self.faults else _MARKS

    @property
    def spark_schema(self) -> "StructType":
        return struct_type(self.columns)

    def rows(
        self,
        read: "pa.Array",
        place: "dict[str, pa.Array]",
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        skipped: "Counter[str]",
    ) -> "pa.RecordBatch":
        """The rows of these records, columns `columns`; `skipped` grows. Runs in a worker."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from backfill_cli.decode.merged import within

        found = self._decoded(keys, values)
        if self.follows:
            _refuse_new(found, self.follows, place)
        skipped.update(found.skipped)
        count = len(values) if found.record is None else len(found.record)
        at, ms = place, pc.cast(place["kafka_timestamp"], pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        if found.record is not None:
            at = {name: column.take(found.record) for name, column in place.items()}
            read, ms = read.take(found.record), ms.take(found.record)
        raw = _raw(found, keys, values, self.keyed)
        marks = {own.ERROR: found.error, own.RAW: raw, own.FAULT: found.fault}
        told = {
            name: pa.nulls(count, arrow_type(kind)) if marks[name] is None else marks[name]
            for name, kind in self._marks.items()
        }
        told |= at | found.columns
        if not self.key:
            return pa.RecordBatch.from_pydict({own.READ: read, **told})
        op = pa.repeat(pa.scalar("U"), count) if found.op is None else found.op
        seq = pa.StructArray.from_arrays(
            [at["kafka_partition"], at["kafka_offset"], within(found)],
            fields=list(arrow_type(_SEQ)),
        )
        ms = ms if found.ms is None else pc.coalesce(found.ms, ms)
        beside = {
            name: found.beside.get(name, pa.nulls(count, arrow_type(one["type"])))
            for name, one in self.decode.beside.items()
        }
        return pa.RecordBatch.from_pydict({own.OP: op, own.SEQ: seq, own.MS: ms, **told, **beside})

    def _decoded(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Decoded:
        """The rows alone, without marks and places."""
        from backfill_cli.decode.held import held
        from backfill_cli.decode.keyed import each_joined
        from backfill_cli.decode.upserts import upserts

        columns = columns_of(self.schema)
        if self.of_key is None:
            found = self.decode(each_joined(keys, values) if self.keyed else values)
        else:
            found = upserts(columns, self.key, self.decode, self.of_key, values, keys)
        return held(columns, found, self.domain)

    def of_records(self, batch: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
        """The rows of a batch of RECORDS. Runs in a worker."""
        place = {name: batch.column(name) for name in PLACE}
        keys, values = (batch.column(name).to_pylist() for name in (own.KEY, own.VALUE))
        skipped = Counter[str]()
        yield self.rows(batch.column(own.READ), place, keys, values, skipped)
        if self.skips is not None:
            first = "-".join(str(place[name][0]) for name in ("kafka_partition", "kafka_offset"))
            self.skips.tell(first, skipped)


_SEQ: SparkType = {
    "type": "struct",
    "fields": [field("kafka_partition", "integer"), field("kafka_offset", "long"), field(own.SUB, "integer")],
}


def _raw(
    found: Decoded, keys: Sequence[bytes | None], values: Sequence[bytes | None], keyed: bool
) -> "pa.Array | None":
    """The bytes of what cannot be read: a record's value, or the key of one without; keyed: both, as `joined`."""
    import pyarrow as pa

    from backfill_cli.decode.keyed import joined

    if found.error is None or found.error.null_count == len(found.error):
        return None
    record = range(len(values)) if found.record is None else found.record.to_pylist()
    bad = found.error.is_valid().to_pylist()
    of = joined if keyed else lambda key, value: key if value is None else value
    raws = [of(keys[i], values[i]) if is_bad else None for i, is_bad in zip(record, bad, strict=True)]
    return pa.array(raws, pa.binary())


def _refuse_new(found: Decoded, table: str, place: "dict[str, pa.Array]") -> None:
    """Raises ColumnAdded for a record whose schema has a new column: all are read again with it."""
    import pyarrow.compute as pc

    if found.fault is None or found.error is None:
        return
    first = pc.index(found.fault, Fault.NEW_COLUMN.value).as_py()
    if first >= 0:
        record = first if found.record is None else found.record[first].as_py()
        partition, offset = (place[name][record].as_py() for name in ("kafka_partition", "kafka_offset"))
        said = f"the record at partition {partition}, offset {offset}: {found.error[first].as_py()}"
        raise ColumnAdded(said, DECLARE, (table, partition, offset))


def named() -> Column:
    """A row's record, as errors name it."""
    partition, offset = (F.col(name).cast("string") for name in ("kafka_partition", "kafka_offset"))
    return F.concat(F.lit("the record at partition "), partition, F.lit(", offset "), offset)


def of_archived_rows(rows: DataFrame, columns: Columns, key: Sequence[str]) -> DataFrame:
    """Rows of an archive, whose columns are read already, as rows of events or changes: it holds no tombstones."""
    marks = [F.lit(None).cast(kind).alias(name) for name, kind in _MARKS.items()]
    values = [quoted(name) for name in columns]
    if not key:
        return rows.select(own.READ, *marks, *PLACE, *values)
    null = (F.when(quoted(name).isNull(), F.lit(f"column '{name}': the key is NULL")) for name in key)
    return rows.select(
        F.lit("U").alias(own.OP),
        F.struct("kafka_partition", "kafka_offset", F.lit(0).alias(own.SUB)).alias(own.SEQ),
        F.unix_millis("kafka_timestamp").alias(own.MS),
        F.coalesce(*null).alias(own.ERROR),
        marks[1],
        *PLACE,
        *values,
    )
