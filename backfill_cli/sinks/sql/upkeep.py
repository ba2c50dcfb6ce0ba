"""Derived tables are kept exact within an epoch's transaction: what its changes reach is deleted and computed
again.

Two steps each: base tables from their old rows to their new ones, then each derived table, for those that read it.
Keys are looked for on both sides of each step, so that a row is found whether it comes, goes or changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backfill_cli.contracts import own
from backfill_cli.derived.refused import twice_in
from backfill_cli.derived.rows import Maintained
from backfill_cli.sinks.sql.dialect import SqlDialect
from backfill_cli.sinks.sql.state import Connection


@dataclass(frozen=True, slots=True)
class Kept:
    """A derived table that is whole. target: quoted."""

    maintained: Maintained
    target: str

    @property
    def name(self) -> str:
        return self.maintained.derived.name


class Upkeep:
    """On one connection, in the epoch's transaction: `before` the tables are written, then `after`.

    kept: in an order in which each comes after those that it reads.
    """

    def __init__(self, con: Connection, dialect: SqlDialect, kept: Sequence[Kept]) -> None:
        self.con, self.dialect, self.kept = con, dialect, kept
        self.keys = {one.name: own.numbered(own.KEYS, at) for at, one in enumerate(kept)}
        self.types: dict[str, Sequence[str]] = {}
        self.changes: Mapping[str, str | None] = {}
        self.made: set[str] = set()  # those whose keys have a table
        self.doing = ""  # the derived table that is being kept

    def before(self, changes: Mapping[str, str | None]) -> None:
        """The keys that the old rows of these changes reach are known. changes: see `derived.reach.Changes`."""
        self.changes = changes
        for one in self.kept:
            self._collect(one, changes)

    def rehearse(self, changed: Mapping[str, str]) -> None:
        """Whatever a commit can run has been run, over empty tables. changed: the keys of each base, a relation.

        Raises what the database says of the first statement that it refuses.
        """
        for one in self.kept:
            for name in one.maintained.reads:
                for change in (changed[name], None):
                    self._collect(one, {name: change})
            for nulls in (False, True):
                self._recompute(one, self.keys[one.name], nulls)
            self.con.run(f"DROP TABLE {self.keys[one.name]}")

    def after(self) -> None:
        """Each derived table equals its SELECT. Raises BadData for one whose rows the database refuses."""
        for one in self.kept:
            self._collect(one, self.changes)
        for at, one in enumerate(self.kept):
            keys = self.keys[one.name]
            if one.name not in self.made:
                continue
            if self.con.rows(f"SELECT 1 FROM {keys} LIMIT 1"):
                change: Mapping[str, str | None] = {
                    one.name: self._changed(one) if one.maintained.pushed else None
                }
                for dependent in self.kept[at + 1 :]:
                    self._collect(dependent, change)
                self._replace(one)
                for dependent in self.kept[at + 1 :]:
                    self._collect(dependent, change)
            self.con.run(f"DROP TABLE {keys}")

    def _create(self, one: Kept) -> None:
        kept, keys = one.maintained, self.keys[one.name]
        columns = ", ".join(
            f"{kept.engine.quoted(name)} AS {column}"
            for name, column in zip(kept.pushed, kept.key_columns, strict=False)
        )
        self.con.run(
            f"CREATE TEMP TABLE {keys} AS SELECT {columns or f'1 AS {own.KEY}'} FROM {one.target} WHERE FALSE"
        )
        if kept.converts:
            self.types[one.name] = [kind for (kind,) in self.con.rows(kept.engine.types.format(keys))]

    def _collect(self, one: Kept, changes: Mapping[str, str | None]) -> None:
        """Keys have a table only where something is read that changed: each costs rows of the catalog."""
        self.doing = one.name
        if not one.maintained.reached(changes):
            return
        if one.name not in self.made:
            self._create(one)
            self.made.add(one.name)
        for select in one.maintained.reached(changes, self.types.get(one.name, ())):
            self.con.run(f"INSERT INTO {self.keys[one.name]} {select}")

    def _changed(self, one: Kept) -> str:
        """The keys as a relation with the derived table's own names."""
        kept = one.maintained
        columns = ", ".join(
            f"{column} AS {kept.engine.quoted(name)}"
            for name, column in zip(kept.pushed, kept.key_columns, strict=True)
        )
        return f"(SELECT DISTINCT {columns} FROM {self.keys[one.name]})"

    def _replace(self, one: Kept) -> None:
        for keys, nulls in self._parts(one):
            self._recompute(one, keys, nulls)

    def _recompute(self, one: Kept, keys: str, nulls: bool) -> None:
        self.doing = one.name
        kept, target = one.maintained, one.target
        columns = kept.engine.listed(kept.columns)
        among = kept.among(keys, own.SOURCE, nulls)
        limited = kept.limited(keys, nulls, self.types.get(one.name, ()))
        self.con.run(f"DELETE FROM {target} AS {own.SOURCE} WHERE {among}")
        self.con.run(f"INSERT INTO {target} ({columns}) {limited}")
        if not kept.unique:
            self._check(one, keys, nulls)

    def _parts(self, one: Kept) -> list[tuple[str, bool]]:
        """Relations of the keys, and whether they can have NULLs: an engine may find those without NULLs
        faster.
        """
        kept, keys = one.maintained, self.keys[one.name]
        if kept.engine.compares_null or not kept.pushed:
            return [(keys, True)]
        self.con.run(f"ANALYZE {keys}")
        null = " OR ".join(f"{name} IS NULL" for name in kept.key_columns)
        parts = [(f"(SELECT DISTINCT * FROM {keys} WHERE NOT ({null}))", False)]
        if self.con.rows(f"SELECT 1 FROM {keys} WHERE {null} LIMIT 1"):
            parts.append((f"(SELECT DISTINCT * FROM {keys} WHERE {null})", True))
        return parts

    def _check(self, one: Kept, keys: str, nulls: bool) -> None:
        kept = one.maintained
        rows = f"{one.target} AS {own.SOURCE} WHERE {kept.among(keys, own.SOURCE, nulls)}"
        twice = self.con.rows(self.dialect.twice(kept.derived.key, rows))
        if twice:
            raise twice_in(one.name, kept.derived.key, twice)
