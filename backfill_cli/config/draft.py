"""A job between two places that a user names: which connectors they mean, and what is found there."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from backfill_cli import registry
from backfill_cli.config.connectors import options_of
from backfill_cli.config.paths import absolute_reference, relative_path
from backfill_cli.config.secrets import HOW, IN_PATH, OF_PATH, reference_value, resolve
from backfill_cli.config.sections import JOB_NAME
from backfill_cli.contracts import FoundTable, Looked, Named, SinkConnector, Told, UpstreamConnector
from backfill_cli.contracts.options import FilePath
from backfill_cli.errors import ConfigError, UsageError, command
from backfill_cli.model.secret_forms import REFERENCE, holds_secret

FILES, DUCKDB = "files", "duckdb"
"""What a config is for if nobody says more."""

WAREHOUSE = "warehouse.duckdb"
_OF_PATHS = ("", FILES, DUCKDB)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_STORE = re.compile(r"(s3a?|gs|abfss?|wasbs?|adl|hdfs|https?|file)://", re.IGNORECASE)
"""How a place in a file system begins: its secrets are the file system's."""

_SETTINGS = re.compile(r"\s*\w+\s*=")
"""How a place begins that is no path and no URL: `host=db dbname=shop`."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a user typed: places, or the types of both sides if the config is to be filled in.

    tables, key, name: empty if the data is to show them.
    """

    source: str | None = None
    changes: str | None = None
    to: str | None = None
    upstream: str = FILES
    sink: str = DUCKDB
    tables: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """What is known of a job before it has a config.

    upstream: a type, or two of them, `files+kafka`. looked: what its data shows; None if it was not looked at.
    into: the options of the sink that are known. said: what was found, for a person. words: those that ask for the
    same config, its places as the config has them.
    """

    upstream: str
    sink: str
    name: str
    looked: Looked | None = None
    into: Mapping[str, Told] = field(default_factory=dict)
    said: Sequence[str] = ()
    words: tuple[str, ...] = ()

    @property
    def gaps(self) -> list["Gap"]:
        """What could not be determined."""
        if self.looked is None:
            return []
        keys = [(f"the key of table {table.name!r}", table.key, True) for table in self.looked.tables]
        options = [(f"upstream.{path}", told, False) for path, told in self.looked.options.items()]
        promises = [
            (f"whether keys of table {table.name!r} change", Told(None, PROMISE), False)
            for table in self.looked.tables
            if not table.old_keys
        ]
        found = (*keys, *options, *promises)
        return [Gap(what, told.why, is_key, told.example) for what, told, is_key in found if told.value is None]


@dataclass(frozen=True, slots=True)
class Gap:
    """what: the option, or the key. why: what was looked at. example: see `Told`."""

    what: str
    why: str
    is_key: bool
    example: str = ""


PROMISE = "these changes do not send the old key with a key change: true promises that keys never change"


def words_of(asked: Asked, folder: Path) -> tuple[str, ...]:
    """The words after `init` that ask for this, its places as a config in the folder has them, without secrets."""
    places = {"--from": asked.source, "--changes": asked.changes, "--to": asked.to}
    words = [(option, _place(option, text, folder).asked) for option, text in places.items() if text is not None]
    words += [("--table", name) for name in asked.tables]
    words += [("--key", ",".join(asked.key))] * bool(asked.key) + [("--name", asked.name)] * bool(asked.name)
    words += [("--upstream", asked.upstream)] * (asked.source is None and asked.upstream != FILES)
    words += [("--sink", asked.sink)] * (asked.to is None and asked.sink != DUCKDB)
    return tuple(word for pair in words for word in pair)


def drafted(asked: Asked, folder: Path) -> Draft:
    """What a config in this folder can say of the job. Raises UsageError for places that do not fit."""
    _require_source(asked)
    sink, into, of_sink = _sink(asked, folder)
    if asked.source is None:
        return Draft(asked.upstream, sink, asked.name or "orders", None, into, of_sink, words_of(asked, folder))
    upstream, looked = _upstream(asked, _place("--from", asked.source, folder), folder)
    name = asked.name or _job_name(looked.tables)
    if sink == DUCKDB and asked.to is None:
        into = {"path": Told(WAREHOUSE)}
    said = (*looked.said, *of_sink)
    return Draft(upstream, sink, name, looked, into, said, words_of(asked, folder))


def _require_source(asked: Asked) -> None:
    if asked.name and not JOB_NAME.fullmatch(asked.name):
        raise UsageError(
            f"--name {asked.name!r}: a job's name is 1 to 63 characters of a-z, 0-9, _ and -, the first no -",
            "--name orders",
        )
    for option, kind, place in (("--upstream", asked.upstream, asked.source), ("--sink", asked.sink, asked.to)):
        if place is not None and kind not in (FILES, DUCKDB):
            raise UsageError(
                f"{option} is for a config without a place, and a place shows its type itself",
                f"leave {option} out; or name type and place in one: {kind}:PLACE",
            )
    given = {"--changes": asked.changes, "--table": asked.tables, "--key": asked.key}
    if asked.source is None and (lone := [option for option, value in given.items() if value]):
        raise UsageError(f"{lone[0]} needs the place of the data", "add --from PLACE, where the data is")


@dataclass(frozen=True, slots=True)
class _Place:
    """kind: the type that the text begins with; empty if it names none. is_path: whether it is a local path.

    values: those of the references in `written`.
    """

    kind: str
    text: str
    written: str
    is_path: bool = False
    values: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def asked(self) -> str:
        """As it can be typed again."""
        return f"{self.kind}:{self.written}" if self.kind and not _URL.match(self.written) else self.written

    def of(self, kind: str) -> Named:
        """For a connector of this type: the folder of a lake's table is written with a `/`, which no name has."""
        is_folder = self.is_path and kind not in (FILES, DUCKDB) and "/" not in self.written
        return Named(self.text, f"./{self.written}" if is_folder else self.written, values=self.values)


def _place(option: str, typed: str, folder: Path) -> _Place:
    """The place of a text: secrets resolved in `text`, kept out of `written`, whose path is relative to `folder`.

    Raises UsageError for a reference that cannot be resolved, and for a secret that no variable holds.
    """
    kind, rest = "", typed
    begin = re.match(r"([a-z][a-z0-9_-]*):(?!//)", typed)
    if begin is not None and begin[1] in {*registry.known(registry.UPSTREAMS), *registry.known(registry.SINKS)}:
        kind, rest = begin[1], typed[begin.end() :]
    if not rest:
        raise UsageError(f"{option} {typed!r} names no place", f"name a path or a URL: {option} data/orders")
    if "\0" in rest or any(0xD800 <= ord(char) <= 0xDFFF for char in rest):
        raise UsageError(f"{option}: the name cannot be written into a config: it is no UTF-8 text", "rename it")
    if folder != Path.cwd():
        rest = REFERENCE.sub(lambda found: absolute_reference(found, Path.cwd()), rest)
    values = {found[0]: _resolved(found) for found in REFERENCE.finditer(rest)}
    text = REFERENCE.sub(lambda found: values[found[0]], rest)
    if _STORE.match(text) and holds_secret(text):
        raise UsageError(f"{option}: the URL {IN_PATH}", OF_PATH)
    written = _without_secret(option, kind, rest)
    if written != rest or _URL.match(text) or (values and _SETTINGS.match(text)) or _is_name(kind, text):
        return _Place(kind, text, written, values=values)
    return _Place(kind, os.path.expanduser(text), relative_path(rest, folder, text), is_path=True, values=values)


def _is_name(kind: str, text: str) -> bool:
    """Whether it is a name in a catalog, or settings of a client, and no path."""
    if kind in _OF_PATHS or os.path.lexists(text):
        return False
    name = text.partition("?")[0]  # properties of its catalog may follow
    return _SETTINGS.match(text) is not None or ("." in name and "/" not in name)


def _resolved(found: re.Match[str]) -> str:
    try:
        return reference_value(found[1], found[2] or "")
    except LookupError as error:
        raise UsageError(f"{found[0]}: {error.args[0]}", "correct it, or name the place itself") from None


def _without_secret(option: str, kind: str, place: str) -> str:
    """The place if it can be stored, else a reference to the variable that holds it."""
    if not holds_secret(place):
        return place
    if "?" in place and not _URL.match(place):  # properties of a catalog, each of which has a place of its own
        raise UsageError(f"{option}: a property in it is a secret, which would be stored in the config", HOW)
    variable = next((name for name, value in os.environ.items() if value == place), None)
    if variable is not None:
        return f"${{env:{variable}}}"
    what = "URL" if _URL.match(place) else "text"
    begin = f"{kind}:" if kind and what != "URL" else ""
    variable = "WAREHOUSE_URL" if option == "--to" else "SOURCE_URL"
    raise UsageError(
        f"{option}: the {what} holds a password, which would be stored in the config",
        f"put the {what} into a variable, and name that: {option} '{begin}${{env:{variable}}}'; or leave the "
        "password out: PostgreSQL's client finds it in PGPASSWORD or ~/.pgpass",
    )


# -- the upstream -------------------------------------------------------------------------------------------------


def _upstream(asked: Asked, place: _Place, folder: Path) -> tuple[str, Looked]:
    """The type of the upstream, and what its data shows."""
    kind, connector = _reader(place)
    named = replace(place.of(kind), tables=asked.tables, key=asked.key)
    if connector.look is None:
        raise UsageError(
            f"the data of an upstream of type {kind} cannot be looked at",
            command(f"init --upstream {shlex.quote(kind)}"),
        )
    if asked.changes is None:
        return kind, connector.look(named)
    changes = _place("--changes", asked.changes, folder)
    other, log = _reader(changes)
    if other == kind:
        return kind, connector.look(replace(named, changes=changes.of(kind)))
    registry.two_systems(kind, other)
    assert log.changes is not None
    if log.changes.look is None:
        raise UsageError(
            f"changes of type {other} cannot be looked at", command(f"init --upstream {kind}+{shlex.quote(other)}")
        )
    held = connector.look(named)
    found = log.changes.look(changes.of(other), held)
    options = {**held.options, **{f"changes.{path}": told for path, told in found.options.items()}}
    return f"{kind}+{other}", Looked(found.tables, options, (*held.said, *found.said), {**held.conf, **found.conf})


def _reader(place: _Place) -> tuple[str, UpstreamConnector]:
    """The upstream that reads a place: by its type, its form, or what lies there; files if nothing says more."""
    if place.kind:
        return place.kind, registry.upstream(place.kind)
    for kind in registry.known(registry.UPSTREAMS):
        if (connector := registry.upstream(kind)).claims(place.text):
            return kind, connector
    if holds_secret(place.text):  # no name of a file: what is said of those shows them
        raise UsageError(
            f"{place.written}: what it refers to does not show its type",
            f"name the type, too: --from {shlex.quote(f'TYPE:{place.written}')}",
        )
    return FILES, registry.upstream(FILES)


def _job_name(tables: Sequence[FoundTable]) -> str:
    """From the name of the first table, without its schema."""
    name = re.sub(r"[^a-z0-9_-]+", "_", tables[0].name.rpartition(".")[2].lower()).strip("_-")[:63]
    return name or "job"


# -- the sink -----------------------------------------------------------------------------------------------------


def _sink(asked: Asked, folder: Path) -> tuple[str, Mapping[str, Told], Sequence[str]]:
    """The type of the sink, its options that the place says, and what there is to say of it."""
    if asked.to is None:
        return asked.sink, {}, ()
    place = _place("--to", asked.to, folder)
    kind, connector = _writer(place)
    assert connector.place is not None
    faults: list[str] = []
    named = place.of(kind)
    told = {connector.place: named.written} if connector.placed is None else connector.placed(named)
    options = options_of("sink", {"type": kind, **told}, faults, None)
    if options is None:
        raise ConfigError(f"--to {place.asked}", faults, "correct it")
    said = () if connector.look is None else connector.look(resolve(options, "sink"))
    return kind, {name: Told(value) for name, value in told.items()}, said


def _writer(place: _Place) -> tuple[str, SinkConnector]:
    """The sink of a place, by its type or its form. Raises UsageError if neither shows it."""
    sinks = {kind: registry.sink(kind) for kind in registry.known(registry.SINKS)}
    able = {kind: connector for kind, connector in sinks.items() if connector.place is not None}
    if place.kind:
        if place.kind not in able:
            raise UsageError(
                f"a sink of type {place.kind} cannot be named by its place", command(f"init --sink {place.kind}")
            )
        return place.kind, able[place.kind]
    for kind, connector in able.items():
        if connector.claims(place.text):
            return kind, connector
    forms = [f"--to {shlex.quote(f'{kind}:{place.written}')}" for kind, one in able.items() if _in_files(one)]
    raise UsageError(
        f"--to {place.written}: it does not show what it is to be",
        "name the type, too: " + ", or ".join(forms) + "; or a database: --to postgresql://host/database; or a "
        "cluster of Kafka: --to kafka://host:9092",
    )


def _in_files(connector: SinkConnector) -> bool:
    marks = connector.options.model_fields[connector.place or ""].metadata
    return any(isinstance(mark, FilePath) for mark in marks)
