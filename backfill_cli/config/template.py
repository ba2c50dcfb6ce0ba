"""The config that `backfill init` writes: every option of the chosen connectors, explained."""

import json
import re
import textwrap
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

import tomli
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from backfill_cli import registry
from backfill_cli.config.faults import models_in
from backfill_cli.contracts import Looked, Told, UpstreamConnector
from backfill_cli.contracts.options import Example
from backfill_cli.errors import UsageError
from backfill_cli.model.units import nearest_first

FILL_IN = "# <- fill in"
"""After a value that is an example or empty."""

WIDTH = 100


def template(upstream: str, sink: str, looked: Looked | None = None) -> str:
    """A config for an upstream of this type (`files+kafka` for one of two systems) and this sink.

    It has no faults once the marked values are filled in. looked: what is known of the upstream's data; its other
    options then have defaults. Raises UsageError for an unknown type, listing the known ones, nearest first.
    """
    connector = _upstream(upstream)
    told = _part("upstream", None if "+" in upstream else upstream, connector.options)
    sides = upstream.split("+")
    for name, kind in zip(("snapshot", "changes"), sides, strict=False):
        told = told if len(sides) == 1 else _typed(told, f"[upstream.{name}]", kind)
    into = _part("sink", sink, registry.sink(sink).options)
    if looked is None:
        return "\n".join([JOB, told, _table(connector, told), into, REST])
    (found,) = looked.tables
    table = TABLE.replace('"orders"   # <- fill in', json.dumps(found.name))
    key = "\n".join(_told("key", found.key))
    if not found.old_keys:
        table = re.sub(
            "# immutable_key =.*", "\n".join([*_notes(PROMISE), f"immutable_key = false   {FILL_IN}"]), table
        )
    job = JOB.replace('"orders" ', json.dumps(found.name) + " ")
    into = into.replace(f'"   {FILL_IN}', '"') if sink == "duckdb" else into
    return "\n".join([job, _filled(told, looked), table.format(key=key), into, REST])


def _filled(text: str, looked: Looked) -> str:
    """The lines of `[upstream]` with the known options filled in; tables without any are commented out."""
    at, lines = "", []
    for line in text.splitlines():
        header, option = re.fullmatch(r"(?:# )?\[upstream\.?([\w.]*)\]", line), re.match(r"(?:# )?(\w+) =", line)
        if header:
            at = f"{header[1]}." if header[1] else ""
            given = any(name.startswith(at) for name in looked.options)
            lines.append(line.removeprefix("# ") if given else _commented(line))
        elif option and f"{at}{option[1]}" in looked.options:
            lines += _told(option[1], looked.options[f"{at}{option[1]}"])
        else:
            lines.append(_commented(line) if at and option else line)
    return "\n".join(lines) + "\n"


def _told(name: str, told: Told) -> list[str]:
    """An option as it was found, after comments on its source; empty, to be filled in, if it was not found."""
    if told.value is None:
        empty = "[]" if name in ("key", "tables") else '""'
        return [*_notes(told.why), f"{name} = {empty}   {FILL_IN}"]
    if isinstance(told.value, str) and len(told.value) > WIDTH and not {"\\", '"'} & set(told.value):
        columns = told.value.replace(", ", ",\n  ")
        return [*_notes(told.why), f'{name} = """', f"  {columns}", '"""']
    return [*_notes(told.why), f"{name} = {_toml(told.value)}"]


def _notes(text: str) -> list[str]:
    """Comments that mark a guess as one. The text may contain names from outside, with any characters."""
    told = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    return [f"# {part}" for line in told.splitlines() for part in textwrap.wrap(f"-> {line}", WIDTH)]


def kinds() -> tuple[str, ...]:
    """The known types of upstreams, including those of two systems."""
    return (*registry.known(registry.UPSTREAMS), *(f"{one}+{other}" for one, other in registry.pairs()))


def _upstream(kind: str) -> UpstreamConnector:
    if kind not in kinds():
        listed = ", ".join(nearest_first(kind, kinds()))
        raise UsageError(f"unknown upstream type {kind!r}; known: {listed}", "name one of them: --upstream TYPE")
    one, _, other = kind.partition("+")
    return registry.two_systems(one, other) if other else registry.upstream(one)


def _part(name: str, kind: str | None, options: type[BaseModel]) -> str:
    """`[upstream]` or `[sink]`, with its nested tables."""
    own, tables = _options(options, [name])
    lines = [] if kind is None else [f'type = "{kind}"', *own]
    return "\n".join([*([f"[{name}]"] if lines else []), *lines, *tables]).lstrip() + "\n"


def _typed(text: str, header: str, kind: str) -> str:
    """The text, with the type of this side of an upstream of two systems as its first option."""
    return text.replace(f"{header}\n", f'{header}\ntype = "{kind}"\n', 1)


def _options(
    model: type[BaseModel], at: Sequence[str], defaults: BaseModel | None = None
) -> tuple[list[str], list[str]]:
    """The lines of a table's own options, and those of its nested tables: the order that TOML requires.

    defaults: those of the table in its place, which override those of its model.
    """
    own: list[str] = []
    tables: list[str] = []
    for name, field in model.model_fields.items():
        key = field.alias or name
        if key == "type":
            continue
        inner = next(iter(models_in(field.annotation)), None)
        if inner is None:
            default = field.get_default(call_default_factory=True) if defaults is None else getattr(defaults, name)
            own += ["", *_comment(field.description), _option(key, field, default)]
        else:
            tables += _nested(inner, field, [*at, key])
    return own, tables


def _nested(model: type[BaseModel], field: FieldInfo, at: Sequence[str]) -> list[str]:
    """A nested table; commented out as a whole if nothing in it is required."""
    own, tables = _options(model, at, field.default if isinstance(field.default, BaseModel) else None)
    left_out = not field.is_required() and field.default is None and _example(field) is None
    if left_out:
        own, tables = [_commented(line) for line in own], [_commented(line) for line in tables]
    live = any(line and not line.startswith("#") for line in own)
    header = f"[{'.'.join(at)}]"
    return ["", *_comment(field.description), header if live else f"# {header}", *own, *tables]


def _option(key: str, field: FieldInfo, default: Any) -> str:
    """`key = value`: a value to fill in if it is required or mostly given, else its default, commented out."""
    example = _example(field)
    if example is not None:
        return f"{key} = {_toml(example.value)}   {FILL_IN}"
    if field.is_required():
        return f"{key} = {_toml(_first(field.annotation))}   {FILL_IN}"
    return f"# {key} =" if default is None else f"# {key} = {_toml(default)}"


def _example(field: FieldInfo) -> Example | None:
    return next((mark for mark in field.metadata if isinstance(mark, Example)), None)


def _first(kind: Any) -> Any:
    """An initial value of this type: the first of a choice, else the type's empty value."""
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    return {int: 0, float: 0.0, bool: False, list: [], dict: {}}.get(get_origin(kind) or kind, "")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        pairs = ", ".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(one) for one in value)}]"
    return json.dumps(value, ensure_ascii=False)


def _comment(text: str | None) -> list[str]:
    told = (text or "").replace("`", "").rstrip(".")
    return [f"# {line}" for line in textwrap.wrap(f"{told[:1].upper()}{told[1:]}.", WIDTH)] if told else []


def _commented(line: str) -> str:
    return line if not line or line.startswith("#") else f"# {line}".removesuffix(f"   {FILL_IN}")


def _table(connector: UpstreamConnector, told: str) -> str:
    """`[[tables]]`; the key is commented out if the upstream knows it."""
    options = {key: value for key, value in tomli.loads(told)["upstream"].items() if key != "type"}
    known = connector.primary_keys is not None or connector.event_key(connector.options.model_validate(options))
    key = '# key = ["id"]                        # default: what identifies a row upstream' if known else KEY
    return TABLE.format(key=key)


KEY = f'key = ["id"]   {FILL_IN}: the columns that identify a row'

PROMISE = "these changes do not send the old key with a key change: true promises that keys never change"

JOB = """\
# A backfill job. Check it:   backfill plan --config job.toml
# Run it:                     backfill start --config job.toml
# Every option:               backfill config schema, and docs/config.md
# Secrets are written as references, never as values: "${env:NAME}" or "${file:/path}".

[job]
name = "orders"                      # in the catalog and in commands: a-z, 0-9, _ and -
# strategy = "auto"                  # auto chooses; plan says which and why
# staging = ".backfill/staging"      # on a cluster, driver, executors and sink must share it
"""

TABLE = f"""\
[[tables]]                           # one per table; with several, file paths contain {{{{table}}}}
name = "orders"   {FILL_IN}
{{key}}
# target = "main.orders"             # the sink's table; default: the name
# immutable_key = false              # true promises that keys never change, for logs without the old key
"""

REST = """\
# [transform]                        # Spark SQL over one row; [tables.transform] replaces it for one table
# select = ["id", "upper(status) AS status", "amount"]   # key columns stay unchanged, renamed at most
# where = "amount > 0"               # a row that no longer meets it is deleted from the sink

# [barrier]
# interval = "1s"                    # shortest time between barriers when live
# target = "5s"                      # how long staging an epoch should take when behind

# [throttle]
# rate = 20000                       # rows per second of snapshot reads; later: backfill throttle --rate 500

# [catch_up]
# measure = "time"                   # time | barriers

# [spool]                            # only with strategy = "chain": where taken changes are kept
# path = ".backfill/spool"           # on a disk, not in /tmp
# max_size = "50GB"

# [hooks]
# on = ["failed", "quarantined"]     # also caught-up, done, lagging, paused, resumed, stopped
# max_lag = "5m"                     # over this the job is lagging; only with that event
# command = ["./notify.sh"]          # gets the event as JSON on stdin; ./ is this file's folder
# timeout = "30s"

# [retry]
# limit = "10m"                      # how long a temporary failure is retried

# [spark]
# master = "local[*]"                # or remote = "sc://host:15002"
# conf = { "spark.driver.memory" = "2g" }
"""
