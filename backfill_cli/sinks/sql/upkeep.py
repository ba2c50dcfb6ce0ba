"""Derived tables are kept exact within an epoch's transaction: what its changes reach is deleted and computed
again.

Two steps each: base tables from their old rows to their new ones, then each derived table, for those that read it.
Keys are looked for on both sides of each step, so that a row is found whether it comes, goes or changes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from backfill_cli.contracts import own
from backfill_cli.derived.contributions import Contributions, contributions
from backfill_cli.derived.query import bases_of, times_read
from backfill_cli.derived.reach import Groups, Rows
from backfill_cli.derived.refused import twice_in
from backfill_cli.derived.rows import Maintained, Nulls
from backfill_cli.derived.took import Took
from backfill_cli.sinks.sql.dialect import SqlDialect
from backfill_cli.sinks.sql.state import Connection
from backfill_cli.sinks.sql.transition import TransitionTable


@dataclass(frozen=True, slots=True)
class Kept:
    """A derived table that is whole. target: quoted. added: what it is kept by, if its groups are not computed
    again; partials: the table of its partial aggregates, which are of the same rows.
    """

    maintained: Maintained
    target: str
    added: Contributions | None = None
    partials: str = ""

    @property
    def name(self) -> str:
        return self.maintained.derived.name


class Upkeep:
    """On one connection, in the epoch's transaction: `before` the tables are written, then `after`.

    kept: in an order in which each comes after those that it reads.
    """

    def __init__(
        self, con: Connection, dialect: SqlDialect, kept: Sequence[Kept], took: Took | None = None
    ) -> None:
        self.con, self.dialect, self.kept = con, dialect, kept
        self.took = took or Took()
        self.keys = {one.name: own.numbered(own.KEYS, at) for at, one in enumerate(kept)}
        self.types: dict[str, Sequence[str]] = {}
        self.changes: Mapping[str, str | None] = {}
        self.taken: Mapping[str, TransitionTable] = {}
        self.taking: Collection[str] = ()
        self.made: set[str] = set()  # those whose keys have a table
        self.stale: set[str] = set()  # those that are to be computed whole
        self.doing = ""  # the derived table that is being kept

    def before(
        self,
        changes: Mapping[str, str | None],
        taken: Mapping[str, TransitionTable] | None = None,
        taking: Collection[str] = (),
    ) -> None:
        """The keys that the old rows of these changes reach are known. changes: see `derived.reach.Changes`.

        taken: the changed rows of tables, taken as these are written, for the derived tables `taking` them.
        """
        self.changes, self.taken, self.taking = changes, taken or {}, taking
        for one in self.kept:
            if one.name not in taking:
                self._collect(one, changes, "-")

    def rehearse(self, changed: Mapping[str, str | None]) -> None:
        """Whatever a commit can run has been run, over empty tables. changed: the keys of each base, a relation;
        None: it is one row.

        Raises what the database says of the first statement that it refuses.
        """
        for one in self.kept:
            if one.maintained.refreshed:
                self._compute(one)
                for nulls in one.maintained.null_patterns():
                    self._apply(one, self.keys[one.name], nulls)
                self.con.run(f"DROP TABLE {self.keys[one.name]}")
                self.con.run(f"DROP TABLE {self._whole(one)}")
                continue
            told: list[Mapping[str, str | None]] = [
                {name: change} for name in one.maintained.reads for change in (changed[name], None)
            ]
            for changes in (*told, {name: changed[name] for name in one.maintained.reads}):
                for sign in ("-", "")[: 2 if one.maintained.computed else 1]:
                    self._collect(one, changes, sign)
            patterns = one.maintained.null_patterns()
            self._rehearse_taken(one)
            if one.added is not None:
                self._merge(one, [("", nulls) for nulls in patterns])
                self._is_impossible(one)
            for nulls in patterns:
                self._apply(one, self.keys[one.name], nulls)
            if one.added is not None:
                self._add(one)
            self.con.run(f"DROP TABLE {self.keys[one.name]}")

    def _rehearse_taken(self, one: Kept) -> None:
        rows = {
            base.name: Rows(f"(SELECT *, 1 AS {own.SIGN} FROM {base.sql} AS {own.ROW} WHERE FALSE)")
            for base in bases_of(one.maintained.query)
        }
        for changed in (rows, *({name: one} for name, one in rows.items())):
            if can_take(one, changed):
                self._find_taken(one, changed)

    def after(self) -> list[Kept]:
        """Each derived table equals its SELECT, but for those returned, which are to be filled anew: what they had
        counted is not what their tables held (somebody else wrote there), or they read such a one.

        Raises BadData for one whose rows the database refuses.
        """
        drifted: dict[str, Kept] = {}
        rows = {name: Rows(one.name) for name, one in self.taken.items()}
        for one in self.kept:
            if one.name in self.taking:
                with self.took.of(one.name):
                    self._find_taken(one, rows)
            else:
                self._collect(one, self.changes)
        for at, one in enumerate(self.kept):
            if any(name in drifted for name in one.maintained.reads):
                drifted[one.name] = one
            elif one.name in self.stale:
                with self.took.of(one.name):
                    self._compute(one)
            elif one.name in self.made and one.added is not None:
                with self.took.of(one.name):
                    self._merge(one, self._patterns(one))
                    if self._is_impossible(one):
                        drifted[one.name] = one
            if one.name not in self.made:
                continue
            keys = self.keys[one.name]
            if one.name in drifted:
                self.con.run(f"DROP TABLE {keys}")
                continue
            if self.con.rows(f"SELECT 1 FROM {keys} LIMIT 1"):
                change: Mapping[str, str | None] = {
                    one.name: self._changed(one) if one.maintained.pushed else None
                }
                for dependent in self.kept[at + 1 :]:
                    self._collect(dependent, change, "-")
                with self.took.of(one.name):
                    self._replace(one)
                for dependent in self.kept[at + 1 :]:
                    self._collect(dependent, change)
            self.con.run(f"DROP TABLE {keys}")
            if one.name in self.stale:
                self.con.run(f"DROP TABLE {self._whole(one)}")
        return list(drifted.values())

    def _create(self, one: Kept) -> None:
        kept, keys = one.maintained, self.keys[one.name]
        if one.added is not None:
            self.con.run(f"CREATE TEMP TABLE {keys} AS SELECT * FROM {one.partials} WHERE FALSE")
            return
        columns = ", ".join(
            f"{kept.engine.quoted(name)} AS {column}"
            for name, column in zip(kept.pushed, kept.key_columns, strict=False)
        )
        self.con.run(
            f"CREATE TEMP TABLE {keys} AS SELECT {columns or f'1 AS {own.KEY}'} FROM {one.target} WHERE FALSE"
        )
        if kept.converts:
            self.types[one.name] = [kind for (kind,) in self.con.rows(kept.engine.types.format(keys))]

    def _collect(self, one: Kept, changes: Mapping[str, str | None], sign: str = "") -> None:
        """Keys have a table only where something is read that changed: each costs rows of the catalog.

        sign: of what is added, where groups are kept so.
        """
        with self.took.of(one.name):
            self._find(one, changes, sign)

    def _find(self, one: Kept, changes: Mapping[str, str | None], sign: str) -> None:
        self.doing = one.name
        if one.maintained.refreshed:
            if not sign and not changes.keys().isdisjoint(one.maintained.reads):
                self.stale.add(one.name)
            return
        if not one.maintained.reached(changes):
            return
        self._make(one)
        groups = self._groups(one, changes, sign)
        if one.added is None:
            selects = one.maintained.reached(changes, self.types.get(one.name, ()), groups)
        else:
            selects = one.added.given(changes, self.dialect.functions, sign)
        for select in selects:
            self.con.run(f"INSERT INTO {self.keys[one.name]} {select}")
        if groups.after:
            for name in groups.relations:
                self.con.run(f"DROP TABLE IF EXISTS {name}")

    def _groups(self, one: Kept, changes: Mapping[str, str | None], sign: str) -> Groups:
        """The groups in its FROM that the changes reach have tables: made before the changes, added to after."""
        computed = one.maintained.computed
        of = own.numbered(own.GROUPS, self.kept.index(one))
        groups = Groups(computed, [own.numbered(of, at) for at, _ in enumerate(computed)], after=not sign)
        reached = one.maintained.reached_in(changes, groups)
        for name, selects in zip(groups.relations, reached, strict=True):
            if selects:
                found = " UNION ALL ".join(selects)
                self.con.run(
                    f"INSERT INTO {name} {found}" if groups.after else f"CREATE TEMP TABLE {name} AS {found}"
                )
        return groups

    def _find_taken(self, one: Kept, rows: Mapping[str, Rows]) -> None:
        """As `_find`, of both sides at once: only these rows tell one from the other."""
        self.doing = one.name
        self._make(one)
        if one.added is None:
            selects: Iterable[str] = one.maintained.reached(rows, self.types.get(one.name, ()))
        else:
            selects = one.added.netted(rows, self.dialect.functions)
        for select in selects:
            self.con.run(f"INSERT INTO {self.keys[one.name]} {select}")

    def _make(self, one: Kept) -> None:
        if one.name not in self.made:
            self._create(one)
            self.made.add(one.name)

    def _whole(self, one: Kept) -> str:
        """The table of all rows of one that is computed whole."""
        return own.numbered(own.MERGED, self.kept.index(one))

    def _compute(self, one: Kept) -> None:
        """A table has all its rows, and the table of keys those of rows that differ."""
        self.doing = one.name
        kept, row, whole = one.maintained, own.ROW, self._whole(one)
        self.con.run(f"CREATE TEMP TABLE {whole} AS {kept.text}")
        if twice := self.con.rows(self.dialect.twice(kept.derived.key, whole)):
            raise twice_in(one.name, kept.derived.key, twice)
        self._make(one)
        names = [kept.engine.quoted(name) for name in kept.pushed]
        # an engine can take NULL and an array without elements for the same
        same = [
            f"{kept.engine.same(f's.{name}', f't.{name}', True)} AND (s.{name} IS NULL) = (t.{name} IS NULL)"
            for name in names
        ]
        # values that are equal can be written otherwise: 1.0 and 1.00
        columns = list(map(kept.engine.quoted, kept.columns))
        tests = [f"CAST(s.{name} AS text) IS DISTINCT FROM CAST(t.{name} AS text)" for name in columns]
        if kept.engine.compares_null:  # it writes some lists alike that are not
            tests += [f"s.{name} IS DISTINCT FROM t.{name}" for name in columns]
        on = " AND ".join(same) or f"s.{row} = t.{row}"
        keys = ", ".join(f"CASE WHEN s.{row} = 1 THEN s.{name} ELSE t.{name} END" for name in names)
        self.con.run(
            f"INSERT INTO {self.keys[one.name]} SELECT {keys or 1} FROM (SELECT *, 1 AS {row} FROM {whole}) AS s "
            f"FULL JOIN (SELECT *, 1 AS {row} FROM {one.target}) AS t ON {on} "
            f"WHERE s.{row} IS NULL OR t.{row} IS NULL OR {' OR '.join(tests)}"
        )

    def _changed(self, one: Kept) -> str:
        """The keys as a relation with the derived table's own names."""
        kept = one.maintained
        columns = ", ".join(
            f"{column} AS {kept.engine.quoted(name)}"
            for name, column in zip(kept.pushed, kept.key_columns, strict=True)
        )
        return f"(SELECT DISTINCT {columns} FROM {self.keys[one.name]})"

    def _replace(self, one: Kept) -> None:
        columns = ", ".join(one.maintained.key_columns)
        for where, nulls in self._patterns(one):
            keys = (
                self.keys[one.name]
                if nulls is None
                else f"(SELECT DISTINCT {columns} FROM {self.keys[one.name]}{where})"
            )
            self._apply(one, keys, nulls)
        if one.added is not None:
            self._add(one)

    def _apply(self, one: Kept, keys: str, nulls: Nulls) -> None:
        if one.added is None:
            self._recompute(one, keys, nulls)
        else:
            self._take_away(one, keys, nulls)

    def _recompute(self, one: Kept, keys: str, nulls: Nulls) -> None:
        self.doing = one.name
        kept, target = one.maintained, one.target
        columns = kept.engine.listed(kept.columns)
        among = kept.among(keys, own.SOURCE, nulls)
        if kept.refreshed:
            limited = f"SELECT {columns} FROM {self._whole(one)} AS {own.SOURCE} WHERE {among}"
        else:
            limited = kept.limited(keys, nulls, self.types.get(one.name, ()))
        self.con.run(f"DELETE FROM {target} AS {own.SOURCE} WHERE {among}")
        self.con.run(f"INSERT INTO {target} ({columns}) {limited}")
        if not (kept.unique or kept.refreshed):
            self._check(one, keys, nulls)

    def _merge(self, one: Kept, patterns: Sequence[tuple[str, Nulls]]) -> None:
        """Instead of what is added to groups, the table of keys has their new partial aggregates; groups that
        nothing was added to in all are left out.
        """
        assert one.added is not None
        self.doing = one.name
        given, merged = self.keys[one.name], own.numbered(own.MERGED, self.kept.index(one))
        self.con.run(f"CREATE TEMP TABLE {merged} AS SELECT * FROM {one.partials} WHERE FALSE")
        for where, nulls in patterns:
            select = one.added.merged(given, where, one.partials, self.dialect.functions, nulls)
            self.con.run(f"INSERT INTO {merged} {select}")
        self.con.run(f"DROP TABLE {given}")
        self.keys[one.name] = merged

    def _is_impossible(self, one: Kept) -> bool:
        """Whether a merged group cannot be."""
        assert one.added is not None
        return bool(self.con.rows(one.added.impossible(self.keys[one.name])))

    def _take_away(self, one: Kept, keys: str, nulls: Nulls) -> None:
        """The derived table and its partial aggregates have no row of these keys."""
        assert one.added is not None
        self.doing = one.name
        among = one.added.among(keys, own.SOURCE, nulls)
        self.con.run(f"DELETE FROM {one.partials} AS {own.SOURCE} WHERE {among}")
        among = one.maintained.among(keys, own.SOURCE, nulls)
        self.con.run(f"DELETE FROM {one.target} AS {own.SOURCE} WHERE {among}")

    def _add(self, one: Kept) -> None:
        """They have the rows of the merged groups."""
        assert one.added is not None
        merged, columns = self.keys[one.name], one.maintained.engine.listed(one.maintained.columns)
        there = f" WHERE {own.ROWS} > 0" if one.maintained.pushed else ""
        self.con.run(f"INSERT INTO {one.partials} SELECT * FROM {merged}{there}")
        self.con.run(f"INSERT INTO {one.target} ({columns}) {one.added.visible(merged)}")

    def _patterns(self, one: Kept) -> list[tuple[str, Nulls]]:
        """Conditions that part the keys, and which columns are NULL in those of each: such keys can be looked up
        by an index that compares no NULL.
        """
        kept, keys = one.maintained, self.keys[one.name]
        if kept.engine.compares_null or not kept.pushed:
            return [("", None)]
        self.con.run(f"ANALYZE {keys}")
        nulls = ", ".join(f"{name} IS NULL" for name in kept.key_columns)
        found = list[tuple[str, Nulls]]()
        for pattern in self.con.rows(f"SELECT DISTINCT {nulls} FROM {keys}"):
            pairs = zip(kept.key_columns, pattern, strict=True)
            tests = (f"{name} IS {'' if null else 'NOT '}NULL" for name, null in pairs)
            found.append((f" WHERE {' AND '.join(tests)}", pattern))
        return found

    def _check(self, one: Kept, keys: str, nulls: Nulls) -> None:
        kept = one.maintained
        rows = f"{one.target} AS {own.SOURCE} WHERE {kept.among(keys, own.SOURCE, nulls)}"
        twice = self.con.rows(self.dialect.twice(kept.derived.key, rows))
        if twice:
            raise twice_in(one.name, kept.derived.key, twice)


MOST_TAKEN = 2
"""Changed leaves of a SELECT whose rows are found at once: each set of them is a query."""


def can_take(one: Kept, changed: Iterable[str]) -> bool:
    """Whether it can be kept by the changed rows of these tables, as they were and are, once all are written.

    So no state of the tables is seen that never was. Where a SELECT is not kept by contributions, a second changed
    table would have to be as it was; and so would groups in its FROM.
    """
    if one.maintained.computed or one.maintained.refreshed:
        return False
    times = sum(times_read(one.maintained.query, name) for name in changed)
    return times <= (1 if one.added is None else MOST_TAKEN)


def added_to(con: Connection, one: Maintained) -> Contributions | str:
    """What it is kept by; or why its groups are computed again, as `derived.contributions` says."""
    found = contributions(one)
    if isinstance(found, str):
        return found
    con.run(f"CREATE TEMP TABLE {own.MERGED} AS {found.judged()}")
    types = [kind for (kind,) in con.rows(one.engine.declared.format(own.MERGED))]
    con.run(f"DROP TABLE {own.MERGED}")
    return found.inexact(types) or found


def create_partials(
    con: Connection, dialect: SqlDialect, added: Contributions, partials: str, temporary: bool = False
) -> None:
    """A table of this name has the partial aggregates of all groups. In one statement, as an INSERT is not planned
    in parallel by PostgreSQL.
    """
    kind = "TEMPORARY TABLE" if temporary else "TABLE"
    con.run(f"CREATE {kind} {partials} AS {added.whole(dialect.functions)}")
