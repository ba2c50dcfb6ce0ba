"""The Kafka upstream: one topic fills one table; its partitions are the splits, offsets the rows in them."""

import difflib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from backfill_cli.contracts import TableSpec, UpstreamCapabilities
from backfill_cli.errors import BackfillError, ConfigError, StateConflict, Transient
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin, UpstreamView
from backfill_cli.upstreams.formats import schemas
from backfill_cli.upstreams.formats.edge import from_spark
from backfill_cli.upstreams.formats.schemas import Columns
from backfill_cli.upstreams.kafka import debezium, decode, growth, upserts
from backfill_cli.upstreams.kafka.cluster import Cluster, Connection, Seen
from backfill_cli.upstreams.kafka.options import EVENT_KEY, KafkaOptions
from backfill_cli.upstreams.kafka.records import Records
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
        self._growth = growth.Growth()
        self._pin: Pin | None = None

    def pin(self) -> Pin:
        self._cluster.must_exist()
        seen = self._cluster.look()
        columns = self._columns()
        begin = self._begin(seen)
        splits = tuple(
            Split(self._table.name, str(p), seen.ends[p] - begin[p], 0, first=begin[p]) for p in sorted(begin)
        )
        made = Pin(
            position=Position.of({str(p): first for p, first in begin.items()}),
            position_ms=self._options.from_ms(),
            complete_at=None,
            splits=splits,
            schema={self._table.name: schemas.to_json(columns)},
            identity=_identity(seen, self._options.topic),
        )
        self._pin = made
        return made

    def restore(self, pin: Pin) -> None:
        self._pin = pin

    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        """What the partitions hold. Raises StateConflict when the topic or its cluster is another one."""
        pin = self._taken()
        seen = self._cluster.look()
        self._same(seen, pin)
        _refuse_shorter(seen, position, self._options.bootstrap_servers)
        self._growth = growth.observed(self._growth, seen.oldest, seen.ends, int(self._now_s() * 1000))
        return UpstreamView(
            identity=pin.identity,
            latest=_position(seen.ends),
            pending=growth.pending(self._growth, position),
            oldest=_position(seen.oldest),
        )

    def scan(self, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]) -> "DataFrame":
        self._taken()
        ranges = [_range(index, read) for index, read in enumerate(reads)]
        records = self._records.frame(spark, ranges)
        if self._options.value.format == "bytes":
            return decode.as_bytes(records)
        return decode.as_json(records, self._value_columns())

    def changes(
        self, spark: "SparkSession", table: str, after: Position, up_to: Position, schema: str
    ) -> "DataFrame":
        """The ranges are the partitions of `up_to`, each from where it stands in `after`."""
        self._taken()
        columns = {name: c for name, c in schemas.from_json(schema).items() if name not in decode.PLACE}
        ranges = [Range(index, int(p), int(after.get(p) or 0), int(end)) for index, (p, end) in enumerate(up_to)]
        records = self._records.frame(spark, ranges)
        if self._options.value.format == "debezium":
            how = debezium.encodings(columns, self._options.value)
            return debezium.as_changes(records, columns, self._table.key, how)
        return upserts.as_upserts(records, columns, self._table.key)

    def acknowledge(self, position: Position) -> None:
        """Nothing is committed to the cluster: the sink holds the position."""

    def failure(self, exc: Exception) -> BackfillError | None:
        return from_spark(exc)

    def close(self) -> None:
        self._cluster.close()

    def _columns(self) -> Columns:
        """What every row says of its record, then the value's. Raises BadData for names that clash."""
        value = self._value_columns()
        what = f"topic '{self._options.topic}'"
        schemas.refuse_names(what, [*decode.PLACE, *value], decode.MARKS)
        if self._options.value.format == "debezium":
            if self._table.key in ((), EVENT_KEY):
                fault = f"tables: '{self._table.name}' needs key: debezium values are changes of a table"
                raise ConfigError("config", [fault], 'name its primary key, for example key = ["id"]')
            debezium.encodings(value, self._options.value)
        missing = [name for name in self._table.key if name not in value and name not in EVENT_KEY]
        if missing:
            near = difflib.get_close_matches(missing[0], list(value), 3, 0.5) or list(value)
            fault = f"tables: key column '{missing[0]}' of '{self._table.name}' is not in upstream.value.schema"
            raise ConfigError("config", [fault], f"name one of its columns: {', '.join(near)}")
        return {**decode.PLACE, **value}

    def _value_columns(self) -> Columns:
        told = self._options.value
        if told.format == "bytes":
            return decode.BYTES
        try:
            return schemas.of_ddl(told.ddl or "")
        except schemas.Unsupported as exc:
            hint = 'write it like "id BIGINT, note STRING"'
            raise ConfigError("upstream", [f"upstream.value.schema: {exc}"], hint) from exc

    def _begin(self, seen: Seen) -> dict[int, int]:
        """The first offset that history reads of each partition."""
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
                "mend upstream.bootstrap_servers, or drop the job and start anew",
            )
        if then["topic_id"] != now["topic_id"]:
            raise StateConflict(
                f"topic '{self._options.topic}' was recreated: its id is {now['topic_id']}, and was "
                f"{then['topic_id']} when the job began; offsets count anew",
                "drop the job and start anew",
            )

    def _taken(self) -> Pin:
        if self._pin is None:
            raise RuntimeError("pin() or restore() comes first")
        return self._pin


def _identity(seen: Seen, topic: str) -> str:
    return json.dumps({"cluster": seen.cluster, "topic": topic, "topic_id": seen.topic_id}, sort_keys=True)


def _position(offsets: Mapping[int, int]) -> Position:
    return Position.of({str(p): offset for p, offset in offsets.items()})


def _range(index: int, read: SnapshotRead) -> Range:
    assert read.up_to is not None, "a range of offsets has an end"
    return Range(index, int(read.split), read.after, read.up_to)


def _refuse_shorter(seen: Seen, position: Position, servers: str) -> None:
    """Raises Transient where a log ends before what was read of it: a new leader may not know its end yet."""
    for name, cursor in position:
        end = seen.ends.get(int(name))
        if end is not None and end < int(cursor):
            raise Transient(
                f"{servers}: partition {name} ends at offset {end}, and was read up to {cursor}",
                "its leader may have changed: wait for it; if records were lost, drop the job and start anew",
            )
