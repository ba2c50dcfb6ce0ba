"""What `init` finds out about a topic: partitions, records, how they are written, columns, key."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from backfill_cli.contracts import FoundTable, Looked, Named, Told, named_after, require_columns
from backfill_cli.contracts.options import without_config
from backfill_cli.errors import Hint, UsageError, command
from backfill_cli.kafka.cluster import Cluster, Seen
from backfill_cli.kafka.connection import Connection
from backfill_cli.kafka.url import ANSWER_S, REGISTRY, SCHEME, Url, by_url
from backfill_cli.model.units import nearest_first, spell_count, spell_known
from backfill_cli.schema_registry.options import RegistryOptions
from backfill_cli.schema_registry.registry import SchemaRegistry
from backfill_cli.upstreams.kafka import forms, registered_forms
from backfill_cli.upstreams.kafka.log import samples
from backfill_cli.upstreams.kafka.options import KafkaOptions

SAMPLE_S = 2.0

EACH = "{table}"
"""Stands for a table's name in the topics of several."""


@dataclass(frozen=True, slots=True)
class Looking:
    """A topic, as it was found. written: its URL, as a config may say it; url: with its secrets."""

    written: Url
    url: Url
    seen: Seen
    records: list[forms.Record]
    compacted: bool | None

    @property
    def count(self) -> int:
        return sum(end - self.seen.oldest[p] for p, end in self.seen.ends.items())

    @property
    def said(self) -> str:
        held = f"{spell_count(len(self.seen.ends), 'partition')}, {spell_count(self.count, 'record')}"
        of = f"topic {self.written.topic} on {self.written.servers}: {held}"
        return f"{of}, compacted" if self.compacted else of

    @property
    def options(self) -> dict[str, Told]:
        told = {"bootstrap_servers": Told(self.written.servers), "topic": Told(self.written.topic)}
        properties = dict(self.written.client)
        return {**told, "options": Told(properties)} if properties else told


def look(named: Named) -> Looked:
    """What the topic shows, or a topic for each table: `kafka://HOST/shop.{table}`.

    Raises UsageError for one that is not there, or servers that do not answer.
    """
    if EACH in Url.of(named.text).topic:
        return _look_at_several(named)
    _require_one(named.tables)
    found = _looking(named)
    table = named.tables[0] if named.tables else named_after(found.written.topic.rpartition(".")[2])
    about = forms.About(found.written.topic, table, named.key, found.compacted)
    form = form_of(found, about)
    if form.columns:
        require_columns(named, form.columns)
    said = (found.said, f"{len(found.records):,} read: {form.said}")
    return Looked([FoundTable(table, form.key)], {**found.options, **form.options}, said)


def form_of(found: Looking, about: forms.About) -> forms.Form:
    """What the records show, by the registry that the URL names. Raises UsageError where they need one."""
    if not found.url.registry:
        ids = registered_forms.ids_in(found.records)
        if not ids:
            return forms.form_of(found.records, about)
        raise UsageError(
            f"topic '{about.topic}': its values begin with ids of schemas ({', '.join(map(str, ids[:5]))})",
            "name the registry that has them: " + _with_registry(found.written),
        )
    told = {f"registry.{name}": Told(_typed(name, value)) for name, value in found.written.registry.items()}
    options = {name: _typed(name, value) for name, value in found.url.registry.items()}
    try:
        of = RegistryOptions.model_validate(options)
    except ValidationError as error:
        faults = "; ".join(
            ": ".join([*map(str, one["loc"]), one["msg"]]) for one in error.errors(include_input=False)
        )
        raise UsageError(f"{REGISTRY}…: {faults}", "name it so: " + _with_registry(found.written)) from None
    with without_config("name another registry: " + _with_registry(found.written)):
        form = registered_forms.form_of(found.records, about, SchemaRegistry.of(of, f"{about.at}.registry"), told)
    if form is not None:
        return form
    bare = replace(found.written, properties=found.written.client)
    raise UsageError(
        f"topic '{about.topic}': no value begins with the id of a schema",
        "leave the registry out: "
        + command(f"init --from {shlex.quote(bare.with_topic(bare.topic))}")
        + f"; or, if its ids have 8 bytes, add '&{REGISTRY}id_bytes=8&{REGISTRY}global_ids=true' (Apicurio)",
    )


def _typed(name: str, value: str) -> Any:
    return {"true": True, "false": False}.get(
        value, int(value) if name == "id_bytes" and value.isdigit() else value
    )


def _with_registry(written: Url) -> Hint:
    """The command that names a registry, too."""
    bare = replace(written, properties=written.client)
    place = bare.with_topic(written.topic, f"{REGISTRY}url=http://127.0.0.1:8081")
    login = f"&{REGISTRY}user=USER&{REGISTRY}password=${{env:REGISTRY_PASSWORD}}"
    more = f" (Apicurio's ends in /apis/ccompat/v7); for one that wants a login, add '{login}'"
    return command(f"init --from {shlex.quote(place)}") + more


def _look_at_several(named: Named) -> Looked:
    """What the topics show together: those of the tables that are named, or all whose names fit."""
    url = Url.of(named.text)
    looked: dict[str, Looked] = {}
    for table in named.tables or _tables_of(named):
        looked[table] = look(_of_table(named, table))
    blank = [table for table, one in looked.items() if one.options["value.format"].value is None]
    filled = {table: one for table, one in looked.items() if table not in blank} or looked
    options = {**next(iter(filled.values())).options, **_together(url, filled)}
    del options["topic"]
    said = [f"{spell_count(len(filled), 'topic')} like {url.topic} on {url.servers}: {', '.join(filled)}"]
    if len(filled) < len(looked):
        said.append(f"left out, as their records do not show how they are written: {', '.join(blank)}")
    return Looked([one.tables[0] for one in filled.values()], options, said)


def _of_table(named: Named, table: str) -> Named:
    """What names the topic of one table."""
    text, written = _filled_in(named.text, table), _filled_in(named.written, table)
    return replace(named, text=text, written=written, tables=(table,))


def _filled_in(url: str, table: str) -> str:
    return url.replace(EACH, table)


def _together(url: Url, looked: Mapping[str, Looked]) -> dict[str, Told]:
    """The options of several topics. Raises UsageError for topics that are not written alike."""
    told: dict[str, Told] = {"topics": Told(url.topic)}
    for path in dict.fromkeys(path for one in looked.values() for path in one.options):
        each = {table: one.options.get(path, Told(None)) for table, one in looked.items()}
        first = next(iter(each))
        if path == "value.schema":
            unknown = next((table for table, one in each.items() if one.value is None), None)
            why = "guessed from the records of each topic"
            of_tables = {table: one.value for table, one in each.items()}
            told[path] = Told(of_tables, why) if unknown is None else Told(None, each[unknown].why)
        elif path not in ("topic", "bootstrap_servers", "options"):
            other = next((table for table, one in each.items() if one.value != each[first].value), None)
            if other is not None:
                a, b = (f"{each[table].value or 'none'} of {table}" for table in (first, other))
                raise UsageError(
                    f"the topics are not written alike: upstream.{path} is {a}, but {b}",
                    f"write a config for those of one kind: --table {shlex.quote(first)}",
                )
    return told


def _tables_of(named: Named) -> Sequence[str]:
    """The tables of all topics whose names fit. Raises UsageError if there are none."""
    url, written = Url.of(named.text), Url.of(named.written if named.written.startswith(SCHEME) else named.text)
    url.require_listener()
    cluster = Cluster(Connection(_options(replace(url, topic=""))), [], ANSWER_S)
    try:
        with by_url(url, written):
            topics = cluster.topics()
    finally:
        cluster.close()
    fits = re.compile(re.escape(url.topic).replace(re.escape(EACH), "([A-Za-z0-9._-]+)"))
    found = [match[1] for name in topics if (match := fits.fullmatch(name))]
    if not found:
        raise _which(written, topics)
    return found


def look_at_changes(named: Named, snapshot: Looked) -> Looked:
    """What the topic shows about changes of a snapshot's rows."""
    _require_one([one.name for one in snapshot.tables])
    found = _looking(named)
    (table,) = snapshot.tables
    about = forms.About(found.written.topic, table.name, tuple(table.key.value or ()), at="upstream.changes")
    form = form_of(found, about)
    begin = Told(None, 'a time before the snapshot was begun, like "2026-01-31T00:00:00Z"; or earliest')
    said = (found.said, f"{len(found.records):,} read: {form.said}")
    return Looked(snapshot.tables, {**found.options, "from": begin, **form.options}, said)


def _require_one(tables: Sequence[str]) -> None:
    if len(tables) > 1:
        raise UsageError(
            f"a topic fills one table, not {', '.join(tables)}",
            f"name one: --table {tables[0]}; or a topic for each: --from 'kafka://HOST:PORT/shop.{EACH}'",
        )


def _looking(named: Named) -> Looking:
    url, written = Url.typed(named.text, named.written, named.values, "--from")
    url.require_listener()
    connection = Connection(_options(url))
    cluster = Cluster(connection, [url.topic], ANSWER_S)
    try:
        with by_url(url, written):
            if not url.topic or cluster.missing():
                raise _which(written, cluster.topics())
            seen, compacted = cluster.look()[url.topic], cluster.compacted()[url.topic]
            messages = samples.glimpse(connection, url.topic, seen, SAMPLE_S)
    finally:
        cluster.close()
    records = [forms.Record(one.partition(), one.offset(), one.key(), one.value()) for one in messages]
    return Looking(written, url, seen, records, compacted)


def _options(url: Url) -> KafkaOptions:
    told = {"bootstrap_servers": url.servers, "topic": url.topic or "-", "options": dict(url.client)}
    try:
        return KafkaOptions.model_validate({**told, "value": {"format": "bytes"}})
    except ValidationError as error:
        faults = "; ".join(f"{one['loc'][0]}: {one['msg']}" for one in error.errors(include_input=False))
        raise UsageError(f"{url.servers}: {faults}", url.correct) from None


def _which(written: Url, topics: Mapping[str, int]) -> UsageError:
    """The error where no topic is named, or none of that name exists."""
    if not topics:
        return UsageError(f"{written.servers} has no topics that this user may see", "create the topic first")
    names = nearest_first(written.topic, [*topics])
    hint = command(f"init --from {shlex.quote(written.with_topic(names[0]))}")
    if written.topic:
        known = spell_known(written.topic, names, "topics")
        return UsageError(f"{written.servers}: topic '{written.topic}' does not exist{known}", hint)
    listed = [f"  {name}: {spell_count(topics[name], 'partition')}" for name in names[:20]]
    more = [f"  and {len(names) - 20:,} more"] if len(names) > 20 else []
    return UsageError(
        "\n".join([f"{written.servers} has {spell_count(len(names), 'topic')}; which one?", *listed, *more]), hint
    )
