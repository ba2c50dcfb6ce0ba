"""The topic of a table: which one it is, what it holds, and its records as changes of the table."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from backfill_cli.contracts import TableSpec
from backfill_cli.contracts.decoder import Asked, Found, Opened
from backfill_cli.decode.registered import Registered
from backfill_cli.decode.unwrapped import DELETED
from backfill_cli.errors import START_OVER, Fatal, StateConflict, UsageError
from backfill_cli.formats.skip_counts import place
from backfill_cli.kafka.cluster import Seen
from backfill_cli.kafka.connection import Connection
from backfill_cli.kafka.messages import messages
from backfill_cli.kafka.ranges import Range
from backfill_cli.model.position import Position
from backfill_cli.model.schema import Columns, schema_text
from backfill_cli.model.split import partition_id, partition_number, partition_table
from backfill_cli.registry import decoder
from backfill_cli.schema_registry.registry import SchemaRegistry
from backfill_cli.schema_registry.wire import HEADERS
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.upstreams.kafka.archive.archive import Archive
from backfill_cli.upstreams.kafka.log import samples
from backfill_cli.upstreams.kafka.options import EVENT_KEY, JSON_FORMATS, WIRE, TopicOptions
from backfill_cli.upstreams.kafka.reading import PLACE, Reading, named
from backfill_cli.upstreams.kafka.records import Records

_ASKED = 8
"""How many partitions are asked for the age of what they hold: some 20 ms each."""


class Topic:
    """One table and its topic. See Topics, which looks at the cluster for all.

    name: the topic's. shared: other tables have records in it, too. alone: the job has no other table: partitions
    are named by their numbers. seen: the topic at the last look. found: what the options and a sample show of a
    job that begins. unseen: the full name that the table must have, if no record of the sample is of it.
    """

    def __init__(
        self,
        options: TopicOptions,
        table: TableSpec,
        name: str,
        connection: Connection,
        look: Callable[[], object],
        shared: bool = False,
        alone: bool = True,
        of_several: bool = False,
        archive: Archive | None = None,
    ) -> None:
        self._options, self.table, self.name, self.shared = options, table, name, shared
        self.connection, self._look = connection, look
        self._named, self._of_several = None if alone else table.name, of_several
        self.records = Records(options, name, connection, archive)
        self.decoder = decoder(options.value.format)
        self.seen: Seen | None = None
        self.found = Found({})
        self.unseen: str | None = None
        self._opened: dict[str, Opened] = {}
        self._beside: Mapping[str, frozenset[str]] | None = None

    @property
    def appends(self) -> bool:
        """Whether each record is a row by itself."""
        return self.table.key in ((), EVENT_KEY) and not self.decoder.changes

    @property
    def ddl(self) -> str | None:
        """The table's columns, if the config has them."""
        told = self._options.value.ddl
        return told.get(self.table.name) if isinstance(told, Mapping) else told

    def now(self) -> Seen:
        """The topic at the last look."""
        if self.seen is None:
            self._look()
        assert self.seen is not None
        return self.seen

    def oldest(self) -> Mapping[int, int]:
        """Where the log began at the last look."""
        return self.now().oldest

    def logs(self, offsets: Mapping[int, int]) -> dict[str, int]:
        """Offsets by the names that partitions have in positions."""
        return {partition_id(self._named, p): offset for p, offset in offsets.items()}

    def offsets(self, position: Position) -> dict[int, int]:
        """Those of a position that are of this table, by partition."""
        return {partition_number(log): int(at) for log, at in position if partition_table(log) == self._named}

    def asked(self, declared: Columns | None, whole: tuple[frozenset[str], frozenset[str]] | None = None) -> Asked:
        """What the options say about the values. whole: see Asked."""
        options, topic = self._options, self.name
        told = options.value.model_dump(include={"timestamps", "decimals", "tables"})
        if self.shared:
            told["tables"] = (self.table.name,)
        at = f"{options.at}.value"
        name, key = self.table.name, () if self.appends else self.table.key
        documents = self._documents(options.value.encoding, f"{at}.encoding")
        asked = Asked(f"topic '{topic}'", topic, name, key, declared, told, at, whole, shared=self.shared)
        aside = getattr(options, "on_error", "fail") == "quarantine"
        return replace(
            asked, documents=documents, sets_aside=aside, of_several=self._of_several, taken=frozenset(PLACE)
        )

    def _documents(self, encoding: str, at: str) -> Registered | None:
        """An encoding by a registry's schemas, opened; None for any other."""
        registry = self._options.registry
        if encoding not in WIRE or registry is None:
            return None
        return Registered(SchemaRegistry.of(registry, f"{self._options.at}.registry"), encoding, at)

    def columns(self, seen: Seen, asked: Asked) -> Found:
        """The value's columns, by the options and a few records."""
        if asked.documents is not None:
            self._refuse_ids_in_headers(seen)
        read = samples.many_of_topic if self.shared else samples.of_topic
        found = self.found = self.decoder.columns(
            asked, lambda: read(self.connection, self.name, seen, self._keyed)
        )
        self.unseen = found.facts["source"] if found.facts.get("unseen") else None
        return found

    def _refuse_ids_in_headers(self, seen: Seen) -> None:
        """Raises UsageError where records do not begin with the ids of their schemas."""
        found = sorted(samples.headers(self.connection, self.name, seen) & HEADERS)
        if found:
            raise UsageError(
                f"topic '{self.name}': records have the ids of their schemas in headers ({found[0]}), which are "
                "not read",
                "let the serializer write them before the value, with Apicurio's by "
                "apicurio.registry.headers.enabled = false in the connector; a topic of such records can be read",
            )

    def behind(self, position: Position) -> int:
        """How many offsets are after a position."""
        reached = self.offsets(position)
        return sum(max(0, end - reached.get(p, 0)) for p, end in self.now().ends.items())

    def written_ms(self, reached: Mapping[int, int], seen: Seen) -> int | None:
        """When the oldest record after a job's position was written; None if there is none, or none has a time.

        Only the fullest partitions are asked: a record of each is read.
        """
        pending = {p: end - reached.get(p, 0) for p, end in seen.ends.items() if end > reached.get(p, 0)}
        found = []
        for p in sorted(pending, key=lambda p: -pending[p])[:_ASKED]:
            first = max(reached.get(p, 0), seen.oldest.get(p, 0))
            one = Range(0, p, first, min(first + 100, seen.ends[p]))
            read = next((part for part in messages(self.connection, self.name, one) if part), ())
            found += [ms for message in read[:1] if (ms := int(message.timestamp()[1])) > 0]
        return min(found, default=None)

    def identity(self, seen: Seen, found: Found) -> dict[str, Any]:
        """What must never change."""
        told = {"cluster": seen.cluster, "topic": self.name, "topic_id": seen.topic_id}
        return {**told, **found.facts, **told}

    def known(self, identity: str) -> Mapping[str, Any]:
        """The table's part of what must never change."""
        told: dict[str, Any] = json.loads(identity)
        return told if self._named is None else told["topics"][self.table.name]

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
                f"topic '{self.name}' was recreated: its id is {seen.topic_id}, but was "
                f"{identity['topic_id']} when the job began; its offsets start from 0 again",
                START_OVER,
            ).of(self.table.name)

    def refuse_growth(self, seen: Seen, known: AbstractSet[int]) -> None:
        """Raises Fatal for an unknown partition: its records may have the keys of older records elsewhere."""
        new = sorted(seen.ends.keys() - known)
        if self._options.accept_growth or not new:
            return
        raise Fatal(
            f"topic '{self.name}' has a new partition {new[0]}: it had {len(known)}, now it has "
            f"{len(seen.ends)}; records of a key may have gone to another partition before and go to this one "
            "now, and there is no order across partitions",
            "if every key stays in the partition that it was in (only new keys go to the new ones), set "
            f"{self._options.at}.accept_growth = true and start again; otherwise "
            + START_OVER
            + " with a topic that has each key in one partition",
        ).of(self.table.name)

    def of_partitions(self, partitions: int) -> Sequence[str]:
        """Warnings for topics whose rows have a key: whether partitions were ever added cannot be seen."""
        if partitions == 1:
            return []
        moved = (
            f"topic '{self.name}' has {partitions} partitions: a change of a row's key is a delete and an insert, "
            "which can be in two of them, without an order: for a moment the sink can have both rows, or none"
        )
        told = [moved] if self.decoder.changes else []
        if self._options.accept_growth:
            return told
        return [
            *told,
            f"topic '{self.name}' has {partitions} partitions and rows have a key: if partitions were "
            "ever added, a key may have records in two of them, without an order between them: older ones may "
            "overwrite newer ones; if one is added later, the job stops, unless "
            f"{self._options.at}.accept_growth = true says that every key stays in its partition",
        ]

    def is_unwrapped(self, columns: Collection[str], appends: bool) -> Sequence[str]:
        """A warning for rows that Debezium took out of their envelopes: what becomes of deletes.

        columns: that are declared; who declares Debezium's fields knows them. appends: each record is a row.
        """
        if self._options.value.format not in JSON_FORMATS or self._options.value.encoding != "json":
            return []
        found = samples.unwrapped(self.connection, self.name, self.now())
        if not found or set(found) & set(columns):
            return []
        what = (
            f"topic '{self.name}' holds rows that Debezium's ExtractNewRecordState has unwrapped (they "
            f"have {', '.join(found)})"
        )
        whole = f'or take that transform out, and set {self._options.at}.value.format = "debezium"'
        if appends:
            return [f"{what}: each change becomes a row; for the table as it is now, set tables.key, {whole}"]
        if DELETED in found:
            return []
        mode = 'delete.tombstone.handling.mode = "rewrite" or "tombstone"'
        return [f"{what}: a delete that the transform drops is not followed: set {mode} in it, {whole}"]

    def events(self, value: Columns, identity: str) -> Reading:
        """How each record becomes a row."""
        asked = replace(self.asked(None if self.follows else value), key=())
        opened = self._reads(asked, value, identity)
        decode, domain = opened.decode(lambda: ()), self.table.domain
        return Reading(schema_text(value), decode, follows=self._followed, domain=domain)

    @property
    def follows(self) -> bool:
        """Whether a column that is new in a record's schema is one of the table from then on."""
        has_schemas = self._options.value.encoding in WIRE or self._options.value.format == "debezium"
        return has_schemas and self.ddl is None

    @property
    def _followed(self) -> str:
        return self.table.name if self.follows else ""

    def added(self, value: Columns, ranges: Sequence[Range], new: Range, identity: str) -> Columns:
        """The columns that the schema of a record has beside these.

        new: the record; those around it can be of other schemas, and tables, and what they bring is added once
        they are read: which records come together decides nothing. Of an archive's record, which the log no longer
        has, the schema is looked for in these ranges, and in the topic.
        Records of older schemas have NULL there, whatever the default: the same rows whenever they are read.
        """
        source = None if self._options.value.tables else self.known(identity).get("source")
        asked = replace(self.asked(None), begun=True, source=source)
        found = self.decoder.columns(asked, lambda: self._samples(ranges, new))
        more = {name: one for name, one in found.columns.items() if name not in value}
        return {
            name: {**one, "metadata": {k: v for k, v in one["metadata"].items() if k != "absent"}}
            for name, one in more.items()
            if not value.keys() & set(one["metadata"].get("aliases", ()))
        }

    def _samples(self, ranges: Sequence[Range], new: Range) -> list[bytes]:
        return self._recent([new]) or [
            *self._recent(ranges),
            *samples.of_topic(self.connection, self.name, self.now()),
        ]

    def changes(
        self, spark: SparkSession, after: Position, up_to: Position, value: Columns, identity: str, asked: Asked
    ) -> DataFrame:
        """The table's partitions of `up_to`, each from its offset in `after`, as changes.

        They have `own.ERROR` and `own.RAW`. Where rows must be whole (see Asked), with `own.FAULT`, too.
        Raises StateConflict if this is the first look, and finds another topic.
        """
        if self.seen is None:
            self.same(self.now(), self.known(identity))
        asked = self._in_order(asked)
        begun = self.offsets(after)
        ends = self.offsets(up_to).items()
        ranges = [Range(index, p, begun.get(p, 0), end) for index, (p, end) in enumerate(ends)]
        reading = self.reading(ranges, value, identity, asked)
        found = self.records.decoded(spark, ranges, self.oldest, reading)
        return self._reads(asked, value, identity).checked(found, reading.decode, named())

    def reading(self, ranges: Sequence[Range], value: Columns, identity: str, asked: Asked) -> Reading:
        """How the records of these ranges become rows, or changes of the table."""
        if self.appends:
            return self.events(value, identity)
        decode = self._reads(self._in_order(asked), value, identity).decode(lambda: self._recent(ranges))
        of_key = None if self.decoder.changes else self.of_key(value).decode(lambda: ())
        changes_snapshot = asked.whole is not None
        follows = "" if changes_snapshot else self._followed
        schema, key, domain = schema_text(value), self.table.key, self.table.domain
        name = self.table.name
        skips = place(name) if name == min((name, *self._others(identity))) else None  # once of a shared topic
        return Reading(schema, decode, key, of_key, changes_snapshot, follows, domain, skips, self._keyed)

    @property
    def _keyed(self) -> bool:
        return getattr(self.decoder, "keyed", False)

    def _others(self, identity: str) -> Mapping[str, frozenset[str]]:
        """The job's other tables that share the topic, each with its full name there, as far as it is known."""
        if self._beside is None:
            told = {} if self._named is None or not self.shared else json.loads(identity)["topics"]
            self._beside = {
                name: frozenset({one.get("source") or ""} - {""})
                for name, one in told.items()
                if one["topic"] == self.name and name != self.table.name
            }
        return self._beside

    def _in_order(self, asked: Asked) -> Asked:
        """Whether all records of the topic have one order: not if it has several partitions."""
        return replace(asked, ordered=len(self.now().ends) == 1)

    def of_key(self, value: Columns) -> Opened:
        """What reads the key columns from the records' keys. Raises ConfigError if the format cannot."""
        keys = {name: value[name] for name in self.table.key}
        at = f"{self._options.at}.key"
        form = self._options.key.format
        documents = self._documents(form, f"{at}.format")
        asked = replace(self.asked(keys), options={}, at=at, of_keys=True, documents=documents)
        if getattr(self.decoder, "reads_keys", False):
            return self.decoder.open(asked, keys, {})
        return decoder("rows" if documents is not None else form).open(asked, keys, {})

    def _reads(self, asked: Asked, value: Columns, identity: str) -> Opened:
        """The format's reading of these columns, the same one for the life of the process."""
        schema = f"{asked.ordered} {schema_text(value)}"
        if schema not in self._opened:
            told = self.known(identity)
            facts = {name: told[name] for name in told if name not in ("cluster", "topic", "topic_id")}
            theirs = frozenset[str]().union(*self._others(identity).values())
            self._opened[schema] = self.decoder.open(replace(asked, theirs=theirs), value, facts)
        return self._opened[schema]

    def _recent(self, ranges: Sequence[Range]) -> list[bytes]:
        """A few values of these ranges."""
        return samples.of_ranges(self.connection, self.name, self._held(ranges))

    def _held(self, ranges: Sequence[Range]) -> list[Range]:
        """What the log still holds of these ranges."""
        oldest = self.oldest()
        return [replace(one, after=max(one.after, oldest.get(one.partition, 0))) for one in ranges]
