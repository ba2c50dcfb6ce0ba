"""Options that several verbs share, and how they become a catalog, a job, a length of time."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backfill_cli.errors import NoSuchJob, UsageError

if TYPE_CHECKING:
    from backfill_cli.catalog import Catalog, JobRow

DEFAULT_CATALOG = ".backfill/catalog.duckdb"

CatalogOption = Annotated[
    str,
    typer.Option(
        "--catalog",
        envvar="BACKFILL_CATALOG",
        metavar="FILE",
        help="The catalog: jobs and progress. Default: .backfill/catalog.duckdb in this folder.",
    ),
]
JobArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB",
        help="May be left out when there is only one job, or only one that has not ended.",
        show_default=False,
    ),
]
ConfigOption = Annotated[str, typer.Option("--config", metavar="FILE", help="The job's TOML file.")]
DetachOption = Annotated[bool, typer.Option("--detach", help="Run in the background, with a log file.")]
ExistingOption = Annotated[bool, typer.Option("--into-existing", help="Allow sink tables that already have rows.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON to stdout.")]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="Wait until the command has taken effect; print the epoch.")
]
TimeoutOption = Annotated[
    str, typer.Option("--timeout", metavar="TIME", help='How long to wait: "30s", "30m", "2h".')
]


def open_catalog(path: str) -> "Catalog":
    """The catalog file; nothing is opened or made yet."""
    from backfill_cli.catalog import Catalog

    return Catalog(Path(path or DEFAULT_CATALOG))


def named_job(catalog: "Catalog", name: str | None) -> "JobRow":
    """The job of that name; without one the only job, or the only one that has not ended. Raises NoSuchJob."""
    if name is None:
        jobs = catalog.jobs()
        if not jobs:
            raise NoSuchJob(
                f"there is no job in {catalog.path}", "backfill start --config job.toml, or --catalog FILE"
            )
        if len(jobs) == 1:
            return jobs[0]
    return catalog.job(name)


def seconds(text: str, option: str) -> float:
    """A length of time. Raises UsageError naming the option."""
    from backfill_cli.model.units import duration_s

    try:
        return duration_s(text)
    except ValueError as error:
        raise UsageError(f"{option} {text!r}: {error}", f"{option} 30m") from None
