"""Joins many parts into one expression that is not deep: who plans it goes down into it, level by level."""

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def balanced(join: Callable[[T, T], T], parts: Iterable[T]) -> T:
    """All parts joined, in their order, `join` being associative: by halves, so that 1,000 are ten levels deep.

    Spark's planner overflows its stack at some hundred levels, DuckDB's refuses 1,000. parts: at least one.
    """
    level = list(parts)
    while len(level) > 1:
        pairs = [join(left, right) for left, right in zip(level[::2], level[1::2], strict=False)]
        level = [*pairs, *level[len(pairs) * 2 :]]
    return level[0]
