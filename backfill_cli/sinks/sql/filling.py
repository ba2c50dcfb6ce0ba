"""Derived tables that are filled by several commits, range by range of one of the tables that they read.

Until the last range, the rows are in a table of our own, which each commit keeps as a derived table of its own:
the SELECT over the rows of FROM up to the last bound. Of one that is kept by contributions, it is what these rows
contribute, in any number of pieces, which are summed up at the end.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import EpochCommit, own
from backfill_cli.derived.contributions import Contributions, contributions, is_key
from backfill_cli.derived.query import Whole, bases_of, each_base_of
from backfill_cli.derived.ranges import RangePartitioning, limited, partitionings
from backfill_cli.derived.rows import Maintained
from backfill_cli.errors import UsageError
from backfill_cli.sinks.sql.dialect import Target, literal
from backfill_cli.sinks.sql.state import FILLS, Fill, SqlState
from backfill_cli.sinks.sql.upkeep import Kept, added_to

if TYPE_CHECKING:
    from backfill_cli.derived.reach import Changes
    from backfill_cli.sinks.sql.derived import SqlDerives

MOST = 64
"""Ranges of one fill: each is a commit, and each commit of changes has one condition more."""


@dataclass(frozen=True, slots=True)
class Part:
    """A derived table of which the first `fill.done` ranges are in `side`, a table of ours.

    ranges: SQL conditions. upto: the SELECT over these ranges. added: what it is kept by, if `side` is a bag of
    contributions.
    """

    one: Maintained
    fill: Fill
    side: Target
    ranges: tuple[str, ...]
    upto: Maintained
    added: Contributions | None

    @property
    def name(self) -> str:
        return self.one.derived.name

    @property
    def kept(self) -> Kept:
        return Kept(self.upto, self.side.sql)


class Filling:
    """In a commit's transaction. parts: those that are being filled, by name."""

    def __init__(self, derives: "SqlDerives[Any]", state: SqlState, commit: EpochCommit) -> None:
        self.derives, self.state, self.commit = derives, state, commit
        self.known = FILLS.name in state.there()  # `prepare` has created it
        self.recorded = state.fills(commit.job) if self.known else {}
        self.parts: dict[str, Part] = {}
        self.stepped = False  # whether this commit has filled a range
        self.made = False  # whether tables were created or dropped

    # -- what is being filled

    def take_up(self, one: Maintained) -> bool:
        """Whether some ranges are filled, as of the commit before this one, of the SELECT as it is."""
        fill = self.recorded.get(one.derived.name)
        if fill is None or fill.epoch != self.commit.prev_epoch or fill.digest != self._digest(one):
            return False
        if any(map(self.commit.restores, one.reads)):  # others may have changed rows that were counted
            return False
        side = self._side(one)
        if not self.derives.tables(self.state).exists(side):
            return False
        part = self._part(one, fill, side)
        if part is None or self._is_altered(part):
            return False
        self.parts[one.derived.name] = part
        return True

    def _is_altered(self, part: Part) -> bool:
        """Whether somebody has dropped, renamed or added a column."""
        wanted, named = part.one.columns if part.added is None else part.added.columns, part.one.engine.name
        held = self.derives.columns(self.state, part.side.sql)
        return {named(name, True) for name, _ in held} != {named(name, True) for name in wanted}

    def _part(self, one: Maintained, fill: Fill, side: Target) -> Part | None:
        by = next((by for by in partitionings(one, fill.adds) if by.sql == fill.by), None)
        added = None
        if by is None:
            return None
        try:
            upto = limited(one, by.up_to(fill.bounds[fill.done - 1]), self.derives.system)
        except UsageError:
            return None
        if fill.adds:
            found = contributions(upto)
            if isinstance(found, str):
                return None
            added = found
        return Part(one, fill, side, by.ranges(fill.bounds), upto, added)

    def before(self, changes: "Changes") -> None:
        """What the old rows contribute is taken out of the bags."""
        self._contribute(changes, "-")

    def after(self, changes: "Changes") -> None:
        """What the new rows contribute is in the bags."""
        self._contribute(changes, "")

    def _contribute(self, changes: "Changes", sign: str) -> None:
        for part in self.parts.values():
            if part.added is not None:
                for select in part.added.given(changes, self.derives.dialect.functions, sign):
                    self.state.con.run(f"INSERT INTO {part.side.sql} {select}")

    # -- one more range

    def step(self, one: Maintained) -> bool:
        """One range more is filled, if any is now. Returns whether the fill can end with this commit: that was the
        last range, or it is to be filled by one SELECT, being small, or as its ranges would cost much more.
        """
        name, rows = one.derived.name, self.commit.fill_rows
        part = self.parts.get(name)
        if rows is None:
            self.forget(one)
            return True
        if rows == 0 or self.stepped:
            if part is not None:
                self._record(name, part.fill)
            return False
        if part is None:
            self.forget(one)
            begun = self._begin(one, rows) if self.known else None
            if begun is not None:
                self.stepped = self.made = True
                self._record(name, begun)
            return begun is None
        self.stepped = True
        self._insert(part)
        fill = replace(part.fill, done=part.fill.done + 1)
        if fill.done <= len(fill.bounds):
            self._record(name, fill)
        return fill.done > len(fill.bounds)

    def rows(self, one: Maintained) -> Target | None:
        """The table that has all rows of one whose last range has just been filled."""
        part = self.parts.get(one.derived.name)
        return part.side if part is not None and part.added is None else None

    def bag(self, one: Maintained) -> str:
        """SQL of the table of all contributions of such a one, which is kept by these; "" for others."""
        part = self.parts.get(one.derived.name)
        return part.side.sql if part is not None and part.added is not None else ""

    def forget(self, one: Maintained) -> None:
        """Nothing of a fill is there any more."""
        fill = self.recorded.pop(one.derived.name, None)
        self.parts.pop(one.derived.name, None)
        if fill is not None:
            self.made = True
            self.state.con.run(f"DROP TABLE IF EXISTS {fill.side}")
            self.state.end_fill(self.commit.job, one.derived.name)

    def _begin(self, one: Maintained, rows: int) -> Fill | None:
        """The first range is filled; None where one SELECT is better."""
        planned = self._planned(one, rows)
        if planned is None:
            return None
        fill, first = planned
        side = self._side(one)
        self.state.con.run(f"DROP TABLE IF EXISTS {side.sql}")
        self.state.con.run(f"CREATE TABLE {side.sql} AS {self._select(first, fill.adds)}")
        return fill

    def _planned(self, one: Maintained, rows: int) -> tuple[Fill, Maintained] | None:
        derives, state = self.derives, self.state
        sizes = {base.name: derives.size(state, base.sql) for base in bases_of(one.query)}
        if max(sizes.values()) < 2 * rows:
            return None
        adds = not isinstance(added_to(state.con, one), str)
        # changes of a derived table reach a bag in two steps, which nothing here tells apart
        if adds and not {table.name for table in (*self.commit.tables, *self.commit.aside)}.issuperset(one.reads):
            return None
        ways = {by.base.name: by for by in partitionings(one, adds)}
        if not ways:
            return None
        by = ways[max(ways, key=lambda name: sizes[name])]
        kind = self._kind(one, by)
        if kind is None:
            return None
        total = sizes[by.base.name]
        if total < 2 * rows:
            return None
        others = sum(sizes[base.name] for base in each_base_of(one.query)) - total
        bounds = self._bounds(by, kind, min(total // rows, MOST))
        while bounds:
            ranges = by.ranges(bounds)
            try:
                parts = [limited(one, condition, derives.system) for condition in ranges]
                for bound in bounds:
                    limited(one, by.up_to(bound), derives.system)
            except UsageError:  # a value of the key that cannot be written as it stands
                return None
            whole, middle = self._select(one, adds), self._select(parts[len(parts) // 2], adds)
            if derives.is_cheap(state, by, bounds, total, others, whole, middle):
                told = self._side(one).sql, self._digest(one), by.base.name, by.sql, bounds, adds
                return Fill(*told, done=1, rows=total, epoch=self.commit.epoch), parts[0]
            bounds = bounds[1::2]  # half as many ranges
        return None

    def _kind(self, one: Maintained, by: RangePartitioning) -> str | None:
        """The type of the column by which ranges are made; None if values may not be what is written of them."""
        held = self.derives.columns(self.state, by.base.sql)
        kinds = [kind for name, kind in held if one.engine.quoted(one.engine.name(name, True)) == by.column]
        return kinds[0] if kinds and (is_key(kinds[0]) or kinds[0].lower() == "numeric") else None

    def _bounds(self, by: RangePartitioning, kind: str, several: int) -> tuple[str, ...]:
        """SQL of values between the ranges, each greater than the one before."""
        shares = [at / several for at in range(1, several)]
        texts = self.derives.quantiles(self.state, by.base.sql, by.column, shares)
        return tuple(f"CAST({literal(text)} AS {kind})" for text in texts)

    def _select(self, of: Maintained, adds: bool) -> str:
        if not adds:
            return of.text
        found = contributions(of)
        assert not isinstance(found, str), "it is kept so without the condition"
        return found.whole(self.derives.dialect.functions)

    def _insert(self, part: Part) -> None:
        """The next range is in the side table."""
        one, con = part.one, self.state.con
        among = limited(one, part.ranges[part.fill.done], self.derives.system)
        select, columns = self._select(among, part.added is not None), one.engine.listed(one.columns)
        if part.added is None and not isinstance(among.query, Whole) and among.query.plain:
            con.run(f"INSERT INTO {part.side.sql} ({columns}) {select}")
            return
        # PostgreSQL plans no INSERT in parallel
        con.run(f"CREATE TEMP TABLE {own.FILLED} AS {select}")
        con.run(f"INSERT INTO {part.side.sql} SELECT * FROM {own.FILLED}")
        con.run(f"DROP TABLE {own.FILLED}")

    def _record(self, name: str, fill: Fill) -> None:
        self.state.record_fill(self.commit.job, name, replace(fill, epoch=self.commit.epoch))

    def _side(self, one: Maintained) -> Target:
        """Beside the target, as a rename moves no table to another schema."""
        schema = self.derives.target(one.derived).schema
        return self.derives.dialect.target(schema, f"{own.PREFIX}{FILLS.name}_{self._digest(one)}")

    def _digest(self, one: Maintained) -> str:
        """What tells which SELECT of which job is being filled."""
        told = repr((self.commit.job, one.derived, one.text))
        return hashlib.sha256(told.encode()).hexdigest()[:16]
