"""A SELECT as far as a change's reach needs it: where its rows come from, by pieces of the user's own text.

Only structure is read; every expression stays the text that the user wrote, and the engine alone gives it its
meaning.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Union

from sqlglot import exp

from backfill_cli.model.derived import Base


@dataclass(frozen=True, slots=True)
class Call:
    """An aggregate in an expression, from where to where in its text. filter: FILTER (…), or nothing."""

    name: str
    start: int
    end: int
    argument: str
    filter: str


@dataclass(frozen=True, slots=True)
class Item:
    """An output column. text: its expression. tree: the same, each column by its leaf. name: as it is compared.

    calls: its aggregates in order; None where their places in the text are not known.
    """

    name: str
    text: str
    tree: exp.Expr
    aggregates: bool = False
    windows: bool = False
    calls: tuple[Call, ...] | None = ()


@dataclass(frozen=True, slots=True)
class Values:
    """Rows that the SELECT itself has."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One thing in FROM. joined: "", ",", "JOIN", "LEFT JOIN", "RIGHT JOIN" or "CROSS JOIN"; on: what follows it,
    test: the same as a condition.

    text: itself, without the alias. alias: what follows that. name: its name in the SELECT, as it is compared.
    columns: their names, as they are compared, and as SQL. using: the columns of USING, as SQL. qualifier: SQL of
    its name.
    """

    source: Union[Base, "Select", "All", Values]
    text: str
    alias: str
    name: str
    columns: tuple[tuple[str, str], ...]
    qualifier: str
    joined: str = ""
    on: str = ""
    test: str = ""
    condition: exp.Expr | None = None
    using: tuple[str, ...] = ()

    @property
    def grows(self) -> bool:
        """Whether it can have further columns later."""
        return isinstance(self.source, Base) or any(one.grows for one in getattr(self.source, "branches", ()))


@dataclass(frozen=True, slots=True)
class Select:
    """One SELECT. after_from: where FROM ends in the text; where: the condition, and from where to where it goes.

    distinct: of all columns. once_per: those of DISTINCT ON. partitions: of each window. first: the partition
    whose first row alone QUALIFY keeps. groups: None without GROUP BY. one_row: aggregates without groups. having:
    the condition. plain: its rows are rows of FROM, one for one. commas: where FROM has them. grows: whether it
    can have further columns later, by a star. head, tail: its text before FROM, and after WHERE. by: expressions
    over FROM, of which rows with other values give nothing to a row of the SELECT.
    """

    items: tuple[Item, ...]
    leaves: tuple[Leaf, ...]
    after_from: int
    where: str = ""
    where_at: tuple[int, int] = (0, 0)
    condition: exp.Expr | None = None
    distinct: bool = False
    once_per: tuple[exp.Expr, ...] = ()
    partitions: tuple[tuple[exp.Expr, ...], ...] = ()
    first: tuple[exp.Expr, ...] | None = None
    groups: tuple[exp.Expr, ...] | None = None
    one_row: bool = False
    having: Item | None = None
    qualify: bool = False
    plain: bool = True
    commas: tuple[tuple[int, int], ...] = ()
    grows: bool = False
    head: str = ""
    tail: str = ""
    by: tuple[Item, ...] = ()

    @property
    def branches(self) -> tuple["Select", ...]:
        return (self,)


@dataclass(frozen=True, slots=True)
class All:
    """UNION ALL of these."""

    branches: tuple[Select, ...]

    @property
    def items(self) -> tuple[Item, ...]:
        return self.branches[0].items

    @property
    def plain(self) -> bool:
        return all(one.plain for one in self.branches)


@dataclass(frozen=True, slots=True)
class Whole:
    """A query of which only the result's columns and the tables that it reads are known.

    sums: aggregates whose floating-point value depends on the order of rows, and decides about rows.
    """

    items: tuple[Item, ...]
    bases: tuple[Base, ...]
    branches: tuple[Select, ...] = ()
    sums: tuple[str, ...] = ()


def computed_in(query: Select | All | Whole) -> Iterator[Select]:
    """The SELECTs in its FROM whose rows are not rows of theirs, each once, after those in its own FROM."""
    seen = set[int]()
    for select in all_computed(query):
        if id(select) not in seen:
            seen.add(id(select))
            yield select


def all_computed(query: Select | All | Whole) -> Iterator[Select]:
    """The same, each as often as it is read."""
    for branch in query.branches:
        for leaf in branch.leaves:
            if isinstance(leaf.source, (Select, All)):
                yield from all_computed(leaf.source)
                yield from (one for one in leaf.source.branches if not one.plain)


def bases_of(query: Select | All | Whole) -> Iterator[Base]:
    """The tables that it reads, in the order of their first appearance."""
    seen = set()
    for base in each_base_of(query):
        if base.name not in seen:
            seen.add(base.name)
            yield base


def times_read(query: Select | All | Whole, name: str) -> int:
    """How many leaves, at any depth, are this base."""
    return sum(base.name == name for base in each_base_of(query))


def each_base_of(query: Select | All | Whole) -> Iterator[Base]:
    """The same as often as it reads them, or once of a `Whole`."""
    if isinstance(query, Whole):
        yield from query.bases
    for branch in query.branches:
        for leaf in branch.leaves:
            if isinstance(leaf.source, Base):
                yield leaf.source
            elif isinstance(leaf.source, (Select, All)):
                yield from each_base_of(leaf.source)


def missing_leaves(select: Select) -> list[int]:
    """The leaves that an outer join can leave without a row."""
    right = [0] if any(leaf.joined == "RIGHT JOIN" for leaf in select.leaves) else []
    return right + [at for at, leaf in enumerate(select.leaves) if leaf.joined == "LEFT JOIN"]
