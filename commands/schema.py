"""`backfill schema`: the JSON Schemas of all that `--json` prints."""

from typing import Annotated

import typer

from backfill_cli.errors import UsageError, command
from backfill_cli.model.units import nearest_first, spell_known
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
        width = max(map(len, ANSWERS)) + 2
        for one, (_, by) in ANSWERS.items():
            answer(f"{one:<{width}}{by}")
        return
    if name not in ANSWERS:
        near = nearest_first(name, list(ANSWERS))
        known = spell_known(name, near, "answers")
        raise UsageError(f"answer {name!r} does not exist{known}", command(f"schema {near[0]}"))
    answer_schema(schema_of(name))
