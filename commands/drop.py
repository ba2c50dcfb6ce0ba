"""`backfill drop`: forget a job; the sink's rows stay."""

from typing import Annotated

import typer

from backfill_cli.errors import UsageError
from backfill_cli.view.console import answer_json, say

from .options import CatalogOption, JsonOption, open_catalog

NameArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job to forget.")]
ConfirmOption = Annotated[str | None, typer.Option("--confirm", metavar="JOB", help="The job's name once more.")]


def drop(
    job: NameArgument, confirm: ConfirmOption = None, as_json: JsonOption = False, catalog: CatalogOption = ""
) -> None:
    """Forget a job: its progress, its marks in the sink, its staging. The sink's rows stay."""
    name = open_catalog(catalog).job(job).name
    if confirm != name:
        said = "nothing confirms it" if confirm is None else f"--confirm names {confirm!r}"
        raise UsageError(
            f"job {name!r} would lose its progress, and {said}", f"backfill drop {name} --confirm {name}"
        )
    from backfill_cli.engine.run import drop as drop_job

    drop_job(name, open_catalog(catalog))
    if as_json:
        answer_json({"schema": 1, "job": name, "dropped": True})
    else:
        say(f"job {name}: dropped; the sink's rows stay")
