"""Ranges of offsets as tasks of about equal size, so that all cores work whatever the partitions hold."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

LEAST = 25_000
"""The fewest offsets worth a task: starting a consumer costs as much as reading 10,000 (measured)."""


@dataclass(frozen=True, slots=True)
class Range:
    """`after <= offset < up_to` of a partition. read: which of the plan's reads it belongs to."""

    read: int
    partition: int
    after: int
    up_to: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """A range of a topic, for one table."""

    table: str
    topic: str
    range: Range


@dataclass(frozen=True, slots=True)
class Span:
    """`after <= offset < up_to` of a partition of a topic, read once. wanted: for whom; each has some of it."""

    topic: str
    partition: int
    after: int
    up_to: int
    wanted: tuple[Wanted, ...]


def cut(ranges: Sequence[Range], cores: int) -> tuple[Range, ...]:
    """The same offsets in the same order, in tasks of at most a core's share each; empty ranges are left out."""
    share = _share(sum(r.up_to - r.after for r in ranges), cores)
    return tuple(
        replace(one, after=after, up_to=up_to)
        for one in ranges
        for after, up_to in _pieces(one.after, one.up_to, share)
    )


def together(wanted: Sequence[Wanted], cores: int) -> tuple[tuple[Span, ...], ...]:
    """The same offsets in tasks of about a core's share: what several tables want of a partition is read once.

    The spans of a task overlap nowhere, and stand in the order of topic, partition and offset, as the tasks do.
    """
    whole = _spans(wanted)
    share = _share(sum(one.up_to - one.after for one in whole), cores)
    tasks: list[list[Span]] = []
    held = 0
    for one in whole:
        for after, up_to in _pieces(one.after, one.up_to, share):
            if not tasks or held + up_to - after > share:
                tasks.append([])
                held = 0
            mine = [w for w in one.wanted if w.range.after < up_to and after < w.range.up_to]
            tasks[-1].append(replace(one, after=after, up_to=up_to, wanted=tuple(mine)))
            held += up_to - after
    return tuple(map(tuple, tasks))


def _spans(wanted: Sequence[Wanted]) -> list[Span]:
    """What overlaps is one span."""
    found: list[Span] = []
    for one in sorted(wanted, key=lambda w: (w.topic, w.range.partition, w.range.after)):
        topic, p, after, up_to = one.topic, one.range.partition, one.range.after, one.range.up_to
        last = found[-1] if found else None
        if after >= up_to:
            continue
        if last is not None and (last.topic, last.partition) == (topic, p) and after < last.up_to:
            found[-1] = replace(last, up_to=max(last.up_to, up_to), wanted=(*last.wanted, one))
        else:
            found.append(Span(topic, p, after, up_to, (one,)))
    return found


def _share(offsets: int, cores: int) -> int:
    return max(LEAST, math.ceil(offsets / max(1, cores)))


def _pieces(after: int, up_to: int, share: int) -> list[tuple[int, int]]:
    """A range in equal pieces of at most this many offsets."""
    size = up_to - after
    parts = math.ceil(size / share)
    return [(after + size * part // parts, after + size * (part + 1) // parts) for part in range(parts)]
