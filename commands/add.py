"""`backfill add`: a table joins a job, which reads its snapshot while the others stay live."""

from typing import Annotated

import typer

from backfill_cli.api.changing import adding, adding_derived
from backfill_cli.errors import UsageError
from backfill_cli.model.units import spell_count, spell_size
from backfill_cli.view.columns import derived_lines
from backfill_cli.view.console import say
from backfill_cli.view.model import spell_eta
from backfill_cli.view.waiting import waiting

from ._options import (
    CatalogOption,
    ConfigOption,
    ExistingOption,
    JobArgument,
    JsonOption,
    TimeoutOption,
    WaitOption,
    job_and_config,
)
from ._posting import post_change

EXAMPLES = (
    "backfill add orders --table refunds",
    "backfill add --table refunds --config job.toml --wait",
    "backfill add orders --derived revenue --config job.toml",
    "backfill add --derived revenue --replace --config job.toml",
    "backfill add --derived d1 --derived d2 --config job.toml",
)

TableOption = Annotated[
    str | None, typer.Option("--table", metavar="NAME", help="The table, as the config names it.")
]
DerivedOption = Annotated[
    list[str] | None,
    typer.Option("--derived", metavar="NAME", help="A derived table, which the config has. Repeatable."),
]
ReplaceOption = Annotated[
    bool,
    typer.Option("--replace", help="Derived tables that the job has are replaced by these."),
]


def add(
    ctx: typer.Context,
    table: TableOption = None,
    derived: DerivedOption = None,
    job: JobArgument = None,
    config: ConfigOption = None,
    replace: ReplaceOption = False,
    into_existing: ExistingOption = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = "5m",
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Let a table join a job: its rows are read while the job follows its other tables.

    Its [[tables]] section is that of the config, by default the file that the job was last started with. A table
    that the file lacks is tried by its name alone; the lines to add are printed.

    With --derived derived tables join, whose [[derived]] sections the file has, all in one commit, which fills
    them; one that reads a large table is filled by several that follow. With --replace those that the job has are
    replaced: until a table is filled it has its old rows, from then on the new ones. With --into-existing all rows
    of a table that exists are replaced so.
    """
    if (table is None) == (not derived):
        raise UsageError("name the table that joins, or the derived ones", "--table NAME, or --derived NAME")
    if derived:
        names = tuple(dict.fromkeys(derived))
        store, before, path = job_and_config(job, config, catalog)
        with waiting(f"looking at {', '.join(names)}"):
            asked = adding_derived(store, before, names, path, replace, into_existing)
        if not as_json:
            for one in asked.planned:
                for line in derived_lines(one):
                    say(line)
        said = " --replace" if replace else ""
        post_change(ctx, store, before, asked, f" {', '.join(names)}{said}", wait, timeout, as_json)
        return
    assert table is not None
    if replace:
        raise UsageError("only a derived table can be replaced", "--derived NAME --replace")
    store, before, path = job_and_config(job, config, catalog, needed=False)
    file = path if config is not None or path.is_file() else None
    with waiting(f"looking at table {table}"):
        asked = adding(store, before, table, file, into_existing)
    assert asked.adding is not None
    rows, found, planned = "", asked.adding, asked.adding.planned
    if planned.rows is not None:
        about = "about " if planned.estimated else ""
        rows = f" ({about}{spell_count(planned.rows, 'row')}, {spell_size(planned.size_bytes)})"
    if not as_json and found.estimate_s is not None:
        say(f"table {table}: reading it takes about {spell_eta(found.estimate_s)}, {found.by}")
    post_change(ctx, store, before, asked, f" {table}{rows}", wait, timeout, as_json)
