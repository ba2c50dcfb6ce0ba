"""The plan of a job, shown: what `plan` prints, and `start` before it asks."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from backfill_cli.catalog import Catalog
from backfill_cli.errors import UsageError
from backfill_cli.view.console import as_typed
from backfill_cli.view.waiting import waiting

if TYPE_CHECKING:
    from backfill_cli.config import JobConfig
    from backfill_cli.model.reports import PlanReport


def planned(
    ctx: typer.Context,
    job: "JobConfig",
    store: Catalog,
    into_existing: bool,
    tell: "Callable[[PlanReport], None]",
    until: str | None = None,
) -> None:
    """The plan is told. Raises Exit if a start would be refused. ctx: of the verb. until: see `checks.plan`."""
    from backfill_cli.engine.job.checks import plan

    with waiting("looking at the upstream") as doing:
        report = plan(job, store, into_existing, doing, until)
    refused = tuple(replace(one, hint=as_typed(one.hint, ctx)) for one in report.refused)
    tell(replace(report, refused=refused, then=as_typed(report.then, ctx)))
    if report.refused:
        raise typer.Exit(UsageError.exit_code)
