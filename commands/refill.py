"""`backfill refill`: read a table, or a part of it, again, while the job goes on."""

from dataclasses import replace
from typing import Annotated

import typer

from backfill_cli.api import refilling
from backfill_cli.errors import UsageError, command
from backfill_cli.view.console import answer_json, as_typed, say
from backfill_cli.view.lines import spell_at
from backfill_cli.view.model import Refilled, refill_view, spell_refill

from ._options import CatalogOption, JobArgument, JsonOption, TimeoutOption, named_job, open_catalog, seconds

EXAMPLES = (
    "backfill refill orders --table orders --range 1000..2000",
    "backfill refill orders --where \"status = 'paid'\"",
)

TableOption = Annotated[
    str | None,
    typer.Option("--table", metavar="NAME", help="The table. Default: the job's only one.", show_default=False),
]
WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="SQL",
        help="Only rows that fulfil this, in the sink or upstream: Spark SQL on the sink's columns.",
        show_default=False,
    ),
]
RangeOption = Annotated[
    str | None,
    typer.Option(
        "--range",
        metavar="RANGE",
        help="Only rows whose first key column is in A..B, both included; A.. and ..B are open.",
        show_default=False,
    ),
]
CancelOption = Annotated[
    bool, typer.Option("--cancel", help="End the table's pending refill; what it has applied stays.")
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until it is done, and print what it changed.")]


def refill(
    ctx: typer.Context,
    job: JobArgument = None,
    table: TableOption = None,
    where: WhereOption = None,
    between: RangeOption = None,
    cancel: CancelOption = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = "2h",
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Read a table, or a part of it, again, and make the sink's rows equal to the upstream's; the job goes on.

    Rows that are missing are inserted, rows that differ replaced, extra ones removed; the table is never emptied.
    It waits for the snapshot's end, and for a runner. It survives restarts; a pause suspends it.
    """
    limit_s = seconds(timeout, "--timeout")
    if cancel and (where is not None or between is not None or wait):
        other = "--where" if where is not None else "--range" if between is not None else "--wait"
        raise UsageError(f"--cancel and {other} cannot be used together", f"leave {other} out")
    store = open_catalog(catalog, above=job is not None)
    row = named_job(store, job)
    act = refilling.cancel(store, row, table) if cancel else refilling.refill(store, row, table, where, between)
    asked, posted = act
    if wait:
        asked = refilling.wait(store, row.name, asked, limit_s)
    view = refill_view(asked, replace(row, progress=None))
    if as_json:
        answer_json(Refilled(row.name, posted, view))
        return
    if wait:
        say(f"job {row.name}: refilled {spell_refill(view)}")
    elif cancel:
        taken = store.taken(row.name, posted)
        at = "at the next commit" if taken is None else spell_at(taken)
        say(f"job {row.name}: the refill of {asked} ends {at}")
        if (left := asked.lacking(row.name)) is not None:
            say(f"{left.text}; to {left.to}: {as_typed(left.hint, ctx)}")
    else:
        say(f"job {row.name}: the refill of {asked} is recorded")
        follow = command(f"status {row.name}") if row.live else command(f"resume {row.name}")
        say(f"{'to see it' if row.live else 'it waits for a runner'}: {as_typed(follow, ctx)}")
