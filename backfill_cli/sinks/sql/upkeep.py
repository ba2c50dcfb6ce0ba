"""Derived tables are kept exact within an epoch's transaction: what its changes reach is deleted and computed
again.

Two steps each: base tables from their old rows to their new ones, then each derived table, for those that read it.
Keys are looked for on both sides of each step, so that a row is found whether it comes, goes or changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backfill_cli.contracts import own
from backfill_cli.derived.additive import ROWS, Sums, additive
from backfill_cli.derived.rows import Maintained
from backfill_cli.errors import BadData, in_config
from backfill_cli.sinks.sql.dialect import NAMED_KEYS
from backfill_cli.sinks.sql.state import Connection


@dataclass(frozen=True, slots=True)
class Kept:
    """A derived table that is whole. target: quoted. sums: SQL of its side table, if it is kept by
    contributions.
    """

    maintained: Maintained
    target: str
    sums: str | None = None

    @property
    def name(self) -> str:
        return self.maintained.derived.name


class Upkeep:
    """On one connection, in the epoch's transaction: `before` the tables are written, then `after`.

    kept: in an order in which each comes after those that it reads.
    """

    def __init__(self, con: Connection, kept: Sequence[Kept]) -> None:
        self.con, self.kept = con, kept
        self.keys = {one.name: f"{own.PREFIX}keys_{at}" for at, one in enumerate(kept)}
        self.changes: Mapping[str, str | None] = {}
        self.doing = ""  # the derived table that is being kept

    def before(self, changes: Mapping[str, str | None]) -> None:
        """The keys that the old rows of these changes reach are known. changes: see `derived.reach.Changes`."""
        self.changes = changes
        for one in self.kept:
            self._create(one)
            self._collect(one, changes, "-")

    def after(self) -> None:
        """Each derived table equals its SELECT. Raises BadData for one whose rows the database refuses."""
        for one in self.kept:
            self._collect(one, self.changes, "")
        for at, one in enumerate(self.kept):
            keys = self.keys[one.name]
            self._know(one)
            if self.con.rows(f"SELECT 1 FROM {keys} LIMIT 1"):
                change: Mapping[str, str | None] = {
                    one.name: self._changed(one) if one.maintained.pushed else None
                }
                for dependent in self.kept[at + 1 :]:
                    self._collect(dependent, change, "-")
                self._replace(one)
                for dependent in self.kept[at + 1 :]:
                    self._collect(dependent, change, "")
            self.con.run(f"DROP TABLE {keys}")
            if one.sums is not None:
                self.con.run(f"DROP TABLE {_delta(keys)}")

    def _create(self, one: Kept) -> None:
        kept, keys = one.maintained, self.keys[one.name]
        columns = ", ".join(
            f"{kept.engine.quoted(name)} AS {column}"
            for name, column in zip(kept.pushed, kept.key_columns, strict=False)
        )
        self.con.run(
            f"CREATE TEMP TABLE {keys} AS SELECT {columns or f'1 AS {own.KEY}'} FROM {one.target} WHERE FALSE"
        )

        if one.sums is not None:
            self.con.run(f"CREATE TEMP TABLE {_delta(keys)} AS SELECT * FROM {one.sums} WHERE FALSE")

    def _collect(self, one: Kept, changes: Mapping[str, str | None], sign: str) -> None:
        """sign: "-" for rows as they were, "" for rows as they are."""
        self.doing = one.name
        keys, sums = self.keys[one.name], _sums(one)
        if sums is not None:
            for select in sums.partial(changes, sign):
                self.con.run(f"INSERT INTO {_delta(keys)} {select}")
            return
        for select in one.maintained.reached(changes):
            self.con.run(f"INSERT INTO {keys} {select}")

    def _know(self, one: Kept) -> None:
        """The keys are known where contributions were collected instead."""
        if one.sums is not None:
            kept, keys = one.maintained, self.keys[one.name]
            columns = kept.engine.listed(kept.pushed) or "1"
            self.con.run(f"INSERT INTO {keys} SELECT DISTINCT {columns} FROM {_delta(keys)}")

    def _changed(self, one: Kept) -> str:
        """The keys as a relation with the derived table's own names."""
        kept = one.maintained
        columns = ", ".join(
            f"{column} AS {kept.engine.quoted(name)}"
            for name, column in zip(kept.pushed, kept.key_columns, strict=True)
        )
        return f"(SELECT DISTINCT {columns} FROM {self.keys[one.name]})"

    def _replace(self, one: Kept) -> None:
        self.doing = one.name
        if (sums := _sums(one)) is not None:
            self._add(one, sums)
            return
        kept, target = one.maintained, one.target
        columns = kept.engine.listed(kept.columns)
        for keys, nulls in self._parts(one):
            among = kept.among(keys, own.SOURCE, nulls)
            self.con.run(f"DELETE FROM {target} AS {own.SOURCE} WHERE {among}")
            self.con.run(f"INSERT INTO {target} ({columns}) {kept.limited(keys, nulls)}")
            if not kept.unique:
                self._check(one, keys, nulls)

    def _add(self, one: Kept, sums: Sums) -> None:
        """The contributions are added to the side table, and the rows of their groups computed from it."""
        kept, keys, side, quoted = one.maintained, self.keys[one.name], one.sums, one.maintained.engine.quoted
        delta = _delta(keys)
        groups, states = [quoted(name) for name in sums.keys], list(sums.states)
        added = ", ".join([*groups, *(f"sum({name}) AS {name}" for name in states)])
        per = f" GROUP BY {', '.join(groups)}" if groups else ""
        same = " AND ".join(kept.engine.same(f"d.{name}", f"s.{name}", True) for name in groups) or "TRUE"
        listed = ", ".join([*groups, *states])
        self.con.run(
            f"INSERT INTO {delta} ({listed}) SELECT {', '.join(f's.{name}' for name in (*groups, *states))} "
            f"FROM {side} AS s WHERE EXISTS (SELECT 1 FROM {delta} AS d WHERE {same})"
        )
        self.con.run(f"DELETE FROM {side} AS s WHERE EXISTS (SELECT 1 FROM {delta} AS d WHERE {same})")
        some = f" HAVING sum({ROWS}) <> 0" if groups else ""
        self.con.run(f"INSERT INTO {side} ({listed}) SELECT {added} FROM {delta}{per}{some}")
        for part, nulls in self._parts(one):
            self.con.run(f"DELETE FROM {one.target} AS {own.SOURCE} WHERE {kept.among(part, own.SOURCE, nulls)}")
        there = f" WHERE EXISTS (SELECT 1 FROM {delta} AS d WHERE {same})"
        self.con.run(
            f"INSERT INTO {one.target} ({kept.engine.listed(kept.columns)}) "
            f"SELECT {', '.join(sums.outputs())} FROM {side} AS s{there}"
        )
        if not kept.unique:
            for part, nulls in self._parts(one):
                self._check(one, part, nulls)

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
        kept, quoted = one.maintained, one.maintained.engine.quoted
        names = ", ".join(map(quoted, kept.derived.key))
        shown = " || ', ' || ".join(f"coalesce(CAST({quoted(name)} AS text), 'NULL')" for name in kept.derived.key)
        twice = self.con.rows(
            f"SELECT {shown}, count(*) FROM {one.target} AS {own.SOURCE} "
            f"WHERE {kept.among(keys, own.SOURCE, nulls)} GROUP BY {names} HAVING count(*) > 1 LIMIT {NAMED_KEYS}"
        )
        if twice:
            raise twice_in(one.name, kept.derived.key, twice)


def _delta(keys: str) -> str:
    """The temporary table of contributions beside that of keys."""
    return f"{keys}_sums"


def _sums(one: Kept) -> Sums | None:
    return additive(one.maintained) if one.sums is not None else None


def twice_in(name: str, key: Sequence[str], twice: Sequence[tuple[str, int]]) -> BadData:
    """Rows of a derived table that share a key."""
    listed = "; ".join(f"({values}) {count} times" for values, count in twice)
    return BadData(
        f"derived table {name!r}: its key ({', '.join(key)}) has duplicates: {listed}",
        in_config("add a column to derived.key that tells these rows apart, or group them in derived.sql"),
    ).of(name)
