"""Hints that can be typed as they are: for the same catalog, with the job's config file."""

import textwrap
from pathlib import Path
from typing import Any

from backfill_cli.errors import Command, Hint

_WITHOUT_CATALOG = ("init", "config")


def laid_out(hint: Hint, width: int) -> list[str]:
    """The hint in lines of this width; if it takes several, each command has one of its own, so it can be copied.

    Only a command that is wider than a line, a setting (`name = value`), or a word, makes a longer line.
    """
    if len(str(hint)) <= width:
        return [str(hint)]
    lines = []
    for part in hint.said:
        if not isinstance(part, str):
            lines.append(str(part))
            continue
        said = part.strip(" ;,")
        if " = " in said:
            lines.append(said)
        elif any(map(str.isalnum, said)):
            lines += textwrap.wrap(said, max(1, width), break_long_words=False, break_on_hyphens=False)
    return lines


def as_typed(hint: Hint, ctx: Any) -> Hint:
    """The hint for the user of this command: its commands name the same catalog and the same config."""
    hint = hint.of_file(typed_file(ctx.params))
    told = ctx.get_parameter_source("catalog")
    return in_catalog(hint, ctx.params["catalog"]) if told is not None and told.name == "COMMANDLINE" else hint


def typed_file(typed: dict[str, Any]) -> str:
    """The config that a command was given; empty if none."""
    if "config" in typed:  # FILE can also be given without the option
        return typed["config"] or typed["file"] or "job.toml"
    named = typed.get("from_sink") or (typed.get("sink") if "with_rows" in typed else None)
    return named or ""


def in_catalog(hint: Hint, catalog: str) -> Hint:
    """The hint, its commands with the `--catalog` that was typed, unless they name one: else they miss the job."""

    def there(one: Command) -> Command:
        known = "--catalog" in one.words or one.words[0] in _WITHOUT_CATALOG
        return one if known else Command((*one.words, "--catalog", catalog))

    return hint.with_commands(there)


def from_here(file: str) -> str:
    """The path as typed from this folder: relative if the file is in or below it."""
    try:
        return str(Path(file).relative_to(Path.cwd())) if file else ""
    except (ValueError, OSError):  # elsewhere; or the folder is gone
        return file
