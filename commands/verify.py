"""`backfill verify`: compare upstream and sink at one commit; with --fix, make them equal."""

from shlex import quote
from typing import Annotated

import typer

from backfill_cli.errors import Hint, UsageError, command
from backfill_cli.model.units import share
from backfill_cli.model.verify import Asked
from backfill_cli.view.verify import show_verify, shown, tell_before

from ._options import CatalogOption, JobArgument, JsonOption, named_job, open_catalog

EXAMPLES = (
    "backfill verify",
    "backfill verify orders --table orders --sample 1%",
    "backfill verify orders --table orders --range 1000..2000",
    "backfill verify orders --fix --confirm orders",
)

IndependentOption = Annotated[
    bool,
    typer.Option(
        "--independent",
        help="Read the snapshot's files with DuckDB; only without a transform, before the first change.",
    ),
]
RestartOption = Annotated[
    bool,
    typer.Option("--restart", help="Compare all tables again, also those that an interrupted verify found equal."),
]
TableOption = Annotated[
    list[str] | None,
    typer.Option("--table", metavar="NAME", help="Compare only this table of the job. Can be repeated."),
]
RangeOption = Annotated[
    str | None,
    typer.Option(
        "--range",
        metavar="RANGE",
        help="Compare only rows whose first key column is in A..B, both included; A.. and ..B are open. "
        "The upstream gives only these where it can.",
        show_default=False,
    ),
]
SampleOption = Annotated[
    str | None,
    typer.Option(
        "--sample",
        metavar="SHARE",
        help="Compare only this share of the keys, 1% or 0.01; always the same keys. The upstream is still read "
        "in full.",
    ),
]
FixOption = Annotated[
    bool,
    typer.Option(
        "--fix",
        help="Write rows that are missing or differ, remove extra ones. Without --confirm: only show them.",
    ),
]
ConfirmOption = Annotated[
    str | None,
    typer.Option("--confirm", metavar="JOB", help="The job's name again: --fix changes the sink."),
]


def verify(
    job: JobArgument = None,
    independent: IndependentOption = False,
    table: TableOption = None,
    between: RangeOption = None,
    sample: SampleOption = None,
    fix: FixOption = False,
    confirm: ConfirmOption = None,
    restart: RestartOption = False,
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Compare the job's tables with the upstream at the last commit, by counts and hashes of key ranges.

    Rows that differ are counted and listed. Exit code 3 if there are any.
    """
    asked = Asked(tuple(dict.fromkeys(table or ())), None if sample is None else _share(sample))
    if fix and (independent or sample is not None or restart):
        other = "--independent" if independent else "--restart" if sample is None else "--sample"
        raise UsageError(f"--fix and {other} cannot be used together", f"leave {other} out: a fix needs every row")
    store = open_catalog(catalog, above=confirm is None or job is not None)
    row = named_job(store, job)
    name = row.name
    if between is not None:
        from backfill_cli.api.refilling import compared

        again = " ".join([name, *(f"--table {quote(one)}" for one in asked.tables), f"--range {quote(between)}"])
        _require_alone(again, fix=fix, independent=independent, sample=sample is not None, restart=restart)
        asked = compared(store, row, asked.tables, between)
    if confirm is not None and (not fix or confirm != name):
        raise UsageError(
            f"--confirm names {confirm!r}, the job is {name!r}" if fix else "--confirm works only with --fix",
            command(f"verify {name} --fix --confirm {name}") if fix else "leave --confirm out",
        )
    with shown() as tell:
        if not fix:
            from backfill_cli.engine.verify.job import verify as verify_job

            report = verify_job(name, store, independent, asked, tell, restart)
        elif confirm is None:
            from backfill_cli.engine.verify.fix import would_fix

            report = would_fix(name, store, asked, tell)
        else:
            from backfill_cli.engine.verify.fix import fix as fix_job

            report = fix_job(name, store, asked, tell, tell_before)
    show_verify(report, as_json)


def _require_alone(again: str, **others: bool) -> None:
    """Raises UsageError for an option that is of whole tables. again: the range, as options of a command."""
    other = next((f"--{name}" for name, is_set in others.items() if is_set), None)
    if other is not None:
        also = "; to make the range equal: " + command(f"refill {again}") if other == "--fix" else ""
        raise UsageError(f"--range and {other} cannot be used together", Hint.of(f"leave {other} out") + also)


def _share(text: str) -> float:
    """The share, 0 to 1. Raises UsageError naming the option."""
    try:
        return share(text)
    except ValueError as error:
        raise UsageError(f"--sample {text!r}: {error}", "--sample 1%") from None
