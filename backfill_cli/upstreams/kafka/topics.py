"""The topics of a job's tables: looked at together, a barrier in one request."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from backfill_cli.contracts import TableSpec
from backfill_cli.contracts.decoder import Found
from backfill_cli.decode.fields import fields_read
from backfill_cli.errors import ConfigError, in_config
from backfill_cli.kafka.cluster import Cluster, place
from backfill_cli.kafka.connection import Connection
from backfill_cli.model.position import Position
from backfill_cli.model.reports import FieldRead
from backfill_cli.model.upstream import UpstreamEpoch
from backfill_cli.registry import decoder
from backfill_cli.upstreams.kafka.archive.archive import Archive
from backfill_cli.upstreams.kafka.log.growth import PART_ROWS, Growth
from backfill_cli.upstreams.kafka.options import TopicOptions
from backfill_cli.upstreams.kafka.topic import Topic


class Topics:
    """Each table's topic, by the table's name. Nothing is asked of the cluster before `begin` or `look`.

    latest, oldest: where the partitions end and begin at the last look, by their names in positions. apart: see
    Capabilities.
    """

    def __init__(self, options: TopicOptions, tables: Sequence[TableSpec], archive: Archive | None = None) -> None:
        topics = options.topic_of([table.name for table in tables])
        alone, names = options.topics is None and len(tables) == 1, list(topics.values())
        self._options, self.connection = options, Connection(options)
        self.cluster = Cluster(self.connection, names)
        self.of = {
            table.name: Topic(
                options,
                table,
                topics[table.name],
                self.connection,
                self.look,
                shared=names.count(topics[table.name]) > 1,
                alone=alone,
                of_several=len(tables) > 1,
                archive=archive,
            )
            for table in tables
        }
        self._alone, self._growth, self._looked = alone, Growth(PART_ROWS), False
        self.apart = options.topics is not None and len(set(names)) == len(names)
        self.latest: dict[str, int] = {}
        self.oldest: dict[str, int] = {}
        self._refuse_options()

    def _refuse_options(self) -> None:
        """Raises ConfigError for options that do not say what each table reads."""
        value, at = self._options.value, self._options.at
        if isinstance(value.ddl, dict):
            unknown = [name for name in value.ddl if name not in self.of]
            faults = [f"{at}.value.schema: there is no table '{name}' in [[tables]]" for name in unknown]
            hint = f"the tables are: {', '.join(self.of)}"
            if not decoder(value.format).changes:
                lacking = [name for name in self.of if name not in value.ddl]
                faults += [f"{at}.value.schema: no columns of table '{name}'" for name in lacking]
            if faults:
                raise ConfigError("upstream", faults, in_config(hint))
        if value.tables and len(self.of) > 1:
            fault = f"{at}.value.tables: is for a job of one table; of several, each reads the records of its name"
            raise ConfigError("upstream", [fault], in_config("leave it out"))
        for topic in self.of.values():
            if topic.shared and "tables" not in topic.decoder.options:
                tables = ", ".join(one.table.name for one in self.of.values() if one.name == topic.name)
                fault = (
                    f"{self._options.at}.topic: '{topic.name}' is to fill several tables ({tables}), but "
                    f"{self._options.value.format} values do not name the table of a record"
                )
                one_each = f'name a topic for each table: {self._options.at}.topics = "{{table}}"'
                raise ConfigError("upstream", [fault], in_config(one_each))

    def begin(self) -> None:
        """A first look. Raises UsageError listing topics with similar names if one does not exist."""
        self.cluster.must_exist()
        self.look()

    def look(self, read: Position | None = None) -> None:
        """All topics as they are now. read: up to where partitions are read, None while history may still be."""
        reached: dict[str, dict[int, int]] | None = None
        if read is not None:
            reached = {}
            for topic in self.of.values():
                for p, offset in topic.offsets(read).items():
                    of = reached.setdefault(topic.name, {})
                    of[p] = min(offset, of.get(p, offset))
        seen = self.cluster.look(reached)
        self.latest, self.oldest = {}, {}
        for topic in self.of.values():
            topic.seen = seen[topic.name]
            self.latest |= topic.logs(topic.seen.ends)
            self.oldest |= topic.logs(topic.seen.oldest)

    def same(self, identity: str) -> None:
        """The topics are those that the job began with. Raises StateConflict for another one."""
        for topic in self.of.values():
            topic.same(topic.now(), topic.known(identity))

    def identity(self, found: Mapping[str, Found]) -> dict[str, Any]:
        """What must never change. found: by table. Raises ConfigError for tables that are one in their topic."""
        self._refuse_twice(found)
        told = {name: topic.identity(topic.now(), found[name]) for name, topic in self.of.items()}
        return told.popitem()[1] if self._alone else {"topics": told}

    def _refuse_twice(self, found: Mapping[str, Found]) -> None:
        known: dict[tuple[str, str], str] = {}
        for name, topic in self.of.items():
            source = found[name].facts.get("source")
            if topic.shared and source and (other := known.setdefault((topic.name, source), name)) != name:
                fault = f"tables: '{other}' and '{name}' are both '{source}' in topic '{topic.name}'"
                raise ConfigError("config", [fault], in_config("leave one of them out of [[tables]]"))

    def places(self) -> dict[str, frozenset[str]]:
        """See Extras.places. A topic that several tables share is the place of the first of them."""
        found: dict[str, frozenset[str]] = {}
        taken = set[str]()
        for name, topic in self.of.items():
            found[name] = frozenset({place(topic.now().cluster, topic.name)} - taken)
            taken |= found[name]
        return found

    def pending(self, position: Position, read: Position | None, now_ms: int) -> tuple[UpstreamEpoch, ...]:
        """What is after a position, as of this look. read: as for `look`."""
        reached = None if read is None else {log: int(offset) for log, offset in read}
        begun_ms = None if self._looked or read is None else self._written_ms(read)
        self._looked = True
        self._growth.observe(self.oldest, self.latest, now_ms, reached, begun_ms)
        return self._growth.pending(position)

    @property
    def oldest_ms(self) -> int | None:
        """See Growth.oldest_ms."""
        return self._growth.oldest_ms

    def _written_ms(self, read: Position) -> int | None:
        """When the oldest record after a job's position was written, as far as the fullest topics tell."""
        each = {topic.name: topic for topic in sorted(self.of.values(), key=lambda topic: topic.behind(read))}
        fullest = list(each.values())[-_ASKED:]
        found = (topic.written_ms(topic.offsets(read), topic.now()) for topic in fullest if topic.behind(read))
        return min((ms for ms in found if ms is not None), default=None)

    def skipped(self) -> list[str]:
        """Notes on topics of several tables, of a job that begins: what is skipped, and what was not seen."""
        said = []
        for name in dict.fromkeys(topic.name for topic in self.of.values()):
            others = [topic.found.others for topic in self.of.values() if topic.name == name]
            if skipped := sorted(frozenset.intersection(*others)):
                more = f" and {len(skipped) - _NAMED:,} more" if len(skipped) > _NAMED else ""
                said.append(
                    f"topic '{name}' has records of tables that the job does not have, which are skipped: "
                    f"{', '.join(skipped[:_NAMED])}{more} (in a sample)"
                )
        unseen = [topic for topic in self.of.values() if topic.unseen is not None]
        return said + [
            f"topic '{one.name}' has no record of table '{one.table.name}' (in a sample): those of '{one.unseen}' "
            "will be read; the job stops at a record of another table of this name"
            for one in unseen
        ]

    def compacted(self) -> list[str]:
        """A note for each topic of several tables in which compaction takes equal keys of two tables for one."""
        shared = list(dict.fromkeys(topic.name for topic in self.of.values() if topic.shared))
        found = self.cluster.compacted() if shared else {}
        return [
            f"topic '{name}' is compacted and has several tables: of records with one key only the newest stays, "
            "whichever table they are of, and rows of the others are missing; let the keys differ (Debezium's "
            "ByLogicalTableRouter adds the table), or set cleanup.policy=delete"
            for name in shared
            if found[name]
        ]

    def fields(self) -> Mapping[str, Sequence[FieldRead]]:
        """See Extras.fields."""
        found = {name: topic.found for name, topic in self.of.items()}
        return {name: fields_read(one.columns, one.schemas) for name, one in found.items()}

    def each(self, what: Callable[[Topic], Sequence[str]]) -> list[str]:
        """What is to be said of each topic, once."""
        return list(dict.fromkeys(said for topic in self.of.values() for said in what(topic)))


_NAMED = 10
"""The most tables that a note lists."""

_ASKED = 4
"""How many topics are asked for the age of what they hold: some 20 ms a partition."""
