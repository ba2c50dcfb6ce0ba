"""`backfill init`: write a commented config to start from."""

import os
import shlex
from typing import Annotated

import typer

from backfill_cli.errors import UsageError
from backfill_cli.view.console import answer_json, say

from ._options import JsonOption

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="Where to write it.")]


def init(file: FileArgument = "job.toml", as_json: JsonOption = False) -> None:
    """Write a commented config to start from. Fails if the file exists."""
    from backfill_cli.config.template import TEMPLATE

    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise UsageError(f"{file} already exists", "name another file: backfill init other.toml") from None
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    with os.fdopen(handle, "w", encoding="utf-8") as written:
        written.write(TEMPLATE)
    if as_json:
        answer_json({"schema": 1, "file": file})
    else:
        say(f"wrote {file}\nTry: edit it, then: backfill plan --config {shlex.quote(str(file))}")
