"""Hints that can be typed as they are: for the same catalog, with the job's config file."""

import re
import shlex
import textwrap
from pathlib import Path
from typing import Any

# A command in a hint, to its end.
_COMMAND = re.compile(
    r"backfill (?:start|status|history|logs|report|pause|resume|throttle|stop|wait|plan|verify|cutover|drop|"
    r"doctor)(?: (?!or\b)(?:'[^']*'|\"[^\"]*\"|[^\s;,('`\"])+)*"
)
# Placeholders in hints whose author did not know the file.
_UNNAMED = re.compile(r"(--config|--sink|--from-sink) (?:job\.toml|FILE)(?=[\s;,(]|$)")


# SQL and other commands in a hint, to their end.
_OTHER = (
    r"(?<![(\w])(?:ALTER (?:TABLE|SYSTEM|ROLE|PUBLICATION)|CREATE (?:UNIQUE INDEX|PUBLICATION|SCHEMA)|SELECT|"
    r"GRANT|CALL|pip install|lsof|df -h|truncate -s) .*?(?=; |, (?:and|or|then)\b|$)"
)
_TYPED = re.compile(f"{_COMMAND.pattern}|{_OTHER}")


def laid_out(hint: str, width: int) -> list[str]:
    """The hint in lines of this width; if it takes several, each command has one of its own, so it can be copied.

    Only a command that is wider than a line, a setting (`name = value`), or a word, makes a longer line.
    """
    if len(hint) <= width:
        return [hint]
    lines, end = [], 0
    for found in [*_TYPED.finditer(hint), None]:
        said = hint[end : found.start() if found else None].strip(" ;,")
        if " = " in said:
            lines.append(said)
        elif any(map(str.isalnum, said)):
            lines += textwrap.wrap(said, max(1, width), break_long_words=False, break_on_hyphens=False)
        if found:
            lines.append(found[0].strip())
            end = found.end()
    return lines


def as_typed(hint: str, ctx: Any) -> str:
    """The hint for the user of this command: its commands name the same catalog and the same config."""
    hint = of_file(hint, typed_file(ctx.params))
    told = ctx.get_parameter_source("catalog")
    return in_catalog(hint, ctx.params["catalog"]) if told is not None and told.name == "COMMANDLINE" else hint


def typed_file(typed: dict[str, Any]) -> str:
    """The config that a command was given; empty if none."""
    if "config" in typed:  # FILE can also be given without the option
        return typed["config"] or typed["file"] or "job.toml"
    named = typed.get("from_sink") or (typed.get("sink") if "with_rows" in typed else None)
    return named or ""


def in_catalog(hint: str, catalog: str) -> str:
    """The hint, its commands with the `--catalog` that was typed, unless they name one: else they miss the job."""
    where = f" --catalog {shlex.quote(catalog)}"
    return _COMMAND.sub(lambda found: found[0] if " --catalog " in found[0] else f"{found[0]}{where}", hint)


def names_no_file(hint: str) -> bool:
    """Whether one of its commands has a placeholder for the config file."""
    return any(_UNNAMED.search(found) for found in _COMMAND.findall(hint))


def of_file(hint: str, file: str) -> str:
    """The hint, its commands with this config file, quoted for a shell; unchanged if `file` is empty."""
    if not file:
        return hint
    name = shlex.quote(file)
    return _COMMAND.sub(lambda found: _UNNAMED.sub(lambda one: f"{one[1]} {name}", found[0]), hint)


def from_here(file: str) -> str:
    """The path as typed from this folder: relative if the file is in or below it."""
    try:
        return str(Path(file).relative_to(Path.cwd())) if file else ""
    except (ValueError, OSError):  # elsewhere; or the folder is gone
        return file
