"""The config that `backfill init` writes: what a first job needs, or every option of its connectors, explained."""

import json
import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

import tomli
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from backfill_cli import registry
from backfill_cli.config.draft import PROMISE, Draft
from backfill_cli.config.faults import models_in
from backfill_cli.config.toml import spell_value
from backfill_cli.contracts import FoundTable, Told, UpstreamConnector
from backfill_cli.contracts.options import Example
from backfill_cli.errors import UsageError
from backfill_cli.model.units import spell_known

FILL_IN = "# <- fill in"
"""After a value that is an example or empty."""

WIDTH = 100
_COLUMN, _SAID_AT_MOST, _NOTES_AT_MOST = 36, 60, 4
"""Where a comment after an option begins, and how long it may be; how many lines say what a guess is based on."""


def template(draft: Draft, full: bool = False) -> str:
    """The config of a job. full: with every option of its upstream and its sink.

    It has no faults once the marked values are filled in. Raises UsageError for an unknown type, listing the known
    ones, nearest first.
    """
    connector = _upstream(draft.upstream)
    sides = draft.upstream.split("+")
    types = dict(zip(("snapshot", "changes"), sides, strict=False)) if len(sides) > 1 else {}
    known = None if draft.looked is None else draft.looked.options
    part = _Part("upstream", connector.options, known, full, types)
    told = part.written(None if types else draft.upstream)
    into = _Part("sink", registry.sink(draft.sink).options, draft.into or None, full).written(draft.sink)
    if draft.looked is None:
        tables = [_table(connector, told, full)]
    else:
        tables = [_found(table, full) for table in draft.looked.tables]
    conf = _spark_conf({} if draft.looked is None else draft.looked.conf)
    rest = REST if full else SHORT_REST
    name = f"name = {json.dumps(draft.name)}".ljust(_COLUMN)
    job = (JOB if full else SHORT_JOB).replace('name = "orders"'.ljust(_COLUMN), name)
    return "\n".join([begin(draft.words), job, told, *tables, into, *conf, rest])


def begin(words: Sequence[str]) -> str:
    """The first line, which says what asked for this config. words: what followed `init`."""
    asked = shlex.join(("backfill", "init", *words))
    return f"# Written by: {asked if asked.isprintable() else asked.encode('unicode_escape').decode()}"


def kinds() -> tuple[str, ...]:
    """The known types of upstreams, including those of two systems."""
    return (*registry.known(registry.UPSTREAMS), *(f"{one}+{other}" for one, other in registry.pairs()))


def _upstream(kind: str) -> UpstreamConnector:
    if kind not in kinds():
        known = spell_known(kind, kinds(), "known")
        raise UsageError(f"unknown upstream type {kind!r}{known}", "name one of them: --upstream TYPE")
    one, _, other = kind.partition("+")
    return registry.two_systems(one, other) if other else registry.upstream(one)


@dataclass(frozen=True, slots=True)
class _Part:
    """`[upstream]` or `[sink]` and its nested tables.

    known: options by their path below it; None if nothing is known, and examples stand for them. types: the type
    of each side of an upstream of two systems.
    """

    name: str
    options: type[BaseModel]
    known: Mapping[str, Told] | None
    full: bool
    types: Mapping[str, str] | None = None

    def written(self, kind: str | None) -> str:
        own, tables = self._options(self.options, ())
        lines = [] if kind is None else [f"[{self.name}]", f'type = "{kind}"', *own]
        return "\n".join([*lines, *tables]).lstrip() + "\n"

    def _options(
        self, model: type[BaseModel], at: Sequence[str], defaults: BaseModel | None = None
    ) -> tuple[list[str], list[str]]:
        """The lines of a table's own options, and those of its nested tables: the order that TOML requires.

        defaults: those of the table in its place, which override those of its model.
        """
        own: list[str] = []
        tables: list[str] = []
        for name, field in model.model_fields.items():
            key = field.alias or name
            inner = next(iter(models_in(field.annotation)), None)
            if inner is not None:
                tables += self._nested(inner, field, (*at, key))
            elif key != "type":
                unset = field.get_default(call_default_factory=True)
                own += self._option((*at, key), field, unset if defaults is None else getattr(defaults, name))
        return own, tables

    def _nested(self, model: type[BaseModel], field: FieldInfo, at: Sequence[str]) -> list[str]:
        """A nested table; commented out as a whole, or left out, if nothing in it is required or known."""
        own, tables = self._options(model, at, field.default if isinstance(field.default, BaseModel) else None)
        if self.known is None:
            left_out = not field.is_required() and field.default is None and _example(field) is None
        else:
            left_out = not any(path.startswith(f"{'.'.join(at)}.") for path in self.known)
        if left_out:
            own, tables = [_commented(line) for line in own], [_commented(line) for line in tables]
        live = any(line and not line.startswith("#") for line in own)
        header = f"[{'.'.join((self.name, *at))}]"
        if not self.full:
            if not live:
                return tables
            header = _beside(header, field.description)[0]
        side = [f'type = "{self.types[at[0]]}"'] if self.types and len(at) == 1 else []
        above = _comment(field.description) if self.full else []
        return ["", *above, header if live else f"# {header}", *side, *own, *tables]

    def _option(self, at: Sequence[str], field: FieldInfo, default: Any) -> list[str]:
        """An option that is known or to be filled in; in a full config also one that has a default, commented."""
        key, example = at[-1], _example(field)
        told = None if self.known is None else self.known.get(".".join(at))
        if told is not None:
            lines = _told(key, told, self.full)
        elif field.is_required() or (self.known is None and example is not None):
            value = _first(field.annotation) if example is None else example.value
            lines = [f"{key} = {spell_value(value)}   {FILL_IN}"]
        elif self.full:
            lines = [f"# {key} =" if default is None else f"# {key} = {spell_value(default)}"]
        else:
            return []
        if self.full:
            return ["", *_comment(field.description), *lines]
        return [*lines[:-1], *_beside(lines[-1], field.description)] if "=" in lines[-1] else lines


def _beside(line: str, description: str | None) -> list[str]:
    """The line with what its description begins with, after it or, if there is no room, above it."""
    said = re.split(r"[;:](?: |$)|\. |\.$", (description or "").replace("`", ""), maxsplit=1)[0]
    said = said if len(said) <= _SAID_AT_MOST else re.split(r"[,(]", said, maxsplit=1)[0].strip()
    said = f"{said[:1].lower()}{said[1:]}" if said[1:2].islower() else said
    if not said or FILL_IN in line:
        return [f"{line}: {said}" if said else line]
    return [f"# {said}", line] if len(line) > _COLUMN else [f"{line:<{_COLUMN}} # {said}"]


def _told(name: str, told: Told, full: bool = True) -> list[str]:
    """An option as it was found, after comments on its source; empty, to be filled in, if it was not found."""
    notes = _notes(told.why)
    if not full and len(notes) > _NOTES_AT_MOST:
        notes = [
            *notes[: _NOTES_AT_MOST - 1],
            f"# -> and {len(notes) - _NOTES_AT_MOST + 1} lines more: init --full",
        ]
    if told.value is None:
        empty = "[]" if name in ("key", "tables") else '""'
        return [*notes, f"{name} = {empty}   {FILL_IN}"]
    return [*notes, *(_folded(name, told.value) or [f"{name} = {spell_value(told.value)}"])]


def _folded(name: str, value: Any) -> list[str]:
    """A long text on several lines, each of which ends with TOML's mark that the next one continues it; none for a
    text that would not be the same when it is read."""
    if not isinstance(value, str) or not value.isprintable() or {"\\", '"'} & set(value):
        return []
    *lines, last = textwrap.wrap(value, WIDTH, break_long_words=False, break_on_hyphens=False) or [""]
    if not lines or " ".join((*lines, last)) != value:
        return []
    return [f'{name} = """\\', *(f"  {line} \\" for line in lines), f'  {last}"""']


def _notes(text: str) -> list[str]:
    """Comments that mark a guess as one. The text may contain names from outside, with any characters."""
    told = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    return [f"# {part}" for line in told.splitlines() for part in textwrap.wrap(f"-> {line}", WIDTH)]


def _example(field: FieldInfo) -> Example | None:
    return next((mark for mark in field.metadata if isinstance(mark, Example)), None)


def _first(kind: Any) -> Any:
    """An initial value of this type: the first of a choice, else the type's empty value."""
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    return {int: 0, float: 0.0, bool: False, list: [], dict: {}}.get(get_origin(kind) or kind, "")


def _comment(text: str | None) -> list[str]:
    told = (text or "").replace("`", "").rstrip(".")
    return [f"# {line}" for line in textwrap.wrap(f"{told[:1].upper()}{told[1:]}.", WIDTH)] if told else []


def _commented(line: str) -> str:
    return line if not line or line.startswith("#") else f"# {line}".removesuffix(f"   {FILL_IN}")


# -- tables, and what both forms have beside the connectors' options ----------------------------------------------


def _table(connector: UpstreamConnector, told: str, full: bool) -> str:
    """`[[tables]]`, to be filled in; the key is commented out if the upstream knows it."""
    options = {key: value for key, value in tomli.loads(told)["upstream"].items() if key != "type"}
    known = connector.primary_keys is not None or connector.event_key(connector.options.model_validate(options))
    key = '# key = ["id"]                        # default: what identifies a row upstream' if known else KEY
    return _of_table(f'"orders"   {FILL_IN}', [key], [NO_PROMISE] * full, full)


def _found(table: FoundTable, full: bool) -> str:
    key = _notes(table.key.why) if table.key.value == () else _told("key", table.key, full)
    if table.key.value:
        key = [*key[:-1], f"{key[-1]:<{_COLUMN}} # {IDENTIFIES}"]
    elif table.key.value is None:
        key = [*key[:-1], f"{key[-1]}: {IDENTIFIES}"]
    asked = [*_notes(PROMISE), f"immutable_key = false   {FILL_IN}"]
    return _of_table(spell_value(table.name), key, [NO_PROMISE] * full if table.old_keys else asked, full)


def _of_table(name: str, key: Sequence[str], promise: Sequence[str], full: bool) -> str:
    header = "[[tables]]                           # one per table; with several, file paths contain {table}"
    target = '# target = "main.orders"             # the sink\'s table; default: the name'
    lines = [header if full else "[[tables]]", f"name = {name}", *key, *([target] * full), *promise]
    return "\n".join([*lines, ""])


def _spark_conf(conf: Mapping[str, Told]) -> Iterator[str]:
    """`[spark.conf]`, if something is known to belong there."""
    if conf:
        lines = [line for key, told in conf.items() for line in _told(json.dumps(key), told)]
        yield "\n".join(["[spark.conf]", *lines, ""])


IDENTIFIES = "the columns that identify a row"
KEY = f'key = ["id"]   {FILL_IN}: {IDENTIFIES}'

JOB = """\
# A backfill job. Check it:   backfill plan --config job.toml
# Run it:                     backfill start --config job.toml
# Every option:               backfill config schema, and docs/config.md
# Secrets are written as references, never as values: "${env:NAME}" or "${file:PATH}".
# Paths are relative to this file's folder.

[job]
name = "orders"                      # in the catalog and in commands: a-z, 0-9, _ and -
# strategy = "auto"                  # auto chooses; plan says which and why
# staging = ".backfill/staging"      # on a cluster, driver, executors and sink must share it
"""

SHORT_JOB = """\
# To check it: backfill plan --config job.toml      To run it: backfill start --config job.toml
# Paths are relative to this file's folder. All options: backfill init --full, or docs/config.md

[job]
name = "orders"                      # in commands: backfill status NAME
"""

NO_PROMISE = "# immutable_key = false              # true: keys never change; for logs without the old key"

SHORT_REST = """\
# [transform]                        # change columns or leave out rows, in Spark SQL over one row
# select = ["id", "upper(status) AS status", "amount"]
# where = "amount > 0"
"""

REST = """\
# [transform]                        # Spark SQL over one row; [tables.transform] replaces it for one table
# select = ["id", "upper(status) AS status", "amount"]   # key columns stay unchanged, renamed at most
# where = "amount > 0"               # a row that no longer meets it is deleted from the sink

# [barrier]
# interval = "1s"                    # shortest time between commits when live
# target = "5s"                      # how long staging one commit should take when behind

# [throttle]
# rate = 20000                       # rows per second of snapshot reads; later: backfill throttle --rate 500
# finish_by = "06:00"                # no faster than needed to have read the snapshot by then
# floor = 1000                       # rows per second; finish_by does not slow the reading below it

# [spool]                            # only with strategy = "chain": where taken changes are kept
# path = ".backfill/spool"           # on a disk, not in /tmp
# max_size = "50GB"

# [hooks]
# on = ["failed", "quarantined"]     # also snapshot-read, caught-up, done, lagging, …
# max_lag = "5m"                     # over this the job is lagging; only with that event
# min_headroom = "2h"                # below this it has low-headroom; only with that event
# command = ["./notify.sh"]          # gets the event as JSON on stdin; ./ is this file's folder
# timeout = "30s"

# [[guards]]                         # holds the job before its source or machine suffers
# name = "disk"
# kind = "free-disk"                 # also sql, replication-lag, sessions, load, window, lag
# limit = "20GB"                     # less than this: the job pauses, until there is a quarter more
# rate = 500                         # instead of the pause: rows per second of snapshot reads

# [retry]
# limit = "10m"                      # how long a temporary failure is retried

# [spark]
# master = "local[*]"                # or remote = "sc://host:15002"
# conf = { "spark.driver.memory" = "2g" }
"""
