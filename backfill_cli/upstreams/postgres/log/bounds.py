"""Which part of the log a window reads, and how far it goes on for a value that it lacks."""

from dataclasses import dataclass, replace

from backfill_cli.upstreams.postgres.log.net import ValueLost
from backfill_cli.upstreams.postgres.log.window import TakeRequest

MORE_CHANGES = 16
"""By so much a window grows that lacks a value: the value is often near, and all the log may not fit an epoch."""

MORE_MESSAGES = 1_000
"""Beyond the limit: what a window that begins before `after` may have to skip, and each transaction's B and C."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A transaction counts whose commit record begins in [first, stop); that is known before its end is.

    up_to: the window's end. messages: how many the server decodes, where there is a limit. hold_all: nothing is
    written before the end. widens: columns that are added in the midst of it do not end the window.
    """

    first: int
    stop: int
    up_to: int
    messages: int
    hold_all: bool = False
    widens: bool = False


def further(request: TakeRequest, bounds: Bounds, up_to: int, lost: ValueLost) -> tuple[TakeRequest, Bounds]:
    """A longer window, which may have the value that one up to `up_to` lacks. Raises ValueLost where none is."""
    if request.limit is not None and up_to < bounds.up_to:
        limit = request.limit * MORE_CHANGES
        return replace(request, limit=limit), replace(bounds, messages=limit + MORE_MESSAGES)
    if bounds.up_to == request.up_to or not request.widens:
        raise lost
    if bounds.widens:
        raise ValueLost(
            f"{lost.message}; then columns of a table were dropped or changed: what was written later is no help",
            "drop the job and start over, with REPLICA IDENTITY FULL for a table whose keys change",
        )
    return request, replace(bounds, stop=request.up_to, up_to=request.up_to, widens=True)
