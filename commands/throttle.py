"""`backfill throttle`: limit the rows per second of the snapshot reads, of all tables or of one, or lift it."""

import math
from shlex import quote
from typing import Annotated

import typer

from backfill_cli.errors import UsageError, command
from backfill_cli.model.job import Verb

from ._options import CatalogOption, JobArgument, JsonOption, TimeoutOption, WaitOption
from ._posting import post

EXAMPLES = (
    "backfill throttle --rate 500",
    "backfill throttle orders --rate none",
    "backfill throttle orders --table orders --rate 500",
)

RateOption = Annotated[
    str,
    typer.Option(
        "--rate", metavar="RATE", help="Rows per second; 0 suspends these reads, none removes the limit."
    ),
]
TableOption = Annotated[
    str | None,
    typer.Option(
        "--table", metavar="NAME", help="Limit this table alone. Default: all together.", show_default=False
    ),
]


def throttle(
    ctx: typer.Context,
    rate: RateOption,
    job: JobArgument = None,
    table: TableOption = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = "5m",
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Limit how fast the snapshot, or the history of a topic, is read. Changes are not limited.

    The rate of all tables together and that of a table both hold. A new job begins with those in its config:
    rate under [throttle], and under [[tables]].
    """
    of = "".join((f" {job}" if job else "", f" --table {quote(table)}" if table else ""))
    limit = rows_per_second(rate, of)
    post(ctx, catalog, job, Verb.THROTTLE, rate=limit, wait=wait, timeout=timeout, as_json=as_json, table=table)


def rows_per_second(text: str, of: str = "") -> float | None:
    """The rate asked for, None for `none`. of: the arguments that say of what. Raises UsageError."""
    if text.strip().lower() == "none":
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not (math.isfinite(rate) and rate >= 0):
        raise UsageError(
            f"--rate {text!r} is not a number of rows per second",
            command(f"throttle{of} --rate 500") + ", or --rate none",
        )
    return rate
