"""`backfill drop`: forget a job; the sink's rows stay."""

from pathlib import Path
from typing import Annotated

import typer

from backfill_cli.errors import UsageError
from backfill_cli.view.console import answer_json, say

from .options import CatalogOption, JsonOption, open_catalog

NameArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job to forget.")]
ConfirmOption = Annotated[str | None, typer.Option("--confirm", metavar="JOB", help="The job's name once more.")]
SinkOption = Annotated[
    str | None,
    typer.Option(
        "--sink", metavar="CONFIG", help="The job's catalog is lost: forget it in the sink of this config."
    ),
]


def drop(
    job: NameArgument,
    confirm: ConfirmOption = None,
    sink: SinkOption = None,
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Forget a job: its progress, its markers in the sink, its staging, its replication slot. Rows stay."""
    store = open_catalog(catalog)
    name = job if sink is not None else store.job(job).name
    if confirm != name:
        said = "--confirm is missing" if confirm is None else f"--confirm names {confirm!r}"
        where = "" if sink is None else f" --sink {sink}"
        raise UsageError(
            f"job {name!r} would lose its progress: {said}", f"backfill drop {name}{where} --confirm {name}"
        )
    if sink is None:
        from backfill_cli.engine.job.drop import drop as drop_job

        done = drop_job(name, store)
    else:
        from backfill_cli.config import load
        from backfill_cli.engine.job.drop import drop_from_sink

        done = drop_from_sink(name, store, load(Path(sink)))
    if as_json:
        answer_json({"schema": 1, "job": name, "dropped": True, "left_upstream": done.left})
        return
    say(f"job {name}: dropped; " + ("the sink's rows stay" if done.known else "its sink knows nothing of it"))
    if done.left is not None:
        say(f"left in the upstream: {done.left}")
