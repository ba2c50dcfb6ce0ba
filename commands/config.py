"""`backfill config`: what may stand in a config file."""

import typer

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Describe the config file.",
    no_args_is_help=True,
)


@app.callback()
def config() -> None:
    """Describe the config file."""


@app.command()
def schema() -> None:
    """Print the JSON Schema of the config file, for editors and checks."""
    from backfill_cli.config.reference import json_schema
    from backfill_cli.view.console import answer_json

    answer_json(json_schema())
