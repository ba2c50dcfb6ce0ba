"""`backfill remove`: a table leaves a job; its rows in the sink are kept, or dropped with it."""

from typing import Annotated

import typer

from backfill_cli.api.changing import removing
from backfill_cli.errors import UsageError

from ._options import CatalogOption, JobArgument, JsonOption, TimeoutOption, WaitOption, named_job, open_catalog
from ._posting import post_change

EXAMPLES = (
    "backfill remove orders --table refunds",
    "backfill remove orders --table refunds --wait",
    "backfill remove orders --derived revenue",
)

TableOption = Annotated[
    str | None, typer.Option("--table", metavar="NAME", help="The table, as the config names it.")
]
DerivedOption = Annotated[
    str | None, typer.Option("--derived", metavar="NAME", help="The derived table, as the config names it.")
]
WithRowsOption = Annotated[
    bool, typer.Option("--with-rows", help="Drop the table in the sink, too, with all its rows.")
]
ConfirmOption = Annotated[
    str | None, typer.Option("--confirm", metavar="JOB", help="The job's name again; required with --with-rows.")
]


def remove(
    ctx: typer.Context,
    table: TableOption = None,
    derived: DerivedOption = None,
    job: JobArgument = None,
    with_rows: WithRowsOption = False,
    confirm: ConfirmOption = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = "5m",
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Let a table leave a job, which goes on with its other tables. Its rows in the sink stay.

    With --derived a derived table leaves, which from then on stays as it is. With --with-rows the table in the
    sink is dropped, too.
    """
    if (table is None) == (derived is None):
        raise UsageError("name the table that leaves, or the derived one", "--table NAME, or --derived NAME")
    name = table or derived or ""
    store = open_catalog(catalog, above=job is not None)
    before = named_job(store, job)
    asked = removing(store, before, name, with_rows, confirm, derived=derived is not None)
    kept = "" if with_rows else "; its rows in the sink stay"
    post_change(ctx, store, before, asked, f" {name}{kept}", wait, timeout, as_json)
