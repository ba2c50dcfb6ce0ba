"""Kafka topics as the change log that follows a snapshot in another system."""

import json
import time
from collections.abc import Callable, Mapping, Sequence

from backfill_cli.contracts import ChangeLog, Extras, TableSpec, own
from backfill_cli.contracts.decoder import Fault
from backfill_cli.errors import START_OVER, BackfillError, ConfigError, Hint, HistoryGone, in_config
from backfill_cli.model.position import Position
from backfill_cli.model.schema import columns_of, schema_text
from backfill_cli.model.split import partition_number, partition_table
from backfill_cli.model.upstream import LogStart, Pin, UpstreamView
from backfill_cli.schema_registry.registry import asked
from backfill_cli.spark.api import DataFrame, F, SparkSession
from backfill_cli.spark.failures import MARK, ending, from_spark
from backfill_cli.spark.names import quoted
from backfill_cli.upstreams.kafka import columns
from backfill_cli.upstreams.kafka.changes_options import ChangesOptions
from backfill_cli.upstreams.kafka.headroom import TopicsHeadroom
from backfill_cli.upstreams.kafka.log import spark_source
from backfill_cli.upstreams.kafka.options import ms_of
from backfill_cli.upstreams.kafka.reading import named
from backfill_cli.upstreams.kafka.topic import Topic
from backfill_cli.upstreams.kafka.topics import Topics

_NEWER = "take a newer snapshot, and start from its time; keep the topic longer (retention.ms)"
_OVER_NEWER = START_OVER + ", with a newer snapshot and from its time; keep the topic longer (retention.ms)"
_OVER = (
    "correct what the fault names, in the config or in the program that writes the record; then "
    + START_OVER
    + ", with a snapshot newer than the record if the record is wrong"
)
_COLUMNS = (
    "name a column that the snapshot leaves out in upstream.changes.ignore, one that changes may leave out (NULL "
    "then) in upstream.changes.sparse; or " + START_OVER + " with a snapshot of the same columns"
)

_OF_COLUMNS = (Fault.COLUMNS, Fault.BLOCK_COLUMNS, Fault.NEW_COLUMN, Fault.NO_COLUMN)
"""A record's row, or its schema block, has a new column, or lacks one."""


class KafkaChanges(ChangeLog):
    """See contracts.ChangeLog. A position is the next offset of every partition."""

    before_images = True  # a key change is two records, from Debezium and from writers of tombstones
    correctable = False
    keeps = "the topic's records until they are applied"

    def __init__(
        self, options: ChangesOptions, tables: Sequence[TableSpec], now_s: Callable[[], float] = time.time
    ) -> None:
        self._options, self._now_s = options, now_s
        self._topics = Topics(options, tables)
        self._headroom = TopicsHeadroom(self._topics.connection, self._topics.of.values())
        self.one_log, self.apart = len(tables) == 1, self._topics.apart
        self.extras = Extras(
            warnings=self._warnings,
            fields=self._topics.fields,
            places=self._topics.places,
            beside=asked(options.registry, f"{options.at}.registry"),
            headroom=self._headroom,
        )
        self._identity = "{}"
        self._position = Position()
        self._compacted: Mapping[str, bool | None] = {}

    def begin(self, schema: Mapping[str, str]) -> LogStart:
        self._topics.begin()
        self._refuse_compacted()
        found = {
            name: columns.of_changes(self._options, topic, columns_of(schema[name]), topic.now())
            for name, topic in self._topics.of.items()
        }
        position = self._start()
        identity = self._topics.identity(found)
        self._take(json.dumps(identity), position)
        from_ = self._options.from_
        at_ms = ms_of(from_) if isinstance(from_, str) and from_ != "earliest" else None
        schemas = {name: schema_text(one.columns) for name, one in found.items()}
        return LogStart(position, at_ms, self._end(position), schemas, identity)

    def restore(self, pin: Pin) -> None:
        self._take(pin.identity, pin.position)

    def observe(self, position: Position) -> UpstreamView:
        """Raises StateConflict for another topic or cluster, Fatal for a new partition."""
        topics, known = self._topics, Position.of(dict(self._position) | dict(position))
        topics.look(position)
        topics.same(self._identity)
        for topic in topics.of.values():
            topic.refuse_growth(topic.now(), topic.offsets(known).keys())
            self._refuse_gone(topic, topic.offsets(position), _OVER_NEWER)
        pending = topics.pending(position, position, int(self._now_s() * 1000))
        latest, oldest = Position.of(topics.latest), Position.of(topics.oldest)
        added = len(topics.latest.keys() - dict(self._position).keys())
        return UpstreamView("{}", latest, pending, oldest, oldest_ms=topics.oldest_ms, added=added)

    def changes(self, spark: SparkSession, table: str, after: Position, up_to: Position, schema: str) -> DataFrame:
        """Raises BadData, once computed, for a record that cannot be read."""
        topic, value = self._topics.of[table], columns_of(schema)
        asked = topic.asked(value, columns.whole(self._options, value))
        frame = topic.changes(spark, after, up_to, value, self._identity, asked)
        fault = F.concat(
            F.lit(f"{MARK} topic '{topic.name}': "),
            named(),
            F.lit(" cannot be read: "),
            F.col(own.ERROR),
            F.when(F.col(own.FAULT).isin(*_OF_COLUMNS), ending(_COLUMNS)).otherwise(ending(_OVER)),
        )
        op = F.when(F.col(own.ERROR).isNull(), F.col(own.OP)).otherwise(F.raise_error(fault).cast("string"))
        beside = [name for name in (own.UNSENT,) if name in frame.columns]
        return frame.select(op.alias(own.OP), own.SEQ, own.MS, *beside, *(quoted(name) for name in value))

    def _warnings(self) -> Sequence[str]:
        """What `plan` says about the topics."""
        return [*self._topics.each(self._said_of), *self._topics.skipped(), *self._topics.compacted()]

    def _said_of(self, topic: Topic) -> Sequence[str]:
        grown = topic.of_partitions(len(topic.offsets(self._position)))
        said = [*grown, *topic.is_unwrapped((), appends=False)]
        compacted = self._compacted.get(topic.name, False)
        if compacted is not False:
            known = "is compacted" if compacted else "may be compacted (this user is not allowed to see it)"
            said.append(
                f"topic '{topic.name}' {known}: a delete that compaction removes before it is read (in a "
                "pause longer than delete.retention.ms, say) leaves its row in the sink"
            )
        return said

    def failure(self, exc: Exception) -> BackfillError | None:
        return from_spark(exc) or spark_source.failure(exc)

    def close(self) -> None:
        self._headroom.close()
        self._topics.cluster.close()

    def _take(self, identity: str, position: Position) -> None:
        self._identity, self._position = identity, position

    def _start(self) -> Position:
        """Where the options say that the log continues the snapshot."""
        told = self._options.from_
        if isinstance(told, dict):
            return self._checked(told)
        if told == "earliest":
            return Position.of(self._topics.oldest)
        if ms_of(told) > self._now_s() * 1000:
            fault = f"upstream.changes.from: '{told}' is in the future (a time without a zone is UTC)"
            raise ConfigError("upstream", [fault], "give the time at which the snapshot was begun")
        found = self._at_time(ms_of(told))
        self._topics.look()  # asked afterwards: retention may have moved meanwhile
        for log, offset in found:
            oldest = self._topics.oldest[log]
            if oldest > 0 and int(offset) <= oldest:
                raise HistoryGone(
                    f"{self._spelled(log)}: its log begins at offset {oldest}, with no record from "
                    f"before {told}: changes in between may have been deleted",
                    in_config(
                        f"{_NEWER}; if the topic holds all changes since the snapshot was begun: "
                        'upstream.changes.from = "earliest"'
                    ),
                )
        return found

    def _at_time(self, ms: int) -> Position:
        """Where the records are that are not older."""
        found: dict[str, int] = {}
        for topic in self._topics.of.values():
            found |= topic.logs(self._topics.cluster.at_time(topic.name, topic.now().ends, ms))
        return Position.of(found)

    def _end(self, position: Position) -> Position | None:
        """The position that covers the snapshot's end; None if the snapshot is the state at the start."""
        told = self._options.complete_at
        if isinstance(self._options.from_, dict):
            return None
        if isinstance(told, dict):
            self._require_all("complete_at", told)
            end = Position.of(told)
        elif told is None:
            end = Position.of(self._topics.latest)
        else:
            if ms_of(told) > self._now_s() * 1000:
                fault = f"upstream.changes.complete_at: '{told}' is in the future (a time without a zone is UTC)"
                raise ConfigError("upstream", [fault], "start once the snapshot is finished, and give that time")
            end = self._at_time(ms_of(told))
        return None if end <= position else end.join(position)

    def _require_all(self, option: str, told: Mapping[str, int]) -> None:
        """Raises ConfigError if these are not the topics' partitions."""
        there = self._topics.latest.keys()
        faults = [f"there is no {self._spelled(one)}" for one in sorted(told.keys() - there)]
        faults += [f"{self._spelled(one)} is not named" for one in sorted(there - told.keys())]
        self._refuse(option, faults)

    def _spelled(self, log: str) -> str:
        table = partition_table(log)
        topic = next((one for name, one in self._topics.of.items() if table in (None, name)), None)
        return f"'{log}'" if topic is None else f"partition {partition_number(log)} of topic '{topic.name}'"

    def _checked(self, told: Mapping[str, int]) -> Position:
        """The offsets that the log continues from. Raises ConfigError or HistoryGone if it does not hold them."""
        self._require_all("from", told)
        ends = self._topics.latest
        faults = [
            f"{self._spelled(log)} ends at offset {ends[log]}, before {offset}"
            for log, offset in sorted(told.items())
            if offset > ends[log]
        ]
        self._refuse("from", faults)
        position = Position.of(told)
        for topic in self._topics.of.values():
            self._refuse_gone(topic, topic.offsets(position), _NEWER)
        return position

    def _refuse(self, option: str, faults: Sequence[str]) -> None:
        if faults:
            hint = "name the next offset of every partition at the time of the snapshot"
            raise ConfigError("upstream", [f"upstream.changes.{option}: {fault}" for fault in faults], hint)

    def _refuse_compacted(self) -> None:
        """Raises ConfigError for a topic whose deletes may be gone before they are read, unless accepted."""
        self._compacted = self._topics.cluster.compacted()
        compacted = [topic for topic, is_so in self._compacted.items() if is_so]
        if compacted and not self._options.accept_compaction:
            option = "topic" if self._options.topics is None else "topics"
            faults = [
                f"upstream.changes.{option}: '{topic}' is compacted: a delete that compaction removes before it "
                "is read would leave its row in the sink"
                for topic in compacted
            ]
            raise ConfigError(
                "upstream",
                faults,
                in_config(
                    "set cleanup.policy=delete on the topic while the job reads its snapshot; or accept it: "
                    "upstream.changes.accept_compaction = true"
                ),
            )

    def _refuse_gone(self, topic: Topic, reached: Mapping[int, int], hint: Hint | str) -> None:
        for p, offset in reached.items():
            oldest = topic.oldest().get(p, 0)
            if oldest > offset:
                raise HistoryGone(
                    f"topic '{topic.name}', partition {p}: offsets {offset} to {oldest - 1} are needed but gone: "
                    f"its log begins at {oldest}",
                    hint,
                )
