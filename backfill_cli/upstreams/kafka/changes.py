"""A Kafka topic as the change log that follows a snapshot in another system."""

import json
import time
from collections.abc import Callable, Mapping, Sequence

from backfill_cli.contracts import ChangeLog, Extras, TableSpec, own
from backfill_cli.contracts.decoder import Fault
from backfill_cli.errors import START_OVER, BackfillError, ConfigError, Hint, HistoryGone, in_config
from backfill_cli.kafka.cluster import Offsets, Seen
from backfill_cli.model.position import Position
from backfill_cli.model.schema import columns_of, schema_text
from backfill_cli.model.upstream import LogStart, Pin, UpstreamView
from backfill_cli.schema_registry.registry import asked
from backfill_cli.spark.api import DataFrame, F, SparkSession
from backfill_cli.spark.failures import MARK, ending, from_spark
from backfill_cli.spark.names import quoted
from backfill_cli.upstreams.kafka import columns
from backfill_cli.upstreams.kafka.changes_options import ChangesOptions
from backfill_cli.upstreams.kafka.log import spark_source
from backfill_cli.upstreams.kafka.log.growth import PART_ROWS, Growth
from backfill_cli.upstreams.kafka.options import ms_of
from backfill_cli.upstreams.kafka.reading import named
from backfill_cli.upstreams.kafka.topic import Topic, position_of

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

_OF_COLUMNS = (Fault.COLUMNS, Fault.BLOCK_COLUMNS)
"""A record's row, or its schema block, has a new column, or lacks one."""


class KafkaChanges(ChangeLog):
    """See contracts.ChangeLog. A position is the next offset of every partition."""

    before_images = True  # a key change is two records, from Debezium and from writers of tombstones
    one_log = True
    correctable = False
    keeps = "the topic's records until they are applied"

    def __init__(
        self, options: ChangesOptions, tables: Sequence[TableSpec], now_s: Callable[[], float] = time.time
    ) -> None:
        self._options, self._now_s = options, now_s
        self._topic = Topic(options, tables)
        self.extras = Extras(warnings=self._warnings, beside=asked(options.registry, f"{options.at}.registry"))
        self._growth = Growth(PART_ROWS)
        self._identity = "{}"
        self._partitions: frozenset[str] = frozenset()
        self._looked = False
        self._compacted: bool | None = False

    def begin(self, schema: Mapping[str, str]) -> LogStart:
        seen = self._topic.begin()
        self._refuse_compacted()
        name = self._topic.table.name
        found = columns.of_changes(self._options, self._topic, columns_of(schema[name]), seen)
        position = self._start(seen)
        identity = self._topic.identity(seen, found)
        self._take(json.dumps(identity), position)
        from_ = self._options.from_
        at_ms = ms_of(from_) if isinstance(from_, str) and from_ != "earliest" else None
        return LogStart(position, at_ms, self._end(seen, position), {name: schema_text(found.columns)}, identity)

    def restore(self, pin: Pin) -> None:
        self._take(pin.identity, pin.position)

    def observe(self, position: Position) -> UpstreamView:
        """Raises StateConflict for another topic or cluster, Fatal for a new partition."""
        reached = {int(p): int(offset) for p, offset in position}
        seen = self._topic.look(reached)
        self._topic.same(seen, json.loads(self._identity))
        self._topic.refuse_growth(seen, self._partitions | {p for p, _ in position})
        self._refuse_gone(seen, position, _OVER_NEWER)
        begun_ms = None if self._looked else self._topic.written_ms(reached, seen)
        self._looked = True
        self._growth.observe(seen.oldest, seen.ends, int(self._now_s() * 1000), reached, begun_ms)
        pending = self._growth.pending(position)
        oldest_ms = self._growth.oldest_ms
        return UpstreamView("{}", position_of(seen.ends), pending, position_of(seen.oldest), oldest_ms=oldest_ms)

    def changes(self, spark: SparkSession, table: str, after: Position, up_to: Position, schema: str) -> DataFrame:
        """Raises BadData, once computed, for a record that cannot be read."""
        value = columns_of(schema)
        asked = self._topic.asked(value, columns.whole(self._options, value))
        frame = self._topic.changes(spark, after, up_to, value, self._identity, asked)
        fault = F.concat(
            F.lit(f"{MARK} topic '{self._options.topic}': "),
            named(),
            F.lit(" cannot be read: "),
            F.col(own.ERROR),
            F.when(F.col(own.FAULT).isin(*_OF_COLUMNS), ending(_COLUMNS)).otherwise(ending(_OVER)),
        )
        op = F.when(F.col(own.ERROR).isNull(), F.col(own.OP)).otherwise(F.raise_error(fault).cast("string"))
        beside = [name for name in (own.UNSENT,) if name in frame.columns]
        return frame.select(op.alias(own.OP), own.SEQ, own.MS, *beside, *(quoted(name) for name in value))

    def _warnings(self) -> Sequence[str]:
        """What `plan` says about the topic."""
        said = [*self._topic.may_have_grown(len(self._partitions)), *self._topic.is_unwrapped((), appends=False)]
        if self._compacted is not False:
            known = "is compacted" if self._compacted else "may be compacted (this user is not allowed to see it)"
            said.append(
                f"topic '{self._options.topic}' {known}: a delete that compaction removes before it is read (in a "
                "pause longer than delete.retention.ms, say) leaves its row in the sink"
            )
        return said

    def failure(self, exc: Exception) -> BackfillError | None:
        return from_spark(exc) or spark_source.failure(exc)

    def close(self) -> None:
        self._topic.cluster.close()

    def _take(self, identity: str, position: Position) -> None:
        self._identity, self._partitions = identity, frozenset(p for p, _ in position)

    def _start(self, seen: Seen) -> Position:
        """Where the options say that the log continues the snapshot."""
        told = self._options.from_
        if isinstance(told, dict):
            return position_of(self._checked(told, seen))
        if told == "earliest":
            return position_of(seen.oldest)
        if ms_of(told) > self._now_s() * 1000:
            fault = f"upstream.changes.from: '{told}' is in the future (a time without a zone is UTC)"
            raise ConfigError("upstream", [fault], "give the time at which the snapshot was begun")
        found = self._topic.cluster.at_time(seen.ends, ms_of(told))
        oldest = self._topic.look().oldest  # asked afterwards: retention may have moved meanwhile
        for p, offset in found.items():
            if oldest[p] > 0 and offset <= oldest[p]:
                raise HistoryGone(
                    f"topic '{self._options.topic}', partition {p}: its log begins at offset {oldest[p]}, with no "
                    f"record from before {told}: changes in between may have been deleted",
                    in_config(
                        f"{_NEWER}; if the topic holds all changes since the snapshot was begun: "
                        'upstream.changes.from = "earliest"'
                    ),
                )
        return position_of(found)

    def _end(self, seen: Seen, position: Position) -> Position | None:
        """The position that covers the snapshot's end; None if the snapshot is the state at the start."""
        told = self._options.complete_at
        if isinstance(self._options.from_, dict):
            return None
        if isinstance(told, dict):
            end = position_of(self._partitions_of("complete_at", told, seen))
        elif told is None:
            end = position_of(seen.ends)
        else:
            if ms_of(told) > self._now_s() * 1000:
                fault = f"upstream.changes.complete_at: '{told}' is in the future (a time without a zone is UTC)"
                raise ConfigError("upstream", [fault], "start once the snapshot is finished, and give that time")
            end = position_of(self._topic.cluster.at_time(seen.ends, ms_of(told)))
        return None if end <= position else end.join(position)

    def _partitions_of(self, option: str, told: Mapping[str, int], seen: Seen) -> dict[int, int]:
        """Offsets by partition. Raises ConfigError if these are not the topic's partitions."""
        named = {int(p): offset for p, offset in told.items()}
        topic = f"topic '{self._options.topic}'"
        faults = [f"{topic} has no partition {p}" for p in sorted(named.keys() - seen.ends.keys())]
        faults += [f"partition {p} of {topic} is not named" for p in sorted(seen.ends.keys() - named.keys())]
        self._refuse(option, faults)
        return named

    def _checked(self, told: Mapping[str, int], seen: Seen) -> Offsets:
        """The offsets that the log continues from. Raises ConfigError or HistoryGone if it does not hold them."""
        named = self._partitions_of("from", told, seen)
        faults = [
            f"partition {p} ends at offset {seen.ends[p]}, before {offset}"
            for p, offset in sorted(named.items())
            if offset > seen.ends[p]
        ]
        self._refuse("from", faults)
        self._refuse_gone(seen, position_of(named), _NEWER)
        return named

    def _refuse(self, option: str, faults: Sequence[str]) -> None:
        if faults:
            hint = "name the next offset of every partition at the time of the snapshot"
            raise ConfigError("upstream", [f"upstream.changes.{option}: {fault}" for fault in faults], hint)

    def _refuse_compacted(self) -> None:
        """Raises ConfigError for a topic whose deletes may be gone before they are read, unless accepted."""
        self._compacted = self._topic.cluster.is_compacted()
        if self._compacted and not self._options.accept_compaction:
            fault = (
                f"upstream.changes.topic: '{self._options.topic}' is compacted: a delete that compaction removes "
                "before it is read would leave its row in the sink"
            )
            raise ConfigError(
                "upstream",
                [fault],
                in_config(
                    "set cleanup.policy=delete on the topic while the job reads its snapshot; or accept it: "
                    "upstream.changes.accept_compaction = true"
                ),
            )

    def _refuse_gone(self, seen: Seen, position: Position, hint: Hint | str) -> None:
        for p, offset in position:
            oldest = seen.oldest.get(int(p), 0)
            if oldest > int(offset):
                raise HistoryGone(
                    f"topic '{self._options.topic}', partition {p}: offsets {offset} to {oldest - 1} are needed "
                    f"but gone: its log begins at {oldest}",
                    hint,
                )
