"""Which rows of a query a change of the tables under it reaches, as SQL that holds before and after the change.

A row of FROM is made of one row of each leaf, or of none where an outer join has found none; a leaf that is a
query is made so itself. What differs between the states before and after is found from either side. Let r be a
row of the one state, S, and not of the other, T.

1. If one of the rows that r is made of changed, r is found by that row in S (`_found_by`).
2. If none did, T has all of them as well, and all conditions on them have the same values there. So some leaves,
   at any depth, for which r has no row have one in T: let these be C. A row that such a leaf has in T and not in S
   is, by the same reasoning, in the reach of that leaf, seen from T or from S.
   - If it is seen from T for each leaf of C: r is the row that FROM has in T if the leaves of C are empty, and for
     which reached rows of each of them would be there (`_without`, which is asked for each set of leaves, at all
     depths at once: rows that a query in FROM so has stand for it).
   - If it is seen only from S for one of them: r is a row of S without that leaf, and is found so, in S.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from sqlglot import exp

from backfill_cli.contracts import own
from backfill_cli.derived.engines import Engine
from backfill_cli.derived.guard import guarded
from backfill_cli.derived.query import All, Item, Leaf, Select, missing_leaves
from backfill_cli.model.derived import Base


@dataclass(frozen=True, slots=True)
class Rows:
    """SQL of a relation of a base's changed rows themselves, with the columns that are read."""

    sql: str


Changes = Mapping[str, str | Rows | None]
"""By a base's name, SQL of a relation with the columns of `Base.by` of its changed rows, or these; None: all rows
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


@dataclass(frozen=True, slots=True)
class Groups:
    """Relations of the keys that changes reach in each of `computed_in`: `own.KEY` columns, and `own.OLD`, whether
    they do so before the changes. after: whether this is the state after them.
    """

    computed: Sequence[Select] = ()
    relations: Sequence[str] = ()
    after: bool = False

    def of(self, select: Select) -> str:
        return next(name for one, name in zip(self.computed, self.relations, strict=True) if one is select)


@dataclass(frozen=True, slots=True)
class Needed:
    """Rows in whose columns these, by their places in a SELECT, have the values of a row of the relation."""

    relation: str
    columns: Mapping[int, str]


class Reach:
    def __init__(self, engine: Engine, groups: Groups = Groups()) -> None:
        self.engine, self.groups = engine, groups

    def rows(self, query: Select | All, changes: Changes, items: str = "") -> Iterator[str]:
        """SELECTs of the rows of a plain query that these changes reach.

        items: SQL of the columns, if not its own.
        """
        for found, _ in self._rows(query, changes, items):
            yield found

    def _rows(self, query: Select | All, changes: Changes, items: str = "") -> Iterator[tuple[str, bool]]:
        """And whether they need not be rows of this state."""
        if isinstance(query, Select):
            if not query.plain:
                yield from self._computed(query, changes)
                return
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

    def keys(self, select: Select, changes: Changes) -> list[str]:
        """SELECTs of the keys by which a SELECT in FROM can have other rows."""
        items = [item.text for item in select.by] or ["1"]
        listed = ", ".join(f"{sql} AS {own.numbered(own.KEY, at)}" for at, sql in enumerate(items))
        old = "FALSE" if self.groups.after else "TRUE"
        return [
            f"SELECT DISTINCT {listed}, {old} AS {own.OLD} FROM {found.from_}{found.where}"
            for found in self.found(select, changes)
        ]

    def _computed(self, select: Select, changes: Changes) -> Iterator[tuple[str, bool]]:
        """The rows with keys that are reached; and after the changes, also those that only were there before.

        What has a key that nothing reached before is made of rows that are there still, beside new ones.
        """
        if not self.keys(select, changes):
            return
        reached = self.groups.of(select)
        for limit in self._limits(select, reached):
            yield self._limited(select, limit, {}), False
        if self.groups.after:
            columns = ", ".join(own.numbered(own.KEY, at) for at, _ in enumerate(select.by or "1"))
            new = f"(SELECT {columns} FROM {reached} EXCEPT SELECT {columns} FROM {reached} WHERE {own.OLD})"
            for limit in self._limits(select, new):
                yield self._limited(select, limit, changes), True

    def _limits(self, select: Select, keys: str) -> Iterator[str]:
        """Conditions of which each row with such a key fulfils one."""
        there = f"EXISTS (SELECT 1 FROM {keys} AS {own.KEYS}"
        if not select.by:
            yield f"{there})"
        elif self.engine.compares_null:
            yield f"{there} WHERE {self._same(select, True)})"
        else:  # arrays are found by no index
            columns = [f"{own.KEYS}.{own.numbered(own.KEY, at)}" for at, _ in enumerate(select.by)]
            nulls = " OR ".join(f"{column} IS NULL" for column in columns)
            yield f"{there} WHERE {self._same(select, False)})"
            yield f"{there} WHERE ({nulls}) AND {self._same(select, True)})"

    def _same(self, select: Select, nullable: bool) -> str:
        """SQL: a row of FROM has the key of the row called own.KEYS."""
        return " AND ".join(
            self.engine.same(
                f"{own.KEYS}.{own.numbered(own.KEY, at)}", f"({guarded(select, item, self.engine)})", nullable
            )
            for at, item in enumerate(select.by)
        )

    def _limited(self, select: Select, limit: str, without: Changes) -> str:
        found = f"SELECT * FROM ({self._select(select, without, limit)}) AS {own.ROW}"
        return found if select.by else f"{found} WHERE {limit}"

    def needed(
        self, select: Select, at: int, sources: Mapping[int, str], inner: Sequence[int] = ()
    ) -> "Needed | None":
        """Which rows of what a leaf computes can be joined with these sources of other leaves; None: any."""
        leaf = select.leaves[at]
        if not isinstance(leaf.source, (Select, All)) or leaf.source.plain:
            return None
        places = [name for name, _ in leaf.columns]
        found: dict[int, dict[int, str]] = {}
        for left, right, limits in _equalities(select, inner):
            for mine, other in ((left, right), (right, left)):
                of = next((number for number in sources if select.leaves[number].name == other.table), None)
                if of is not None and not self._compares(select, other.table):
                    continue
                if mine.table == leaf.name and of is not None and (limits is None or limits == at):
                    column = dict(select.leaves[of].columns)[other.name]
                    found.setdefault(of, {})[places.index(mine.name)] = f"{select.leaves[of].qualifier}.{column}"
        if not found:
            return None
        of, columns = max(found.items(), key=lambda one: len(one[1]))
        listed = ", ".join(f"{sql} AS {own.numbered(own.KEY, place)}" for place, sql in columns.items())
        where = "" if self.engine.strict else self._where(select.where)
        relation = f"(SELECT {listed} FROM {sources[of]}{select.leaves[of].alias}{where})"
        return Needed(relation, {place: own.numbered(own.KEY, place) for place in columns})

    def _compares(self, select: Select, of: str) -> bool:
        """Whether columns of a leaf that are compared can be compared in all of its rows: a text that is compared
        with a number can fail where a condition would have left it out.
        """
        if self.engine.strict:
            return True
        where = select.condition.find_all(exp.Column) if select.condition is not None else ()
        pairs = [one for leaf in select.leaves for one in _conjuncts(leaf.condition)]
        return all(one.table == of for one in where) and all(
            isinstance(one, exp.EQ) and isinstance(one.left, exp.Column) and isinstance(one.right, exp.Column)
            for one in pairs
        )

    def narrowed(self, select: Select, needed: "Needed | None") -> str:
        """The condition of a SELECT in FROM by which it computes only what is needed; "" if it cannot."""
        if needed is None or select.plain:
            return ""
        by = {item.tree: item for item in select.by}
        tests = [
            f"{own.KEYS}.{column} = ({guarded(select, by[select.items[place].tree], self.engine)})"
            for place, column in needed.columns.items()
            if select.items[place].tree in by
        ]
        return (
            f"EXISTS (SELECT 1 FROM {needed.relation} AS {own.KEYS} WHERE {' AND '.join(tests)})" if tests else ""
        )

    def whole(self, query: Select | All, without: Changes | None = None, needed: "Needed | None" = None) -> str:
        """The query with the tables' own names. without: the rows of both states, at most, of which these know.

        Such as are made of rows that are not changed; and of what is computed, those with keys that nothing
        reached before. needed: of what is computed, other rows can be left out.
        """
        without = without or {}
        parts = []
        for one in query.branches:
            if one.plain:
                from_ = f" FROM {self.from_(one, {}, without=without)}" if one.leaves else ""
                parts.append(f"SELECT {self._items(one, query.items)}{from_}{self._where(one.where)}")
            elif without and self.keys(one, without):
                reached = f"(SELECT * FROM {self.groups.of(one)} WHERE {own.OLD})"
                same = f" WHERE {self._same(one, True)}" if one.by else ""
                limit = f"NOT EXISTS (SELECT 1 FROM {reached} AS {own.KEYS}{same})"
                parts.append(self._limited(one, limit, without))
            else:
                parts.append(self._select(one, without, self.narrowed(one, needed)))
        return parts[0] if len(parts) == 1 else " UNION ALL ".join(parts)

    def _select(self, select: Select, without: Changes, limit: str = "") -> str:
        """A SELECT as it is written."""
        from_ = f" FROM {self.from_(select, {}, without=without)}" if select.leaves else ""
        tail = f" {select.tail}" if select.tail else ""
        return f"{select.head}{from_}{self._where(select.where, limit)}{tail}"

    def source(self, leaf: Leaf, without: Changes | None = None, needed: "Needed | None" = None) -> str:
        """SQL of a leaf without its alias. without, needed: see `whole`."""
        if isinstance(leaf.source, Base):
            if without and leaf.source.name in without:
                return self.unchanged(leaf.source, without[leaf.source.name])
            return leaf.source.sql
        if isinstance(leaf.source, (Select, All)):
            return f"({self.whole(leaf.source, without, needed)})"
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

    def changed(self, base: Base, changed: str | Rows | None) -> str:
        """The changed rows of a base, as a source."""
        if changed is None:
            return base.sql
        if isinstance(changed, Rows):
            return changed.sql
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

    def unchanged(self, base: Base, changed: str | Rows | None) -> str:
        """The other rows of a base, as a source."""
        if changed is None:
            return f"(SELECT * FROM {base.sql} AS {own.ROW} WHERE FALSE)"
        relation = changed.sql if isinstance(changed, Rows) else changed
        quoted = self.engine.quoted
        same = " AND ".join(
            self.engine.same(f"{own.ROW}.{quoted(name)}", f"{own.CHANGED}.{quoted(name)}", base.nullable)
            for name in base.by
        )
        there = f"SELECT 1 FROM {relation} AS {own.CHANGED} WHERE {same}"
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

    def each(self, select: Select, changes: Mapping[str, Rows]) -> Iterator[tuple[str, str]]:
        """As `once`, of rows as they were and as they are, each with its own.SIGN, over tables as they are now.

        For each set of leaves with a changed row: what follows FROM, and WHERE; and SQL of a row's sign. Rows of
        several are looked for with equal signs alone: no condition sees what never was.
        """
        touched = [
            (at, leaf, leaf.source, changes[leaf.source.name].sql)
            for at, leaf in enumerate(select.leaves)
            if isinstance(leaf.source, Base) and leaf.source.name in changes
        ]
        for chosen in product((True, False), repeat=len(touched)):
            several = sum(chosen) > 1
            for sign in ("< 0", "> 0") if several else ("",) * any(chosen):
                instead, signs = {}, []
                for (at, leaf, base, rows), is_changed in zip(touched, chosen, strict=True):
                    instead[at] = self.unchanged(base, rows)
                    if is_changed:
                        of_sign = f"(SELECT * FROM {rows} AS {own.ROW} WHERE {own.SIGN} {sign})"
                        instead[at] = of_sign if several else rows
                        signs.append(f"{leaf.qualifier}.{own.SIGN}")
                yield f"{self.from_(select, instead)}{self._where(select.where)}", signs[0]

    def all_rows(self, select: Select) -> str:
        """What follows FROM and WHERE."""
        return f"{self.from_(select, {})}{self._where(select.where)}"

    def _found_by(
        self,
        select: Select,
        sources: Mapping[int, str],
        empty: Mapping[int, str] | None = None,
        there: Mapping[int, str] | None = None,
    ) -> str:
        """FROM with these sources as leaves; joins that would keep a row without one are inner ones."""
        inner = [
            number
            for number, leaf in enumerate(select.leaves)
            if (number in sources and leaf.joined == "LEFT JOIN") or (0 in sources and leaf.joined == "RIGHT JOIN")
        ]
        return self.from_(select, {**sources, **(empty or {})}, inner, there)

    def _without(
        self, select: Select, absent: Mapping[int, str], reached: Mapping[int, Sequence[str]]
    ) -> tuple[str, str]:
        """FROM and WHERE of rows without the leaves `reached`, for which changed rows of each of them would be.

        absent: what stands for other leaves.
        """
        empty, there, tests = dict[int, str](), dict[int, str](), []
        for at, sources in reached.items():
            leaf = select.leaves[at]
            empty[at] = f"(SELECT * FROM {self.source(leaf)} AS {own.ROW} WHERE FALSE)"
            there[at] = _united(sources)
            on = select.leaves[1] if leaf.joined != "LEFT JOIN" else leaf
            tests.append(f"EXISTS (SELECT 1 FROM {there[at]}{leaf.alias} WHERE {on.test})")
        if self.engine.semi:
            return self._found_by(select, absent, empty, there), self._where(select.where)
        return self._found_by(select, absent, empty), self._where(select.where, " AND ".join(tests))

    def from_(
        self,
        select: Select,
        instead: Mapping[int, str],
        inner: Sequence[int] = (),
        there: Mapping[int, str] | None = None,
        without: Changes | None = None,
    ) -> str:
        """FROM with these sources instead of leaves; their joins in `inner` are inner ones. without: see `whole`.

        there: sources that have a row where the leaf is joined. Of a SEMI JOIN, names mean what they mean in the
        leaf's own join, which within EXISTS they need not: o.v can be a field of a column o of the leaf there.
        """
        there = there or {}
        leaves = list(enumerate(select.leaves))
        if 0 in there:
            (_, left), (_, right) = leaves[:2]
            left = replace(left, joined="LEFT JOIN", on=right.on)
            leaves[:2] = [(1, replace(right, joined="", on="")), (0, left)]
        parts = []
        for at, leaf in leaves:
            if at in there:
                parts.append(f"SEMI JOIN {there[at]}{leaf.alias} {leaf.on}")
            if leaf.joined:
                parts.append("JOIN" if at in inner else leaf.joined)
            parts.append(
                instead.get(at)
                or self.source(leaf, without, self.needed(select, at, instead, inner) if instead else None)
            )
            parts[-1] += leaf.alias
            if leaf.on:
                parts.append(leaf.on)
        return " ".join(parts)

    def _where(self, where: str, more: str = "") -> str:
        both = " AND ".join(filter(None, [where and f"({where})", more]))
        return f" WHERE {both}" if both else ""


def _united(sources: Sequence[str]) -> str:
    return sources[0] if len(sources) == 1 else f"({' UNION ALL '.join(sources)})"


def _equalities(select: Select, inner: Sequence[int]) -> Iterator[tuple[exp.Column, exp.Column, int | None]]:
    """Columns that are equal in each row of FROM and WHERE; or, beside the number of a leaf, where it has a row.

    inner: leaves whose joins are inner ones.
    """
    conditions: list[tuple[exp.Expr | None, int | None]] = [(select.condition, None)]
    for at, leaf in enumerate(select.leaves):
        if leaf.joined == "JOIN" or at in inner:
            conditions.append((leaf.condition, None))
        elif leaf.joined in ("LEFT JOIN", "RIGHT JOIN"):
            conditions.append((leaf.condition, at if leaf.joined == "LEFT JOIN" else 0))
    for condition, limits in conditions:
        for one in _conjuncts(condition):
            if isinstance(one, exp.EQ) and isinstance(one.left, exp.Column) and isinstance(one.right, exp.Column):
                yield one.left, one.right, limits


def _conjuncts(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    if isinstance(condition, exp.And):
        yield from _conjuncts(condition.left)
        yield from _conjuncts(condition.right)
    elif isinstance(condition, exp.Paren):
        yield from _conjuncts(condition.this)
    elif condition is not None:
        yield condition


def outer_joins(query: Select | All) -> int:
    """How many leaves can be without a row, or with one of the other state alone: the most of its parts."""
    return max(
        len(missing_leaves(one))
        + sum(
            outer_joins(leaf.source) + (not leaf.source.plain)
            for leaf in one.leaves
            if isinstance(leaf.source, (Select, All))
        )
        for one in query.branches
    )
