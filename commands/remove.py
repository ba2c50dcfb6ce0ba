"""`backfill remove`: a table leaves a job; its rows in the sink are kept, or dropped with it."""

from typing import Annotated

import typer

from backfill_cli.api.changing import removing, removing_derived
from backfill_cli.errors import UsageError

from ._options import CatalogOption, JobArgument, JsonOption, TimeoutOption, WaitOption, named_job, open_catalog
from ._posting import post_change

EXAMPLES = (
    "backfill remove orders --table refunds",
    "backfill remove orders --table refunds --wait",
    "backfill remove orders --derived revenue",
    "backfill remove orders --derived revenue --derived best",
)

TableOption = Annotated[
    str | None, typer.Option("--table", metavar="NAME", help="The table, as the config names it.")
]
DerivedOption = Annotated[
    list[str] | None,
    typer.Option("--derived", metavar="NAME", help="A derived table, as the config names it. Repeatable."),
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

    With --derived derived tables leave, all in one commit: from then on they stay as they are. With --with-rows
    the tables in the sink are dropped, too.
    """
    if (table is None) == (not derived):
        raise UsageError("name the table that leaves, or the derived ones", "--table NAME, or --derived NAME")
    store = open_catalog(catalog, above=job is not None)
    before = named_job(store, job)
    names = tuple(dict.fromkeys(derived or [table or ""]))
    if table is not None:
        asked = removing(store, before, table, with_rows, confirm)
    else:
        asked = removing_derived(store, before, names, with_rows, confirm)
    kept = "" if with_rows else f"; {'its' if len(names) == 1 else 'their'} rows in the sink stay"
    post_change(ctx, store, before, asked, f" {', '.join(names)}", wait, timeout, as_json, kept)
