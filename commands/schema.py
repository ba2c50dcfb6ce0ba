"""`backfill schema`: the JSON Schemas of all that `--json` prints."""

from typing import Annotated

import typer

from backfill_cli.errors import UsageError, command
from backfill_cli.model.units import nearest_first
from backfill_cli.view.console import answer, answer_schema
from backfill_cli.view.schemas import ANSWERS
from backfill_cli.view.schemas import schema as schema_of

EXAMPLES = (
    "backfill schema",
    "backfill schema status",
)


def schema_names(incomplete: str) -> list[str]:
    """For shell completion."""
    return [name for name in ANSWERS if name.startswith(incomplete)]


NameArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="ANSWER",
        help="Whose: status, plan, verify, … Default: list them all.",
        show_default=False,
        autocompletion=schema_names,
    ),
]


def schema(name: NameArgument = None) -> None:
    """Print the JSON Schema of what a command prints with --json, or of what a hook reads."""
    if name is None:
        for one, (_, by) in ANSWERS.items():
            answer(f"{one:<10}{by}")
        return
    if name not in ANSWERS:
        known = nearest_first(name, list(ANSWERS))
        raise UsageError(f"there is no schema {name!r}; known: {', '.join(known)}", command(f"schema {known[0]}"))
    answer_schema(schema_of(name))
