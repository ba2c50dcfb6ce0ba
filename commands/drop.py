"""`backfill drop`: forget a job; its rows in the sink are kept, or dropped with it."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backfill_cli.errors import Hint, UsageError, command
from backfill_cli.model.cutover import LiveName
from backfill_cli.view.answers import DroppedJob, LeftName
from backfill_cli.view.console import answer_json, say
from backfill_cli.view.waiting import waiting

from ._options import CatalogOption, JsonOption, catalog_of, job_names, open_catalog

if TYPE_CHECKING:
    from backfill_cli.engine.job.drop import Dropped

EXAMPLES = (
    "backfill drop orders --confirm orders",
    "backfill drop orders --with-rows --confirm orders",
)

NameArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job to forget.", autocompletion=job_names)]
ConfirmOption = Annotated[
    str | None,
    typer.Option("--confirm", metavar="JOB", help="The job's name again; required.", autocompletion=job_names),
]
SinkOption = Annotated[
    str | None,
    typer.Option("--sink", metavar="CONFIG", help="If the catalog is lost: forget the job in this config's sink."),
]
WithoutSinkOption = Annotated[
    bool,
    typer.Option("--without-sink", help="If the sink is gone for good: forget the job without it."),
]
WithoutUpstreamOption = Annotated[
    bool,
    typer.Option(
        "--without-upstream",
        help="If the upstream cannot be reached: print the statements that remove there what the job holds.",
    ),
]
WithRowsOption = Annotated[
    bool,
    typer.Option("--with-rows", help="Drop the job's tables in the sink, too, with all their rows."),
]


def drop(
    job: NameArgument,
    confirm: ConfirmOption = None,
    sink: SinkOption = None,
    without_sink: WithoutSinkOption = False,
    without_upstream: WithoutUpstreamOption = False,
    with_rows: WithRowsOption = False,
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Forget a job: its progress, what it keeps in the sink and the upstream, its staged files. Its tables stay.

    With --with-rows, they are dropped, too.
    """
    if without_sink and (sink is not None or with_rows):
        other = "--sink" if sink is not None else "--with-rows"
        raise UsageError(f"{other} and --without-sink cannot be used together", "leave one of them out")
    store = open_catalog(catalog) if sink is None else catalog_of(Path(sink), catalog)
    created = job in {row.name for row in store.jobs()}
    is_start = not created and (store.starts.of(job) is not None or store.starters.of(job) is not None)
    name = job if sink is not None or is_start else store.job(job).name
    if confirm != name:
        said = "--confirm is missing" if confirm is None else f"--confirm names {confirm!r}"
        where = " --without-sink" if without_sink else "" if sink is None else f" --sink {shlex.quote(sink)}"
        where += " --without-upstream" if without_upstream else ""
        rows = command(f"drop {name}{where} --with-rows --confirm {name}")
        if with_rows:
            raise UsageError(f"job {name!r} would lose its progress and all rows of its tables: {said}", rows)
        from backfill_cli.engine.job.drop import live_names

        live = () if without_sink or sink is not None or is_start else live_names(name, store)
        too = Hint() if without_sink or live or is_start else "; to drop its tables and their rows, too: " + rows
        raise UsageError(
            "; ".join([f"job {name!r} would lose its progress: {said}", *_of_live(live)]),
            command(f"drop {name}{where} --confirm {name}") + too,
        )
    with waiting(f"dropping job {name}"):
        if sink is None:
            from backfill_cli.engine.job.drop import drop as drop_job

            done = drop_job(name, store, without_sink, with_rows, without_upstream)
        else:
            from backfill_cli.config import load
            from backfill_cli.engine.job.drop import drop_from_sink

            done = drop_from_sink(name, store, load(Path(sink)), with_rows, without_upstream)
    if as_json:
        names = [LeftName(one.live, one.target, one.now.kept) for one in done.live]
        answer_json(DroppedJob(name, done.gone, done.left, names))
        return
    of_sink = "the sink was not asked" if without_sink else "its sink has no record of it"
    say(f"job {name}: dropped; " + (_of_rows(done) if done.known else of_sink))
    for target in done.others:
        say(f"{target} stays as it is: it was set aside, and another job has it by now")
    for line in _of_live(done.live):
        say(line)
    if done.left:
        say(f"the upstream still has what the job held: {done.why}. To remove it, run there:")
        for statement in done.left:
            say(f"  {statement};")


def _of_live(live: Sequence[LiveName]) -> Iterator[str]:
    """What happens to the names that people query once the job no longer fills their tables."""
    for one in live:
        kept = f"; what was there before is kept as {one.now.kept}" if one.now.kept else ""
        yield (
            f"{one.live} is still a view of {one.target}, which nothing fills any more; cutover --reverse needs "
            f"the job{kept}"
        )


def _of_rows(done: "Dropped") -> str:
    tables = ", ".join(done.tables)
    if done.gone:
        return f"its tables and their rows are gone: {tables}"
    again = "to fill them again: drop the tables, or start --into-existing"
    return f"the rows in the sink are kept, in {tables}; {again}" if tables else "the rows in the sink are kept"
