"""The Kafka upstream: one topic fills one table; its partitions are the splits, offsets the rows in them."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from backfill_cli.contracts import ArrowTasks, TableSpec, UpstreamCapabilities
from backfill_cli.errors import BackfillError, ConfigError, Fatal, HistoryGone, StateConflict
from backfill_cli.formats import schemas
from backfill_cli.formats.fast_json import ShortWay, short_way
from backfill_cli.formats.schemas import Columns
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin, UpstreamView
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.failures import from_spark
from backfill_cli.upstreams.kafka import columns
from backfill_cli.upstreams.kafka.archive.index import Span
from backfill_cli.upstreams.kafka.decode import debezium, events, foreign, upserts
from backfill_cli.upstreams.kafka.log import plain, samples, spark_source
from backfill_cli.upstreams.kafka.log.cluster import Cluster, Connection, Seen
from backfill_cli.upstreams.kafka.log.growth import Growth
from backfill_cli.upstreams.kafka.log.samples import Samples
from backfill_cli.upstreams.kafka.options import EVENT_KEY, KafkaOptions
from backfill_cli.upstreams.kafka.records import Decoder, Records
from backfill_cli.upstreams.kafka.tasks import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class KafkaUpstream:
    """See contracts.Upstream. Nothing is asked of the cluster before `pin` or `observe`."""

    def __init__(
        self, options: KafkaOptions, tables: Sequence[TableSpec], now_s: Callable[[], float] = time.time
    ) -> None:
        if len(tables) != 1:
            names = ", ".join(table.name for table in tables)
            raise ConfigError("tables", [f"tables: a topic fills one table, not {len(tables)} ({names})"])
        self._options, self._table, self._now_s = options, tables[0], now_s
        self._connection = Connection(options)
        self._cluster = Cluster(self._connection, options.topic)
        self._records = Records(options, self._connection)
        events = self._table.key in ((), EVENT_KEY)
        self.capabilities = UpstreamCapabilities(
            pinned=False,
            keeps_log=True,
            before_images=options.value.format == "debezium",
            one_log=True,
            partitioned=True,
            place=EVENT_KEY,
            accepts_gap=options.accept_gap,
            appends=events and options.value.format != "debezium",
            quarantines=options.on_error == "quarantine",
        )
        self._growth = Growth()
        self._seen: Seen | None = None
        self._haste = Haste()
        self._pin: Pin | None = None

    def pin(self) -> Pin:
        self._cluster.must_exist()
        seen = self._cluster.look()
        archive = self._records.archive
        if archive is not None:
            archive.begin()
        found = self._samples(seen)
        source = columns.of_source(self._options, self._table, archive, found)
        splits = self._splits(seen)
        self._pin = Pin(
            position=Position.of({split.id: split.first for split in splits}),
            position_ms=self._options.from_ms(),
            complete_at=None,
            splits=splits,
            schema={self._table.name: schemas.to_json(source)},
            identity=_identity(seen, self._options.topic, found),
        )
        return self._pin

    def restore(self, pin: Pin) -> None:
        if self._records.archive is not None:
            self._records.archive.take({int(split.id): split.detail for split in pin.splits})
        self._pin = pin

    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        """What the partitions hold.

        Raises StateConflict when the topic or its cluster is another one, Fatal when rows have a key and the topic
        got a partition since.
        """
        pin = self._taken()
        read = None if snapshot_open else {int(p): int(offset) for p, offset in position}
        self._seen = seen = self._cluster.look(read)
        self._same(seen, pin)
        self._may_grow(seen, position, pin)
        self._growth.observe(seen.oldest, seen.ends, int(self._now_s() * 1000))
        return UpstreamView(
            identity=pin.identity,
            latest=_position(seen.ends),
            pending=self._growth.pending(position),
            oldest=_position(seen.oldest),
            archived=self._archived(seen, snapshot_open),
        )

    def advice(self) -> Sequence[str]:
        count = len(self._taken().splits)
        if self.capabilities.appends or self._options.accept_growth or count == 1:
            return []
        return [
            f"topic '{self._options.topic}' has {count} partitions and rows have a key: if the topic ever got "
            "partitions, a key may have records in two of them, and between partitions there is no order: old "
            "ones may overwrite newer ones; if it gets one later the job stops, unless upstream.accept_growth = "
            "true says that every key stays in its partition"
        ]

    def batches(self, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]) -> ArrowTasks | None:
        value = columns.of_value(schemas.from_json(self._taken().schema[self._table.name]))
        way = self._way(value)
        as_bytes = self._options.value.format == "bytes"
        if self._options.reader != "confluent" or (way is None and not as_bytes) or not self._haste.allowed():
            return None
        tasks = self._records.log_tasks(spark, _ranges(reads), self._oldest)
        if tasks is None:
            return None
        topic, cores = self._options.topic, arrow_tasks.cores(spark)
        return plain.tasks(self._connection, topic, value, way, tasks, cores, self._haste.surprised)

    def scan(self, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]) -> "DataFrame":
        value = columns.of_value(schemas.from_json(self._taken().schema[self._table.name]))
        as_bytes = self._options.value.format == "bytes"
        way = None if as_bytes else self._way(value)

        def of_records(records: "DataFrame") -> "DataFrame":
            return events.as_bytes(records) if as_bytes else events.as_json(records, value, way)

        return self._records.decoded(
            spark,
            _ranges(reads),
            self._oldest,
            value,
            of_records,
            lambda rows: events.as_rows(rows, value),
            way,
        )

    def changes(
        self, spark: "SparkSession", table: str, after: Position, up_to: Position, schema: str
    ) -> "DataFrame":
        """The ranges are the partitions of `up_to`, each from where it stands in `after`."""
        self._taken()
        value, key = columns.of_value(schemas.from_json(schema)), self._table.key
        way = None
        if self._options.value.format == "debezium":
            of_records: Decoder = partial(debezium.as_changes, columns=value, key=key, rules=self._rules(value))
        else:
            way = self._way(value, key)
            of_records = partial(upserts.as_upserts, columns=value, key=key, way=way)
        return self._records.decoded(
            spark,
            [Range(index, int(p), int(after.get(p) or 0), int(end)) for index, (p, end) in enumerate(up_to)],
            self._oldest,
            value,
            of_records,
            lambda rows: upserts.of_rows(rows, value, key),
            way,
        )

    def acknowledge(self, position: Position) -> None:
        """Nothing is committed to the cluster: the sink holds the position."""

    def failure(self, exc: Exception) -> BackfillError | None:
        return from_spark(exc) or spark_source.failure(exc)

    def close(self) -> None:
        self._cluster.close()

    def _way(self, value: Columns, required: Sequence[str] = ()) -> ShortWay | None:
        """The short way, which only our own reader knows."""
        odd = foreign.texts(value, bool(required))
        return short_way(value, required, odd) if self._options.reader == "confluent" else None

    def _samples(self, seen: Seen) -> Samples | None:
        if self._options.value.format != "debezium":
            return None
        return samples.of_debezium(self._connection, self._options.topic, seen, self._options.value.tables)

    def _rules(self, value: Columns) -> debezium.Rules:
        options = self._options
        how, blockless = debezium.encodings(value, options.value)
        identity = json.loads(self._taken().identity)
        return debezium.Rules(
            how=how,
            whole=options.value.ddl is None,
            blockless=blockless,
            tables=options.value.tables,
            source=identity.get("source"),
            named=(options.topic, self._table.name) if "source" in identity else None,
        )

    def _splits(self, seen: Seen) -> tuple[Split, ...]:
        """A split a partition: its history is the archive's, else the log's from where the options say."""
        archive = self._records.archive
        spans = archive.spans() if archive else {}
        strangers = sorted(spans.keys() - seen.ends.keys())
        if strangers:
            raise Fatal(
                f"the archive holds partition {strangers[0]}, and topic '{self._options.topic}' has "
                f"{len(seen.ends)}: it is the archive of another topic",
                "correct upstream.archive.path or upstream.topic",
            )
        begin = self._begin(seen)
        splits = []
        for p in sorted(begin):
            first, end = spans.get(p, (begin[p], seen.ends[p]))
            if archive is not None:
                _refuse_gap(p, archive.gaps(p), seen.oldest[p])
            detail = archive.detail(p) if archive else "{}"
            splits.append(Split(self._table.name, str(p), end - first, 0, detail=detail, first=first))
        return tuple(splits)

    def _archived(self, seen: Seen, history_open: bool) -> Position | None:
        archive = self._records.archive
        if archive is None:
            return None
        if history_open:
            archive.check()
            spans = archive.spans()
            if any(seen.oldest[p] > end for p, (_, end) in spans.items() if p in seen.oldest):
                archive.refresh()
        return _position({p: end for p, (_, end) in archive.spans().items()})

    def _oldest(self) -> Mapping[int, int]:
        """Where the log began when it was last looked at."""
        if self._seen is None:
            self._seen = self._cluster.look()
        return self._seen.oldest

    def _begin(self, seen: Seen) -> dict[int, int]:
        """The first offset of the log that history reads, by partition."""
        at_ms = self._options.from_ms()
        if at_ms is not None:
            return self._cluster.at_time(seen.ends, at_ms)
        return dict(seen.ends if self._options.from_ == "latest" else seen.oldest)

    def _same(self, seen: Seen, pin: Pin) -> None:
        then, now = json.loads(pin.identity), json.loads(_identity(seen, self._options.topic))
        if then["cluster"] != now["cluster"]:
            raise StateConflict(
                f"{self._options.bootstrap_servers} is cluster {now['cluster']}, and the job began on cluster "
                f"{then['cluster']}: offsets of one mean nothing in the other",
                "correct upstream.bootstrap_servers, or drop the job and start over",
            )
        if then["topic_id"] != now["topic_id"]:
            raise StateConflict(
                f"topic '{self._options.topic}' was recreated: its id is {now['topic_id']}, and was "
                f"{then['topic_id']} when the job began; its offsets start from 0 again",
                "drop the job and start over",
            )

    def _may_grow(self, seen: Seen, position: Position, pin: Pin) -> None:
        """Raises Fatal for a partition that came since: its records and older ones may have one key."""
        if self.capabilities.appends or self._options.accept_growth:
            return
        if len(seen.ends) == len(pin.splits):
            return
        known = {split.id for split in pin.splits} | {p for p, _ in position}
        new = sorted(p for p in seen.ends if str(p) not in known)
        if new:
            raise Fatal(
                f"topic '{self._options.topic}' has a new partition {new[0]}: it had {len(known)}, now it has "
                f"{len(seen.ends)}; records of a key that went to another partition until then may be there now, "
                "and between partitions there is no order",
                "if every key stays in the partition that it was in (only new keys go to the new ones), set "
                "upstream.accept_growth = true and start again; else drop the job and start over on a topic "
                "whose keys are each in one partition",
            )

    def _taken(self) -> Pin:
        if self._pin is None:
            raise RuntimeError("pin() or restore() comes first")
        return self._pin


@dataclass
class Haste:
    """Whether a read may expect plain records alone: after a surprise not for a while, longer each time."""

    waits: int = 0
    penalty: int = 8

    def allowed(self) -> bool:
        if self.waits:
            self.waits -= 1
            return False
        return True

    def surprised(self) -> None:
        self.waits, self.penalty = self.penalty, min(2 * self.penalty, 1024)


def _identity(seen: Seen, topic: str, samples: Samples | None = None) -> str:
    """samples: of Debezium's records, of which one table's changes the topic holds."""
    told = {"cluster": seen.cluster, "topic": topic, "topic_id": seen.topic_id}
    return json.dumps(told if samples is None else {**told, "source": samples.source}, sort_keys=True)


def _position(offsets: Mapping[int, int]) -> Position:
    return Position.of({str(p): offset for p, offset in offsets.items()})


def _ranges(reads: Sequence[SnapshotRead]) -> list[Range]:
    found = []
    for index, read in enumerate(reads):
        assert read.up_to is not None, "a range of offsets has an end"
        found.append(Range(index, int(read.split), read.after, read.up_to))
    return found


def _refuse_gap(partition: int, gaps: Sequence[Span], oldest: int) -> None:
    """Raises HistoryGone for offsets that neither the archive nor the log holds."""
    for low, high in gaps:
        if low < oldest:
            raise HistoryGone(
                f"partition {partition}: the archive has no offsets {low} to {high - 1}, and the log begins at "
                f"{oldest}",
                "complete the archive; where the topic is compacted or transactional such offsets hold no record: "
                "set upstream.compacted or upstream.transactional",
            )
