"""`backfill logs`: a job's log, as its runners wrote it. Changes nothing."""

import re
from typing import Annotated

import typer

from backfill_cli.catalog.jobs import check_name
from backfill_cli.errors import UsageError, command
from backfill_cli.view.answers import LogLine, Logs
from backfill_cli.view.console import answer, answer_json, as_typed, say
from backfill_cli.view.log import follow, log_of, newest

from ._options import CatalogOption, JobArgument, JsonOption, named_job, open_catalog, tell_if_above

EXAMPLES = (
    "backfill logs",
    "backfill logs orders --follow --last 20",
)

STAMPED = re.compile(r"(\d{4}-\d\d-\d\dT[\d:.]+Z) (.*)")
MOST = 10_000_000  # more lines than both files can hold

FollowOption = Annotated[
    bool, typer.Option("--follow", "-f", help="Go on with lines as they are written, until Ctrl-C.")
]
LastOption = Annotated[str, typer.Option("--last", metavar="N", help="How many of the newest lines.")]


def logs(
    ctx: typer.Context,
    job: JobArgument = None,
    following: FollowOption = False,
    last: LastOption = "100",
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Print a job's log, oldest line first: progress, commits, commands, waits, failures. Times are UTC."""
    if not last.isdecimal() or int(last) < 1:
        raise UsageError(f"--last {last}: not a whole number above 0", "name a number: --last 1000")
    store = open_catalog(catalog)
    tell_if_above(store)
    # A start that failed before there was a job has a log, too.
    alone = job is not None and log_of(store.path, check_name(job)).exists()
    name = job if job is not None and alone else named_job(store, job).name
    log = log_of(store.path, name)
    lines, file = newest(log, min(int(last), MOST))
    if not following and as_json:
        answer_json(Logs(name, str(log), [_parts(line) for line in lines]))
        return
    if not lines and file is None:
        go_on = as_typed(command(f"resume {name}"), ctx)
        say(f"job {name}: there is no log at {log} yet\nTry: {go_on}, which writes one")
    for line in lines:
        _show(line, as_json)
    if following:
        for line in follow(log, file):
            _show(line, as_json)


def _show(line: str, as_json: bool) -> None:
    if as_json:
        answer_json(_parts(line))
    else:
        answer(line)


def _parts(line: str) -> LogLine:
    """A line's time and its text; a line that a library wrote has no time."""
    found = STAMPED.fullmatch(line)
    return LogLine(None, line) if found is None else LogLine(found[1], found[2])
