"""Options that several verbs share, and how they become a catalog, a job, a duration."""

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from backfill_cli.catalog import Catalog, JobRow
from backfill_cli.catalog.places import (
    DEFAULT_CATALOG,
    DEFAULT_CONFIG,
    around,
    here_or_above,
    nearest_spelling,
    of_config,
)
from backfill_cli.catalog.store import told_of
from backfill_cli.errors import BackfillError, NoSuchJob, UsageError, command
from backfill_cli.model.units import duration_s
from backfill_cli.view.console import as_typed, say
from backfill_cli.view.help import COMMON
from backfill_cli.view.model import JobView


def job_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """For shell completion: job names with this prefix; none if the catalog is absent or busy (it never waits)."""
    try:
        known = Catalog(catalog_file(ctx.params.get("catalog") or "", above=True), wait_s=0.0).names()
    except (BackfillError, OSError):  # OSError: this folder was removed
        return []
    return [name for name in known if name.startswith(incomplete)]


def known_config(typed: dict[str, Any]) -> str:
    """The config file that the named job, or the only one, was last started with; empty if that is not known."""
    try:
        store = Catalog(catalog_file(typed["catalog"] or "", above=True), wait_s=0.0)
        return named_job(store, typed["job"]).config_file
    except BackfillError:
        return ""


PROGRESS = "Progress and metrics"

CatalogOption = Annotated[
    str,
    typer.Option(
        "--catalog",
        envvar="BACKFILL_CATALOG",
        metavar="FILE",
        help="The catalog, see backfill help.",
        rich_help_panel=COMMON,
    ),
]
JobArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB",
        help="The job. Default: the only one, or the only one that has not ended.",
        show_default=False,
        autocompletion=job_names,
    ),
]
ConfigOption = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="The same as FILE.", show_default=False),
]
FileArgument = Annotated[
    str | None, typer.Argument(metavar="FILE", help="The job's config. Default: job.toml.", show_default=False)
]
Until = Literal["caught-up", "forever"]
DetachOption = Annotated[bool, typer.Option("--detach", help="Run in the background; see backfill logs.")]
ExistingOption = Annotated[bool, typer.Option("--into-existing", help="Allow sink tables that have rows already.")]
MetricsFileOption = Annotated[
    str | None,
    typer.Option(
        "--metrics-file",
        metavar="FILE",
        help="Write Prometheus metrics to a file, for node exporter's textfile collector.",
        show_default=False,
        rich_help_panel=PROGRESS,
    ),
]
MetricsPortOption = Annotated[
    str | None,
    typer.Option(
        "--metrics-port",
        metavar="[HOST:]PORT",
        help="Serve Prometheus metrics; on loopback, unless HOST is given.",
        rich_help_panel=PROGRESS,
    ),
]
QuietOption = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="Print only warnings, errors and the last lines. The log has all.",
        rich_help_panel=PROGRESS,
    ),
]
IntervalOption = Annotated[
    str | None,
    typer.Option(
        "--progress-interval",
        metavar="TIME",
        help="Time between progress lines, in the log and off a terminal. Default: 10s.",
        show_default=False,
        rich_help_panel=PROGRESS,
    ),
]
FailOnQuarantineOption = Annotated[
    bool,
    typer.Option(
        "--fail-on-quarantine",
        help="End with exit code 1 if the job has quarantined rows, in this run or before.",
        rich_help_panel=PROGRESS,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=COMMON)]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until it has taken effect, and print the commit.")]
TimeoutOption = Annotated[str, typer.Option("--timeout", metavar="TIME", help="How long to wait: 30s, 5m, 2h.")]


def open_catalog(path: str, *, above: bool = True) -> Catalog:
    """The catalog at this path; nothing is opened or created yet. above: see `catalog_file`."""
    return Catalog(catalog_file(path, above))


def catalog_of(config: Path, path: str) -> Catalog:
    """The catalog of a config's job: at this path, else beside the config; nothing is opened or created yet."""
    return Catalog(Path(path) if path else of_config(config))


def tell_if_above(store: Catalog) -> None:
    """The catalog's path is printed if it was found in a folder above this one."""
    if store.path.parent.parent in Path.cwd().parents and store.path.parts[-2:] == Path(DEFAULT_CATALOG).parts:
        say(f"catalog {store.path}")


def catalog_file(path: str, above: bool) -> Path:
    """Where the catalog is, or would be.

    above: search the parent folders, too, up to the home folder, for a catalog that belongs to this user. Not for
    a verb that can create a job, nor for one that changes a job when none is named.
    """
    return Path(path or (here_or_above() if above else DEFAULT_CATALOG))


def config_of(argument: str | None, option: str | None) -> str | None:
    """The config that was given either way. Raises UsageError for both."""
    if argument is not None and option is not None:
        raise UsageError(f"two configs are given: {argument} and --config {option}", "give only one of them")
    if "" in (argument, option):
        raise UsageError("the config's file name is empty", "name the file: --config FILE")
    return argument or option


def config_file(argument: str | None, option: str | None) -> Path:
    """The config that was given either way, else `job.toml`. Raises UsageError for both, or if there is none."""
    given = config_of(argument, option)
    if given is None and not Path(DEFAULT_CONFIG).exists():
        others = ", or ".join(
            f"--config {shlex.quote(nearest_spelling(one))}" for one in around(Path.cwd(), DEFAULT_CONFIG)
        )
        raise UsageError(
            f"no config is given, and there is no {DEFAULT_CONFIG} in {Path.cwd()}",
            f"name it: {others or '--config FILE'}; or write one: " + command("init"),
        )
    return Path(given or DEFAULT_CONFIG)


def named_job(catalog: Catalog, name: str | None) -> JobRow:
    """The job of that name; without a name, the only job, or the only one that has not ended. Raises NoSuchJob."""
    if name is None:
        jobs = catalog.jobs()
        if not jobs:
            if not (starting := catalog.listed()):
                raise no_job(catalog)
            return catalog.job(starting[0].name)  # which says that it is being created
        if len(jobs) == 1:
            return jobs[0]
    return catalog.job(name)


def listed_job(catalog: Catalog, name: str | None) -> JobRow:
    """As `named_job`, also a job that is being created, or whose start was killed before it was."""
    if name is None and not catalog.jobs() and (starting := catalog.listed()):
        return starting[0]
    return named_job(catalog, name) if name is None else catalog.listed_job(name)


def no_job(catalog: Catalog) -> NoSuchJob:
    """The error for a catalog without jobs. One in a folder above, only used for a named job, is shown."""
    if not os.path.lexists(catalog.path) and catalog.path == Path(DEFAULT_CATALOG).absolute():
        above = catalog_file("", above=True)
        if os.path.lexists(above):
            return NoSuchJob(
                f"there is no job in {catalog.path}; {above} is used here only for a job that is named",
                "name the job; they are shown by: " + command("status"),
            )
    start, said = command("start --config job.toml") + ", or --catalog FILE", f"there is no job in {catalog.path}"
    if os.path.lexists(catalog.path):
        return NoSuchJob(said, start)
    return NoSuchJob(*told_of(catalog.path, catalog.left_behind(), start, said))


def job_and_config(
    job: str | None, config: str | None, catalog: str, needed: bool = True
) -> tuple[Catalog, JobRow, Path]:
    """The job that is meant, and the file of its config. Raises NoSuchJob; UsageError for none that is needed, or
    one that is not there."""
    if config is not None and not Path(config).exists():
        from backfill_cli.config import read

        read(Path(config))  # tells so
    above = job is not None
    store = open_catalog(catalog, above=above) if config is None else catalog_of(Path(config), catalog)
    row = named_job(store, job)
    if not (path := config or row.config_file) and needed:
        raise UsageError(f"job {row.name!r}: it is not known which config it has", "name it: --config job.toml")
    return store, row, Path(path)


def is_limited(catalog: Catalog, name: str) -> bool:
    """Whether the job's config limits the log that its upstream keeps."""
    upstream = json.loads(catalog.definition(name).config).get("upstream", {})
    changes = upstream.get("changes")  # a table where the changes come from another system
    told = changes if isinstance(changes, dict) and "type" not in upstream else upstream
    return told.get("max_retained") is not None


def seconds(text: str, option: str) -> float:
    """The duration in seconds. Raises UsageError naming the option."""
    try:
        return duration_s(text)
    except ValueError as error:
        raise UsageError(f"{option} {text!r}: {error}", f"{option} 30m") from None


def limits_typed(views: Sequence[JobView], ctx: typer.Context) -> list[JobView]:
    """The jobs, each with the command that changes its limit as this command's user would type it."""
    limits = [replace(view.limited_by, hint=as_typed(view.limited_by.hint, ctx)) for view in views]
    return [replace(view, limited_by=limit) for view, limit in zip(views, limits, strict=True)]
