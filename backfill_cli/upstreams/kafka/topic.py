"""A topic: which one it is, what it holds, and its records as changes of a table."""

import json
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import START_OVER, ConfigError, Fatal, StateConflict
from backfill_cli.formats import debezium_order
from backfill_cli.formats.fast_json import FastPath, fast_path
from backfill_cli.model.position import Position
from backfill_cli.model.schema import Columns
from backfill_cli.upstreams.kafka.archive.archive import Archive
from backfill_cli.upstreams.kafka.decode import debezium, foreign, upserts
from backfill_cli.upstreams.kafka.log import reader, samples
from backfill_cli.upstreams.kafka.log.cluster import Cluster, Connection, Offsets, Seen
from backfill_cli.upstreams.kafka.log.samples import Samples
from backfill_cli.upstreams.kafka.options import TopicOptions
from backfill_cli.upstreams.kafka.records import Decoder, Records
from backfill_cli.upstreams.kafka.tasks import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_ASKED = 8
"""How many partitions are asked for the age of what they hold: some 20 ms each."""


class Topic:
    """One topic and the one table that it fills. Nothing is asked of the cluster before `begin` or `look`."""

    def __init__(self, options: TopicOptions, tables: Sequence[TableSpec], archive: Archive | None = None) -> None:
        if len(tables) != 1:
            names = ", ".join(table.name for table in tables)
            raise ConfigError("tables", [f"tables: a topic fills one table, not {len(tables)} ({names})"])
        self._options, self.table = options, tables[0]
        self.connection = Connection(options)
        self.cluster = Cluster(self.connection, options.topic)
        self.records = Records(options, self.connection, archive)
        self._seen: Seen | None = None
        self._late: bool | None = None

    def begin(self) -> Seen:
        """A first look. Raises UsageError listing topics with similar names if this one does not exist."""
        self.cluster.must_exist()
        return self.look()

    def look(self, read: Offsets | None = None) -> Seen:
        """The topic as it is now; `read` as Cluster.look says."""
        self._seen = self.cluster.look(read)
        return self._seen

    def oldest(self) -> Mapping[int, int]:
        """Where the log began at the last look."""
        return (self._seen or self.look()).oldest

    def samples(self, seen: Seen) -> Samples | None:
        """What a few records say about the columns; None for formats other than Debezium's."""
        if self._options.value.format != "debezium":
            return None
        return samples.of_debezium(self.connection, self._options.topic, seen, self._options.value.tables)

    def written_ms(self, reached: Mapping[int, int], seen: Seen) -> int | None:
        """When the oldest record after a job's position was written; None if there is none, or none has a time.

        Only the fullest partitions are asked: a record of each is read.
        """
        pending = {p: end - reached.get(p, 0) for p, end in seen.ends.items() if end > reached.get(p, 0)}
        found = []
        for p in sorted(pending, key=lambda p: -pending[p])[:_ASKED]:
            first = max(reached.get(p, 0), seen.oldest.get(p, 0))
            one = Range(0, p, first, min(first + 100, seen.ends[p]))
            messages = next(
                (part for part in reader.messages(self.connection, self._options.topic, one) if part), ()
            )
            found += [ms for message in messages[:1] if (ms := int(message.timestamp()[1])) > 0]
        return min(found, default=None)

    def identity(self, seen: Seen, found: Samples | None = None) -> dict[str, Any]:
        """What must never change. found: samples, if the topic holds changes of a table."""
        told = {"cluster": seen.cluster, "topic": self._options.topic, "topic_id": seen.topic_id}
        return told if found is None else {**told, "source": found.source}

    def same(self, seen: Seen, identity: Mapping[str, Any]) -> None:
        """The topic is the one that the job began with. Raises StateConflict for another one."""
        if identity["cluster"] != seen.cluster:
            raise StateConflict(
                f"{self._options.bootstrap_servers} is cluster {seen.cluster}, but the job began with cluster "
                f"{identity['cluster']}: offsets of one mean nothing in the other",
                f"correct {self._options.at}.bootstrap_servers, or " + START_OVER,
            )
        if identity["topic_id"] != str(seen.topic_id):
            raise StateConflict(
                f"topic '{self._options.topic}' was recreated: its id is {seen.topic_id}, but was "
                f"{identity['topic_id']} when the job began; its offsets start from 0 again",
                START_OVER,
            )

    def refuse_growth(self, seen: Seen, known: AbstractSet[str]) -> None:
        """Raises Fatal for an unknown partition: its records may have the keys of older records elsewhere."""
        new = sorted(p for p in seen.ends if str(p) not in known)
        if self._options.accept_growth or not new:
            return
        raise Fatal(
            f"topic '{self._options.topic}' has a new partition {new[0]}: it had {len(known)}, now it has "
            f"{len(seen.ends)}; records of a key may have gone to another partition before and go to this one "
            "now, and there is no order across partitions",
            "if every key stays in the partition that it was in (only new keys go to the new ones), set "
            f"{self._options.at}.accept_growth = true and start again; otherwise "
            + START_OVER
            + " with a topic that has each key in one partition",
        )

    def may_have_grown(self, partitions: int) -> Sequence[str]:
        """A warning for topics whose rows have a key: whether partitions were ever added cannot be seen."""
        if self._options.accept_growth or partitions == 1:
            return []
        return [
            f"topic '{self._options.topic}' has {partitions} partitions and rows have a key: if partitions were "
            "ever added, a key may have records in two of them, without an order between them: older ones may "
            "overwrite newer ones; if one is added later, the job stops, unless "
            f"{self._options.at}.accept_growth = true says that every key stays in its partition"
        ]

    def is_unwrapped(self, columns: Collection[str], appends: bool) -> Sequence[str]:
        """A warning for rows that Debezium took out of their envelopes: what becomes of deletes.

        columns: that are declared; who declares Debezium's fields knows them. appends: each record is a row.
        """
        if self._options.value.format != "json":
            return []
        found = samples.unwrapped(self.connection, self._options.topic, self._seen or self.look())
        if not found or set(found) & set(columns):
            return []
        what = (
            f"topic '{self._options.topic}' holds rows that Debezium's ExtractNewRecordState has unwrapped (they "
            f"have {', '.join(found)})"
        )
        whole = f'or take that transform out, and set {self._options.at}.value.format = "debezium"'
        if appends:
            return [f"{what}: each change becomes a row; for the table as it is now, set tables.key, {whole}"]
        tombstones = 'delete.tombstone.handling.mode = "tombstone"'
        return [f"{what}: only tombstones are followed as deletes: set {tombstones} in the transform, {whole}"]

    def fast_path(self, value: Columns, required: Sequence[str] = ()) -> FastPath | None:
        """The fast path, which only our own reader has."""
        odd = foreign.texts(value, bool(required))
        return fast_path(value, required, odd) if self._options.reader == "confluent" else None

    def changes(
        self,
        spark: "SparkSession",
        after: Position,
        up_to: Position,
        value: Columns,
        identity: str,
        whole: tuple[frozenset[str], frozenset[str]] | None = None,
    ) -> "DataFrame":
        """The partitions of `up_to`, each from its offset in `after`, as changes with `own.ERROR` and `own.RAW`.

        whole: (columns that rows may have besides these, columns that no row may lack); None: as the options say.
        Raises StateConflict if this is the first look, and finds another topic.
        """
        if self._seen is None:
            self.same(self.look(), json.loads(identity))
        key, fast = self.table.key, None
        ranges = [Range(index, int(p), int(after.get(p) or 0), int(end)) for index, (p, end) in enumerate(up_to)]
        if self._options.value.format == "debezium":
            rules = replace(self._rules(value, json.loads(identity), whole), late=self._can_be_late(ranges))
            of_records: Decoder = partial(debezium.as_changes, columns=value, key=key, rules=rules)
        else:
            fast = self.fast_path(value, key) if whole is None else None  # it does not check for other columns
            of_records = partial(upserts.as_upserts, columns=value, key=key, fast=fast, whole=whole)
        return self.records.decoded(
            spark,
            ranges,
            self.oldest,
            value,
            of_records,
            lambda rows: upserts.of_rows(rows, value, key),
            fast,
        )

    def _can_be_late(self, ranges: Sequence[Range]) -> bool:
        """Rules.late, by the first window of this process that has a change at its ends."""
        if self._late is None:
            oldest = self.oldest()
            there = [replace(one, after=max(one.after, oldest.get(one.partition, 0))) for one in ranges]
            found = samples.envelopes(self.connection, self._options.topic, there)
            if not any(one.get("op") in ("c", "u", "d") for one in found):
                return True
            self._late = debezium_order.can_be_late(found)
        return self._late

    def _rules(
        self,
        value: Columns,
        identity: Mapping[str, Any],
        whole: tuple[frozenset[str], frozenset[str]] | None,
    ) -> debezium.Rules:
        how, blockless = debezium.encodings(value, self._options.value, self._options.at)
        others = frozenset[str]() if self._options.value.ddl is None else None
        return debezium.Rules(
            how=how,
            at=self._options.at,
            others=others if whole is None else whole[0],
            required=frozenset() if whole is None else whole[1],
            blockless=blockless,
            tables=self._options.value.tables,
            source=identity.get("source"),
            named=(self._options.topic, self.table.name) if "source" in identity else None,
        )


def position_of(offsets: Mapping[int, int]) -> Position:
    return Position.of({str(p): offset for p, offset in offsets.items()})
