"""`backfill remove`: a table leaves a job; its rows in the sink are kept, or dropped with it."""

from typing import Annotated

import typer

from backfill_cli.api.changing import removing

from ._options import CatalogOption, JobArgument, JsonOption, TimeoutOption, WaitOption, named_job, open_catalog
from ._posting import post_change

EXAMPLES = (
    "backfill remove orders --table refunds",
    "backfill remove orders --table refunds --wait",
)

TableOption = Annotated[str, typer.Option("--table", metavar="NAME", help="The table, as the config names it.")]
WithRowsOption = Annotated[
    bool, typer.Option("--with-rows", help="Drop the table in the sink, too, with all its rows.")
]
ConfirmOption = Annotated[
    str | None, typer.Option("--confirm", metavar="JOB", help="The job's name again; required with --with-rows.")
]


def remove(
    ctx: typer.Context,
    table: TableOption,
    job: JobArgument = None,
    with_rows: WithRowsOption = False,
    confirm: ConfirmOption = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = "5m",
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Let a table leave a job, which goes on with its other tables. Its rows in the sink stay.

    With --with-rows its table there is dropped, too.
    """
    store = open_catalog(catalog, above=job is not None)
    before = named_job(store, job)
    asked = removing(store, before, table, with_rows, confirm)
    kept = "" if with_rows else "; its rows in the sink stay"
    post_change(ctx, store, before, asked, f" {table}{kept}", wait, timeout, as_json)
