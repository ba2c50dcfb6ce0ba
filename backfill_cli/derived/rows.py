"""What keeps one derived table: the keys that changes reach, and its SELECT limited to keys.

Rows are found and recomputed by the *pushed* columns: those of its key whose value is known of a row of FROM,
before it is grouped. All rows with the same values in them are deleted and recomputed together.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from backfill_cli.contracts import own
from backfill_cli.derived.engines import ENGINES, Engine
from backfill_cli.derived.guard import guarded
from backfill_cli.derived.query import All, Item, Leaf, Select, Whole, bases_of, missing_leaves
from backfill_cli.derived.reach import MAX_MISSING, Changes, Groups, Reach, outer_joins
from backfill_cli.derived.reading import MAKE_COLUMN, Read, one_per, or_refreshed, read, refusal
from backfill_cli.derived.whole import WholeReader
from backfill_cli.model.derived import Base, Derived

Nulls = Sequence[bool] | None
"""Which columns are NULL in all keys of a relation, the others being so in none; None: any can be, and the engine
compares NULL as a value.
"""
_CONSTANT = (exp.Literal, exp.Null, exp.Boolean, exp.Cast, exp.DataType, exp.DataTypeParam, exp.Neg, exp.Paren)


@dataclass(frozen=True, slots=True)
class Maintained:
    """One derived table for one engine.

    reads: names of the bases, in the order of appearance. text: the user's text with the tables' own names.
    columns: the output's names. pushed: columns by which rows are recomputed; empty for a SELECT of one row.
    unique: whether no two rows can share a key.
    """

    derived: Derived
    engine: Engine
    reads: tuple[str, ...]
    text: str
    columns: tuple[str, ...]
    pushed: tuple[str, ...]
    unique: bool
    _read: Read

    @property
    def converts(self) -> bool:
        """Whether its rows can be of other types than those of its branches."""
        return len(self._read.query.branches) > 1

    @property
    def refreshed(self) -> bool:
        """Whether it is computed whole by each commit that changes what it reads."""
        return isinstance(self._read.query, Whole)

    @property
    def computed(self) -> tuple[Select, ...]:
        """SELECTs in FROM with groups, DISTINCT or windows, each after those in its own FROM."""
        return self._read.computed

    def reached_in(self, changes: Changes, groups: Groups) -> list[list[str]]:
        """For each of `computed`, SELECTs of the keys that these changes reach. Run one after the other: each can
        read the relations of those before it.
        """
        reach = Reach(self.engine, groups)
        touched = {name: one for name, one in changes.items() if name in self.reads}
        return [reach.keys(one, touched) for one in self.computed]

    def reached(self, changes: Changes, types: Sequence[str] = (), groups: Groups | None = None) -> list[str]:
        """SELECTs of keys that these changes reach, as columns `key_columns`; the same before and after the
        changes. types: of `pushed`, if it `converts`. groups: of `computed`, if there are any.
        """
        reach = Reach(self.engine, groups or Groups(self.computed, [own.GROUPS] * len(self.computed)))
        touched = {name: one for name, one in changes.items() if name in self.reads}
        return [
            f"SELECT DISTINCT {self._keys(branch, types)} FROM {from_}{where}"
            for branch in self._read.query.branches
            for from_, where in reach.froms(branch, touched)
        ]

    @property
    def query(self) -> Select | All | Whole:
        return self._read.query

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of a relation of keys, one for each of `pushed`."""
        return tuple(own.numbered(own.KEY, at) for at, _ in enumerate(self.pushed)) or (own.KEY,)

    def limited(self, keys: str, nulls: Nulls = None, types: Sequence[str] = ()) -> str:
        """The SELECT's rows whose key is in the relation `keys`; not empty where `pushed` is.

        types: see `reached`.
        """
        if not self.pushed:
            return self.text
        splices: list[tuple[int, int, str]] = []
        for branch in self._read.query.branches:
            splices += self._narrowed(branch, keys, nulls) if not types else ()
            same = self.same(_typed([self._guarded(branch, name) for name in self.pushed], types), nulls)
            # a join after a comma sees less than one after CROSS JOIN
            if (
                self.engine.semi
                and branch.leaves
                and not (branch.commas and any(leaf.on for leaf in branch.leaves))
            ):
                splices += [(start, end, " CROSS JOIN") for start, end in branch.commas]
                splices.append(
                    (branch.after_from, branch.after_from, f" SEMI JOIN {keys} AS {own.KEYS} ON {same}")
                )
                continue
            splices += _also(branch, f"EXISTS (SELECT 1 FROM {keys} AS {own.KEYS} WHERE {same})")
        return self._read.spliced(splices)

    def where(self, condition: str) -> str:
        """The user's text, of one SELECT, over the rows of FROM that meet this condition, too."""
        (branch,) = self._read.query.branches
        return replace(self._read, splices=()).spliced(_also(branch, f"({condition})"))

    @property
    def computed_whole(self) -> tuple[str, ...]:
        """Names in FROM of queries with groups, DISTINCT or windows that no key limits."""
        names: dict[str, None] = {}
        for branch in self._read.query.branches if self.pushed else ():
            limited = {id(one) for one, limit in self._limits(branch, own.KEYS, None) if limit}
            for leaf in branch.leaves:
                inner = leaf.source.branches if isinstance(leaf.source, (Select, All)) else ()
                if any(not one.plain and id(one) not in limited for one in inner):
                    names[leaf.name] = None
        return tuple(names)

    def _narrowed(self, branch: Select, keys: str, nulls: Nulls) -> Iterator[tuple[int, int, str]]:
        """Pieces by which SELECTs in its FROM compute only what rows with these keys are made of."""
        for one, limit in self._limits(branch, keys, nulls):
            if limit:
                yield from _also(one, limit)

    def _limits(self, branch: Select, keys: str, nulls: Nulls) -> Iterator[tuple[Select, str]]:
        """SELECTs in its FROM, each with the condition of what rows with these keys are made of; "": of all."""
        reach, missing = Reach(self.engine), missing_leaves(branch)
        trees = [self._item(branch, name).tree for name in self.pushed]
        sources = {}
        for at, leaf in enumerate(branch.leaves):
            columns = dict(leaf.columns)
            own_ones = {n: f"{own.ROW}.{columns[tree.name]}" for n, tree in enumerate(trees) if _is_of(leaf, tree)}
            if isinstance(leaf.source, Base) and own_ones:
                there = f"EXISTS (SELECT 1 FROM {keys} AS {own.KEYS} WHERE {self._some(own_ones, nulls)})"
                sources[at] = f"(SELECT {own.ROW}.* FROM {leaf.source.sql} AS {own.ROW} WHERE {there})"
        for at, leaf in enumerate(branch.leaves):
            if not isinstance(leaf.source, (Select, All)):
                continue
            needed = reach.needed(branch, at, sources)
            places = [name for name, _ in leaf.columns]
            for one in leaf.source.branches:
                if one.plain or self._read.used[id(one)] > 1:
                    continue
                by = {item.tree: guarded(one, item, self.engine) for item in one.by}
                shown = {
                    n: one.items[places.index(tree.name)].tree
                    for n, tree in enumerate(trees)
                    if _is_of(leaf, tree)
                }
                found = {n: f"({by[tree]})" for n, tree in shown.items() if tree in by}
                tests = [reach.narrowed(one, needed)]
                if found and at not in missing:
                    tests.append(f"EXISTS (SELECT 1 FROM {keys} AS {own.KEYS} WHERE {self._some(found, nulls)})")
                yield one, " AND ".join(filter(None, tests))

    def _some(self, expressions: Mapping[int, str], nulls: Nulls) -> str:
        """SQL: these, by the places in `pushed`, are those of a row of the relation called own.KEYS."""
        names = [self.key_columns[at] for at in expressions]
        return self._alike(list(expressions.values()), names, nulls and [nulls[at] for at in expressions])

    def among(self, keys: str, row: str, nulls: Nulls = None) -> str:
        """SQL: the row of the derived table called `row` has a key in the relation `keys`."""
        if not self.pushed:
            return "TRUE"
        same = self.same([f"{row}.{self.engine.quoted(name)}" for name in self.pushed], nulls)
        return f"EXISTS (SELECT 1 FROM {keys} AS {own.KEYS} WHERE {same})"

    def null_patterns(self) -> list[Nulls]:
        """Two that are as different as can be: for a trial."""
        if self.engine.compares_null or not self.pushed:
            return [None]
        return [[null] * len(self.pushed) for null in (False, True)]

    def base(self, names: Sequence[str], target: str) -> Base:
        """This table as one that other derived tables read."""
        derived = self.derived
        return Base(
            name=derived.name,
            names=tuple(names),
            sql=target,
            key=tuple(self.engine.name(one, True) for one in derived.key),
            columns=self.columns,
            by=self.pushed,
            nullable=True,
        )

    def same(self, expressions: Sequence[str], nulls: Nulls) -> str:
        """SQL: these are the key of a row of the relation called own.KEYS."""
        return self._alike(expressions, self.key_columns, nulls)

    def _alike(self, expressions: Sequence[str], names: Sequence[str], nulls: Nulls) -> str:
        pairs = list(zip(expressions, names, strict=True))
        if nulls is None:
            return " AND ".join(self.engine.same(f"{own.KEYS}.{name}", f"({sql})", True) for sql, name in pairs)
        return " AND ".join(
            f"({sql}) IS NULL" if null else f"{own.KEYS}.{name} = ({sql})"
            for (sql, name), null in zip(pairs, nulls, strict=True)
        )

    def _keys(self, branch: Select, types: Sequence[str]) -> str:
        if not self.pushed:
            return f"1 AS {own.KEY}"
        items = [self._item(branch, name).text for name in self.pushed]
        pairs = zip(_typed(items, types), self.key_columns, strict=True)
        return ", ".join(f"{sql} AS {column}" for sql, column in pairs)

    def _guarded(self, branch: Select, name: str) -> str:
        found = guarded(branch, self._item(branch, name), self.engine)
        assert found is not None, "`maintained` has refused it"
        return found

    def _item(self, branch: Select, name: str) -> Item:
        return branch.items[self.columns.index(name)]


def _is_of(leaf: Leaf, tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Column) and tree.table == leaf.name


def _also(select: Select, condition: str) -> Iterator[tuple[int, int, str]]:
    """Pieces by which a SELECT has this condition, too."""
    if select.where:
        begin, end = select.where_at
        yield from ((begin, begin, "("), (end, end, f") AND {condition}"))
    else:
        yield select.after_from, select.after_from, f" WHERE {condition}"


def _typed(expressions: Sequence[str], types: Sequence[str]) -> Sequence[str]:
    """SQL of the expressions, of these types if there are any."""
    if not types:
        return expressions
    return [f"CAST({sql} AS {kind})" for sql, kind in zip(expressions, types, strict=True)]


def maintained(derived: Derived, bases: Sequence[Base], system: str) -> Maintained:
    """Raises UsageError for what cannot be kept exact. system: the sink's type."""
    engine = ENGINES[system]
    if derived.refresh:
        return _refreshed(derived, bases, engine)
    found = read(derived, bases, engine)
    query = found.query
    assert not isinstance(query, Whole)
    columns = tuple(item.name for item in query.items)
    key = tuple(engine.name(name, True) for name in derived.key)
    _require_key(derived, key, columns)
    one_row = isinstance(query, Select) and query.one_row
    for branch in query.branches:
        if branch.one_row and not one_row:
            raise refusal(
                derived.name,
                "UNION ALL of one row of aggregates",
                or_refreshed("make that part a [[derived]] of its own", engine),
            )
        if outer_joins(branch) > MAX_MISSING:
            raise refusal(
                derived.name,
                f"more than {MAX_MISSING} outer joins in one SELECT and the queries in its FROM",
                or_refreshed("make some of them a [[derived]] of their own, and join that one", engine),
            )
    pushed = (
        ()
        if one_row
        else tuple(one for one in key if all(_pushes(each, columns.index(one)) for each in query.branches))
    )
    if not key and not one_row:
        raise refusal(
            derived.name, "no key: its result can have several rows", "name in key the columns that identify a row"
        )
    if not pushed and not one_row:
        raise refusal(
            derived.name,
            f"no column of its key {list(derived.key)} is known before rows are grouped",
            or_refreshed(
                "have an expression of GROUP BY, or of PARTITION BY, in its key as it stands there", engine
            ),
        )
    for one in pushed:
        for branch in query.branches:
            if guarded(branch, item := branch.items[columns.index(one)], engine) is None:
                raise refusal(
                    derived.name,
                    f"key column {one!r}: {item.text} can fail for rows that the SELECT leaves out",
                    or_refreshed(MAKE_COLUMN, engine),
                )
    reads = tuple(base.name for base in bases_of(query))
    if not reads:
        raise refusal(derived.name, "it reads no table of the job", "read one FROM the job's tables")
    unique = isinstance(query, Select) and one_per(query, [query.items[columns.index(one)].tree for one in key])
    return Maintained(derived, engine, reads, found.spliced(), columns, pushed, unique, found)


def _refreshed(derived: Derived, bases: Sequence[Base], engine: Engine) -> Maintained:
    if not engine.refreshes:
        raise refusal(
            derived.name,
            f'refresh = "{derived.refresh}": lakes keep only what is computed by changed rows',
            "leave derived.refresh out",
        )
    found = WholeReader(derived, bases, engine).read()
    columns = tuple(item.name for item in found.query.items)
    key = tuple(engine.name(name, True) for name in derived.key)
    _require_key(derived, key, columns)
    reads = tuple(base.name for base in bases_of(found.query))
    if not reads:
        raise refusal(derived.name, "it reads no table of the job", "read one FROM the job's tables")
    return Maintained(derived, engine, reads, found.spliced(), columns, key, False, found)


def _require_key(derived: Derived, key: Sequence[str], columns: Sequence[str]) -> None:
    for one in key:
        if one not in columns:
            raise refusal(
                derived.name, f"key column {one!r} is no output column", f"name one of {', '.join(columns)}"
            )


def _pushes(branch: Select, at: int) -> bool:
    """Whether the column's value is known of each row of FROM, and limits no partition or group to a part of
    it.

    An expression over a group's column can: values that are equal need not be written the same (1.0 and 1.00).
    """
    item = branch.items[at]
    if item.aggregates or item.windows:
        return False
    if all(isinstance(one, _CONSTANT) for one in item.tree.walk()):
        return True
    parts = [one for one in (*branch.partitions, branch.once_per or None, branch.groups) if one is not None]
    return all(item.tree in part for part in parts)
