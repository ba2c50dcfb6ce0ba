"""`backfill throttle`: limit the rows per second of the snapshot reads, or lift the limit."""

import math
from typing import Annotated

import typer

from backfill_cli.errors import UsageError, command
from backfill_cli.model.job import Verb

from ._options import CatalogOption, JobArgument, JsonOption, TimeoutOption, WaitOption
from ._posting import post

EXAMPLES = (
    "backfill throttle --rate 500",
    "backfill throttle orders --rate none",
)

RateOption = Annotated[
    str,
    typer.Option(
        "--rate", metavar="RATE", help="Rows per second; 0 suspends these reads, none removes the limit."
    ),
]


def throttle(
    ctx: typer.Context,
    rate: RateOption,
    job: JobArgument = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = "5m",
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Limit how fast the snapshot, or the history of a topic, is read. Changes are not limited.

    A new job begins with the rate under [throttle] in its config.
    """
    limit = rows_per_second(rate)
    post(ctx, catalog, job, Verb.THROTTLE, rate=limit, wait=wait, timeout=timeout, as_json=as_json)


def rows_per_second(text: str) -> float | None:
    """The rate asked for, None for `none`. Raises UsageError."""
    if text.strip().lower() == "none":
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not (math.isfinite(rate) and rate >= 0):
        raise UsageError(
            f"--rate {text!r} is not a number of rows per second",
            command("throttle --rate 500") + ", or --rate none",
        )
    return rate
