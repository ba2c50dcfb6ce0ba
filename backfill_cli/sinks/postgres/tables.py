"""The tables of the database: the DDL of what they lack, and why a job may not write to one that exists.

Each privilege that the role lacks, and whatever could lose, hide or mix up rows while the marker says that the
table holds them, is an error with the statement that corrects it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from backfill_cli.contracts import SinkTable
from backfill_cli.contracts.refusals import DEPENDENT, other_type, rows_of_others
from backfill_cli.errors import BadData, Transient, UsageError, sql
from backfill_cli.model.checkpoint import Marker
from backfill_cli.postgres_errors import PLACE
from backfill_cli.sinks.postgres.dialect import EQUAL, POSTGRES, TREE, listed, quoted, sink_columns
from backfill_cli.sinks.postgres.session import PRIMARY, Connection, client, diagnostic, message_of, sqlstate_of
from backfill_cli.sinks.postgres.state import (
    DEPENDED_ON,
    Names,
    State,
    kind_of,
    schemas_with_state,
    side_targets,
    take_turns,
)
from backfill_cli.sinks.sql.dialect import Column, Target
from backfill_cli.sinks.sql.tables import SqlTables, Wanted
from backfill_cli.spark.names import in_select, plain

_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "c": "a type"}


class Tables(SqlTables[State]):
    con: Connection

    def lock(self) -> None:
        take_turns(self.con)

    def columns(self, table: SinkTable) -> tuple[Column, ...]:
        return sink_columns(table.name, table.schema)

    def wanted(self, table: SinkTable) -> Wanted:
        want = super().wanted(table)
        types = {column.name: column.type for column in want.columns}
        for name in table.key:
            if types[name] == "json":
                raise BadData(
                    f"table {table.name!r}: its key column {name!r} is json, which PostgreSQL cannot compare",
                    f"convert it to text in the transform: {in_select(f'CAST({plain(name)} AS STRING)', name)}",
                )
        return want

    def require_usable(self, known: bool, claimed: Mapping[str, Marker]) -> None:
        _refuse_read_only(self.con, begun=bool(claimed))
        require_on_database(self.con, "TEMPORARY")
        if known:
            require_logged(self.con, side_targets(self.state.schema))
        else:
            require_on_schema(self.con, self.state.schema)

    def others(self) -> Sequence[State]:
        here = self.state.schema
        return [State(self.con, name) for name in schemas_with_state(self.con) if name != here]

    def exists(self, target: Target) -> bool:
        kind = kind_of(self.con, target)
        if kind not in (None, "r", "p"):
            raise UsageError(
                f"{target} is {_KINDS.get(str(kind), 'something else')}, not a table", "name another target"
            )
        return kind is not None

    def creation(self, want: Wanted) -> list[str]:
        require_on_schema(self.con, want.target.schema)
        columns = ", ".join(f"{quoted(column.name)} {column.type}" for column in want.columns)
        create = f"CREATE TABLE {want.target.sql} ({columns}, PRIMARY KEY ({listed(want.table.key)}))"
        return [*self.state.schema_ddl(want.target.schema), create]

    def addition(self, job: str, want: Wanted, ours: bool) -> list[str]:
        more = list(added(self.con, want, ours))
        return [*more, *(Names(self.state).widened(job, want.table.name, want.target) if more else ())]

    def require_together(self, present: Sequence[Wanted], claimed: Mapping[str, Marker]) -> None:
        refuse_references(self.con, present, fresh=not any(marker.epoch for marker in claimed.values()))

    def drop(self, targets: Sequence[Target]) -> None:
        """In one statement, as they may refer to each other."""
        if not targets:
            return
        try:
            self.con.run(f"DROP TABLE IF EXISTS {', '.join(target.sql for target in targets)}")
        except client().Error as exc:
            if sqlstate_of(exc) != DEPENDED_ON:
                raise
            what = diagnostic(exc, "MESSAGE_DETAIL") or message_of(exc)
            raise UsageError(
                f"something else in the database depends on the job's tables: {what}", DEPENDENT
            ) from exc


def _refuse_read_only(con: Connection, begun: bool) -> None:
    """Raises UsageError if the database is read-only; Transient for a job that has begun, as it may pass."""
    place = con.place
    standby, read_only, user = con.rows(
        "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only') = 'on', user",
    )[0]
    if read_only and begun:
        raise Transient(f"PostgreSQL {place} is read-only now", PRIMARY)
    if standby:
        raise UsageError(f"PostgreSQL {place} is a standby, which is read-only", PRIMARY)
    if read_only:
        raise UsageError(
            f"PostgreSQL {place}: transactions of the role {user} are read-only (default_transaction_read_only)",
            sql(f"ALTER ROLE {quoted(user)} SET default_transaction_read_only = off"),
        )


def places(con: Connection, tables: Sequence[SinkTable], schema: str) -> Mapping[str, frozenset[str]]:
    """By the table's name in the job, the places of the table and its partitions; empty if it does not exist."""
    query = f"""
        SELECT {PLACE} FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace,
        LATERAL (SELECT c.oid AS oid UNION SELECT relid FROM pg_catalog.pg_partition_tree(c.oid)) t
        WHERE n.nspname = $1 AND c.relname = $2"""
    found = {}
    for table in tables:
        target = POSTGRES.target_of(table, schema)
        found[table.name] = frozenset(place for (place,) in con.rows(query, target.schema, target.table))
    return found


# Tables that exist already

_COMPUTED = {
    "s": ("GENERATED ALWAYS AS … STORED", "DROP EXPRESSION"),
    "v": ("GENERATED ALWAYS AS … VIRTUAL", ""),
    "a": ("GENERATED ALWAYS AS IDENTITY", "SET GENERATED BY DEFAULT"),
}
"""By attgenerated or attidentity: its name, and the ALTER COLUMN action that makes it a plain column."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A column of an existing table. computed: attgenerated or attidentity of a column that accepts no values."""

    type: str
    required: bool
    computed: str


def added(con: Connection, want: Wanted, ours: bool) -> Iterator[str]:
    """DDL for the columns that a table lacks. Raises for a table that the job cannot write to."""
    require_on_table(con, want.target)
    require_suitable(con, want.target, want.table.key)
    if not ours and _has_rows(con, want.target):
        raise rows_of_others(str(want.target))
    there = _columns(con, want.target)
    for column in want.columns:
        held = there.get(column.name)
        if held is None:
            _refuse_addition(con, want, column, there)
            yield f"ALTER TABLE {want.target.sql} ADD COLUMN {quoted(column.name)} {column.type}"
        else:
            _refuse_other_kind(want, column, held)
    written = {column.name for column in want.columns}
    for name, other in there.items():
        if name not in written and other.required:
            raise BadData(
                f"column {name!r} of {want.target} is NOT NULL without a default, and the job does not write it",
                sql(f"ALTER TABLE {want.target.sql} ALTER COLUMN {quoted(name)} DROP NOT NULL"),
            )


def _refuse_addition(con: Connection, want: Wanted, column: Column, there: Iterable[str]) -> None:
    """A missing column can be added unless another differs only in case, or existing rows would lack a key."""
    for twin in there:
        if twin.lower() == column.name.lower():
            raise BadData(
                f"column {twin!r} of {want.target} and {column.name!r}, which the job writes, differ only in case",
                sql(f"ALTER TABLE {want.target.sql} RENAME COLUMN {quoted(twin)} TO {quoted(column.name)}"),
            )
    if column.name in want.table.key and _has_rows(con, want.target):
        raise BadData(
            f"{want.target} has rows, but no column {column.name!r}, which is part of the job's key",
            "name another target; or add the column, and set its value in each row: "
            + sql(f"ALTER TABLE {want.target.sql} ADD COLUMN {quoted(column.name)} {column.type}"),
        )


def _refuse_other_kind(want: Wanted, column: Column, held: _Held) -> None:
    """A column must have the type that the job writes, and accept values."""
    alter = f"ALTER TABLE {want.target.sql} ALTER COLUMN {quoted(column.name)}"
    if EQUAL.get(held.type, held.type) != column.type:
        raise other_type(column.name, str(want.target), held.type, column.type)
    if held.computed:
        said, way_on = _COMPUTED[held.computed]
        leave = f"leave {column.name!r} out of the transform's select"
        raise BadData(
            f"column {column.name!r} of {want.target} is {said}: the job cannot write to it",
            sql(f"{alter} {way_on}") if way_on else leave,
        )


def _has_rows(con: Connection, target: Target) -> bool:
    return bool(con.rows(f"SELECT 1 FROM {target.sql} LIMIT 1"))


def _columns(con: Connection, target: Target) -> dict[str, _Held]:
    found = con.rows(
        "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), "
        "a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attgenerated = '', "
        "CASE WHEN a.attidentity = 'a' THEN 'a' ELSE a.attgenerated::text END "
        "FROM pg_catalog.pg_attribute a WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped "
        "ORDER BY a.attnum",
        target.sql,
    )
    return {name: _Held(*held) for name, *held in found}


_MAY = {"TEMPORARY": "create temporary tables", "CREATE": "create schemas"}
_NEEDED = ("SELECT", "INSERT", "UPDATE", "DELETE")


def require_on_database(con: Connection, right: str) -> None:
    database = "pg_catalog.current_database()"
    found = con.rows(f"SELECT pg_catalog.has_database_privilege({database}, '{right}'), {database}, user")
    allowed, name, user = found[0]
    if not allowed:
        raise _forbidden(con, user, _MAY[right], f"{right} ON DATABASE {quoted(name)}")


def require_on_schema(con: Connection, schema: str) -> None:
    """The role may create tables in the schema, or the schema itself if it does not exist."""
    found = con.rows(
        "SELECT pg_catalog.has_schema_privilege(oid, 'CREATE') AND pg_catalog.has_schema_privilege(oid, 'USAGE'), "
        "user FROM pg_catalog.pg_namespace WHERE nspname = $1",
        schema,
    )
    if not found:
        require_on_database(con, "CREATE")
    elif not found[0][0]:
        grant = f"USAGE, CREATE ON SCHEMA {quoted(schema)}"
        raise _forbidden(con, found[0][1], f"create tables in schema {schema!r}", grant)


def require_on_table(con: Connection, target: Target) -> None:
    rights = ", ".join(f"pg_catalog.has_table_privilege(c.oid, '{right}')" for right in _NEEDED)
    found = con.rows(
        f"SELECT user, pg_catalog.has_schema_privilege(n.oid, 'USAGE'), {rights} FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2",
        target.schema,
        target.table,
    )
    user, usage, *allowed = found[0]
    lacks = [right for right, has in zip(_NEEDED, allowed, strict=True) if not has]
    if not usage:
        raise _forbidden(con, user, f"use schema {target.schema!r}", f"USAGE ON SCHEMA {quoted(target.schema)}")
    if lacks:
        which = ", ".join(lacks)
        raise _forbidden(con, user, f"{which} on {target}", f"{which} ON {target.sql}")


def _forbidden(con: Connection, user: str, act: str, grant: str) -> UsageError:
    return UsageError(
        f"PostgreSQL {con.place}: the role {user} may not {act}", sql(f"GRANT {grant} TO {quoted(user)}")
    )


def require_suitable(con: Connection, target: Target, key: Sequence[str]) -> None:
    """Raises UsageError for a table that could lose, hide or mix up rows, with the statement that corrects it."""
    require_logged(con, [target])
    _refuse_rules(con, target)
    _refuse_children(con, target)
    _refuse_policies(con, target)
    _refuse_blurred_key(con, target, key)


def require_logged(con: Connection, targets: Iterable[Target]) -> None:
    """No table or partition is UNLOGGED: a crash would empty it but keep the markers."""
    for target in targets:
        found = con.rows(
            f"{TREE} SELECT n.nspname, c.relname FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid "
            "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relpersistence = 'u' AND c.relkind = 'r' ORDER BY 1, 2",
            target.sql,
        )
        if found:
            unlogged = [POSTGRES.target(schema, table) for schema, table in found]
            what = f"{unlogged[0]}, a partition of {target}," if unlogged[0] != target else str(target)
            raise UsageError(
                f"{what} is UNLOGGED: a crash of the server would empty it, and the job would not notice",
                sql(*(f"ALTER TABLE {one.sql} SET LOGGED" for one in unlogged)),
            )


def _refuse_rules(con: Connection, target: Target) -> None:
    found = con.rows(
        "SELECT rulename FROM pg_catalog.pg_rewrite WHERE ev_class = $1::regclass AND ev_type IN ('2', '3', '4') "
        "AND ev_enabled <> 'D' ORDER BY 1",
        target.sql,
    )
    if found:
        raise UsageError(
            f"the rule {found[0][0]!r} rewrites what is written to {target}, but COPY bypasses rules",
            sql(f"ALTER TABLE {target.sql} {', '.join(f'DISABLE RULE {quoted(name)}' for (name,) in found)}"),
        )


def _refuse_children(con: Connection, target: Target) -> None:
    found = con.rows(
        "SELECT n.nspname, c.relname FROM pg_catalog.pg_inherits i "
        "JOIN pg_catalog.pg_class p ON p.oid = i.inhparent AND p.relkind = 'r' "
        "JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE i.inhparent = $1::regclass ORDER BY 1, 2",
        target.sql,
    )
    if found:
        children = [POSTGRES.target(schema, table) for schema, table in found]
        raise UsageError(
            f"{children[0]} inherits from {target}: its rows would count as rows of {target}, and be deleted",
            "name another target, or: "
            + sql(*(f"ALTER TABLE {one.sql} NO INHERIT {target.sql}" for one in children)),
        )


def _refuse_policies(con: Connection, target: Target) -> None:
    active, user = con.rows("SELECT pg_catalog.row_security_active($1::regclass::oid), user", target.sql)[0]
    if active:
        raise UsageError(
            f"PostgreSQL {con.place}: row-level security of {target} may hide rows from the role {user}",
            sql(f"ALTER ROLE {quoted(user)} BYPASSRLS"),
        )


def _refuse_blurred_key(con: Connection, target: Target, key: Sequence[str]) -> None:
    """No key column's collation treats different texts as equal: a change would reach another key's row."""
    found = con.rows(
        "SELECT a.attname, o.collname, pg_catalog.format_type(a.atttypid, a.atttypmod) "
        "FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_collation o ON o.oid = a.attcollation "
        "WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped AND NOT o.collisdeterministic",
        target.sql,
    )
    for name, collation, kind in found:
        if name in key:
            raise UsageError(
                f"the key column {name!r} of {target} has the collation {collation!r}, which is not "
                "deterministic: it could treat different keys as equal",
                sql(f'ALTER TABLE {target.sql} ALTER COLUMN {quoted(name)} TYPE {kind} COLLATE "C"'),
            )


_ACTIONS = {"c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT", "r": "RESTRICT"}


@dataclass(frozen=True, slots=True)
class _Reference:
    """A foreign key of `child`, a target or its partition. root: the table of which `parent` is a partition."""

    name: str
    child: Target
    parent: Target
    root: Target
    on: str
    deferrable: bool
    definition: str

    def __str__(self) -> str:
        return f"the foreign key {self.name!r} of {self.child}"

    def alter(self, how: str) -> str:
        return f"ALTER TABLE {self.child.sql} {how} CONSTRAINT {quoted(self.name)}"


def refuse_references(con: Connection, tables: Sequence[Wanted], fresh: bool) -> None:
    """Raises UsageError for a foreign key between these tables that a commit would violate, or that would act.

    tables: those that exist, in the job's order. fresh: the job has committed nothing, so
    the snapshots are still to be read, one table after the other.
    """
    for at, want in enumerate(tables):
        for reference in _references(con, want.target):
            for place, other in enumerate(tables):
                if other.target not in (reference.parent, reference.root):
                    continue
                _refuse_acting(reference)
                drop = sql(reference.alter("DROP"))
                if fresh and place == at:
                    raise UsageError(
                        f"{reference} refers to the table itself, whose rows are written in the order of the "
                        "snapshot",
                        drop + "; add it again, DEFERRABLE, once the job is caught up",
                    )
                if fresh and place > at:
                    swap = f"list {other.table.name} before {want.table.name} in [[tables]]"
                    raise UsageError(
                        f"{reference} refers to {reference.parent}, whose snapshot is read later: snapshots are "
                        "read in the order of the tables",
                        f"{swap}; or, where each refers to the other, "
                        + drop
                        + ", and add it again, DEFERRABLE, once the job is caught up",
                    )


def _refuse_acting(reference: _Reference) -> None:
    if reference.on:
        raise UsageError(
            f"{reference} is {reference.on}: it would act on rows of {reference.child} while the job writes those "
            f"of {reference.parent}",
            sql(
                f"{reference.alter('DROP')}, ADD CONSTRAINT {quoted(reference.name)} {reference.definition} "
                "DEFERRABLE"
            ),
        )
    if not reference.deferrable:
        raise UsageError(
            f"{reference} is not DEFERRABLE: it would be checked before the job has written both "
            f"{reference.parent} and {reference.child}",
            sql(f"{reference.alter('ALTER')} DEFERRABLE"),
        )


def _references(con: Connection, target: Target) -> Iterator[_Reference]:
    def names(numbers: str, of: str) -> str:
        return (
            f"(SELECT pg_catalog.json_agg(a.attname ORDER BY k.place)::text FROM pg_catalog.unnest({numbers}) "
            "WITH ORDINALITY AS k (number, place) JOIN pg_catalog.pg_attribute a "
            f"ON a.attrelid = {of} AND a.attnum = k.number)"
        )

    found = con.rows(
        f"{TREE} SELECT f.conname, cn.nspname, c.relname, pn.nspname, p.relname, rn.nspname, r.relname, "
        "f.confdeltype::text, f.confupdtype::text, f.condeferrable, f.confmatchtype::text, "
        f"{names('f.conkey', 'f.conrelid')}, {names('f.confkey', 'f.confrelid')} "
        "FROM tree JOIN pg_catalog.pg_constraint f ON f.conrelid = tree.oid AND f.contype = 'f' "
        "AND f.conparentid = 0 "
        "JOIN pg_catalog.pg_class c ON c.oid = f.conrelid "
        "JOIN pg_catalog.pg_namespace cn ON cn.oid = c.relnamespace "
        "JOIN pg_catalog.pg_class p ON p.oid = f.confrelid "
        "JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace "
        "JOIN pg_catalog.pg_class r ON r.oid = coalesce(pg_catalog.pg_partition_root(p.oid)::oid, p.oid) "
        "JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace ORDER BY f.conname",
        target.sql,
    )
    for name, *where, deleted, updated, deferrable, match, held, referred in found:
        child, parent, root = (POSTGRES.target(*where[at : at + 2]) for at in (0, 2, 4))
        acts = (("DELETE", deleted), ("UPDATE", updated))
        on = " ".join(f"ON {what} {_ACTIONS[how]}" for what, how in acts if how != "a")
        definition = f"FOREIGN KEY ({listed(json.loads(held))}) REFERENCES {parent.sql} "
        definition += f"({listed(json.loads(referred))}){' MATCH FULL' if match == 'f' else ''}"
        yield _Reference(name, child, parent, root, on, deferrable, definition)
