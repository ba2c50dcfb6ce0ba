"""`backfill config`: the options that a config file can have, and those in force."""

import typer

from backfill_cli.view.answers import Options
from backfill_cli.view.console import answer_json, answer_schema
from backfill_cli.view.reports import show_settings

from ._options import ConfigOption, FileArgument, JsonOption, config_file

EXAMPLES = (
    "backfill config show job.toml",
    "backfill config schema",
)

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
)


@app.callback()
def config(context: typer.Context) -> None:
    """Show the options in force, or describe all."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


@app.command(epilog="backfill config schema")
def schema() -> None:
    """Print the JSON Schema of a config, for editors and checks."""
    from backfill_cli.config.schema import json_schema

    answer_schema(json_schema())


@app.command(epilog="backfill config show job.toml --json")
def show(file: FileArgument = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Print each option in force, and where it comes from: the file, the environment, a default.

    A secret is shown as the reference in the file; its value is never read.
    """
    from backfill_cli.config import load, read
    from backfill_cli.config.effective import effective

    path = config_file(file, config)
    settings = effective(load(path), read(path))
    if as_json:
        answer_json(Options(str(path), settings))
        return
    noted = [(one.path, f"{one.origin}: {one.note}" if one.note else one.origin, one.value) for one in settings]
    show_settings(noted)
