"""Writes the staged rows of one table into the database, inside the epoch's transaction.

How a target must be written depends on its foreign keys, triggers, columns and indexes: its `Shape`.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from backfill_cli.contracts import EpochCommit, SinkTable, own
from backfill_cli.contracts.refusals import duplicate_keys, no_row_to_fill
from backfill_cli.errors import BadData, sql
from backfill_cli.model.plan import StagedTable
from backfill_cli.sinks.postgres.dialect import POSTGRES, TREE, listed, matching, quoted, shown, sink_columns
from backfill_cli.sinks.postgres.session import Connection
from backfill_cli.sinks.postgres.staged import copy, stage
from backfill_cli.sinks.postgres.state import State
from backfill_cli.sinks.sql.dialect import NAMED_KEYS, Column, Target, literal, paths_of
from backfill_cli.sinks.sql.transition import TransitionTable

_BEFORE_ROW, _UPDATE_OR_DELETE = 1 | 2, 8 | 16
"""Bits of pg_trigger.tgtype."""
PARTIAL = f"s.{own.OP} = 'U' AND pg_catalog.cardinality(s.{own.UNSENT}) > 0"
"""SQL: whether the staged change `s` leaves some columns at the value that the target has."""


def apply(state: State, commit: EpochCommit, table: SinkTable, taken: TransitionTable | None = None) -> None:
    """The table holds the epoch's rows: snapshot rows are inserted; each change deletes by key, then inserts.

    MERGE is no faster (1 M changes of 2 M rows: 7.9 s both, ON CONFLICT 9.4), and with MERGE rows that exchange
    the values of another unique column would clash. Rows are updated only where they must not be deleted even
    for a moment (see Shape.in_place). taken: has the changed rows of a table that `is_plain`.
    """
    writing = Writing.of(state, commit, table)
    if writing is None:
        return
    con, staged, target, columns = state.con, writing.staged, writing.target, writing.columns
    inserts = writing.inserts if staged.rows else []
    changes = writing.changes if staged.changed + staged.deleted else []
    if not (inserts or changes or staged.truncated):
        return
    if table.plain_inserts and not (changes or staged.truncated):
        copy(con, target, columns, inserts)
        return
    if staged.truncated:
        writing.empty()
    # A change may free a unique value that a snapshot row now has: then both must be written in one step.
    together = bool(inserts and changes and writing.shape.clashing)
    if inserts and table.plain_inserts and not together:
        copy(con, target, columns, inserts)
    elif inserts:
        stage(con, own.INSERTS, columns, inserts)
        if not together:
            writing.replace(own.INSERTS)
    if changes:
        stage(con, own.CHANGES, columns, changes)
        if together:
            writing.refuse_twice()
            writing.fill_from_inserts()
        if staged.partial:
            if commit.may_lack(table):
                writing.leave_out()
            writing.fill()
        if together:
            writing.merge()
        if taken is None:
            writing.replace(own.CHANGES)
        else:
            writing.take(own.CHANGES, taken)
    for name in (own.INSERTS, own.CHANGES):
        con.run(f"DROP TABLE IF EXISTS pg_temp.{name}")


def check_unique(state: State, table: SinkTable) -> None:
    """The table has no duplicate key, or BadData is raised."""
    if not proven_unique(state.con, POSTGRES.target_of(table, state.schema), table.key):
        state.refuse_twice(table)


@dataclass(frozen=True, slots=True)
class Unique:
    """A unique index (or exclusion constraint), checked row by row, whose values a change may move between keys.

    columns: the indexed columns; empty if it covers an expression or a column that the job does not write.
    blank: one of them that can be NULL, and then never clashes; empty if there is none.
    """

    columns: tuple[str, ...]
    blank: str


@dataclass(frozen=True, slots=True)
class Shape:
    """referenced: another table's foreign key refers to it. extra: columns that the job does not write.

    triggered: it has triggers. silencers: statements that disable those that can prevent a row from changing.
    clashing: its unique indexes that may clash while rows are being replaced.
    """

    referenced: bool
    triggered: bool
    silencers: tuple[str, ...]
    extra: tuple[str, ...]
    clashing: tuple[Unique, ...]

    @property
    def in_place(self) -> bool:
        """Whether a changed row must be updated, not deleted and inserted again.

        Another table's foreign key would delete its rows too (ON DELETE CASCADE) or refuse the delete; a trigger
        would see a delete that did not happen; a column that the job does not write would lose its value.
        """
        return bool(self.referenced or self.triggered or self.extra)

    @property
    def carries(self) -> bool:
        """Whether rows are deleted and inserted again with the values of their extra columns.

        That is possible as no foreign key or trigger sees the delete, and needed as an update could clash.
        """
        return bool(self.extra and self.clashing and not self.referenced and not self.triggered)


def kept(of: str) -> str:
    """SQL: whether a staged row exists after the epoch; snapshot rows have no op."""
    return f"{of}.{own.OP} IS DISTINCT FROM 'D'"


@dataclass(frozen=True)
class Writing:
    """One table's part of an epoch. In SQL, `t` is its target and `s` a temporary table of staged rows."""

    con: Connection
    table: SinkTable
    target: Target
    columns: tuple[Column, ...]
    staged: StagedTable
    folder: str

    @classmethod
    def of(cls, state: State, commit: EpochCommit, table: SinkTable) -> "Writing | None":
        """None if the epoch has nothing of the table."""
        staged = commit.staged.tables.get(table.name)
        if staged is None:
            return None
        columns = sink_columns(table.name, table.schema)
        target = POSTGRES.target_of(table, state.schema)
        return cls(state.con, table, target, columns, staged, commit.folder)

    @cached_property
    def shape(self) -> Shape:
        return shape_of(self.con, self.target, self.table.key, self.columns)

    @property
    def inserts(self) -> list[str]:
        return paths_of(self.folder, self.staged.inserts)

    @property
    def changes(self) -> list[str]:
        return paths_of(self.folder, self.staged.changes)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def _t(self) -> str:
        return f"{self.target.sql} t"

    def same(self, left: str = "t", right: str = "s") -> str:
        return matching(self.table.key, left, right)

    def empty(self) -> None:
        # Not TRUNCATE: a reader with an older snapshot, such as `verify`, would find the table empty.
        self.con.run(f"DELETE FROM {self.target.sql}")
        if self.shape.triggered:
            self.refuse_swallowed("deletes", f"SELECT {shown(self.table.key, 't')} FROM {self._t}")

    def refuse_twice(self) -> None:
        """Every key of the snapshot rows is new and occurs once, or BadData is raised.

        The primary key would catch this on insert, but these rows are merged into the changes instead.
        """
        if self.table.plain_inserts and (twice := self.twice_in(own.INSERTS, and_target=True)):
            raise duplicate_keys(self.table, twice)

    def twice_in(self, staged: str, and_target: bool) -> list[tuple[str, int]]:
        """The first keys that occur more than once in staged rows, or in these and the target's of their keys."""
        key = self.table.key
        rows = f"SELECT {listed(key)} FROM pg_temp.{staged}"
        if and_target:
            there = f"SELECT 1 FROM pg_temp.{staged} s WHERE {self.same()}"
            rows += f" UNION ALL SELECT {listed(key, 't')} FROM {self._t} WHERE EXISTS ({there})"
        return self.con.rows(POSTGRES.twice(key, f"({rows}) r"))

    def merge(self) -> None:
        """The staged changes also hold the snapshot rows, except those that a later change replaces."""
        self.con.run(
            f"INSERT INTO pg_temp.{own.CHANGES} ({listed(self.names)}, {own.OP}) "
            f"SELECT {listed(self.names, 'i')}, 'U' FROM pg_temp.{own.INSERTS} i WHERE NOT EXISTS "
            f"(SELECT 1 FROM pg_temp.{own.CHANGES} s WHERE {self.same('s', 'i')})",
        )

    def leave_out(self) -> None:
        """Partial changes (see PARTIAL) of rows that the target does not have are removed."""
        there = f"SELECT 1 FROM {self._t} WHERE {self.same()}"
        self.con.run(f"DELETE FROM pg_temp.{own.CHANGES} s WHERE {PARTIAL} AND NOT EXISTS ({there})")

    def fill(self) -> None:
        """Partial changes (see PARTIAL) are complete: the columns they leave alone have the target's values.

        Raises BadData naming up to five keys that the target does not have.
        """
        missing = self.con.rows(
            f"SELECT {POSTGRES.lacking(self.table, 's')} FROM pg_temp.{own.CHANGES} s WHERE {PARTIAL} "
            f"AND NOT EXISTS (SELECT 1 FROM {self._t} WHERE {self.same()}) LIMIT {NAMED_KEYS}",
        )
        if missing:
            raise no_row_to_fill(self.table, missing)
        self._fill_from(self.target.sql)

    def fill_from_inserts(self) -> None:
        """As `fill`, from the staged snapshot rows, which are not in the target yet."""
        if self.staged.partial:
            self._fill_from(f"pg_temp.{own.INSERTS}")

    def _fill_from(self, source: str) -> None:
        values = ", ".join(
            f"{quoted(name)} = CASE WHEN {literal(name)} = ANY(s.{own.UNSENT}) THEN t.{quoted(name)} "
            f"ELSE s.{quoted(name)} END"
            for name in self.staged.partial
        )
        self.con.run(
            f"UPDATE pg_temp.{own.CHANGES} s SET {values}, {own.UNSENT} = NULL FROM {source} t "
            f"WHERE {self.same()} AND {PARTIAL}",
        )

    def replace(self, staged: str) -> None:
        """The target holds a temporary table's rows instead of its own of the same keys; deletes leave none."""
        source = f"pg_temp.{staged} s"
        if not self.shape.in_place:
            self._delete(source, "true")
            self._insert(source, "true")
        elif self.shape.carries:
            self._carry(source)
        else:
            self._update(source)

    def take(self, staged: str, taken: TransitionTable) -> None:
        """As `replace`, of a table that `is_plain`. taken: has the rows that go and those that come."""
        source = f"pg_temp.{staged} s"
        self.con.run(taken.deleted(f"DELETE FROM {self._t} USING {source} WHERE {self.same()}", "t"))
        self._insert(source, "true")
        self.con.run(taken.inserted(f"{source} WHERE {kept('s')}", "s"))

    def _delete(self, source: str, which: str) -> None:
        """The target has no row with a key of the staged rows `which` (SQL). BadData if a trigger kept one."""
        self.con.run(f"DELETE FROM {self._t} USING {source} WHERE {self.same()} AND {which}")
        if self.shape.triggered:
            left = f"SELECT {shown(self.table.key, 's')} FROM {source} WHERE {which} "
            self.refuse_swallowed("deletes", left + f"AND EXISTS (SELECT 1 FROM {self._t} WHERE {self.same()})")

    def _insert(self, source: str, which: str) -> None:
        """The staged rows `which` (SQL) are in the target, which has none of their keys."""
        # In key order: a million rows went into the index in 3.7 s, not 7.7.
        self.con.run(
            f"INSERT INTO {self.target.sql} ({listed(self.names)}) OVERRIDING SYSTEM VALUE "
            f"SELECT {listed(self.names, 's')} FROM {source} WHERE {kept('s')} AND {which} "
            f"ORDER BY {listed(self.table.key, 's')}",
        )

    def _carry(self, source: str) -> None:
        """Rows are deleted, then inserted with their extra columns, so that they can exchange unique values."""
        key, extra, carried = self.table.key, self.shape.extra, f"pg_temp.{own.CARRIED}"
        self.con.run(
            f"CREATE TEMPORARY TABLE {own.CARRIED} ON COMMIT DROP AS SELECT {listed((*key, *extra), 't')} "
            f"FROM {self._t} JOIN {source} ON {self.same()} WHERE {kept('s')}",
        )
        self._delete(source, "true")
        self.con.run(
            f"INSERT INTO {self.target.sql} ({listed((*self.names, *extra))}) OVERRIDING SYSTEM VALUE "
            f"SELECT {listed(self.names, 's')}, {listed(extra, 'c')} FROM {source} "
            f"JOIN {carried} c ON {self.same('c')} WHERE {kept('s')} ORDER BY {listed(key, 's')}",
        )
        self._insert(source, f"NOT EXISTS (SELECT 1 FROM {carried} c WHERE {self.same('c')})")
        self.con.run(f"DROP TABLE {carried}")

    def _update(self, source: str) -> None:
        """Existing rows are updated in place; unique values that they exchange are set to NULL first."""
        self._delete(source, f"NOT ({kept('s')})")
        for unique in self.shape.clashing:
            if unique.blank:
                self._blank(source, unique)
        # Equal numbers can differ: 0 and -0 are one key.
        signed = {column.name for column in self.columns if column.spark in ("float", "double")}
        changing = [name for name in self.names if name not in self.table.key or name in signed]
        there = f"EXISTS (SELECT 1 FROM {self._t} WHERE {self.same()})"
        if changing:
            values = ", ".join(f"{quoted(name)} = s.{quoted(name)}" for name in changing)
            change = f"UPDATE {self._t} SET {values} FROM {source} WHERE {self.same()} AND {kept('s')}"
            if self.shape.triggered:
                key = self.table.key
                unchanged = f"WITH done AS ({change} RETURNING {listed(key, 's')}) SELECT {shown(key, 's')} "
                unchanged += f"FROM {source} WHERE {kept('s')} AND {there} "
                unchanged += f"AND NOT EXISTS (SELECT 1 FROM done d WHERE {self.same('d')})"
                self.refuse_swallowed("changes", unchanged)
            else:
                self.con.run(change)
        self._insert(source, f"NOT {there}")

    def _blank(self, source: str, unique: Unique) -> None:
        """Changing rows whose unique values another row takes have NULL there until they are updated."""
        taken = (
            f"SELECT 1 FROM {source.removesuffix(' s')} n WHERE {kept('n')} "
            f"AND {matching(unique.columns, 'n', 't')} AND NOT ({self.same('n', 't')})"
        )
        self.con.run(
            f"UPDATE {self._t} SET {quoted(unique.blank)} = NULL FROM {source} "
            f"WHERE {self.same()} AND {kept('s')} AND EXISTS ({taken})",
        )

    def refuse_swallowed(self, what: str, left: str) -> None:
        """Raises BadData if rows stayed as they were. what: the epoch does to them. left: SQL of their keys."""
        keys = self.con.rows(f"{left} LIMIT {NAMED_KEYS}")
        if not keys:
            return
        named = "; ".join(f"({key})" for (key,) in keys)
        silence = sql(*(self.shape.silencers or (f"ALTER TABLE {self.target.sql} DISABLE TRIGGER USER",)))
        raise BadData(
            f"table {self.table.name!r}: the commit {what} rows of {self.target}, but they stayed as they were: "
            f"rows with the key ({', '.join(self.table.key)}): {named}; "
            "a trigger may have returned NULL for them, or undone the change",
            "let the trigger return OLD for a DELETE and NEW for an UPDATE, or disable it: " + silence,
        )


def is_plain(con: Connection, target: Target, columns: Sequence[Column]) -> bool:
    """Whether a table and its partitions have no triggers, those of foreign keys included, and no further columns.

    So it is until the transaction ends: it is locked against DDL, as by writing to it.
    """
    con.run(f"LOCK TABLE {target.sql} IN ROW EXCLUSIVE MODE")
    held = con.rows(
        f"{TREE} SELECT a.attname, a.attgenerated <> '' OR EXISTS "
        "(SELECT 1 FROM pg_catalog.pg_trigger g JOIN tree ON g.tgrelid = tree.oid) "
        "FROM pg_catalog.pg_attribute a WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped",
        target.sql,
    )
    written = {column.name for column in columns}
    return all(name in written and not otherwise for name, otherwise in held)


def shape_of(con: Connection, target: Target, key: Sequence[str], columns: Sequence[Column]) -> Shape:
    written = {column.name for column in columns}
    referenced = con.rows(
        f"{TREE} SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_constraint f JOIN tree ON f.confrelid = tree.oid "
        "WHERE f.contype = 'f')",
        target.sql,
    )[0][0]
    triggers = _triggers(con, target)
    held = con.rows(
        "SELECT attname FROM pg_catalog.pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 "
        "AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
        target.sql,
    )
    return Shape(
        referenced=referenced,
        triggered=bool(triggers),
        silencers=tuple(sql for sql, silences in triggers if silences),
        extra=tuple(name for (name,) in held if name not in written),
        clashing=tuple(_clashing(con, target, key, written)),
    )


def _triggers(con: Connection, target: Target) -> list[tuple[str, bool]]:
    """For each trigger, the statement that disables it, and whether it can prevent a row from changing."""
    found = con.rows(
        f"{TREE} SELECT n.nspname, c.relname, g.tgname, g.tgtype::int FROM tree "
        "JOIN pg_catalog.pg_trigger g ON g.tgrelid = tree.oid AND NOT g.tgisinternal AND g.tgparentid = 0 "
        "AND g.tgenabled <> 'D' JOIN pg_catalog.pg_class c ON c.oid = g.tgrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace ORDER BY 1, 2, 3",
        target.sql,
    )
    return [
        (
            f"ALTER TABLE {POSTGRES.target(schema, table).sql} DISABLE TRIGGER {quoted(name)}",
            kind & _BEFORE_ROW == _BEFORE_ROW and bool(kind & _UPDATE_OR_DELETE),
        )
        for schema, table, name, kind in found
    ]


def _clashing(con: Connection, target: Target, key: Sequence[str], written: set[str]) -> Iterator[Unique]:
    """Leaves out indexes that contain the whole key, which cannot clash, and those whose columns never change."""
    found = con.rows(  # As JSON: version 14 does not know indnullsnotdistinct.
        f"{TREE} SELECT i.indisexclusion, pg_catalog.to_jsonb(i) ->> 'indnullsnotdistinct' = 'true', "
        "(SELECT pg_catalog.json_agg(pg_catalog.json_build_array(a.attname, a.attnotnull) ORDER BY k.place)::text "
        "FROM pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place) "
        "LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
        "WHERE k.place <= i.indnkeyatts) "
        "FROM tree JOIN pg_catalog.pg_index i ON i.indrelid = tree.oid "
        "JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
        "WHERE (i.indisunique OR i.indisexclusion) AND i.indimmediate AND i.indisready AND NOT c.relispartition "
        "ORDER BY c.relname",
        target.sql,
    )
    for exclusion, nulls_clash, indexed in found:
        required: dict[str | None, bool] = dict(json.loads(indexed))
        plain = [name for name in required if name is not None]
        whole = len(plain) == len(required) and not exclusion and written.issuperset(plain)
        moves = None in required or bool((set(plain) - set(key)) & written)
        if not moves or (set(key) <= set(plain) and not exclusion):
            continue
        free = [name for name in plain if not required[name] and name not in key]
        blank = free[0] if whole and free and not nulls_clash else ""
        yield Unique(tuple(plain) if whole else (), blank)


def proven_unique(con: Connection, target: Target, key: Sequence[str]) -> bool:
    """Whether an index of the table already refuses duplicate keys."""
    found = con.rows(
        "SELECT (SELECT pg_catalog.count(*) FROM pg_catalog.unnest(i.indkey::int2[]) AS k (number) "
        "JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
        "WHERE a.attname = ANY(ARRAY(SELECT pg_catalog.json_array_elements_text($2::json)))) = i.indnkeyatts "
        "FROM pg_catalog.pg_index i WHERE i.indrelid = $1::regclass AND i.indisunique AND i.indisvalid "
        "AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnatts = i.indnkeyatts",
        target.sql,
        json.dumps(list(key), ensure_ascii=False),
    )
    return any(whole for (whole,) in found)
