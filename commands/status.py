"""`backfill status`: what each job is doing, how far it is, what limits it. Changes nothing."""

from typing import Annotated

import typer

from backfill_cli.errors import UsageError
from backfill_cli.view.console import answer_json, as_typed
from backfill_cli.view.model import Jobs, read_jobs, watched_jobs
from backfill_cli.view.splits import show_splits
from backfill_cli.view.status import nothing_in, show_health, show_status, unattended, watch_jobs

from ._options import (
    CatalogOption,
    JsonOption,
    is_limited,
    job_names,
    limits_typed,
    named_job,
    no_job,
    open_catalog,
    seconds,
    tell_if_above,
)

EXAMPLES = (
    "backfill status",
    "backfill status orders --watch",
    "backfill status --check --max-lag 60s",
    "backfill status orders --splits",
)

OneOrAllArgument = Annotated[
    str | None,
    typer.Argument(metavar="JOB", help="The job. Default: all.", show_default=False, autocompletion=job_names),
]
WatchOption = Annotated[bool, typer.Option("--watch", help="Show it live, until Ctrl-C or the end of the job.")]
CheckOption = Annotated[
    bool,
    typer.Option("--check", help="Health check: a line per job; exit code 0 if all are healthy, else 1."),
]
MaxLagOption = Annotated[
    str | None,
    typer.Option(
        "--max-lag", metavar="TIME", help="With --check: a job that is further behind, 60s or 10m, is not healthy."
    ),
]
MinHeadroomOption = Annotated[
    str | None,
    typer.Option(
        "--min-headroom",
        metavar="TIME",
        help="With --check: a job whose upstream may remove what is not read within TIME, 2h, is not healthy.",
    ),
]
SplitsOption = Annotated[
    bool, typer.Option("--splits", help="List every part of a job's snapshot, and every partition.")
]
QuarantineOption = Annotated[
    bool, typer.Option("--fail-on-quarantine", help="With --check: a job with quarantined rows is not healthy.")
]


def status(
    ctx: typer.Context,
    job: OneOrAllArgument = None,
    watch: WatchOption = False,
    check: CheckOption = False,
    max_lag: MaxLagOption = None,
    min_headroom: MinHeadroomOption = None,
    fail_on_quarantine: QuarantineOption = False,
    splits: SplitsOption = False,
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Show all jobs, one per line, or one job in full.

    With --watch --json: a line per second.
    """
    if (max_lag is not None or min_headroom is not None or fail_on_quarantine) and not check:
        named = "--max-lag" if max_lag else "--min-headroom" if min_headroom else "--fail-on-quarantine"
        raise UsageError(f"{named} works only with --check", "add --check")
    if check and watch:
        raise UsageError("--check and --watch cannot be used together", "leave one of them out")
    if splits and (check or watch):
        raise UsageError(
            f"--splits and {'--check' if check else '--watch'} cannot be used together", "leave one of them out"
        )
    store = open_catalog(catalog, above=not check or job is not None)  # another folder's health is not this one's
    if not as_json:
        tell_if_above(store)
    if check:
        limit_s = None if max_lag is None else seconds(max_lag, "--max-lag")
        least_s = None if min_headroom is None else seconds(min_headroom, "--min-headroom")
        views = limits_typed(read_jobs(store, job), ctx)
        if not views:
            raise no_job(store)
        told, limited = None, []
        if names := unattended(views):
            from backfill_cli.engine.job.held import held_logs

            told = held_logs(names, store)
            limited = [name for name in names if is_limited(store, name)]
        if not show_health(
            views,
            limit_s,
            as_json,
            fail_on_quarantine,
            told,
            limited,
            typed=lambda said: as_typed(said, ctx),
            min_headroom_s=least_s,
        ):
            raise typer.Exit(1)
        return
    if splits:
        name = named_job(store, job).name
        show_splits(name, store.splits(name), as_json)
        return
    if watch:

        def nothing() -> str:
            said, hint = nothing_in(store)
            return f"{said}\nTry: {as_typed(hint, ctx)}"

        watch_jobs(lambda: limits_typed(watched_jobs(store, job), ctx), as_json, nothing)
        return
    views = limits_typed(read_jobs(store, job), ctx)
    if as_json:
        answer_json(Jobs(views))
    else:
        show_status(views, job is not None, store, lambda said: as_typed(said, ctx))
