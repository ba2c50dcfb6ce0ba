"""Hints as the person who typed a command can type them: in the same catalog."""

import re
import shlex
from typing import Any

# A command in a hint, to its end.
_COMMAND = re.compile(
    r"backfill (?:start|status|history|logs|report|pause|resume|throttle|stop|wait|plan|verify|drop)"
    r"(?: (?!or\b)(?:'[^']*'|[^\s;,('])+)*"
)


def as_typed(hint: str, ctx: Any) -> str:
    """The hint for somebody who typed this command: its commands in the same catalog."""
    told = ctx.get_parameter_source("catalog")
    return in_catalog(hint, ctx.params["catalog"]) if told is not None and told.name == "COMMANDLINE" else hint


def in_catalog(hint: str, catalog: str) -> str:
    """The hint's commands with the `--catalog` that was typed, where they name none: they would miss the job."""
    where = f" --catalog {shlex.quote(catalog)}"
    return _COMMAND.sub(lambda found: found[0] if " --catalog " in found[0] else f"{found[0]}{where}", hint)
