"""`backfill init`: write a commented config to start from; with `--path`, one that fits the data found there."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from backfill_cli.errors import Hint, UsageError, command
from backfill_cli.view.answers import WrittenConfig
from backfill_cli.view.console import answer_json, say

from ._options import JsonOption

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="Where to write it.")]


UpstreamOption = Annotated[
    str,
    typer.Option(
        "--upstream",
        metavar="TYPE",
        help="Where rows come from: files, kafka, postgres, delta, iceberg; files+kafka for a snapshot in files "
        "and changes in a topic.",
    ),
]
SinkOption = Annotated[
    str, typer.Option("--sink", metavar="TYPE", help="Where rows go: duckdb, postgres, delta, iceberg.")
]
PathOption = Annotated[
    str | None,
    typer.Option(
        "--path",
        metavar="PATH",
        help="Read the snapshot's files there (folder, glob or file) and fill in what they show.",
    ),
]
ChangesOption = Annotated[
    str | None, typer.Option("--changes", metavar="PATH", help="With --path: also read the change files there.")
]


def init(
    file: FileArgument = "job.toml",
    path: PathOption = None,
    changes: ChangesOption = None,
    upstream: UpstreamOption = "files",
    sink: SinkOption = "duckdb",
    as_json: JsonOption = False,
) -> None:
    """Write a config to start from, with every option of an upstream and a sink. Fails if the file exists.

    With --path it is filled in from the files; a comment marks every guess.
    """
    from backfill_cli.config.connectors import look
    from backfill_cli.config.template import FILL_IN, template

    if os.path.lexists(file):
        raise UsageError(f"{file} already exists", _another())
    text = template(upstream, sink, look(upstream, path, changes))
    if file.isprintable():  # otherwise it could end the comment
        text = text.replace("--config job.toml", f"--config {shlex.quote(file)}")
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise UsageError(f"{file} already exists", _another()) from None
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", _another()) from None
    with os.fdopen(handle, "w", encoding="utf-8") as written:
        written.write(text)
    blank = [line.partition(" = ")[0] for line in text.splitlines() if FILL_IN in line]
    named = _in_their_tables(text.splitlines(), FILL_IN)
    if as_json:
        answer_json(WrittenConfig(file, blank))
    else:
        first = f"fill in {', '.join(named)} in it, then" if named else "read its comments, then"
        say(f"wrote {file}\nTry: {first}: backfill plan --config {shlex.quote(str(file))}")


def _another() -> Hint:
    """A file that can be written: here, else at home or among temporary files."""
    from tempfile import gettempdir

    folders = [
        folder for folder in ("", str(Path.home()), gettempdir()) if os.access(folder or ".", os.W_OK | os.X_OK)
    ]
    files = (
        os.path.join(folder, name) for folder in folders for name in ("job.toml", "other.toml", "another.toml")
    )
    free = next((file for file in files if not os.path.lexists(file)), None)
    return "name another file" + (": " + command(f"init {shlex.quote(free)}") if free else Hint())


def _in_their_tables(lines: list[str], mark: str) -> list[str]:
    """The marked options, each with its table: `upstream.topic`, `sink.dsn`."""
    table, found = "", []
    for line in lines:
        if line.startswith("["):
            table = line.partition("#")[0].strip(" []")
        elif mark in line:
            found.append(f"{table}.{line.partition(' = ')[0].strip()}")
    return found
