"""Which part of the log a window reads, and how far it is extended for a value that it lacks."""

from dataclasses import dataclass, replace

from backfill_cli.errors import START_OVER
from backfill_cli.upstreams.postgres.log.net import ValueLost
from backfill_cli.upstreams.postgres.log.window import TakeRequest

MORE_CHANGES = 16
"""How many times longer a window gets that lacks a value: it is often near; all the log may not fit an epoch."""

MORE_MESSAGES = 1_000
"""Beyond the limit: what a window that begins before `after` must skip, and each transaction's B and C."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A transaction counts if its commit record begins in [first, stop); the begin is known before the end.

    up_to: the window's end. messages: how many the server decodes, if there is a limit. hold_all: nothing is
    written before the end. widens: columns added within the window do not end it.
    """

    first: int
    stop: int
    up_to: int
    messages: int
    hold_all: bool = False
    widens: bool = False


def further(request: TakeRequest, bounds: Bounds, up_to: int, lost: ValueLost) -> tuple[TakeRequest, Bounds]:
    """A longer window, which may have the value that one up to `up_to` lacks. Raises ValueLost if none is."""
    if request.limit is not None and up_to < bounds.up_to:
        limit = request.limit * MORE_CHANGES
        return replace(request, limit=limit), replace(bounds, messages=limit + MORE_MESSAGES)
    if bounds.up_to == request.up_to or not request.widens:
        raise lost
    if bounds.widens:
        raise ValueLost(
            f"{lost.message}; after that, columns of a table were dropped or changed: the later log cannot supply "
            "the value",
            START_OVER + ", with REPLICA IDENTITY FULL for a table whose keys change",
        )
    return request, replace(bounds, stop=request.up_to, up_to=request.up_to, widens=True)
