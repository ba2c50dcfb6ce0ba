"""Counts and sums that are kept by what changes add to them and take away, however large their groups are.

A side table has a row for each group: how many rows of FROM it has and, for each aggregate, how many values and
their sum. Each row of FROM that a change reaches is taken away as it was and added as it is. A row is reached
through the first of its tables that changed, so that it counts once. The derived table's rows are computed from
the side table's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import TokenType, exp

from backfill_cli.contracts import own
from backfill_cli.derived.query import Select
from backfill_cli.derived.reach import Changes, Reach
from backfill_cli.derived.rows import Maintained
from backfill_cli.model.derived import Base

ROWS = own.ROWS
"""The column of how many rows of FROM a group has."""


@dataclass(frozen=True, slots=True)
class Call:
    """An aggregate in an output column. begin, end: where it is in the column's text. summed: sum, or else
    count.
    """

    begin: int
    end: int
    summed: bool
    argument: str
    condition: str

    def part(self, function: str) -> str:
        return f"{function}({self.argument}){self.condition}"


@dataclass(frozen=True, slots=True)
class Sums:
    """Of one derived table. select: its SELECT. calls: by an output column's place, its aggregates."""

    maintained: Maintained
    select: Select
    calls: Mapping[int, tuple[Call, ...]]

    @property
    def keys(self) -> tuple[str, ...]:
        """The output columns that are groups."""
        return tuple(item.name for item in self.select.items if not item.aggregates)

    @property
    def states(self) -> dict[str, str]:
        """The columns of the side table beside `keys`: their SQL over rows of FROM."""
        found = {ROWS: "count(*)"}
        for at, calls in self.calls.items():
            for number, call in enumerate(calls):
                found[_state(own.COUNT, at, number)] = call.part("count")
                if call.summed:
                    found[_state(own.SUB, at, number)] = call.part("sum")
        return found

    @property
    def sums(self) -> tuple[str, ...]:
        """The columns that are sums: of whole numbers or decimals, or nothing is kept by contributions."""
        return tuple(name for name in self.states if name.startswith(own.SUB))

    def filled(self) -> str:
        """The SELECT of the side table's rows."""
        return self._partial(Reach(self.maintained.engine).from_(self.select, {}), "")

    def partial(self, changes: Changes, sign: str) -> Iterator[str]:
        """SELECTs of what the rows of FROM that these changes reach are in the groups. sign: "-" or ""."""
        reach = Reach(self.maintained.engine)
        bases = {at: leaf.source for at, leaf in enumerate(self.select.leaves) if isinstance(leaf.source, Base)}
        before: dict[int, str] = {}
        for at, base in bases.items():
            if base.name in changes:
                changed = changes[base.name]
                yield self._partial(reach.from_(self.select, {**before, at: reach.changed(base, changed)}), sign)
                before[at] = reach.unchanged(base, changed)

    def outputs(self) -> list[str]:
        """SQL of each output column over a row of the side table."""
        return [
            self._output(item.text, at, self.calls[at])
            if item.aggregates
            else self.maintained.engine.quoted(item.name)
            for at, item in enumerate(self.select.items)
        ]

    def _partial(self, from_: str, sign: str) -> str:
        quoted = self.maintained.engine.quoted
        items = [f"{item.text} AS {quoted(item.name)}" for item in self.select.items if not item.aggregates]
        groups = f" GROUP BY {', '.join(str(at) for at, _ in enumerate(items, 1))}" if items else ""
        items += [f"{sign}{sql} AS {name}" for name, sql in self.states.items()]
        where = f" WHERE ({self.select.where})" if self.select.where else ""
        return f"SELECT {', '.join(items)} FROM {from_}{where}{groups}"

    def _output(self, text: str, at: int, calls: tuple[Call, ...]) -> str:
        parts, done = [], 0
        for number, call in enumerate(calls):
            count = _state(own.COUNT, at, number)
            value = f"CASE WHEN {count} <> 0 THEN {_state(own.SUB, at, number)} END" if call.summed else count
            parts += [text[done : call.begin], f"({value})"]
            done = call.end
        return "".join([*parts, text[done:]])


def _state(of: str, at: int, number: int) -> str:
    return own.numbered(own.numbered(of, at), number)


def additive(maintained: Maintained) -> Sums | None:
    """How to keep it by contributions; None if it has to be computed again."""
    select = maintained.query
    if not isinstance(select, Select) or not (select.one_row or select.groups is not None):
        return None
    if select.distinct or select.once_per or select.partitions or select.having or select.qualify:
        return None
    if any(
        leaf.joined not in ("", "JOIN", "CROSS JOIN") or not isinstance(leaf.source, Base)
        for leaf in select.leaves
    ):
        return None
    plain = [item.tree for item in select.items if not item.aggregates]
    if any(one not in plain for one in select.groups or ()) or any(
        one not in (select.groups or ()) for one in plain
    ):
        return None
    calls = {}
    for at, item in enumerate(select.items):
        if item.aggregates:
            found = _calls(item.text, item.tree, maintained.engine.dialect)
            if found is None:
                return None
            calls[at] = found
    return Sums(maintained, select, calls)


def _calls(text: str, tree: exp.Expr, dialect: str) -> tuple[Call, ...] | None:
    """The aggregates of an output column; None if one of them, or what is beside them, is of another kind."""
    tokens = sqlglot.tokenize(text, dialect=dialect)
    found, at = [], 0
    while at < len(tokens):
        name = tokens[at].text.lower()
        opens = at + 1 < len(tokens) and tokens[at + 1].token_type == TokenType.L_PAREN
        if name not in ("count", "sum") or not opens or tokens[at].token_type == TokenType.IDENTIFIER:
            at += 1
            continue
        begin, close = tokens[at].start, _close(tokens, at + 1)
        first = tokens[at + 2]
        if first.token_type in (TokenType.DISTINCT, TokenType.ALL):
            return None
        argument = text[tokens[at + 1].end + 1 : tokens[close].start]
        if name == "count" and close == at + 2:  # DuckDB's count()
            argument = "*"
        end = tokens[close].end + 1
        condition = ""
        if close + 1 < len(tokens) and tokens[close + 1].text.lower() == "filter":
            close = _close(tokens, close + 2)
            condition = " " + text[end : tokens[close].end + 1]
            end = tokens[close].end + 1
        found.append(Call(begin, end, name == "sum", argument, condition))
        at = close + 1
    aggregates = list(tree.find_all(exp.AggFunc))
    beside = [one for one in tree.find_all(exp.Column) if one.find_ancestor(exp.AggFunc, exp.Filter) is None]
    return tuple(found) if len(found) == len(aggregates) and not beside else None


def _close(tokens: list, at: int) -> int:  # type: ignore[type-arg]
    """The place of the bracket that closes the one here."""
    depth = 0
    while True:
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(tokens[at].token_type, 0)
        if not depth:
            return at
        at += 1
