"""The Kafka upstream: a topic fills a table; its partitions are the splits, offsets the rows in them."""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from backfill_cli.contracts import Capabilities, Extras, Partitions, RangeTasks, Source, TableSpec
from backfill_cli.contracts.decoder import Asked
from backfill_cli.errors import BackfillError, ConfigError, Fatal, HistoryGone, in_config
from backfill_cli.kafka.cluster import Seen
from backfill_cli.kafka.ranges import Range, Wanted
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Position
from backfill_cli.model.schema import Columns, columns_of, schema_text
from backfill_cli.model.split import Split, partition_number
from backfill_cli.model.units import spell_count
from backfill_cli.model.upstream import Pin, UpstreamView
from backfill_cli.registry import decoder
from backfill_cli.schema_registry.registry import asked
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.failures import from_spark
from backfill_cli.upstreams.kafka import columns
from backfill_cli.upstreams.kafka.archive.archive import Archive
from backfill_cli.upstreams.kafka.archive.index import Span
from backfill_cli.upstreams.kafka.headroom import TopicsHeadroom
from backfill_cli.upstreams.kafka.log import reader, spark_source
from backfill_cli.upstreams.kafka.options import EVENT_KEY, KafkaOptions
from backfill_cli.upstreams.kafka.topic import Topic
from backfill_cli.upstreams.kafka.topics import Topics


class KafkaUpstream(Source):
    """See contracts.Source. Nothing is asked of the cluster before `pin` or `observe`."""

    def __init__(
        self, options: KafkaOptions, tables: Sequence[TableSpec], now_s: Callable[[], float] = time.time
    ) -> None:
        archive = None
        if options.archive is not None and options.topic is not None:
            if len(tables) > 1:
                names = ", ".join(table.name for table in tables)
                fault = f"upstream.archive: an archive fills one table, not {len(tables)} ({names})"
                raise ConfigError("upstream", [fault], "remove the other tables; each needs a job of its own")
            archive = Archive(options, options.archive, options.topic)
        self._topics = Topics(options, tables, archive)
        self._options, self._now_s, self._archive = options, now_s, archive
        self._headroom = TopicsHeadroom(self._topics.connection, self._topics.of.values(), self._archive_ends)
        appends = frozenset(name for name, topic in self._topics.of.items() if topic.appends)
        self.capabilities = Capabilities(
            Partitions(EVENT_KEY, appends, options.accept_gap),
            before_images=decoder(options.value.format).changes,
            one_log=len(tables) == 1,
            apart=self._topics.apart,
            quarantines=options.on_error == "quarantine",
            keeps="the log's records until they are read"
            + ("" if archive is None else "; those in the archive's range may go from the log"),
        )
        self.extras = Extras(
            warnings=self._warnings,
            fields=self._topics.fields,
            places=self._topics.places,
            beside=asked(options.registry, f"{options.at}.registry"),
            headroom=self._headroom,
        )
        self._pin: Pin | None = None
        self._schemas: Mapping[str, str] = {}

    def pin(self) -> Pin:
        self._topics.begin()
        if self._archive is not None:
            self._archive.begin()
        schema, found = {}, {}
        for name, topic in self._topics.of.items():
            source, found[name] = columns.of_source(self._options, topic, self._archive, topic.now())
            schema[name] = schema_text(source)
        splits = tuple(split for topic in self._topics.of.values() for split in self._splits(topic))
        self._pin = Pin(
            position=Position.of({split.id: split.first or 0 for split in splits}),
            position_ms=self._options.from_ms(),
            complete_at=None,
            splits=splits,
            schema=schema,
            identity=json.dumps(self._topics.identity(found), sort_keys=True),
        )
        return self._pin

    def restore(self, pin: Pin) -> None:
        if self._archive is not None:
            self._archive.take({int(split.id): split.detail for split in pin.splits})
        self._pin, self._schemas = pin, {}

    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        """What the partitions hold.

        Raises StateConflict if a topic or the cluster is another one, Fatal if rows have a key and their topic has
        a new partition.
        """
        pin = self._taken()
        read = None if snapshot_open else position
        self._topics.look(read)
        self._topics.same(pin.identity)
        if len(self._topics.latest) != len(pin.splits):
            known = Position.of({split.id: 0 for split in pin.splits} | dict(position))
            for topic in self._topics.of.values():
                if not topic.appends:
                    topic.refuse_growth(topic.now(), topic.offsets(known).keys())
        pending = self._topics.pending(position, read, int(self._now_s() * 1000))
        return UpstreamView(
            identity=pin.identity,
            latest=Position.of(self._topics.latest),
            pending=pending,
            oldest_ms=self._topics.oldest_ms,
            oldest=Position.of(self._topics.oldest),
            archived=self._archived(snapshot_open),
            added=len(self._topics.latest.keys() - {split.id for split in pin.splits}),
        )

    def _warnings(self) -> Sequence[str]:
        pin = self._taken()
        partitions = Counter(split.table for split in pin.splits)

        def told(topic: Topic) -> Sequence[str]:
            table = topic.table.name
            grown = [] if topic.appends else topic.of_partitions(partitions[table])
            named = columns.of_value(columns_of(pin.schema[table]))
            return [*grown, *topic.is_unwrapped(named, topic.appends)]

        return [*self._topics.each(told), *self._topics.skipped(), *self._topics.compacted()]

    def ranges(self, reads: Sequence[SnapshotRead], schemas: Mapping[str, str], cores: int) -> RangeTasks | None:
        """Without what an archive delivers, and Spark's own reader."""
        if self._options.reader != "confluent":
            return None
        readings, wanted, identity = {}, [], self._taken().identity
        ranges = list(zip(reads, _ranges(reads), strict=True))
        for name in dict.fromkeys(read.table for read in reads):
            topic, value = self._topics.of[name], columns.of_value(columns_of(schemas[name]))
            mine = topic.records.of_log([one for read, one in ranges if read.table == name], topic.oldest)
            if mine is None:
                continue
            reading = topic.reading(mine, value, identity, self._asked(topic, value))
            if reading.by_ranges:
                readings[name] = reading
                wanted += [Wanted(name, topic.name, one) for one in mine]
        if not readings:
            return None
        return reader.range_tasks(self._topics.connection, wanted, readings, cores)

    def scan(self, spark: SparkSession, table: str, reads: Sequence[SnapshotRead]) -> DataFrame:
        topic, schemas = self._topics.of[table], self._schemas or self._taken().schema
        value = columns.of_value(columns_of(schemas[table]))
        reading = topic.events(value, self._taken().identity)
        return topic.records.decoded(spark, _ranges(reads), topic.oldest, reading)

    def changes(self, spark: SparkSession, table: str, after: Position, up_to: Position, schema: str) -> DataFrame:
        """The changes in the table's partitions of `up_to`, each from its offset in `after`."""
        topic, value = self._topics.of[table], columns.of_value(columns_of(schema))
        return topic.changes(spark, after, up_to, value, self._taken().identity, self._asked(topic, value))

    def read_by(self, schemas: Mapping[str, str]) -> None:
        self._schemas = schemas

    def widened(
        self, schemas: Mapping[str, str], reads: Sequence[SnapshotRead], new: SnapshotRead
    ) -> Mapping[str, str] | None:
        topic, known = self._topics.of[new.table], columns_of(schemas[new.table])
        ranges = _ranges([one for one in reads if one.table == new.table])
        (at,) = _ranges([new])
        more = topic.added(columns.of_value(known), ranges, at, self._taken().identity)
        columns.refuse_names(f"topic '{topic.name}'", more)
        return {**schemas, new.table: schema_text({**known, **more})} if more else None

    def _asked(self, topic: Topic, value: Columns) -> Asked:
        return topic.asked(None if topic.ddl is None else value)

    def failure(self, exc: Exception) -> BackfillError | None:
        return from_spark(exc) or spark_source.failure(exc)

    def close(self) -> None:
        self._headroom.close()
        self._topics.cluster.close()

    def _splits(self, topic: Topic) -> tuple[Split, ...]:
        """One split per partition: its history is the archive's, or else the log's from where the options say."""
        archive, seen = self._archive, topic.now()
        spans = archive.spans() if archive else {}
        strangers = sorted(spans.keys() - seen.ends.keys())
        if strangers:
            raise Fatal(
                f"the archive holds partition {strangers[0]}, but topic '{topic.name}' has only "
                f"{spell_count(len(seen.ends), 'partition')}: it is the archive of another topic",
                in_config("correct upstream.archive.path or upstream.topic"),
            )
        begin = self._begin(topic, seen)
        splits = []
        for p in sorted(begin):
            first, end = spans.get(p, (begin[p], seen.ends[p]))
            if archive is not None:
                _refuse_gap(p, archive.gaps(p), seen.oldest[p])
            detail = archive.detail(p) if archive else "{}"
            (name,) = topic.logs({p: first})
            splits.append(Split(topic.table.name, name, end - first, 0, detail=detail, first=first))
        return tuple(splits)

    def _archived(self, history_open: bool) -> Position | None:
        archive, (topic, *_) = self._archive, self._topics.of.values()
        if archive is None:
            return None
        if history_open:
            archive.check()
            spans, seen = archive.spans(), topic.now()
            if any(seen.oldest[p] > end for p, (_, end) in spans.items() if p in seen.oldest):
                archive.refresh()
        return Position.of(topic.logs({p: end for p, (_, end) in archive.spans().items()}))

    def _archive_ends(self) -> Mapping[int, int]:
        return {} if self._archive is None else {p: end for p, (_, end) in self._archive.spans().items()}

    def _begin(self, topic: Topic, seen: Seen) -> dict[int, int]:
        """The first offset of the log that history reads, by partition."""
        at_ms = self._options.from_ms()
        if at_ms is not None:
            return self._topics.cluster.at_time(topic.name, seen.ends, at_ms)
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
        found.append(Range(index, partition_number(read.split), int(read.after), int(read.up_to)))
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
