"""Which rows of a query a change of the tables under it reaches, as SQL that holds before and after the change.

What differs between the states before and after is found from either side. A row of FROM is made of one row of
each leaf, or of none where an outer join has found none. If one of its rows changed, it is found by that row, in
the state that has it (`_found_by`). If none of them changed, it came or went because a leaf that had no row for it
now has one, which is a changed row, or the other way round: it is found in the *other* state, as the row without
these leaves, for which changed rows of each of them exist (`_without`). Several leaves can get their row in one
change, so each set of them is tried; a query in FROM that has outer joins is such a leaf, too: its rows without
some of its leaves are not among its rows in this state, and stand for it as the missing row does.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from backfill_cli.contracts import own
from backfill_cli.derived.engines import Engine
from backfill_cli.derived.query import All, Item, Leaf, Select
from backfill_cli.model.derived import Base

Changes = Mapping[str, str | None]
"""By a base's name, SQL of a relation with the columns of `Base.by` of its changed rows; None: all rows
changed.
"""

MAX_MISSING = 6
"""Outer joins in one SELECT: each set of those whose tables changed is one query of the reach."""


@dataclass(frozen=True, slots=True)
class Found:
    """Rows that changes reach: FROM and WHERE. absent: they need not be rows of this state."""

    from_: str
    where: str
    absent: bool


@dataclass(frozen=True, slots=True)
class _Reached:
    """A leaf's rows that changes reach, as sources: with a changed row, and of the other state alone."""

    changed: tuple[str, ...]
    absent: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        return self.changed + self.absent


class Reach:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def rows(self, query: Select | All, changes: Changes, items: str = "") -> Iterator[str]:
        """SELECTs of the rows of a plain query that these changes reach.

        items: SQL of the columns, if not its own.
        """
        for found, _ in self._rows(query, changes, items):
            yield found

    def _rows(self, query: Select | All, changes: Changes, items: str = "") -> Iterator[tuple[str, bool]]:
        """And whether they need not be rows of this state."""
        if isinstance(query, Select):
            for found in self.found(query, changes):
                yield f"SELECT {items or self._items(query)} FROM {found.from_}{found.where}", found.absent
            return
        # All branches together give the rows their types.
        types = f"SELECT * FROM ({self.whole(query)}) AS {own.ROW} WHERE FALSE"
        for branch in query.branches:
            for sql, absent in self._rows(branch, changes, self._items(branch, query.items)):
                yield f"{types} UNION ALL {sql}", absent

    def froms(self, select: Select, changes: Changes) -> Iterator[tuple[str, str]]:
        """What follows FROM, and WHERE, of the rows that the changes reach."""
        for found in self.found(select, changes):
            yield found.from_, found.where

    def found(self, select: Select, changes: Changes) -> Iterator[Found]:
        reached = [self._leaf(leaf, changes) for leaf in select.leaves]
        where = self._where(select.where)
        for at, one in enumerate(reached):
            for source in one.changed:
                yield Found(self._found_by(select, {at: source}), where, absent=False)
        missing = {at for at in missing_leaves(select) if reached[at].all}
        # of each leaf: its row as it is, a row that is not there now, or none though there is one now
        ways = [
            ("whole", *["absent"] * bool(one.absent), *["none"] * (at in missing))
            for at, one in enumerate(reached)
        ]
        for chosen in product(*ways):
            absent = {at: _united(reached[at].absent) for at, way in enumerate(chosen) if way == "absent"}
            none = {at: reached[at].all for at, way in enumerate(chosen) if way == "none"}
            if absent or none:
                yield Found(*self._without(select, absent, none), absent=True)

    def whole(self, query: Select | All) -> str:
        """The query with the tables' own names."""
        return " UNION ALL ".join(
            f"SELECT {self._items(one, query.items)}"
            + (f" FROM {self.from_(one, {}, ())}" if one.leaves else "")
            + self._where(one.where)
            for one in query.branches
        )

    def source(self, leaf: Leaf) -> str:
        """SQL of a leaf without its alias."""
        if isinstance(leaf.source, Base):
            return leaf.source.sql
        if isinstance(leaf.source, (Select, All)):
            return f"({self.whole(leaf.source)})"
        return leaf.text

    def _items(self, select: Select, names: Sequence[Item] = ()) -> str:
        pairs = zip(select.items, names or select.items, strict=True)
        return ", ".join(f"{item.text} AS {self.engine.quoted(named.name)}" for item, named in pairs)

    def _leaf(self, leaf: Leaf, changes: Changes) -> _Reached:
        source = leaf.source
        if isinstance(source, Base) and source.name in changes:
            return _Reached((self.changed(source, changes[source.name]),), ())
        if isinstance(source, (Select, All)):
            rows = list(self._rows(source, changes))
            changed, absent = ([f"({sql})" for sql, gone in rows if gone is which] for which in (False, True))
            return _Reached(tuple(changed), tuple(absent))
        return _Reached((), ())

    def changed(self, base: Base, changed: str | None) -> str:
        """The changed rows of a base, as a source."""
        if changed is None:
            return base.sql
        quoted = self.engine.quoted
        same = " AND ".join(
            self.engine.same(f"{own.ROW}.{quoted(name)}", f"{own.CHANGED}.{quoted(name)}", base.nullable)
            for name in base.by
        )
        if self.engine.semi:
            return (
                f"(SELECT {own.ROW}.* FROM {base.sql} AS {own.ROW} SEMI JOIN {changed} AS {own.CHANGED} ON {same})"
            )
        there = f"EXISTS (SELECT FROM {changed} AS {own.CHANGED} WHERE {same})"
        return f"(SELECT {own.ROW}.* FROM {base.sql} AS {own.ROW} WHERE {there})"

    def unchanged(self, base: Base, changed: str | None) -> str:
        """The other rows of a base, as a source."""
        if changed is None:
            return f"(SELECT * FROM {base.sql} AS {own.ROW} WHERE FALSE)"
        quoted = self.engine.quoted
        same = " AND ".join(
            self.engine.same(f"{own.ROW}.{quoted(name)}", f"{own.CHANGED}.{quoted(name)}", base.nullable)
            for name in base.by
        )
        there = f"SELECT 1 FROM {changed} AS {own.CHANGED} WHERE {same}"
        return f"(SELECT {own.ROW}.* FROM {base.sql} AS {own.ROW} WHERE NOT EXISTS ({there}))"

    def once(self, select: Select, changes: Changes) -> Iterator[str]:
        """What follows FROM and WHERE, of the rows that the changes reach, each row in one of them.

        Of a SELECT whose rows are one of each base: a row is found by the first of its changed ones.
        """
        others: dict[int, str] = {}
        for at, leaf in enumerate(select.leaves):
            if isinstance(leaf.source, Base) and leaf.source.name in changes:
                changed = changes[leaf.source.name]
                from_ = self.from_(select, {**others, at: self.changed(leaf.source, changed)})
                yield f"{from_}{self._where(select.where)}"
                others[at] = self.unchanged(leaf.source, changed)

    def all_rows(self, select: Select) -> str:
        """What follows FROM and WHERE."""
        return f"{self.from_(select, {})}{self._where(select.where)}"

    def _found_by(self, select: Select, sources: Mapping[int, str], empty: Mapping[int, str] | None = None) -> str:
        """FROM with these sources as leaves; joins that would keep a row without one are inner ones."""
        inner = [
            number
            for number, leaf in enumerate(select.leaves)
            if (number in sources and leaf.joined == "LEFT JOIN") or (0 in sources and leaf.joined == "RIGHT JOIN")
        ]
        return self.from_(select, {**sources, **(empty or {})}, inner)

    def _without(
        self, select: Select, absent: Mapping[int, str], reached: Mapping[int, Sequence[str]]
    ) -> tuple[str, str]:
        """FROM and WHERE of rows without the leaves `reached`, for which changed rows of each of them would be.

        absent: what stands for other leaves.
        """
        empty, exist = {}, []
        for at, sources in reached.items():
            leaf = select.leaves[at]
            empty[at] = f"(SELECT * FROM {self.source(leaf)} AS {own.ROW} WHERE FALSE)"
            on = select.leaves[1] if leaf.joined != "LEFT JOIN" else leaf
            exist.append("(" + " OR ".join(self._exists(leaf, on, source) for source in sources) + ")")
        return self._found_by(select, absent, empty), self._where(select.where, " AND ".join(exist))

    def _exists(self, leaf: Leaf, on: Leaf, source: str) -> str:
        """SQL: the source has a row that the condition `on` joins. Its alias hides the row without one."""
        if not on.using:
            return f"EXISTS (SELECT 1 FROM {source}{leaf.alias} WHERE {on.test})"
        names = [own.numbered(own.KEY, at) for at, _ in enumerate(on.using)]
        renamed = ", ".join(f"{name} AS {new}" for name, new in zip(on.using, names, strict=True))
        same = " AND ".join(f"{new} = {name}" for name, new in zip(on.using, names, strict=True))
        return f"EXISTS (SELECT 1 FROM (SELECT {renamed} FROM {source}{leaf.alias}) AS {own.ROW} WHERE {same})"

    def from_(self, select: Select, instead: Mapping[int, str], inner: Sequence[int] = ()) -> str:
        """FROM with these sources instead of leaves; their joins in `inner` are inner ones."""
        parts = []
        for at, leaf in enumerate(select.leaves):
            if leaf.joined:
                parts.append("JOIN" if at in inner else leaf.joined)
            parts.append(instead.get(at) or self.source(leaf))
            parts[-1] += leaf.alias
            if leaf.on:
                parts.append(leaf.on)
        return " ".join(parts)

    def _where(self, where: str, more: str = "") -> str:
        both = " AND ".join(filter(None, [where and f"({where})", more]))
        return f" WHERE {both}" if both else ""


def _united(sources: Sequence[str]) -> str:
    return sources[0] if len(sources) == 1 else f"({' UNION ALL '.join(sources)})"


def outer_joins(query: Select | All) -> int:
    """How many leaves can be without a row, or with one of the other state alone: the most of its parts."""
    return max(
        len(missing_leaves(one))
        + sum(outer_joins(leaf.source) for leaf in one.leaves if isinstance(leaf.source, (Select, All)))
        for one in query.branches
    )


def missing_leaves(select: Select) -> list[int]:
    """The leaves that an outer join can leave without a row."""
    right = [0] if any(leaf.joined == "RIGHT JOIN" for leaf in select.leaves) else []
    return right + [at for at, leaf in enumerate(select.leaves) if leaf.joined == "LEFT JOIN"]
