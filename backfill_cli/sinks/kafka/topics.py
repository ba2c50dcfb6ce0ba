"""The job's topics: which exist, whose they are, and what must be made before its first epoch."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from backfill_cli.contracts import SinkTable
from backfill_cli.contracts.refusals import IF_BEGUN, belongs_to, gone, other_type, require_key, rows_of_others
from backfill_cli.errors import BadData, Fatal, Hint, UsageError, in_config
from backfill_cli.kafka.admin import Admin, Found
from backfill_cli.kafka.messages import messages
from backfill_cli.kafka.ranges import Range
from backfill_cli.model.schema import SparkType, columns_of, same_type, shown
from backfill_cli.sinks.kafka import KafkaSinkOptions, making, names, state
from backfill_cli.sinks.kafka.encodings import refuse_unwritable
from backfill_cli.sinks.kafka.state import Held, JobRecord, StateTopic
from backfill_cli.sinks.kafka.writing import recreated

_PLAIN = {"byte", "short", "integer", "long", "float", "double", "boolean", "string", "binary", "date"}
_TIMES = {"timestamp", "timestamp_ntz"}


@dataclass(frozen=True, slots=True)
class Missing:
    """What `prepare` has to make; false if nothing.

    state: the state's topic, if it does not exist. topics: those that do not exist, by table. claims: tables that
    are not the job's yet, with their topics. schemas: tables whose columns are new.
    """

    state: str | None
    topics: Mapping[str, str]
    claims: Mapping[str, str]
    schemas: Sequence[SinkTable]

    def __bool__(self) -> bool:
        return bool(self.state or self.topics or self.claims or self.schemas)


class Topics:
    """On one cluster."""

    def __init__(self, options: KafkaSinkOptions, admin: Admin) -> None:
        self._options, self._admin = options, admin

    def missing(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> Missing:
        """Raises for tables that the job cannot write to. Changes nothing."""
        for table in tables:
            _refuse_columns(table)
            refuse_unwritable(self._options.encoding, table)
        wanted = names.topics_of(self._options, tables)
        mine = StateTopic(self._admin, names.state_of(self._options, job))
        for name, topic in wanted.items():
            if topic == mine.name:
                raise _of_state(topic, job, f"it is also the target of table {name!r}")
        self.refuse_others(job, tables)
        record = mine.newest()
        if record is not None and record.job != job:
            raise _no_state(mine.name, job, f"it keeps that of job {record.job!r}")
        if record is None and mine.last() is not None:
            raise _no_state(mine.name, job, "it has other records")
        held = {} if record is None else dict(record.tables)
        # those of tables that are not the job's are of a start that was refused
        known = {} if record is None else state.schemas(mine.everything())
        schemas = {name: schema for name, schema in known.items() if name in held}
        there = self._admin.found([*wanted.values(), mine.name])
        new = [topic for name, topic in wanted.items() if name not in held]
        if there.keys() & {*new, *([mine.name] if record is None else [])}:
            self.refuse_others(job, tables, anywhere=True)
        if mine.name in there:
            self._require_kept(mine.name)
        for name, topic in wanted.items():
            self._refuse(job, topic, there.get(topic), held.get(name), into_existing)
        lacking = {name: topic for name, topic in wanted.items() if topic not in there}
        absent = None if mine.name in there else mine.name
        if not self._options.create and (absent or lacking):
            raise self._not_made([*lacking.values(), *filter(None, [absent])])
        return Missing(
            absent,
            lacking,
            {name: topic for name, topic in wanted.items() if name not in held},
            [table for table in tables if _differs(table, schemas.get(table.name))],
        )

    def _refuse(self, job: str, topic: str, found: Found | None, held: Held | None, into_existing: bool) -> None:
        if held is not None and held.epoch:
            if found is None:
                raise gone(f"topic '{topic}'", job, held.epoch)
            if found.topic_id != held.topic_id:
                raise recreated(job, held, found)
        elif found is not None and not into_existing and self._has_records(topic, found):
            raise rows_of_others(f"'{topic}' (a topic)")

    def refuse_others(self, job: str, tables: Sequence[SinkTable], anywhere: bool = False) -> None:
        """No other job has one of these topics, or this one's state. Raises TargetTaken, StateTaken: naming it.

        anywhere: whatever the other one's `state_topic` is.
        """
        mine = names.state_of(self._options, job)
        wanted = {topic: name for name, topic in names.topics_of(self._options, tables).items()}
        for topic, record in self._made_states(mine) if anywhere else self._named_states(job):
            if topic in wanted:
                raise _of_state(topic, record.job, f"it is also the target of table {wanted[topic]!r}", record.job)
            for table, held in record.tables.items():
                if held.topic == mine:
                    why = f"it is the target of table {table!r} of job {record.job!r}"
                    raise _no_state(mine, job, why, record.job)
                if held.topic in wanted:
                    raise belongs_to(f"topic '{held.topic}'", record.job, table, record.owner)

    def _named_states(self, job: str) -> Iterator[tuple[str, JobRecord]]:
        """The states of other jobs whose topics are named as this one's."""
        for other, topic in names.states_in(self._options, self._admin.topics()).items():
            record = None if other == job else StateTopic(self._admin, topic).of(other)
            if record is not None:
                yield topic, record

    def _made_states(self, mine: str) -> Iterator[tuple[str, JobRecord]]:
        """Those in topics that were made for a state, as their settings say, if this user may read them."""
        topics = self._admin.topics()
        single = [name for name, partitions in topics.items() if partitions == 1 and name != mine]
        for topic, settings in self._admin.settings_of(single).items():
            if _is_as_made(settings):
                with suppress(Fatal):
                    record = StateTopic(self._admin, topic).of(None)
                    if record is not None:
                        yield topic, record

    def _has_records(self, topic: str, found: Found) -> bool:
        """Whether there is one that was committed: of aborted transactions, too, offsets are left."""
        places = [(topic, p) for p in found.partitions]
        begins, ends = self._admin.begins(places), self._admin.ends(places, committed=True)
        return any(
            next(messages(self._admin.connection, topic, Range(0, p, begins[topic, p], ends[topic, p])), None)
            for _, p in places
            if begins[topic, p] < ends[topic, p]
        )

    def _require_kept(self, topic: str) -> None:
        """The newest record of each key stays in the topic of the job's state. Raises UsageError."""
        policy = (self._admin.settings_of([topic])[topic] or {}).get("cleanup.policy", "compact")
        if policy != "compact":
            raise UsageError(
                f"topic '{topic}' keeps the job's position, but its cleanup.policy is {policy!r}: the broker "
                "deletes what is older than its retention",
                "set its cleanup.policy to compact",
            )

    def is_as_made(self, topic: str) -> bool:
        """Whether the topic has the settings of a job's state, as `make` gives them to no other topic."""
        return _is_as_made(self._admin.settings_of([topic])[topic])

    def losing(self, tables: Sequence[SinkTable]) -> list[str]:
        """What to know of topics that a broker deletes rows from; those that are to be made included."""
        wanted = names.topics_of(self._options, tables).values()
        made = {topic: {**_BROKERS, **self._options.properties} for topic in wanted}
        told = {**made, **self._admin.settings_of(self._admin.found(wanted))}
        return [
            f"topic '{topic}' loses rows by its retention ({limits}): set its cleanup.policy to compact, or its "
            "retention.ms and retention.bytes to -1"
            for topic, settings in told.items()
            if (limits := _limits(settings or {}))
        ]

    def _not_made(self, topics: Sequence[str]) -> UsageError:
        first = topics[0]
        return UsageError(
            f"{self._admin.connection.servers}: topic '{first}' does not exist, and sink.create is false",
            in_config(f"create {', '.join(topics)}, or set sink.create = true"),
        )

    def make(self, job: str, missing: Missing) -> None:
        """The topics exist."""
        options = self._options
        for topic in missing.topics.values():
            making.create(self._admin, topic, options.partitions, options.replication, options.properties)
        if missing.state is not None:
            making.create(self._admin, missing.state, 1, options.replication, state.SETTINGS)

    def claims(self, missing: Missing) -> dict[str, Held]:
        """The tables that the job takes, as their topics are now; and those that were made again."""
        taken = {**missing.claims, **missing.topics}
        there = self._admin.found(taken.values())
        places = [(topic, p) for topic, found in there.items() for p in found.partitions]
        ends = self._admin.ends(places, committed=False)
        return {
            name: Held(
                topic,
                there[topic].topic_id,
                len(there[topic].partitions),
                {p: ends[topic, p] for p in there[topic].partitions},
            )
            for name, topic in taken.items()
        }


def _is_as_made(settings: Mapping[str, str] | None) -> bool:
    return (settings or {}).items() >= state.SETTINGS.items()


_BROKERS = {"cleanup.policy": "delete", "retention.ms": "604800000"}
"""What topics have by a broker's own defaults."""


def _limits(settings: Mapping[str, str]) -> str:
    """By which of its settings a topic loses rows; empty if it does not."""
    policy = settings.get("cleanup.policy", "")
    kept = ("retention.ms", "retention.bytes")
    limits = [f"{name} = {settings[name]}" for name in kept if settings.get(name, "-1") != "-1"]
    return ", ".join([f"cleanup.policy = {policy}", *limits]) if "delete" in policy and limits else ""


class StateTaken(UsageError):
    """A topic would be a job's state and something else. job: the other job that has it, if there is one."""

    def __init__(self, message: str, hint: Hint, job: str) -> None:
        super().__init__(message, hint)
        self.job = job


def _of_state(topic: str, job: str, but: str, other: str = "") -> StateTaken:
    """The topic is no target."""
    return StateTaken(
        f"topic '{topic}' keeps the state of job {job!r}, but {but}",
        in_config("name another topic: sink.state_topic, sink.topic, or sink.topics with tables.target"),
        other,
    )


def _no_state(topic: str, job: str, but: str, other: str = "") -> StateTaken:
    return StateTaken(
        f"topic '{topic}' is to keep the state of job {job!r}, but {but}",
        in_config("name another topic for it: sink.state_topic"),
        other,
    )


def _differs(table: SinkTable, known: str | None) -> bool:
    """Whether the table's columns are new. Raises BadData for one of another type than it was written with."""
    if known is None:
        return True
    there = columns_of(known)
    for name, column in columns_of(table.schema).items():
        if name in there and not same_type(there[name]["type"], column["type"]):
            raise other_type(name, table.target, shown(there[name]["type"]), shown(column["type"]))
    return bool(columns_of(table.schema).keys() - there.keys())


def _refuse_columns(table: SinkTable) -> None:
    """Raises BadData or UsageError for a column that a record cannot have."""
    columns = columns_of(table.schema)
    require_key(table, columns)
    for name, column in columns.items():
        if (odd := _odd(column["type"])) is not None:
            raise BadData(
                f"table {table.name!r}: column {name!r}: {odd} has no counterpart in JSON",
                "cast it in the transform's select, or leave it out" + IF_BEGUN,
            )
    for name in table.key:
        if _in_key(columns[name]["type"]):
            raise BadData(
                f"table {table.name!r}: key column {name!r} is {shown(columns[name]['type'])}: records of one key "
                "could have keys of different bytes",
                "choose other columns: tables.key; or cast it in the transform's select",
            )


def _in_key(kind: SparkType) -> bool:
    """Whether equal values can have different bytes."""
    return kind in ("float", "double") or isinstance(kind, dict)


def _odd(kind: SparkType) -> str | None:
    """The first type in this one that JSON has no form for."""
    if isinstance(kind, str):
        return None if kind in _PLAIN | _TIMES or kind.startswith("decimal") else kind
    match kind["type"]:
        case "array":
            return _odd(kind["elementType"])
        case "map":
            if isinstance(kind["keyType"], dict):
                return f"a map by {shown(kind['keyType'])}"
            return _odd(kind["keyType"]) or _odd(kind["valueType"])
        case "struct":
            return next(filter(None, (_odd(one["type"]) for one in kind["fields"])), None)
    return str(kind["type"])
