"""The Kafka upstream: one topic fills one table; its partitions are the splits, offsets the rows in them."""

import json
import time
from collections.abc import Callable, Sequence

from backfill_cli.contracts import ArrowTasks, Capabilities, Extras, Partitions, Source, TableSpec
from backfill_cli.errors import BackfillError, Fatal, HistoryGone, in_config
from backfill_cli.kafka.cluster import Seen
from backfill_cli.kafka.ranges import Range
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Position
from backfill_cli.model.schema import columns_of, schema_text
from backfill_cli.model.split import Split
from backfill_cli.model.units import spell_count
from backfill_cli.model.upstream import Pin, UpstreamView
from backfill_cli.schema_registry.registry import asked
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.failures import from_spark
from backfill_cli.upstreams.kafka import columns
from backfill_cli.upstreams.kafka.archive.archive import Archive
from backfill_cli.upstreams.kafka.archive.index import Span
from backfill_cli.upstreams.kafka.log import reader, spark_source
from backfill_cli.upstreams.kafka.log.growth import PART_ROWS, Growth
from backfill_cli.upstreams.kafka.options import EVENT_KEY, KafkaOptions
from backfill_cli.upstreams.kafka.topic import Topic, position_of


class KafkaUpstream(Source):
    """See contracts.Source. Nothing is asked of the cluster before `pin` or `observe`."""

    def __init__(
        self, options: KafkaOptions, tables: Sequence[TableSpec], now_s: Callable[[], float] = time.time
    ) -> None:
        archive = Archive(options, options.archive, options.topic) if options.archive else None
        self._topic = Topic(options, tables, archive)
        self._options, self._now_s, self._archive = options, now_s, archive
        of_changes = self._topic.decoder.changes
        self._appends = self._topic.table.key in ((), EVENT_KEY) and not of_changes
        self.capabilities = Capabilities(
            Partitions(EVENT_KEY, self._appends, options.accept_gap),
            before_images=of_changes,
            one_log=True,
            quarantines=options.on_error == "quarantine",
            keeps="the log's records until they are read; those in an archive's range may go from the log",
        )
        self.extras = Extras(warnings=self._warnings, beside=asked(options.registry, f"{options.at}.registry"))
        self._growth = Growth(PART_ROWS)
        self._looked = False
        self._pin: Pin | None = None

    def pin(self) -> Pin:
        seen = self._topic.begin()
        if self._archive is not None:
            self._archive.begin()
        source, found = columns.of_source(self._options, self._topic, self._archive, seen)
        splits = self._splits(seen)
        self._pin = Pin(
            position=Position.of({split.id: split.first or 0 for split in splits}),
            position_ms=self._options.from_ms(),
            complete_at=None,
            splits=splits,
            schema={self._topic.table.name: schema_text(source)},
            identity=json.dumps(self._topic.identity(seen, found), sort_keys=True),
        )
        return self._pin

    def restore(self, pin: Pin) -> None:
        if self._archive is not None:
            self._archive.take({int(split.id): split.detail for split in pin.splits})
        self._pin = pin

    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        """What the partitions hold.

        Raises StateConflict if the topic or its cluster is another one, Fatal if rows have a key and the topic has
        a new partition.
        """
        pin = self._taken()
        read = None if snapshot_open else {int(p): int(offset) for p, offset in position}
        seen = self._topic.look(read)
        self._topic.same(seen, json.loads(pin.identity))
        if not self._appends and len(seen.ends) != len(pin.splits):
            self._topic.refuse_growth(seen, {split.id for split in pin.splits} | {p for p, _ in position})
        begun_ms = None if self._looked or read is None else self._topic.written_ms(read, seen)
        self._looked = True
        self._growth.observe(seen.oldest, seen.ends, int(self._now_s() * 1000), read, begun_ms)
        pending = self._growth.pending(position)
        return UpstreamView(
            identity=pin.identity,
            latest=position_of(seen.ends),
            pending=pending,
            oldest_ms=self._growth.oldest_ms,
            oldest=position_of(seen.oldest),
            archived=self._archived(seen, snapshot_open),
        )

    def _warnings(self) -> Sequence[str]:
        pin, appends = self._taken(), self._appends
        grown = [] if appends else self._topic.may_have_grown(len(pin.splits))
        named = columns.of_value(columns_of(pin.schema[self._topic.table.name]))
        return [*grown, *self._topic.is_unwrapped(named, appends)]

    def batches(self, table: str, reads: Sequence[SnapshotRead], cores: int) -> ArrowTasks | None:
        value = columns.of_value(columns_of(self._taken().schema[self._topic.table.name]))
        if self._options.reader != "confluent":
            return None
        ranges = self._topic.records.log_tasks(_ranges(reads), self._topic.oldest, cores)
        if ranges is None:
            return None
        reading = self._topic.events(value, self._taken().identity)
        return reader.tasks(self._topic.connection, self._options.topic, ranges, reading, cores)

    def scan(self, spark: SparkSession, table: str, reads: Sequence[SnapshotRead]) -> DataFrame:
        value = columns.of_value(columns_of(self._taken().schema[self._topic.table.name]))
        reading = self._topic.events(value, self._taken().identity)
        return self._topic.records.decoded(spark, _ranges(reads), self._topic.oldest, reading)

    def changes(self, spark: SparkSession, table: str, after: Position, up_to: Position, schema: str) -> DataFrame:
        """The changes in the partitions of `up_to`, each from its offset in `after`."""
        value = columns.of_value(columns_of(schema))
        asked = self._topic.asked(None if self._options.value.ddl is None else value)
        return self._topic.changes(spark, after, up_to, value, self._taken().identity, asked)

    def failure(self, exc: Exception) -> BackfillError | None:
        return from_spark(exc) or spark_source.failure(exc)

    def close(self) -> None:
        self._topic.cluster.close()

    def _splits(self, seen: Seen) -> tuple[Split, ...]:
        """One split per partition: its history is the archive's, or else the log's from where the options say."""
        archive = self._archive
        spans = archive.spans() if archive else {}
        strangers = sorted(spans.keys() - seen.ends.keys())
        if strangers:
            raise Fatal(
                f"the archive holds partition {strangers[0]}, but topic '{self._options.topic}' has only "
                f"{spell_count(len(seen.ends), 'partition')}: it is the archive of another topic",
                in_config("correct upstream.archive.path or upstream.topic"),
            )
        begin = self._begin(seen)
        splits = []
        for p in sorted(begin):
            first, end = spans.get(p, (begin[p], seen.ends[p]))
            if archive is not None:
                _refuse_gap(p, archive.gaps(p), seen.oldest[p])
            detail = archive.detail(p) if archive else "{}"
            splits.append(Split(self._topic.table.name, str(p), end - first, 0, detail=detail, first=first))
        return tuple(splits)

    def _archived(self, seen: Seen, history_open: bool) -> Position | None:
        archive = self._archive
        if archive is None:
            return None
        if history_open:
            archive.check()
            spans = archive.spans()
            if any(seen.oldest[p] > end for p, (_, end) in spans.items() if p in seen.oldest):
                archive.refresh()
        return position_of({p: end for p, (_, end) in archive.spans().items()})

    def _begin(self, seen: Seen) -> dict[int, int]:
        """The first offset of the log that history reads, by partition."""
        at_ms = self._options.from_ms()
        if at_ms is not None:
            return self._topic.cluster.at_time(seen.ends, at_ms)
        return dict(seen.ends if self._options.from_ == "latest" else seen.oldest)

    def _taken(self) -> Pin:
        if self._pin is None:
            raise RuntimeError("pin() or restore() comes first")
        return self._pin


def _ranges(reads: Sequence[SnapshotRead]) -> list[Range]:
    found = []
    for index, read in enumerate(reads):
        assert read.after is not None, "a range of offsets has a begin"
        assert read.up_to is not None, "a range of offsets has an end"
        found.append(Range(index, int(read.split), int(read.after), int(read.up_to)))
    return found


def _refuse_gap(partition: int, gaps: Sequence[Span], oldest: int) -> None:
    """Raises HistoryGone for offsets that neither the archive nor the log holds."""
    for low, high in gaps:
        if low < oldest:
            raise HistoryGone(
                f"partition {partition}: the archive has no offsets {low} to {high - 1}, and the log begins at "
                f"{oldest}",
                in_config(
                    "complete the archive; if the topic is compacted or transactional, such offsets have "
                    "no record: set upstream.compacted or upstream.transactional"
                ),
            )
