"""A SELECT that is computed range by range: by which column its rows can be parted, so that the parts are it.

A condition on a row of FROM parts the SELECT's rows where each of them is of one row of FROM, or of rows with the
same value of that column; and what is added up, in any case.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from backfill_cli.derived.query import Select, bases_of, missing_leaves
from backfill_cli.derived.rows import Maintained, maintained
from backfill_cli.model.derived import Base


@dataclass(frozen=True, slots=True)
class RangePartitioning:
    """base: the table whose rows are taken range by range. column: of it, quoted. sql: the same in the SELECT."""

    base: Base
    column: str
    sql: str

    def ranges(self, bounds: Sequence[str]) -> tuple[str, ...]:
        """SQL conditions of which each row meets one. bounds: SQL, each greater than the one before it."""
        lows, highs = (None, *bounds), (*bounds, None)
        return tuple(self._between(low, high) for low, high in zip(lows, highs, strict=True))

    def up_to(self, bound: str) -> str:
        """SQL condition: in the ranges up to the one that ends with this bound."""
        return self._between(None, bound)

    def _between(self, low: str | None, high: str | None) -> str:
        tests = [f"{self.sql} > {low}"] * (low is not None) + [f"{self.sql} <= {high}"] * (high is not None)
        both = " AND ".join(tests)
        return f"({both} OR {self.sql} IS NULL)" if low is None and self.base.nullable else both


def partitionings(one: Maintained, adds: bool) -> Iterator[RangePartitioning]:
    """By what its rows can be parted. adds: it is kept by contributions, which are added up."""
    query = one.query
    if not isinstance(query, Select):
        return
    missing = missing_leaves(query)
    for at, leaf in enumerate(query.leaves):
        if at in missing or not isinstance(base := leaf.source, Base) or not base.key:
            continue
        named = [one.engine.name(column, True) for column in base.columns]
        column = one.engine.name(base.key[0], True)
        if column not in named:
            continue
        name, sql = leaf.columns[named.index(column)]
        if adds or _keeps_together(query, leaf.name, name):
            yield RangePartitioning(base, one.engine.quoted(column), f"{leaf.qualifier}.{sql}")


def _keeps_together(query: Select, leaf: str, column: str) -> bool:
    """Whether the rows of FROM of which one row of the SELECT is made have the same value of the column."""
    if query.one_row:
        return False
    parts: list[Sequence[exp.Expr]] = [*query.partitions]
    parts += [one for one in (query.once_per or None, query.groups) if one is not None]
    if query.distinct:
        parts.append([item.tree for item in query.items])
    return all(any(_is(one, leaf, column) for one in part) for part in parts)


def _is(tree: Any, leaf: str, column: str) -> bool:
    return isinstance(tree, exp.Column) and (tree.table, tree.name) == (leaf, column)


def limited(one: Maintained, condition: str, system: str) -> Maintained:
    """The same over the rows of FROM that meet the condition. Raises UsageError where that cannot be read."""
    derived = replace(one.derived, sql=one.where(condition))
    return maintained(derived, tuple(bases_of(one.query)), system)
