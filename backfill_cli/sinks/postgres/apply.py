"""Writes the staged rows of one table into the database, inside the epoch's transaction.

How a target must be written depends on its foreign keys, triggers, columns and indexes: its `Shape`.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backfill_cli.contracts import EpochCommit, SinkTable, own
from backfill_cli.contracts.refusals import duplicate_keys, no_row_to_fill
from backfill_cli.errors import BadData, sql
from backfill_cli.sinks.postgres.dialect import POSTGRES, TREE, listed, matching, quoted, shown, sink_columns
from backfill_cli.sinks.postgres.session import Connection
from backfill_cli.sinks.postgres.staged import copy, stage
from backfill_cli.sinks.sql.dialect import NAMED_KEYS, Column, Target, literal, paths_of

_BEFORE_ROW, _UPDATE_OR_DELETE = 1 | 2, 8 | 16
"""Bits of pg_trigger.tgtype."""
PARTIAL = f"s.{own.OP} = 'U' AND pg_catalog.cardinality(s.{own.UNSENT}) > 0"
"""SQL: whether the staged change `s` leaves some columns at the value that the target has."""


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


def apply(con: Connection, commit: EpochCommit, table: SinkTable, schema: str) -> None:
    """The table holds the epoch's rows: snapshot rows are inserted; each change deletes by key, then inserts.

    MERGE is no faster (1 M changes of 2 M rows: 7.9 s both, ON CONFLICT 9.4), and with MERGE rows that exchange
    the values of another unique column would clash. Rows are updated only where they must not be deleted even
    for a moment (see Shape.in_place).
    """
    staged = commit.staged.tables.get(table.name)
    if staged is None:
        return
    target = POSTGRES.target_of(table, schema)
    columns = sink_columns(table.name, table.schema)
    inserts = paths_of(commit.folder, staged.inserts) if staged.rows else []
    changes = paths_of(commit.folder, staged.changes) if staged.changed + staged.deleted else []
    if not (inserts or changes or staged.truncated):
        return
    if table.plain_inserts and not (changes or staged.truncated):
        copy(con, target, columns, inserts)
        return
    shape = shape_of(con, target, table.key, columns)
    if staged.truncated:
        _empty(con, target, table, shape)
    # A change may free a unique value that a snapshot row now has: then both must be written in one step.
    together = bool(inserts and changes and shape.clashing)
    if inserts and table.plain_inserts and not together:
        copy(con, target, columns, inserts)
    elif inserts:
        stage(con, own.INSERTS, columns, inserts)
        if not together:
            replace(con, target, table, columns, shape, own.INSERTS)
    if changes:
        stage(con, own.CHANGES, columns, changes)
        if together:
            _refuse_twice(con, target, table)
            fill_from_inserts(con, table, staged.partial)
        if staged.partial:
            if commit.converging:
                _leave_out(con, target, table)
            fill(con, target, table, staged.partial)
        if together:
            _merge(con, table, columns)
        replace(con, target, table, columns, shape, own.CHANGES)
    for name in (own.INSERTS, own.CHANGES):
        con.run(f"DROP TABLE IF EXISTS pg_temp.{name}")


def _empty(con: Connection, target: Target, table: SinkTable, shape: Shape) -> None:
    # Not TRUNCATE: a reader with an older snapshot, such as `verify`, would find the table empty.
    con.run(f"DELETE FROM {target.sql}")
    if shape.triggered:
        left = con.rows(f"SELECT {shown(table.key, 't')} FROM {target.sql} t LIMIT {NAMED_KEYS}")
        refuse_swallowed(table, target, shape, "deletes", [key for (key,) in left])


def _refuse_twice(con: Connection, target: Target, table: SinkTable) -> None:
    """Every key of the snapshot rows is new and occurs once, or BadData is raised.

    The primary key would catch this on insert, but these rows are merged into the changes instead.
    """
    if table.plain_inserts and (twice := twice_in(con, own.INSERTS, table.key, target)):
        raise duplicate_keys(table, twice)


def _merge(con: Connection, table: SinkTable, columns: Sequence[Column]) -> None:
    """The staged changes also hold the snapshot rows, except those that a later change replaces."""
    names = [column.name for column in columns]
    con.run(
        f"INSERT INTO pg_temp.{own.CHANGES} ({listed(names)}, {own.OP}) SELECT {listed(names, 'i')}, 'U' "
        f"FROM pg_temp.{own.INSERTS} i WHERE NOT EXISTS "
        f"(SELECT 1 FROM pg_temp.{own.CHANGES} s WHERE {matching(table.key, 's', 'i')})",
    )


def _leave_out(con: Connection, target: Target, table: SinkTable) -> None:
    """Partial changes (see PARTIAL) of rows that the target does not have are removed."""
    there = f"SELECT 1 FROM {target.sql} t WHERE {matching(table.key, 't', 's')}"
    con.run(f"DELETE FROM pg_temp.{own.CHANGES} s WHERE {PARTIAL} AND NOT EXISTS ({there})")


def fill(con: Connection, target: Target, table: SinkTable, partial: Sequence[str]) -> None:
    """Partial changes (see PARTIAL) are complete: the columns they leave alone have the target's values.

    Raises BadData naming up to five keys that the target does not have.
    """
    same = matching(table.key, "t", "s")
    missing = con.rows(
        f"SELECT {shown(table.key, 's')} FROM pg_temp.{own.CHANGES} s WHERE {PARTIAL} "
        f"AND NOT EXISTS (SELECT 1 FROM {target.sql} t WHERE {same}) LIMIT {NAMED_KEYS}",
    )
    if missing:
        raise no_row_to_fill(table, [key for (key,) in missing])
    _fill_from(con, target.sql, table, partial)


def fill_from_inserts(con: Connection, table: SinkTable, partial: Sequence[str]) -> None:
    """As `fill`, from the staged snapshot rows, which are not in the target yet."""
    if partial:
        _fill_from(con, f"pg_temp.{own.INSERTS}", table, partial)


def _fill_from(con: Connection, source: str, table: SinkTable, partial: Sequence[str]) -> None:
    values = ", ".join(
        f"{quoted(name)} = CASE WHEN {literal(name)} = ANY(s.{own.UNSENT}) THEN t.{quoted(name)} "
        f"ELSE s.{quoted(name)} END"
        for name in partial
    )
    con.run(
        f"UPDATE pg_temp.{own.CHANGES} s SET {values}, {own.UNSENT} = NULL FROM {source} t "
        f"WHERE {matching(table.key, 't', 's')} AND {PARTIAL}",
    )


def twice_in(con: Connection, staged: str, key: Sequence[str], target: Target | None) -> list[tuple[str, int]]:
    """The first keys that occur more than once in the staged rows, and in the target if one is given."""
    rows = f"SELECT {listed(key)} FROM pg_temp.{staged}"
    if target is not None:
        there = f"SELECT 1 FROM pg_temp.{staged} s WHERE {matching(key, 's', 't')}"
        rows += f" UNION ALL SELECT {listed(key, 't')} FROM {target.sql} t WHERE EXISTS ({there})"
    return con.rows(POSTGRES.twice(key, f"({rows}) r"))


def check_unique(con: Connection, table: SinkTable, schema: str) -> None:
    """The table has no duplicate key. Raises BadData naming the table, its key and up to five values."""
    target = POSTGRES.target_of(table, schema)
    if proven_unique(con, target, table.key):
        return
    if twice := con.rows(POSTGRES.twice(table.key, target.sql)):
        raise duplicate_keys(table, twice)


def kept(of: str) -> str:
    """SQL: whether a staged row exists after the epoch; snapshot rows have no op."""
    return f"{of}.{own.OP} IS DISTINCT FROM 'D'"


def replace(
    con: Connection, target: Target, table: SinkTable, columns: Sequence[Column], shape: Shape, staged: str
) -> None:
    """The target holds the rows of a temporary table instead of its own with the same keys; deletes leave none."""
    signed = tuple(column.name for column in columns if column.spark in ("float", "double"))
    write = _Write(con, target, table, tuple(column.name for column in columns), shape, staged, signed)
    if not shape.in_place:
        write.delete("true")
        write.insert("true")
    elif shape.carries:
        write.carry()
    else:
        write.update()


@dataclass(frozen=True, slots=True)
class _Write:
    """Statements from one temporary table, `s`, into one target, `t`. names: the columns that the job writes.

    signed: those of them in which equal values can differ: 0 and -0 are one key.
    """

    con: Connection
    target: Target
    table: SinkTable
    names: tuple[str, ...]
    shape: Shape
    staged: str
    signed: tuple[str, ...]

    @property
    def _s(self) -> str:
        return f"pg_temp.{self.staged} s"

    @property
    def _t(self) -> str:
        return f"{self.target.sql} t"

    @property
    def _same(self) -> str:
        return matching(self.table.key, "t", "s")

    def delete(self, which: str) -> None:
        """The target has no row with a key of the staged rows `which` (SQL). BadData if a trigger kept one."""
        self.con.run(f"DELETE FROM {self._t} USING {self._s} WHERE {self._same} AND {which}")
        if self.shape.triggered:
            left = self.con.rows(
                f"SELECT {shown(self.table.key, 's')} FROM {self._s} WHERE {which} "
                f"AND EXISTS (SELECT 1 FROM {self._t} WHERE {self._same}) LIMIT {NAMED_KEYS}",
            )
            refuse_swallowed(self.table, self.target, self.shape, "deletes", [key for (key,) in left])

    def insert(self, which: str) -> None:
        """The staged rows `which` (SQL) are in the target, which has none of their keys."""
        # In key order: a million rows went into the index in 3.7 s, not 7.7.
        self.con.run(
            f"INSERT INTO {self.target.sql} ({listed(self.names)}) OVERRIDING SYSTEM VALUE "
            f"SELECT {listed(self.names, 's')} FROM {self._s} WHERE {kept('s')} AND {which} "
            f"ORDER BY {listed(self.table.key, 's')}",
        )

    def carry(self) -> None:
        """Rows are deleted, then inserted with their extra columns, so that they can exchange unique values."""
        key, extra, same = self.table.key, self.shape.extra, matching(self.table.key, "c", "s")
        self.con.run(
            f"CREATE TEMPORARY TABLE {own.CARRIED} ON COMMIT DROP AS SELECT {listed((*key, *extra), 't')} "
            f"FROM {self._t} JOIN {self._s} ON {self._same} WHERE {kept('s')}",
        )
        self.delete("true")
        self.con.run(
            f"INSERT INTO {self.target.sql} ({listed((*self.names, *extra))}) OVERRIDING SYSTEM VALUE "
            f"SELECT {listed(self.names, 's')}, {listed(extra, 'c')} FROM {self._s} "
            f"JOIN pg_temp.{own.CARRIED} c ON {same} WHERE {kept('s')} ORDER BY {listed(key, 's')}",
        )
        self.insert(f"NOT EXISTS (SELECT 1 FROM pg_temp.{own.CARRIED} c WHERE {same})")
        self.con.run(f"DROP TABLE pg_temp.{own.CARRIED}")

    def update(self) -> None:
        """Existing rows are updated in place; unique values that they exchange are set to NULL first."""
        self.delete(f"NOT ({kept('s')})")
        for unique in self.shape.clashing:
            if unique.blank:
                self._blank(unique)
        changing = (n for n in self.names if n not in self.table.key or n in self.signed)
        values = ", ".join(f"{quoted(n)} = s.{quoted(n)}" for n in changing)
        if values:
            change = f"UPDATE {self._t} SET {values} FROM {self._s} WHERE {self._same} AND {kept('s')}"
            if self.shape.triggered:
                refuse_swallowed(self.table, self.target, self.shape, "changes", self._unchanged(change))
            else:
                self.con.run(change)
        self.insert(f"NOT EXISTS (SELECT 1 FROM {self._t} WHERE {self._same})")

    def _blank(self, unique: Unique) -> None:
        """Changing rows whose unique values another row takes have NULL there until they are updated."""
        taken = (
            f"SELECT 1 FROM pg_temp.{self.staged} n WHERE {kept('n')} AND {matching(unique.columns, 'n', 't')} "
            f"AND NOT ({matching(self.table.key, 'n', 't')})"
        )
        self.con.run(
            f"UPDATE {self._t} SET {quoted(unique.blank)} = NULL FROM {self._s} "
            f"WHERE {self._same} AND {kept('s')} AND EXISTS ({taken})",
        )

    def _unchanged(self, change: str) -> list[str]:
        """Runs the update `change`. Returns the first keys of existing rows that it did not touch."""
        key = self.table.key
        found = self.con.rows(
            f"WITH done AS ({change} RETURNING {listed(key, 's')}) "
            f"SELECT {shown(key, 's')} FROM {self._s} WHERE {kept('s')} "
            f"AND EXISTS (SELECT 1 FROM {self._t} WHERE {self._same}) "
            f"AND NOT EXISTS (SELECT 1 FROM done d WHERE {matching(key, 'd', 's')}) LIMIT {NAMED_KEYS}",
        )
        return [text for (text,) in found]


def refuse_swallowed(table: SinkTable, target: Target, shape: Shape, what: str, keys: Sequence[str]) -> None:
    """Raises BadData if rows stayed as they were. what: what the epoch does to them, for the message."""
    if not keys:
        return
    named = "; ".join(f"({key})" for key in keys)
    silence = sql(*(shape.silencers or (f"ALTER TABLE {target.sql} DISABLE TRIGGER USER",)))
    raise BadData(
        f"table {table.name!r}: the epoch {what} rows of {target}, but they stayed as they were: rows with the "
        f"key ({', '.join(table.key)}): {named}; a trigger may have returned NULL for them, or undone the change",
        "let the trigger return OLD for a DELETE and NEW for an UPDATE, or disable it: " + silence,
    )


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
