"""The options of a config file, derived from the models: as JSON Schema, and as docs/config.md.

`python -m backfill_cli.config.reference > docs/config.md` writes the page.
"""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from backfill_cli import registry
from backfill_cli.config.sections import JobFile, Table
from backfill_cli.model.units import spell_duration

Schema = dict[str, Any]
Row = tuple[str, str, str, str]


def json_schema() -> Schema:
    """The JSON Schema of the file, with the installed connectors."""
    whole = JobFile.model_json_schema(by_alias=True)
    whole["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    whole["title"] = "backfill job"
    for part in ("upstream", "sink"):
        kinds = [_with_type(kind, model) for kind, model in _options(part)]
        if part == "upstream":
            kinds += [_named(f"{one}+{other}", model) for one, other, model in _two_systems()]
        for kind in kinds:
            whole["$defs"] |= kind.pop("$defs")
        whole["properties"][part] = {"oneOf": kinds}
    return whole


def markdown() -> str:
    """docs/config.md: a table of options for each part of the file."""
    lines = [INTRODUCTION]
    sections = JobFile.model_json_schema(by_alias=True)
    for name, field in sections["properties"].items():
        if name in ("upstream", "sink"):
            for kind, model in _options(name):
                lines += _section(f'[{name}] type = "{kind}"', _with_type(kind, model))
            lines += _of_two_systems() if name == "upstream" else []
        elif name == "tables":
            lines += _section("[[tables]]", Table.model_json_schema(by_alias=True))
        else:
            lines += _section(f"[{name}]", {**_resolved(field, sections), "$defs": sections["$defs"]})
    return "\n".join(lines)


def _options(part: str) -> list[tuple[str, type[BaseModel]]]:
    if part == "upstream":
        return [(kind, registry.upstream(kind).options) for kind in registry.known(registry.UPSTREAMS)]
    return [(kind, registry.sink(kind).options) for kind in registry.known(registry.SINKS)]


def _two_systems() -> list[tuple[str, str, type[BaseModel]]]:
    """(the snapshot's type, the changes' type, the options of both) of every upstream of two systems."""
    return [(one, other, registry.two_systems(one, other).options) for one, other in registry.pairs()]


def _of_two_systems() -> list[str]:
    """A table of options for each side."""
    lines = ["## `[upstream]` of two systems", "", TWO_SYSTEMS]
    for side in ("snapshot", "changes"):
        for kind in registry.known(registry.UPSTREAMS):
            connector = getattr(registry.upstream(kind), side)
            if connector is not None:
                schema = {"$defs": {}, **connector.options.model_json_schema(by_alias=True)}
                schema["properties"] = {"type": schema["properties"]["type"]} | schema["properties"]
                lines += _section(f'[upstream.{side}] type = "{kind}"', schema)
    return lines


def _named(kind: str, model: type[BaseModel]) -> Schema:
    """A model's schema, its parts prefixed with `kind`."""
    schema = model.model_json_schema(by_alias=True, ref_template=f"#/$defs/{kind}.{{model}}")
    schema["$defs"] = {f"{kind}.{name}": inner for name, inner in schema.get("$defs", {}).items()}
    return schema


def _with_type(kind: str, model: type[BaseModel]) -> Schema:
    """A connector's schema with `type` fixed to its name, first."""
    schema = _named(kind, model)
    named = {"const": kind, "type": "string", "description": "Which connector."}
    schema["properties"] = {"type": named} | schema["properties"] | {"type": named}
    schema["required"] = sorted({"type", *schema.get("required", ())})
    return schema


def _section(title: str, schema: Schema) -> list[str]:
    rows = list(_rows(schema, schema, "", {}))
    table = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return [f"## `{title}`", "", "| option | type | default | meaning |", "| --- | --- | --- | --- |", *table, ""]


def _rows(schema: Schema, whole: Schema, prefix: str, defaults: Schema) -> Iterator[Row]:
    """One row per option; the options of a nested table follow with their path.

    defaults: those of this table in its place, which override those of its model.
    """
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        inner = _table(field, whole)
        meaning = field.get("description") or (inner or {}).get("description", "")
        value = defaults.get(name, field.get("default"))
        words = _words(field, whole)
        default = "required" if name in required else "" if inner else _default(value, words)
        yield f"`{prefix}{name}`", words, default, f"{meaning[:1].upper()}{meaning[1:].rstrip('.')}."
        if inner is not None:
            yield from _rows(inner, whole, f"{prefix}{name}.", value or {})


def _table(field: Schema, whole: Schema) -> Schema | None:
    """The schema of a nested table of options; None for a plain value."""
    for choice in (field, *field.get("anyOf", ()), *field.get("allOf", ())):
        found = _resolved(choice, whole)
        if "properties" in found:
            return found
    return None


def _resolved(field: Schema, whole: Schema) -> Schema:
    if "$ref" not in field:
        return field
    found: Schema = whole["$defs"][field["$ref"].removeprefix("#/$defs/")]
    return found


def _default(value: Any, words: str) -> str:
    """A default as TOML writes it; empty if there is none."""
    if value is None or value in ({}, []):
        return ""
    if words == "duration":
        return f'`"{spell_duration(value)}"`'
    return f"`{json.dumps(value)}`"


_WORDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}


def _words(field: Schema, whole: Schema) -> str:
    """A type in plain words."""
    field = _resolved(field, whole)
    if "const" in field:
        return f'`"{field["const"]}"`'
    if "enum" in field:
        return ", ".join(f'`"{value}"`' for value in field["enum"])
    if "anyOf" in field:
        choices = [_words(choice, whole) for choice in field["anyOf"] if choice.get("type") != "null"]
        return " or ".join(dict.fromkeys(choices))
    kind = field.get("type")
    if isinstance(kind, list):
        return "duration"
    if kind == "array":
        return f"list of {_words(field.get('items', {}), whole)}"
    if kind == "object":
        return "table"
    return _WORDS.get(str(kind), "text")


TWO_SYSTEMS = """\
The snapshot may come from one system and the changes from another: leave `type` out of `[upstream]`, and give one
in `[upstream.snapshot]` and in `[upstream.changes]`. You state the position from which the changes continue.
"""

INTRODUCTION = """\
# The config file

A job is one TOML file; `backfill init` writes one to start from, `backfill plan --config job.toml` checks it, and
`backfill config schema` prints this page as JSON Schema. All faults are reported at once, each with its path.

* **duration**: a number of seconds, or with a unit: `"500ms"`, `"1s"`, `"30m"`, `"2h"`, `"1d"`.
* **paths** are relative to the folder where `start` is typed and stored absolute, so `resume` works from anywhere.
* **secrets** in `[upstream]`, `[sink]` and `[spark]` are references, `"${env:NAME}"` or `"${file:/path}"`: the
  reference is stored, the value is read when something connects. An option that holds a secret, or whose name says
  so, accepts only references; a secret in plain text is refused, also inside another value (`token=…`).
* What determines the result cannot change once a job exists: upstream, tables, keys, targets, transforms and sink.
  Options that let a job continue after it met something new can change (`ignore`, `sparse`, `accept_growth`; for
  change files `consecutive`, `columns` and `tables`, and `decimals` and `timestamps` if they were not given
  before). So can `[barrier]`, `[throttle]`, `[catch_up]`, `[retry]`, `[spool]`, `[spark]`, `[hooks]`,
  `job.staging` and a table's `live`. If you change the spool's path, move its folder, too.

This page is written by `python -m backfill_cli.config.reference > docs/config.md`.
"""

if __name__ == "__main__":
    print(markdown(), end="")
