"""`backfill init`: write a commented config to start from."""

import os
import shlex
from typing import Annotated

import typer

from backfill_cli.errors import UsageError
from backfill_cli.view.console import answer_json, say

from ._options import JsonOption

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="Where to write it.")]


UpstreamOption = Annotated[
    str,
    typer.Option(
        "--upstream",
        metavar="TYPE",
        help="Where rows come from: files, kafka, postgres; files+kafka for a snapshot of files with changes in a "
        "topic.",
    ),
]
SinkOption = Annotated[str, typer.Option("--sink", metavar="TYPE", help="Where they go: duckdb, postgres.")]


def init(
    file: FileArgument = "job.toml",
    upstream: UpstreamOption = "files",
    sink: SinkOption = "duckdb",
    as_json: JsonOption = False,
) -> None:
    """Write a config to start from, with every option of an upstream and a sink. Fails if the file exists."""
    from backfill_cli.config.template import template

    text = template(upstream, sink)
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise UsageError(f"{file} already exists", "name another file: backfill init other.toml") from None
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", "name another file: backfill init job.toml") from None
    with os.fdopen(handle, "w", encoding="utf-8") as written:
        written.write(text)
    if as_json:
        answer_json({"schema": 1, "file": file})
    else:
        say(f"wrote {file}\nTry: fill in what is marked, then: backfill plan --config {shlex.quote(str(file))}")
