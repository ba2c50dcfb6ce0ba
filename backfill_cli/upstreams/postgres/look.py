"""What `init` finds out about tables of a database: keys, sizes, and what a start would use or lack there."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from backfill_cli import postgres_dsn
from backfill_cli.contracts import FoundTable, Looked, Named, TableSpec, Told, named_after, own, without_config
from backfill_cli.errors import Hint, UsageError, command
from backfill_cli.model.units import nearest_first, spell_count, spell_known, spell_size
from backfill_cli.upstreams.postgres import checks, publications
from backfill_cli.upstreams.postgres.client import Connection, glance, row_of, rows_of
from backfill_cli.upstreams.postgres.options import PostgresOptions
from backfill_cli.upstreams.postgres.tables import PgTable, described, primary_keys, schema_of

_READING = "looking at its tables"
_LISTED = 20
_FAULTS_SHOWN = 3

_CORRECT = (
    "start the server, or correct user, host, port or database: --from postgresql://user@host:5432/database; the "
    "password comes from PGPASSWORD or ~/.pgpass"
)

_OWN = f"n.nspname !~ '^pg_|^information_schema$' AND c.relpersistence <> 't' AND c.relname !~ '^{own.PREFIX}'"

_TABLES = f"""
WITH RECURSIVE parts (root, oid) AS (
    SELECT c.oid, c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND {_OWN}
    UNION ALL
    SELECT p.root, i.inhrelid FROM parts p JOIN pg_inherits i ON i.inhparent = p.oid
    JOIN pg_class c ON c.oid = i.inhrelid WHERE c.relispartition
)
SELECT p.root::regclass::text,
       coalesce(sum(CASE WHEN c.reltuples > 0 THEN c.reltuples ELSE pg_stat_get_live_tuples(c.oid) END)
                FILTER (WHERE c.relkind = 'r'), 0)::float8,
       (sum(c.relpages) * current_setting('block_size')::int)::bigint,
       ARRAY(SELECT a.attname::text FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k (number, ord)
             JOIN pg_attribute a ON a.attrelid = p.root AND a.attnum = k.number
             WHERE i.indrelid = p.root AND i.indisprimary AND k.ord <= i.indnkeyatts ORDER BY k.ord),
       has_schema_privilege(r.relnamespace, 'USAGE') AND has_table_privilege(p.root, 'SELECT')
FROM parts p JOIN pg_class c ON c.oid = p.oid JOIN pg_class r ON r.oid = p.root
GROUP BY p.root, r.relnamespace ORDER BY 2 DESC, 1 LIMIT 10000
"""
"""No lock, and no size that is not in the catalog: a table that is being altered is listed too."""

_UNQUOTED = f"""
SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND {_OWN}
    AND %(name)s::text IN (c.relname::text, n.nspname || '.' || c.relname)
ORDER BY 1 LIMIT 2
"""

_UNIQUE = """
SELECT ARRAY(SELECT a.attname::text FROM unnest(i.indkey) WITH ORDINALITY k (number, ord)
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
             WHERE k.ord <= i.indnkeyatts ORDER BY k.ord)
FROM pg_index i WHERE i.indrelid = %s::oid AND i.indisunique AND i.indimmediate AND i.indisvalid
    AND i.indpred IS NULL AND i.indexprs IS NULL AND NOT EXISTS (
        SELECT FROM unnest(i.indkey) WITH ORDINALITY k (number, ord) JOIN pg_attribute a
        ON a.attrelid = i.indrelid AND a.attnum = k.number WHERE k.ord <= i.indnkeyatts AND NOT a.attnotnull)
ORDER BY i.indnkeyatts, i.indexrelid LIMIT 1
"""
"""The columns of the narrowest index that identifies every row."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A table of the database. name: in SQL. rows, size_bytes: the catalog's estimates; 0 where it has none."""

    name: str
    rows: float
    size_bytes: int
    primary: Sequence[str]
    readable: bool


def look(named: Named) -> Looked:
    """The tables that are named, or the only one. Raises UsageError that lists the tables if none is named."""
    postgres_dsn.parsed(named.text, "--from")
    with without_config(_CORRECT), glance(named.text, _READING) as connection:
        where = _place(connection)
        names = [_name(connection, where, one, named) for one in named.tables] or _only(connection, where, named)
        specs = [TableSpec(name, named.key or _key(connection, name), False) for name in names]
        tables = described(connection, specs)
        found = [FoundTable(table.name, _told_key(connection, table, named)) for table in tables]
        return _looked(connection, where, named, tables, found)


def _place(connection: Connection) -> str:
    """The database, as people name it."""
    info = connection.info
    return f"{info.dbname} on {info.host or 'localhost'}:{info.port}"


# Which tables


def _listed(connection: Connection) -> list[Listed]:
    return [Listed(*row) for row in rows_of(connection, _READING, _TABLES)]


def _only(connection: Connection, where: str, named: Named) -> list[str]:
    """The only table. Raises UsageError that lists them if there are several."""
    tables = _listed(connection)
    readable = [one for one in tables if one.readable]
    if len(readable) == 1:
        return [readable[0].name]
    if not tables:
        raise UsageError(f"{where} has no tables", "name a database that has some: " + _CORRECT)
    best = next((one for one in readable if one.primary), tables[0])
    more = [f"  and {len(tables) - _LISTED:,} more"] if len(tables) > _LISTED else []
    raise UsageError(
        "\n".join(
            [f"{where} has {spell_count(len(tables), 'table')}; which one?", *_rows(tables[:_LISTED]), *more]
        ),
        _naming(named, best.name),
    )


def _rows(tables: Sequence[Listed]) -> list[str]:
    """The tables as lines of a list."""
    cells = [(one.name, _rows_text(one.rows), _size_text(one.size_bytes), _state(one)) for one in tables]
    wide = [max(len(row[i]) for row in cells) for i in range(3)]
    return [
        f"  {name:<{wide[0]}}  {rows:>{wide[1]}}  {size:>{wide[2]}}  {state}" for name, rows, size, state in cells
    ]


def _rows_text(rows: float) -> str:
    return f"about {spell_count(int(rows), 'row')}"


def _size_text(size_bytes: int) -> str:
    return spell_size(size_bytes) if size_bytes else ""


def _state(one: Listed) -> str:
    if not one.readable:
        return "not readable by this role"
    return f"key {', '.join(one.primary)}" if one.primary else "no primary key"


def _naming(named: Named, table: str) -> Hint:
    return command(f"init --from {shlex.quote(named.written)} --table {shlex.quote(table)}")


def _name(connection: Connection, where: str, told: str, named: Named) -> str:
    """The table's name in SQL; also of one that was typed without the quotes that SQL needs.

    Raises UsageError for a table that does not exist, or of which there are several.
    """
    import psycopg

    with suppress(psycopg.errors.InvalidName, psycopg.errors.SyntaxError), connection.transaction():
        ((found,),) = connection.execute("SELECT to_regclass(%s)::text", (told,)).fetchall()
        if found is not None:
            return str(found)
    known = [name for (name,) in rows_of(connection, _READING, _UNQUOTED, {"name": told})]
    if len(known) == 1:
        return str(known[0])
    if known:
        raise UsageError(f"table {told!r} in {where}: there are {' and '.join(known)}", _naming(named, known[0]))
    names = [one.name for one in _listed(connection)]
    near = nearest_first(told, names)[0] if names else "public.orders"
    raise UsageError(f"table {told!r} does not exist in {where}{spell_known(told, names)}", _naming(named, near))


# What they are


def _key(connection: Connection, name: str) -> tuple[str, ...]:
    with suppress(UsageError):
        return primary_keys(connection, [name])[name]
    found = row_of(connection, _READING, _UNIQUE, (_oid(connection, name),))
    return () if found is None else tuple(found[0])


def _oid(connection: Connection, name: str) -> int:
    return int(row_of(connection, _READING, "SELECT to_regclass(%s)::oid::bigint", (name,))[0])


def _told_key(connection: Connection, table: PgTable, named: Named) -> Told:
    key = tuple(column.name for column in table.key)
    if key and key == table.primary:
        return Told((), f"the table's primary key: {', '.join(key)}")
    if named.key:
        return Told(list(key))
    if key:
        return Told(list(key), "no primary key; a unique index on these columns, none of which can be NULL")
    listed = ", ".join(column.name for column in table.columns)
    return Told(None, f"no primary key, no unique index; columns: {listed}")


def _looked(
    connection: Connection, where: str, named: Named, tables: Sequence[PgTable], found: Sequence[FoundTable]
) -> Looked:
    name = _free_slot(connection, tables)
    options: dict[str, Told] = {"dsn": Told(named.written), "slot": Told(name)}
    publication = _publication(connection, tables, name)
    if publication is not None:
        why = "it has these tables, and the role may not create another"
        options["publication"] = Told(publication, why)
    parted = [table.name for table in tables if table.kind == "p"]
    if parted:
        why = (
            f"{', '.join(parted)} is partitioned: rows added or removed by ATTACH, DETACH, DROP or TRUNCATE of a "
            "partition are not in the log; true: none are, or the sink need not follow"
        )
        options["accept_partition_changes"] = Told(None, why)
    told = {"dsn": named.text, "slot": name, "publication": publication or name, "accept_partition_changes": True}
    faults = list(_faults(connection, PostgresOptions.model_validate(told), tables))
    made = f"slot {name}" + (f"; publication {publication}" if publication else f" and publication {name}")
    return Looked(
        found,
        options,
        (
            _tables_line(where, tables),
            f"start creates {made}",
            _ready_line(faults, all(table.key for table in tables)),
        ),
    )


def _tables_line(where: str, tables: Sequence[PgTable]) -> str:
    """Without the number of rows, which the plan below estimates."""
    amount = spell_size(sum(table.size_bytes for table in tables))
    if len(tables) > 1:
        return f"{where}: {len(tables)} tables, {amount}"
    (table,) = tables
    key = ", ".join(column.name for column in table.key) or "none known"
    what = "partitioned table" if table.kind == "p" else "table"
    return f"{where}: {what} {table.name}, {amount}, {spell_count(len(table.columns), 'column')}, key {key}"


def _ready_line(faults: Sequence[str], keyed: bool) -> str:
    if not faults:
        return f"the server is ready: wal_level, the role's rights{', replica identity' * keyed}"
    more = f"; and {len(faults) - _FAULTS_SHOWN} more" if len(faults) > _FAULTS_SHOWN else ""
    return f"start refuses this yet; plan shows what to do: {'; '.join(faults[:_FAULTS_SHOWN])}{more}"


def _faults(connection: Connection, options: PostgresOptions, tables: Sequence[PgTable]) -> Iterator[str]:
    """What would prevent a start."""
    for one in checks.refusals(connection, options, tables, is_marked=False):
        yield one.message
    for table in tables:
        try:
            if table.key:
                checks.require_followable([table])
            schema_of(table)
        except UsageError as error:
            yield error.message


def _free_slot(connection: Connection, tables: Sequence[PgTable]) -> str:
    """A name of the job's slot that no slot has."""
    word = tables[0].relation if len(tables) == 1 else str(connection.info.dbname)
    stem = f"backfill_{named_after(word)[:48]}"
    taken = {name for (name,) in rows_of(connection, _READING, "SELECT slot_name FROM pg_replication_slots")}
    return next(name for n in range(1, len(taken) + 2) if (name := f"{stem}_{n}" if n > 1 else stem) not in taken)


def _publication(connection: Connection, tables: Sequence[PgTable], own: str) -> str | None:
    """One that exists and has these tables; None if the role may create the job's own."""
    if checks.may_publish(connection, tables):
        return None
    query = "SELECT pubname FROM pg_publication ORDER BY pubname <> %s, puballtables, pubname"
    names = [name for (name,) in rows_of(connection, _READING, query, (own,))]
    return next((name for name in names if publications.missing(connection, name, tables) == []), None)
