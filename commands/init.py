"""`backfill init`: write a config to start from; with `--from`, one that fits the data found there."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from backfill_cli.errors import UsageError, command
from backfill_cli.view.answers import WrittenConfig
from backfill_cli.view.console import answer_json, say

from ._options import JsonOption
from ._written import (
    ChangesOption,
    FromOption,
    KeyOption,
    NameOption,
    TableOption,
    ToOption,
    another,
    asked_for,
    create,
)

EXAMPLES = (
    "backfill init --from data/orders --to warehouse.duckdb",
    "backfill init shop.toml --upstream postgres --sink duckdb",
)

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="Where to write it.")]
UpstreamOption = Annotated[
    str,
    typer.Option(
        "--upstream",
        metavar="TYPE",
        help="Without --from: files, kafka, postgres, delta or iceberg; files+kafka: a snapshot in files, changes "
        "in a topic.",
    ),
]
SinkOption = Annotated[
    str, typer.Option("--sink", metavar="TYPE", help="Without --to: duckdb, postgres, delta, iceberg or kafka.")
]
FullOption = Annotated[bool, typer.Option("--full", help="Write every option of this upstream and sink.")]


def init(
    file: FileArgument = "job.toml",
    source: FromOption = None,
    to: ToOption = None,
    changes: ChangesOption = None,
    table: TableOption = None,
    key: KeyOption = None,
    name: NameOption = None,
    upstream: UpstreamOption = "files",
    sink: SinkOption = "duckdb",
    full: FullOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a config. A file that is there is not replaced.

    With --from, it is filled in from the data there; a comment marks each guess.
    """
    from backfill_cli.config.draft import drafted
    from backfill_cli.config.template import FILL_IN, template
    from backfill_cli.folders import folder_of

    place = Path(file)
    if os.path.lexists(place):
        raise UsageError(f"{file} already exists", another())
    draft = drafted(asked_for(source, changes, to, table, key, name, upstream, sink), folder_of(place))
    text = template(draft, full)
    try:
        create(place, text)
    except FileExistsError:
        raise UsageError(f"{file} already exists", another()) from None
    lines = text.splitlines()
    if as_json:
        blank = [line.partition(" = ")[0] for line in lines if FILL_IN in line]
        answer_json(WrittenConfig(file, blank))
        return
    named = _in_their_tables(lines, FILL_IN)
    first = f"fill in {', '.join(named)} in it, then: " if named else ""
    plan = "plan" if place == Path("job.toml") else f"plan --config {shlex.quote(file)}"
    say("\n".join([*draft.said, f"wrote {file}", f"Try: {first}{command(plan)}"]))


def _in_their_tables(lines: list[str], mark: str) -> list[str]:
    """The marked options, each with its table: `upstream.topic`, `sink.dsn`."""
    table, found = "", []
    for line in lines:
        if line.startswith("["):
            table = line.partition("#")[0].strip(" []")
        elif mark in line:
            found.append(f"{table}.{line.partition(' = ')[0].strip()}")
    return found
