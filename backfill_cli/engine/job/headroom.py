"""What an upstream answers when it is asked how long it keeps what is not read, and what that means for a plan."""

from collections.abc import Callable

from backfill_cli.errors import BackfillError
from backfill_cli.model.headroom import Headroom, Unread
from backfill_cli.model.units import spell_duration

Ask = Callable[[Unread], Headroom | None]

TAKES_AT_ONCE = frozenset({"arrangement", "chain"})
"""Strategies that take the log while they read the snapshot."""


def answer(ask: Ask, unread: Unread) -> Headroom | None:
    """What the upstream says; that it is not known, where it does not."""
    try:
        return ask(unread)
    except BackfillError as error:
        return Headroom.unknown(error.message, hint=error.hint)


def too_short(
    told: Headroom | None, strategy: str, snapshot_s: tuple[float, float] | None, now_ms: int
) -> str | None:
    """A warning where something may be gone before a snapshot of this time is read; None if not, or not known."""
    left_s = None if told is None else told.left_s(now_ms)
    if told is None or left_s is None or snapshot_s is None or strategy in TAKES_AT_ONCE:
        return None
    if left_s > snapshot_s[1]:
        return None
    what = f"{told.of} " if told.of else "what is not read "
    return (
        f"{what}may be gone after {spell_duration(left_s)}, by {told.by}, before the snapshot is read (about "
        f"{spell_duration(snapshot_s[1])}): {told.hint}"
    )
