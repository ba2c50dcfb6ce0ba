"""The state table of docs/design.md, *source*, read row by row: the oracle. Its offsets are those of rows."""

from dataclasses import dataclass, replace
from random import Random


@dataclass(frozen=True)
class Backfilling:
    """offset: last one that history delivered. target: that of the last live row. None: none so far."""

    offset: int | None = None
    target: int | None = None


@dataclass(frozen=True)
class AwaitingLive:
    offset: int


@dataclass(frozen=True)
class Finished:
    pass


Row = Backfilling | AwaitingLive | Finished


def live_row(state: Row, u: int) -> tuple[Row, bool]:
    """The state after the live reader met a row at `u`, and whether that row is visible."""
    match state:
        case Backfilling(offset=None):
            return replace(state, target=u), False
        case Backfilling(offset=int(b)) if b < u:
            return replace(state, target=u), False
        case Backfilling(offset=int(b)):
            return (Finished() if b == u else AwaitingLive(b)), False
        case AwaitingLive(offset=b) if u < b:
            return state, False
        case AwaitingLive(offset=b):
            return Finished(), u > b  # past b: compaction left a gap
        case _:
            return state, True


def history_row(state: Row, h: int) -> tuple[Row, bool]:
    match state:
        case Backfilling(target=target):
            return (AwaitingLive(h) if target is not None and h >= target else Backfilling(h, target)), True
        case _:
            return state, False


def history_position(state: Row, p: int) -> Row:
    """Positions without a row: history's next position is `p`."""
    match state:
        case Backfilling(target=int(target)) if p > target:
            return AwaitingLive(p - 1)
        case _:
            return state


def live_position(state: Row, p: int) -> Row:
    match state:
        case AwaitingLive(offset=b) if p > b:
            return Finished()
        case _:
            return state


def read_row_by_row(rows: list[int], first: int, end: int, live_from: int, random: Random) -> list[int]:
    """What both readers together let through from a partition, in order of arrival.

    rows: the offsets that exist. History reads from `first`, live from `live_from`, each up to `end`, taking turns
    at random; both also say positions without a row.
    """
    state: Row = Backfilling()
    through: list[int] = []
    history, live = first, live_from
    exists = frozenset(rows)
    while history < end or live < end:
        if live >= end or (history < end and random.random() < 0.5):
            visible = False
            if history in exists:
                state, visible = history_row(state, history)
            offset, history = history, history + 1
            state = history_position(state, history)
        else:
            visible = False
            if live in exists:
                state, visible = live_row(state, live)
            offset, live = live, live + 1
            state = live_position(state, live)
        if visible:
            through.append(offset)
    return through
