"""Groups that are kept by contributions: what changed rows give to counts and sums is added, what they gave is
taken away.

Of each group the number of its rows is kept beside the partial aggregates, in a table of our own: a group without
rows is gone, and a sum of no value is NULL. Whatever does not give exactly the SELECT's own value is left to a
computation of the group from all its rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from backfill_cli.contracts import own
from backfill_cli.derived.engines import Engine
from backfill_cli.derived.query import Call, Item, Leaf, Select, Values
from backfill_cli.derived.reach import Changes, Reach, Rows
from backfill_cli.derived.rows import Maintained, Nulls
from backfill_cli.model.derived import Base

_INNER = frozenset({"", ",", "JOIN", "CROSS JOIN"})
WHOLE = frozenset(
    ("smallint", "integer", "bigint", "tinyint", "hugeint", "utinyint", "usmallint", "uinteger", "ubigint")
)
_KEYS = (
    WHOLE
    | {"boolean", "text", "character varying", "varchar", "date", "uuid", "bytea", "blob"}
    | {
        "timestamp",
        "timestamp with time zone",
        "timestamp without time zone",
    }
)
"""Types of which values that are equal are the same."""
CALLED = frozenset({"count", "sum"})
"""The functions that these call, beside the SELECT's own."""
_ROWS = ("*", "")
"""What counts the rows of a group."""
_ARITHMETIC = (exp.Column, exp.Identifier, exp.Literal, exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Paren)
"""What gives numbers of one scale if all that it is made of are."""


@dataclass(frozen=True, slots=True)
class Contributions:
    """keys: the group's expressions, in the order of `Maintained.pushed`. counted, summed: (argument, FILTER) of
    each count but that of rows, and of each sum or average. sums: the arguments of these as trees.
    """

    maintained: Maintained
    select: Select
    keys: tuple[str, ...]
    counted: tuple[tuple[str, str], ...]
    summed: tuple[tuple[str, str], ...]
    sums: tuple[exp.Expr, ...] = field(compare=False)

    @property
    def engine(self) -> Engine:
        return self.maintained.engine

    @property
    def key_columns(self) -> tuple[str, ...]:
        return self.maintained.key_columns if self.keys else ()

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns that are added: rows, counts, and of each sum itself and how many values it has."""
        return (
            own.ROWS,
            *(own.numbered(own.COUNT, at) for at, _ in enumerate((*self.counted, *self.summed))),
            *(own.numbered(own.PART, at) for at, _ in enumerate(self.summed)),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.key_columns, *self.numbers)

    def judged(self) -> str:
        """A SELECT without rows whose columns' types decide whether these are exact: see `exact`."""
        items = [f"{text} AS {name}" for text, name in zip(self.keys, self.key_columns, strict=True)]
        items += [f"{argument} AS {own.numbered(own.PART, at)}" for at, (argument, _) in enumerate(self.summed)]
        for at, (leaf, name) in enumerate(self._summed_columns()):
            sql = dict(leaf.columns)[name]
            items.append(f"{leaf.qualifier}.{sql} AS {own.numbered(own.VALUE, at)}")
        from_ = Reach(self.engine).from_(self.select, {})
        return f"SELECT {', '.join(items) or f'1 AS {own.ROW}'} FROM {from_} LIMIT 0"

    def inexact(self, types: Sequence[str]) -> str:
        """What cannot be kept so, for a message; "" if all can. types: as declared, of the columns of `judged`."""
        kinds = iter(types)
        for text in self.keys:
            if not is_key(kind := next(kinds)):
                return f"{text} is {kind}, of which equal values can differ"
        arguments = [next(kinds) for _ in self.summed]
        columns = {(leaf.name, name): (leaf, next(kinds)) for leaf, name in self._summed_columns()}
        for (argument, _), kind in zip(self.summed, arguments, strict=True):
            if not _is_exact(kind):
                return f"sum or avg of {argument}, which is {kind}"
        if self.engine.scales and not all(kind.lower() in WHOLE for kind in arguments):
            for tree in self.sums:
                if not _is_scaled(tree, columns):
                    return f"sum or avg of {tree.sql(dialect='postgres')}, whose scale is not that of a type"
        return ""

    def _summed_columns(self) -> list[tuple[Leaf, str]]:
        """The columns that sums are made of, where their types matter."""
        if not self.engine.scales:
            return []
        leaves = {leaf.name: leaf for leaf in self.select.leaves}
        names = {(one.table, one.name): None for tree in self.sums for one in tree.find_all(exp.Column)}
        return [(leaves[of], name) for of, name in names]

    def whole(self, functions: str) -> str:
        """The SELECT of the partial aggregates of all groups, their columns being `columns`."""
        return self._partial(Reach(self.engine).all_rows(self.select), functions, "")

    def given(self, changes: Changes, functions: str, sign: str) -> list[str]:
        """SELECTs of what the rows that these changes reach give to their groups. sign: "" or "-"."""
        touched = {name: one for name, one in changes.items() if name in self.maintained.reads}
        return [self._partial(rows, functions, sign) for rows in Reach(self.engine).once(self.select, touched)]

    def netted(self, changes: Mapping[str, Rows], functions: str) -> Iterator[str]:
        """SELECTs of what changed rows give to their groups, less what they gave. Their signs are in own.SIGN."""
        touched = {name: one for name, one in changes.items() if name in self.maintained.reads}
        for rows, sign in Reach(self.engine).each(self.select, touched):
            yield self._partial(rows, functions, by_sign=sign)

    def _partial(self, rows: str, functions: str, sign: str = "", by_sign: str = "") -> str:
        """sign: of all rows. by_sign: SQL of each row's own."""
        counts = [f"{functions}count({what}){limit}" for what, limit in (*self.counted, *self.summed)]
        sums = [f"coalesce({functions}sum({what}){limit}, 0)" for what, limit in self.summed]
        values = [f"{functions}count(*)", *counts, *sums]
        if by_sign:
            values = [f"CASE WHEN {by_sign} < 0 THEN -{value} ELSE {value} END" for value in values]
        items = [
            *(f"{text} AS {name}" for text, name in zip(self.keys, self.key_columns, strict=True)),
            *(f"{sign}{value} AS {name}" for value, name in zip(values, self.numbers, strict=True)),
        ]
        groups = ", ".join([*(str(at) for at, _ in enumerate(self.keys, 1)), *filter(None, [by_sign])])
        return f"SELECT {', '.join(items)} FROM {rows}" + (f" GROUP BY {groups}" if groups else "")

    def among(self, keys: str, row: str, nulls: Nulls) -> str:
        """SQL: the row of partial aggregates called `row` has a key in the relation `keys`."""
        if not self.keys:
            return "TRUE"
        same = self.maintained.same([f"{row}.{name}" for name in self.key_columns], nulls)
        return f"EXISTS (SELECT 1 FROM {keys} AS {own.KEYS} WHERE {same})"

    def merged(self, given: str, where: str, partials: str, functions: str, nulls: Nulls) -> str:
        """A SELECT of the new partial aggregates of groups that changed. given: a relation of what is added;
        where: which keys of it.
        """
        sums = {name: f"{functions}sum({name})" for name in self.numbers}
        net = (
            f"SELECT {', '.join([*self.key_columns, *(f'{value} AS {name}' for name, value in sums.items())])} "
            f"FROM {given}{where}"
            + (f" GROUP BY {', '.join(self.key_columns)}" if self.keys else "")
            + f" HAVING {' OR '.join(f'{value} <> 0' for value in sums.values())}"
        )
        held = [f"{own.SOURCE}.{name}" for name in self.key_columns]
        same = self.maintained.same(held, nulls) if self.keys else "TRUE"
        items = [
            *(f"{own.KEYS}.{name}" for name in self.key_columns),
            *(f"{own.KEYS}.{name} + coalesce({own.SOURCE}.{name}, 0)" for name in self.numbers),
        ]
        joined = f"LEFT JOIN {partials} AS {own.SOURCE} ON {same}"
        return f"SELECT {', '.join(items)} FROM ({net}) AS {own.KEYS} {joined}"

    def sum_up(self, bag: str, functions: str) -> str:
        """A SELECT of the partial aggregates that all contributions in a relation make up."""
        numbers = [f"{functions}sum({name})" for name in self.numbers]
        select = f"SELECT {', '.join([*self.key_columns, *numbers])} FROM {bag}"
        if not self.keys:
            return select
        some = " OR ".join(f"{functions}sum({name}) <> 0" for name in self.numbers)
        return f"{select} GROUP BY {', '.join(self.key_columns)} HAVING {some}"

    def impossible(self, merged: str) -> str:
        """A SELECT of a row if a group in a relation of partial aggregates cannot be: its rows, or counts of them,
        are fewer than none or more than all, or a sum of no value is not zero. So what was taken away was not
        what had been counted.
        """
        counts = [own.numbered(own.COUNT, at) for at, _ in enumerate((*self.counted, *self.summed))]
        sums = [own.numbered(own.PART, at) for at, _ in enumerate(self.summed)]
        tests = [f"{own.ROWS} < 0", *(f"{count} < 0 OR {count} > {own.ROWS}" for count in counts)]
        of = zip(counts[len(self.counted) :], sums, strict=True)
        tests += [f"({count} = 0 AND {total} <> 0)" for count, total in of]
        return f"SELECT 1 FROM {merged} WHERE {' OR '.join(tests)} LIMIT 1"

    def visible(self, merged: str) -> str:
        """The SELECT's rows, by its own expressions, of the groups in a relation of partial aggregates."""
        items = ", ".join(self._shown(item) for item in self.select.items)
        tests = [f"{own.ROWS} > 0"] if self.keys else []
        if self.select.having is not None:
            tests.append(f"({self._over(self.select.having)})")
        return f"SELECT {items} FROM {merged}" + (f" WHERE {' AND '.join(tests)}" if tests else "")

    def _shown(self, item: Item) -> str:
        name = self.engine.quoted(item.name)
        if item.name in self.maintained.pushed:
            return f"{self.key_columns[self.maintained.pushed.index(item.name)]} AS {name}"
        return f"{self._over(item)} AS {name}"

    def _over(self, item: Item) -> str:
        """Its text, the aggregates in it made of partial ones."""
        at, parts = 0, []
        for call in item.calls or ():
            parts += [item.text[at : call.start], self._value(call)]
            at = call.end
        return "".join([*parts, item.text[at:]])

    def _value(self, call: Call) -> str:
        if call.name == "count" and (call.argument, call.filter) == _ROWS:
            return own.ROWS
        if call.name == "count":
            return own.numbered(own.COUNT, self.counted.index((call.argument, call.filter)))
        at = self.summed.index((call.argument, call.filter))
        total, count = own.numbered(own.PART, at), own.numbered(own.COUNT, len(self.counted) + at)
        if call.name == "avg":
            total = f"CAST({total} AS numeric) / CAST({count} AS numeric)"
        return f"(CASE WHEN {count} > 0 THEN {total} END)"


def contributions(one: Maintained) -> Contributions | str:
    """What it is kept by; or the reason why groups are computed again from all their rows, "" if it has none.

    The types of its columns can still forbid it: `Contributions.inexact`.
    """
    query = one.query
    if not isinstance(query, Select):
        return ""
    if query.groups is None and not query.one_row:
        return ""
    shown = [item for item in query.items if item.tree not in (query.groups or ())]
    told = [*shown, *([query.having] if query.having is not None else [])]
    calls = list[Call]()
    for item in told:
        if item.calls is None or item.windows:
            return item.text
        for call in item.calls:
            if not _adds(call, one.engine):
                return item.text[call.start : call.end]
        calls += item.calls
        if item.tree.find(exp.Order, exp.Distinct) is not None or _outside(item.tree):
            return item.text
    for leaf in query.leaves:
        if leaf.joined not in _INNER:
            return f"{leaf.joined} {leaf.text}"
        if not isinstance(leaf.source, Base | Values):
            return f"a subquery in FROM, {leaf.qualifier}"
    by_name = {item.name: item for item in query.items}
    keys = [by_name[name] for name in one.pushed]
    groups = query.groups or ()
    if query.distinct or query.partitions or query.qualify or not one.unique:
        return "DISTINCT, a window, or a key that is checked"
    if not all(group in [item.tree for item in keys] for group in groups) or len(keys) != len(query.items) - len(
        shown
    ):
        return "an expression of GROUP BY that is no column of the key"
    if any(item.tree not in groups or item.tree.find(exp.Collate) is not None for item in keys):
        return "a column of the key that is no expression of GROUP BY"
    sums = [call.this for item in told for call in item.tree.find_all(exp.Sum, exp.Avg)]
    counted = dict.fromkeys((call.argument, call.filter) for call in calls if call.name == "count")
    counted.pop(_ROWS, None)
    summed = dict.fromkeys((call.argument, call.filter) for call in calls if call.name != "count")
    return Contributions(
        one,
        query,
        tuple(item.text for item in keys),
        tuple(counted),
        tuple(summed),
        tuple(sums),
    )


def _adds(call: Call, engine: Engine) -> bool:
    """Whether the aggregate can be kept by adding."""
    first = call.argument.split(maxsplit=1)[0].upper() if call.argument else ""
    names = ("count", "sum", "avg") if engine.averages else ("count", "sum")
    return call.name in names and first not in ("", "ALL", "DISTINCT")


def _outside(tree: exp.Expr) -> bool:
    """Whether it names a column outside of aggregates."""
    bare = tree.transform(lambda node: exp.Null() if isinstance(node, exp.AggFunc | exp.Filter) else node)
    return bare.find(exp.Column) is not None


def bare(kind: str) -> str:
    """A type without its modifiers."""
    return kind.lower().partition("(")[0].strip()


def is_key(kind: str) -> bool:
    """Whether values of the type that are equal are the same."""
    return bare(kind) in _KEYS or _has_scale(kind)


def _has_scale(kind: str) -> bool:
    return bare(kind) in ("decimal", "numeric") and "(" in kind and not kind.endswith("]")


def _is_exact(kind: str) -> bool:
    return kind.lower() in WHOLE or kind.lower() == "numeric" or _has_scale(kind)


def _is_scaled(tree: exp.Expr, columns: Mapping[tuple[str, str], tuple[Leaf, str]]) -> bool:
    """Whether all numbers that it gives have one scale, and none is NaN.

    A number of PostgreSQL has a scale beside its type's, and a sum the largest of its rows, also of those gone.
    """
    for one in tree.walk():
        if not isinstance(one, _ARITHMETIC) or (isinstance(one, exp.Literal) and one.is_string):
            return False
        if isinstance(one, exp.Column):
            leaf, kind = columns[one.table, one.name]
            of_table = isinstance(leaf.source, Base) and not leaf.source.nullable
            if kind.lower() not in WHOLE and not (of_table and _has_scale(kind)):
                return False
    return True
