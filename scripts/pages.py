"""Prints a page of docs/ that is derived from the code: `python scripts/pages.py config > docs/config.md`.

config: the options, from the models. catalog: the tables, from the comments in the migrations. json: what `--json`
prints, from the types of the answers. commands: what `--help` says of each.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from backfill_cli import registry
from backfill_cli.catalog.store import shipped_migrations
from backfill_cli.config.derived import DerivedSection
from backfill_cli.config.schema import Schema, options_by_type, with_type
from backfill_cli.config.sections import GuardSection, JobFile, Table
from backfill_cli.manual import files
from backfill_cli.model.units import duration_option
from backfill_cli.view import schemas
from backfill_cli.view.help import COMMON
from backfill_cli.view.help import Row as HelpRow

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Row = tuple[str, str, str, str]


def config() -> str:
    """docs/config.md: a table of options for each part of the file."""
    lines = [INTRODUCTION]
    sections = JobFile.model_json_schema(by_alias=True)
    for name, field in sections["properties"].items():
        if name in ("upstream", "sink"):
            for kind, model in options_by_type(name):
                lines += _section(f'[{name}] type = "{kind}"', with_type(kind, model))
            lines += _of_two_systems() if name == "upstream" else []
        elif name == "tables":
            lines += _section("[[tables]]", Table.model_json_schema(by_alias=True))
        elif name == "derived":
            lines += _section("[[derived]]", DerivedSection.model_json_schema(by_alias=True))
        elif name == "guards":
            lines += _section("[[guards]]", GuardSection.model_json_schema(by_alias=True))
        else:
            lines += _section(f"[{name}]", {**_resolved(field, sections), "$defs": sections["$defs"]})
    return "\n".join(lines)


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
        return f'`"{duration_option(value)}"`'
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
* **paths** are relative to the config's folder (for a config from a pipe, to the current folder), and so is the
  default place of the catalog, `.backfill/catalog.duckdb`. They are stored absolute, so `resume` works from
  anywhere. This holds for `${file:PATH}` and for a Kafka client's files, too; paths in a connection string or in
  `[spark.conf]` are passed on as they are. A reference at the beginning of a path holds an absolute one: one below
  the config's folder is `"./${env:NAME}/orders"`.
* **secrets** in `[upstream]`, `[sink]` and `[spark]` are references, `"${env:NAME}"` or `"${file:/path}"`: the
  reference is stored, the value is read when something connects. An option that holds a secret, or whose name says
  so, accepts only references; a secret in plain text is refused, also inside another value (`token=…`). A path
  holds none, not even by a reference: no signed URL (SAS, presigned), no `user:password@`.
* What determines the result cannot change once a job exists: upstream, tables, keys, targets, transforms, derived
  tables and sink.
  Options that let a job continue after it met something new can change (`ignore`, `sparse`, `accept_growth`; for
  change files `consecutive`, `columns` and `tables`, and `decimals` and `timestamps` if they were not given
  before). So can `[barrier]`, `[throttle]`, `[catch_up]`, `[retry]`, `[spool]`, `[spark]`, `[hooks]`,
  `[[guards]]`, `job.staging`, and a table's `live` and `rate`. If you change the spool's path, move its folder.

This page is written by `python scripts/pages.py config > docs/config.md`.
"""


def catalog() -> str:
    """Markdown: a section per table, a row per column. Reads the migrations, not a catalog."""
    import duckdb

    with duckdb.connect(":memory:") as db:
        for script in shipped_migrations():
            db.execute(script)
        tables = db.execute(
            "SELECT table_name, comment FROM duckdb_tables() WHERE NOT internal ORDER BY table_oid"
        ).fetchall()
        sections = [_catalog_table(db, name, comment) for name, comment in tables]
    return "\n".join([CATALOG, *sections])


def _catalog_table(db: "DuckDBPyConnection", table: str, comment: str | None) -> str:
    columns = db.execute(
        """SELECT column_name, lower(data_type), is_nullable, comment FROM duckdb_columns()
           WHERE table_name = ? ORDER BY column_index""",
        [table],
    ).fetchall()
    lines = [f"## {table}", "", comment or "", "", "| column | type | what |", "| --- | --- | --- |"]
    for name, kind, nullable, what in columns:
        lines.append(f"| `{name}` | {kind}{', or NULL' if nullable else ''} | {what or ''} |")
    return "\n".join([*lines, ""])


CATALOG = """# The catalog

<!-- Written by `python scripts/pages.py catalog > docs/catalog.md`; a test checks it. -->

`backfill` keeps the state of its jobs in one small DuckDB file: `--catalog`, else `BACKFILL_CATALOG`, else
`.backfill/catalog.duckdb`. It holds no secrets and none of your rows. Every access opens it for milliseconds, so
you can query it while jobs run. DuckDB lets one process at a time open the file: close your own session soon,
because the jobs wait for it.

```
duckdb -readonly .backfill/catalog.duckdb -c "
  SELECT make_timestamp_ms(committed_ms) AS at, rows_written, lag_ms FROM ledger WHERE job = 'orders' ORDER BY at"
```

Do not change anything in it: use the commands (`backfill pause`, `throttle`, `resume`, `stop`). Times are
milliseconds since 1970, UTC.

Beside `catalog.duckdb` are `.lock` and `.queue` (which decide who opens it next), `.JOB.runner` (locked while a
runner has the job), `.wake` (written by each command) and, after an upgrade, `.v1`, `.v2`, … (copies of the older
file). The logs of the runners are in the same folder, in `logs/JOB.log`.
"""


def answers() -> str:
    """docs/json.md: what prints each answer, and what is in it; then the parts that several answers have."""
    lines, parts = [ANSWERS_INTRODUCTION], {}
    for name, (_, by) in schemas.ANSWERS.items():
        schema = schemas.schema(name)
        parts |= schema.pop("$defs")
        lines += [f"## Answer `{name}`", "", f"Printed by: {by}. {_of_class(schema)}"]
    lines += ["## Parts", ""]
    for name, part in sorted(parts.items()):
        lines += [f"### {name}", "", _of_class(part)]
    return "\n".join(lines)


def _of_class(schema: Schema) -> str:
    said = " ".join(schema.get("description", "").split())
    if "enum" in schema:
        return f"{said}{' ' if said else ''}One of {', '.join(f'`{one}`' for one in schema['enum'])}.\n"
    rows = (f"| `{name}` | {_shape(one)} |" for name, one in schema["properties"].items())
    return "\n".join([said, "", "| field | type |", "| --- | --- |", *rows, ""])


def _shape(schema: Schema) -> str:
    """A type in JSON's words."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return f"[{name}](#{name.lower()})"
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema:
        return " or ".join(map(_shape, schema["anyOf"]))
    if "prefixItems" in schema:
        return f"\\[{', '.join(map(_shape, schema['prefixItems']))}\\]"
    if schema.get("type") == "array":
        return f"array of {_shape(schema['items'])}"
    if "additionalProperties" in schema:
        return f"object: {_shape(schema['propertyNames'])} → {_shape(schema['additionalProperties'])}"
    return schema.get("type", "any")


ANSWERS_INTRODUCTION = """# JSON output

<!-- Written by `python scripts/pages.py json > docs/json.md`; a test checks it. -->

What each command prints with `--json`, and what a hook reads. `backfill schema` lists the answers, and
`backfill schema status` prints one as JSON Schema (draft 2020-12).

Each answer is one object on one line. `"schema": VERSION` is the version of all of them: within a version, fields
and codes are only added; if the meaning of a field changes, so does the version. All fields are always there;
where a description says None, JSON has `null`. Times are milliseconds since 1970, UTC. States are codes. What to
do or type next is apart from what is: a [hint](#advice), with the commands of this program in it.

Since version 1: `for` of `wait` is `goal`; the numbers of a run are in `this_run` and `all_runs`; `drop` has no
`dropped`, and its `left_upstream` is a list; states are codes (`not_started`); hints and limits are objects, not
texts, a hook's `hint` too, which is `null` where there is none.
""".replace("VERSION", str(schemas.SCHEMA))


def commands() -> str:
    """docs/commands.md: the help of all commands; common options are said once."""
    root, *verbs = files.pages()
    common = next(one.options[COMMON] for one in verbs if len(one.options.get(COMMON, ())) > 2)
    lines = [COMMANDS_INTRODUCTION]
    lines += ["\n\n".join(root.said), ""]
    for title, rows in root.commands.items():
        lines += [f"**{title}**", "", "| | |", "| --- | --- |"]
        lines += [f"| [{row.names[0]}](#{row.names[0]}) | {_cell(row.said)} |" for row in rows]
        lines.append("")
    lines += [*_panel_of("Options of `backfill` itself", root.options["Options"]), *_panel_of(COMMON, common)]
    for one in verbs:
        lines += [f"## {one.path.partition(' ')[2]}", "", f"`{one.usage}`", "", "\n\n".join(one.said), ""]
        for title, rows in one.options.items():
            if title != COMMON:
                lines += _panel_of(title, rows)
        lines += ["```sh", *one.examples, "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def _panel_of(title: str, rows: Sequence[HelpRow]) -> Iterator[str]:
    yield from (f"| {title} | |", "| --- | --- |")
    yield from (f"| `{_cell(row.spelled)}` | {_cell(row.said)} |" for row in rows)
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


COMMANDS_INTRODUCTION = """# Commands

<!-- Written by `python scripts/pages.py commands > docs/commands.md`; a test checks it. -->
"""

if __name__ == "__main__":
    print({"config": config, "catalog": catalog, "json": answers, "commands": commands}[sys.argv[1]](), end="")
