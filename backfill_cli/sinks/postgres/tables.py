"""The sink's tables: what is there, and what has to be created or added before an epoch's transaction."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import BadData, Held, SinkInUse, StateConflict, UsageError
from backfill_cli.sinks.postgres.session import Connection, Place, rows_of, run
from backfill_cli.sinks.postgres.sql import Target, listed, quoted
from backfill_cli.sinks.postgres.state import SIDE_TABLES, State
from backfill_cli.sinks.postgres.types import EQUAL, Column, sink_columns

_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "c": "a type"}
_NEEDED = ("SELECT", "INSERT", "UPDATE", "DELETE")
_ONE_AT_A_TIME = 0x6261636B66696C6C
""""backfill": the advisory lock of those who create tables."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A table as the job wants it."""

    table: SinkTable
    target: Target
    columns: tuple[Column, ...]

    @classmethod
    def of(cls, table: SinkTable, schema: str) -> "Wanted":
        columns = sink_columns(table.name, table.schema)
        types = {column.name: column.type for column in columns}
        for name in table.key:
            if name not in types:
                raise BadData(f"table {table.name!r}: its key column {name!r} is not among its columns")
            if types[name] == "json":
                raise BadData(
                    f"table {table.name!r}: its key column {name!r} is json, which PostgreSQL does not compare",
                    f'take it as text in the transform: select = ["CAST({name} AS STRING) AS {name}", …]',
                )
        return cls(table, Target.of(table, schema), columns)

    def create(self) -> str:
        """DDL for the whole table, its key the primary key."""
        columns = ", ".join(f"{quoted(column.name)} {column.type}" for column in self.columns)
        return f"CREATE TABLE {self.target.sql} ({columns}, PRIMARY KEY ({listed(self.table.key)}))"


@dataclass(frozen=True, slots=True)
class Missing:
    """What a job's tables lack. ddl: of schemas, tables and columns. new: tables without a marker."""

    ddl: list[str]
    new: list[tuple[str, Target]]


@dataclass(frozen=True, slots=True)
class _Held:
    """A column that a table has."""

    type: str
    required: bool


def prepare(
    con: Connection, place: Place, schema: str, job: str, tables: Sequence[SinkTable], into_existing: bool
) -> None:
    """The job's tables exist with all their columns, each with a marker; nothing is written when all was there."""
    rows_of(con, f"SELECT pg_advisory_xact_lock({_ONE_AT_A_TIME})::text")
    missing = check(con, place, schema, job, tables, into_existing)
    if missing.ddl or missing.new:
        for statement in missing.ddl:
            run(con, statement)
        State(con, schema).claim(job, missing.new)
        con.commit()


def create_state(con: Connection, schema: str) -> None:
    """The side tables are there, in this transaction."""
    rows_of(con, f"SELECT pg_advisory_xact_lock({_ONE_AT_A_TIME})::text")
    if not State(con, schema).exists():
        for statement in _side_tables(con, schema):
            run(con, statement)


def check(
    con: Connection, place: Place, schema: str, job: str, tables: Sequence[SinkTable], into_existing: bool
) -> Missing:
    """What `prepare` would make; writes nothing. Raises for tables that the job cannot have."""
    if rows_of(con, "SELECT pg_is_in_recovery()")[0][0]:
        raise UsageError(
            f"PostgreSQL {place} is a standby, which cannot be written", "name its primary in sink.dsn"
        )
    _require_on_database(con, place, "TEMPORARY")
    wanted = [Wanted.of(table, schema) for table in tables]
    _refuse_shared_targets(wanted)
    state = State(con, schema)
    known = state.exists()
    claimed = state.markers(job) if known else {}
    ddl = [] if known else list(_side_tables(con, schema))
    if not known:
        _require_on_schema(con, place, schema)
    for want in wanted:
        if known:
            _refuse_other_owner(state, job, want)
        marker = claimed.get(want.table.name)
        there = _exists(con, want.target)
        if marker is not None and marker.epoch and not there:
            raise StateConflict(
                f"{want.target} is gone, though it held job {job!r} up to epoch {marker.epoch}",
                f"restore the table, or start over: backfill drop {job} --confirm {job}",
            )
        if there:
            ddl += _added(con, place, want, ours=marker is not None or into_existing)
        else:
            _require_on_schema(con, place, want.target.schema)
            ddl += [*_schema(con, want.target.schema), want.create()]
    new = [(want.table.name, want.target) for want in wanted if want.table.name not in claimed]
    return Missing(list(dict.fromkeys(ddl)), new)


def _side_tables(con: Connection, schema: str) -> Iterator[str]:
    yield from _schema(con, schema)
    for side in SIDE_TABLES:
        yield from side.create(schema)


def _schema(con: Connection, schema: str) -> Iterator[str]:
    # IF NOT EXISTS alone would ask for the right to create a schema that is there.
    if not rows_of(con, "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1", schema):
        yield f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}"


def _added(con: Connection, place: Place, want: Wanted, ours: bool) -> Iterator[str]:
    """The columns that a table lacks. Raises for one that cannot be this job's."""
    _require_on_table(con, place, want.target)
    if not ours and rows_of(con, f"SELECT 1 FROM {want.target.sql} LIMIT 1"):
        raise SinkInUse(
            f"table {want.target} exists, with rows that are not this job's",
            "name another target; or drop that table, if it may go; or keep its rows, those too that the upstream "
            "does not have, and write into it by key: backfill start --config job.toml --into-existing",
        )
    there = _columns(con, want.target)
    for column in want.columns:
        held = there.pop(column.name, None)
        if held is None:
            yield f"ALTER TABLE {want.target.sql} ADD COLUMN {quoted(column.name)} {column.type}"
        elif EQUAL.get(held.type, held.type) != column.type:
            raise BadData(
                f"column {column.name!r} of {want.target} is {held.type}, the job writes {column.type}",
                f"cast it in the transform to what the table has, or change the table's column {column.name!r}",
            )
    for name, other in there.items():
        if other.required:
            raise BadData(
                f"column {name!r} of {want.target} is NOT NULL without a default, and the job does not write it",
                f"ALTER TABLE {want.target.sql} ALTER COLUMN {quoted(name)} DROP NOT NULL",
            )


def _exists(con: Connection, target: Target) -> bool:
    """Whether it is there as a table. Raises UsageError for something else of that name."""
    found = rows_of(
        con,
        "SELECT c.relkind::text FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2",
        target.schema,
        target.table,
    )
    if found and found[0][0] not in ("r", "p"):
        raise UsageError(
            f"{target} is {_KINDS.get(found[0][0], 'something else')}, not a table", "name another target"
        )
    return bool(found)


def _columns(con: Connection, target: Target) -> dict[str, _Held]:
    found = rows_of(
        con,
        "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), "
        "a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attgenerated = '' "
        "FROM pg_catalog.pg_attribute a WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped "
        "ORDER BY a.attnum",
        target.sql,
    )
    return {name: _Held(kind, required) for name, kind, required in found}


def _require_on_database(con: Connection, place: Place, right: str) -> None:
    found = rows_of(con, f"SELECT has_database_privilege(current_database(), '{right}'), current_database(), user")
    allowed, database, user = found[0]
    if not allowed:
        raise UsageError(
            f"PostgreSQL {place}: the role {user} may not {_MAY[right]}",
            f"GRANT {right} ON DATABASE {quoted(database)} TO {quoted(user)}",
        )


_MAY = {"TEMPORARY": "make temporary tables", "CREATE": "create schemas"}


def _require_on_schema(con: Connection, place: Place, schema: str) -> None:
    found = rows_of(
        con,
        "SELECT has_schema_privilege(oid, 'CREATE') AND has_schema_privilege(oid, 'USAGE'), user "
        "FROM pg_catalog.pg_namespace WHERE nspname = $1",
        schema,
    )
    if not found:
        _require_on_database(con, place, "CREATE")
    elif not found[0][0]:
        raise UsageError(
            f"PostgreSQL {place}: the role {found[0][1]} may not create tables in schema {schema!r}",
            f"GRANT USAGE, CREATE ON SCHEMA {quoted(schema)} TO {quoted(found[0][1])}",
        )


def _require_on_table(con: Connection, place: Place, target: Target) -> None:
    rights = ", ".join(f"has_table_privilege(c.oid, '{right}')" for right in _NEEDED)
    found = rows_of(
        con,
        f"SELECT user, has_schema_privilege(n.oid, 'USAGE'), {rights} FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2",
        target.schema,
        target.table,
    )
    user, usage, *allowed = found[0]
    lacks = [right for right, has in zip(_NEEDED, allowed, strict=True) if not has]
    if not usage:
        raise UsageError(
            f"PostgreSQL {place}: the role {user} may not use schema {target.schema!r}",
            f"GRANT USAGE ON SCHEMA {quoted(target.schema)} TO {quoted(user)}",
        )
    if lacks:
        raise UsageError(
            f"PostgreSQL {place}: the role {user} may not {', '.join(lacks)} on {target}",
            f"GRANT {', '.join(lacks)} ON {target.sql} TO {quoted(user)}",
        )


def _refuse_shared_targets(wanted: Sequence[Wanted]) -> None:
    seen: dict[Target, str] = {}
    for want in wanted:
        twin = seen.setdefault(want.target, want.table.name)
        if twin != want.table.name:
            raise UsageError(f"tables {twin!r} and {want.table.name!r} have the same target, {want.target}")


def _refuse_other_owner(state: State, job: str, want: Wanted) -> None:
    owner = state.owner_of_target(want.target)
    if owner is None or owner == (job, want.table.name):
        return
    other, table = owner
    held = state.owner(other)
    there = held is not None and held.host == gethostname() and Path(held.path).exists()
    where = f"--confirm {other} --catalog {held.path}" if held and there else f"--sink job.toml --confirm {other}"
    raise Held(
        f"{want.target} belongs to job {other!r} (its table {table!r}){f' of catalog {held}' if held else ''}",
        f"name another target, or forget that job: backfill drop {other} {where}",
    )


def kept_in_place(con: Connection, target: Target, columns: Sequence[Column]) -> bool:
    """Whether a row that changes must stay, not be deleted and written anew.

    Another table's foreign key would take its rows along (ON DELETE CASCADE) or refuse; a trigger would see a
    delete that is none; a column that the job does not write would lose its value.
    """
    found = rows_of(
        con,
        "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_constraint WHERE confrelid = $1::regclass), "
        "EXISTS (SELECT 1 FROM pg_catalog.pg_trigger WHERE tgrelid = $1::regclass AND NOT tgisinternal), "
        "(SELECT count(*) FROM pg_catalog.pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 "
        "AND NOT attisdropped AND attgenerated = '')",
        target.sql,
    )[0]
    referenced, triggers, held = found
    return bool(referenced or triggers or held > len(columns))


def proven_unique(con: Connection, target: Target, key: Sequence[str]) -> bool:
    """Whether an index of the table already refuses a key that is there twice."""
    found = rows_of(
        con,
        "SELECT (SELECT count(*) FROM unnest(i.indkey::int2[]) AS k (number) JOIN pg_catalog.pg_attribute a "
        "ON a.attrelid = i.indrelid AND a.attnum = k.number WHERE a.attname = ANY(ARRAY("
        "SELECT json_array_elements_text($2::json)))) = i.indnkeyatts "
        "FROM pg_catalog.pg_index i WHERE i.indrelid = $1::regclass AND i.indisunique AND i.indisvalid "
        "AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnatts = i.indnkeyatts",
        target.sql,
        json.dumps(list(key), ensure_ascii=False),
    )
    return any(whole for (whole,) in found)
