"""The publication: which of the tables' changes the slot's reader is sent, and who created it."""

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from backfill_cli.contracts.refusals import in_toml
from backfill_cli.errors import Hint, UsageError, in_config, joined, sql
from backfill_cli.upstreams.postgres.client import Connection, row_of, rows_of
from backfill_cli.upstreams.postgres.tables import KnownTable, PgTable
from backfill_cli.upstreams.postgres.types import quoted

SCHEMAS_FROM = 150_000
"""From this version on a publication can have whole schemas."""

READING = "reading the publication"

NAME_BYTES = 63
"""The server cuts longer names."""

LOCKED_MS = 3000
"""How long a table that others have locked is waited for at once: the whole job waits meanwhile."""

MADE_BY_US = "made by backfill for "
"""Begins the comment of a publication that we created; the slots of the jobs that use it follow."""


IN_SCHEMA, IN_ROOT = "its schema", "a table that it is a partition of"
"""With what a table is published that no publication names."""


@dataclass(frozen=True, slots=True)
class Published:
    """ways: by table, how the publication has it: an oid of its own, or with what, and all that this depends on.
    A way is another one once it did not lead there for a while. written: the transaction that wrote the
    publication's own catalog row, oid: its own; None without one.
    """

    ways: Mapping[str, Sequence[Sequence[str]]]
    written: str | None
    oid: int | None


_MOVED = """(SELECT d.xmin::text FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = {0}
    AND d.objsubid = 0 AND d.refclassid = 'pg_namespace'::regclass)"""
"""SQL: the transaction that brought a table to its schema. RENAME and OWNER TO do not write that row."""

_PUBLISHED = f"""
SELECT c.oid::bigint, p.xmin::text, p.oid::bigint, (
    WITH above AS (SELECT relid::oid FROM pg_partition_ancestors(c.oid) WHERE relid <> c.oid),
    roots AS (
        SELECT relid, r.oid::text AS way FROM above JOIN pg_publication_rel r ON r.prrelid = relid
        WHERE r.prpubid = p.oid
        UNION ALL SELECT relid, s.oid || ' ' || {_MOVED.format("relid")}
        FROM above JOIN pg_class w ON w.oid = relid JOIN ({{schemas}}) s ON s.pnnspid = w.relnamespace
        UNION ALL SELECT relid, '' FROM above WHERE p.puballtables
    )
    SELECT jsonb_agg(way) FROM (
        SELECT jsonb_build_array(r.oid::text) FROM pg_publication_rel r
        WHERE r.prpubid = p.oid AND r.prrelid = c.oid
        UNION ALL SELECT jsonb_build_array(p.oid::text) WHERE p.puballtables
        UNION ALL SELECT jsonb_build_array(p.oid::text, '{IN_SCHEMA}', s.oid::text, {_MOVED.format("c.oid")})
        FROM ({{schemas}}) s WHERE s.pnnspid = c.relnamespace
        UNION ALL SELECT jsonb_build_array(p.oid::text, '{IN_ROOT}', way, (
            SELECT string_agg(i.inhrelid || ' ' || i.xmin, ', ' ORDER BY i.inhrelid) FROM pg_inherits i
            WHERE i.inhrelid = ANY(ARRAY(SELECT c.oid UNION SELECT relid FROM above)) AND i.inhrelid <> roots.relid
            AND EXISTS (SELECT FROM pg_partition_ancestors(i.inhrelid) t WHERE t.relid = roots.relid)))
        FROM roots WHERE way <> ''
    ) x (way) WHERE NOT (p.pubviaroot AND EXISTS (SELECT FROM roots)))
FROM pg_publication p CROSS JOIN pg_class c WHERE p.pubname = %s AND c.oid = ANY(%s::oid[])
"""


def published(connection: Connection, publication: str, tables: Sequence[PgTable | KnownTable]) -> Published:
    """What the publication contains now; not a partition whose changes it sends as those of another table."""
    schemas = "SELECT NULL::oid AS oid, NULL::oid AS pnnspid WHERE false"
    if connection.info.server_version >= SCHEMAS_FROM:
        schemas = "SELECT oid, pnnspid FROM pg_publication_namespace WHERE pnpubid = p.oid"
    query = _PUBLISHED.format(schemas=schemas)
    rows = rows_of(connection, READING, query, (publication, [table.oid for table in tables]))
    found = {table: ways or [] for table, *_, ways in rows}
    written, oid = rows[0][1:3] if rows else (None, None)
    return Published({table.name: found.get(table.oid, []) for table in tables}, written, oid)


def unnamed(connection: Connection, publication: str, tables: Sequence[PgTable]) -> list[PgTable]:
    """Those that the publication has, and that neither it nor another publication names."""
    query = "SELECT prrelid::bigint FROM pg_publication_rel WHERE prrelid = ANY(%s::oid[])"
    has = published(connection, publication, tables).ways
    named = {oid for (oid,) in rows_of(connection, READING, query, ([table.oid for table in tables],))}
    return [table for table in tables if has[table.name] and table.oid not in named]


def missing(connection: Connection, publication: str, tables: Sequence[PgTable]) -> list[Hint] | None:
    """What makes a publication contain all of the tables' changes: statements; and where one cannot name a table,
    as a partition whose root it has, another publication in the config. None if it does not exist.
    """
    complete = "pubinsert AND pubupdate AND pubdelete AND pubtruncate"
    own = "ARRAY(SELECT prrelid::bigint FROM pg_publication_rel WHERE prpubid = p.oid)"
    query = f"SELECT {complete}, pubviaroot, puballtables, {own} FROM pg_publication p"
    found = row_of(connection, READING, f"{query} WHERE pubname = %s", (publication,))
    if found is None:
        return None
    listing = "SELECT to_jsonb(t) FROM pg_publication_tables t WHERE pubname = %s"
    rows = rows_of(connection, READING, listing, (publication,))
    publishes_all, via_root, every_table, own_tables = found
    name = quoted(publication)
    wanted: list[Hint] = []
    if not publishes_all:
        wanted.append(sql(f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')"))
    if not via_root and any(table.kind == "p" for table in tables):
        wanted.append(sql(f"ALTER PUBLICATION {name} SET (publish_via_partition_root = true)"))
    listed = {(row["schemaname"], row["tablename"]): row for (row,) in rows}
    apart = in_config(
        f"give the job a publication of its own: upstream.publication = {in_toml(_apart(publication))}"
    )
    for table in tables:
        row = listed.get((table.schema, table.relation))
        # a publication that does not go by the root lists a partitioned table's partitions instead of it
        hidden = table.kind == "p" and not via_root and (every_table or table.oid in own_tables)
        add = f"ALTER PUBLICATION {name} ADD TABLE {table.sql}"
        if row is None and not hidden:
            wanted.append(apart if every_table or _has_ancestor(connection, table, listed) else sql(add))
        elif row is not None and (row.get("rowfilter") or _leaves_out(row, table)):
            named = table.oid in own_tables
            wanted.append(sql(f"ALTER PUBLICATION {name} DROP TABLE {table.sql}", add) if named else apart)
    return list(dict.fromkeys(wanted))


def _apart(publication: str) -> str:
    """A name like this publication's, and another one also once the server has cut it."""
    for end in ("_own", "_own2"):
        name = publication.encode()[: NAME_BYTES - len(end)].decode(errors="ignore") + end
        if name != publication:
            break
    return name


def guard(slot: str) -> str:
    """A publication that only names tables of the job with this slot: SET UNLOGGED then refuses them."""
    return f"{slot[: NAME_BYTES - 6]}_named"


def guarding(connection: Connection, slot: str, tables: Sequence[PgTable]) -> str:
    """SQL that makes the job's guard name these tables too."""
    name, listed = quoted(guard(slot)), ", ".join(table.sql for table in tables)
    found = row_of(connection, READING, "SELECT FROM pg_publication WHERE pubname = %s", (guard(slot),))
    if found is None:
        return f"CREATE PUBLICATION {name} FOR TABLE {listed}"
    return f"ALTER PUBLICATION {name} ADD TABLE {listed}"


def _has_ancestor(connection: Connection, table: PgTable, listed: Container[tuple[str, str]]) -> bool:
    """Whether a table that this one is a partition of is published instead of it."""
    query = """
        SELECT n.nspname::text, c.relname::text FROM pg_partition_ancestors(%s::oid) a
        JOIN pg_class c ON c.oid = a.relid JOIN pg_namespace n ON n.oid = c.relnamespace"""
    return any(found in listed for found in rows_of(connection, READING, query, (table.oid,)))


def _leaves_out(row: dict[str, Any], table: PgTable) -> bool:
    names = row.get("attnames")
    return names is not None and not {column.name for column in table.columns} <= set(names)


def statement(publication: str, tables: Sequence[PgTable]) -> str:
    """SQL that creates the publication."""
    listed = ", ".join(table.sql for table in tables)
    root = " WITH (publish_via_partition_root = true)" if any(table.kind == "p" for table in tables) else ""
    return f"CREATE PUBLICATION {quoted(publication)} FOR TABLE {listed}{root}"


def use(connection: Connection, publication: str, tables: Sequence[PgTable], slot: str) -> None:
    """The publication exists; if we created it, its comment names this slot among its users."""
    if missing(connection, publication, tables) is None:
        with connection.transaction():
            connection.execute(statement(publication, tables).encode())
            _note_users(connection, publication, [])
    users = _users(connection, publication)
    if users is not None:
        _note_users(connection, publication, [*users, slot])


def require_joinable(connection: Connection, publication: str, tables: Sequence[PgTable], slot: str) -> None:
    """The publication has the tables' changes, or `join` would add them. Raises UsageError with the SQL for it."""
    has = published(connection, publication, tables).ways
    is_ours = slot in (_users(connection, publication) or ())
    _require(connection, publication, [table for table in tables if has[table.name] or not is_ours])


def _require(connection: Connection, publication: str, tables: Sequence[PgTable]) -> None:
    if wanted := missing(connection, publication, tables):
        names = ", ".join(repr(table.name) for table in tables)
        raise UsageError(f"publication {publication!r} does not have all changes of {names}", joined(wanted))


@contextmanager
def _soon(connection: Connection) -> Iterator[None]:
    """A transaction that waits little for others' locks: VACUUM or CREATE INDEX hold a table's for hours."""
    with connection.transaction():
        connection.execute("SELECT set_config('lock_timeout', %s, true)", (str(LOCKED_MS),))
        yield


def join(connection: Connection, publication: str, tables: Sequence[PgTable], slot: str) -> None:
    """A publication that we created for this slot names the tables; any other has them. Raises UsageError."""
    has = published(connection, publication, tables).ways
    with _soon(connection):
        for table in tables:
            if not has[table.name] and slot in (_users(connection, publication) or ()):
                connection.execute(f"ALTER PUBLICATION {quoted(publication)} ADD TABLE {table.sql}".encode())
        _require(connection, publication, tables)


def drop(connection: Connection, publication: str, table: str, slot: str) -> None:
    """A publication that we created for this slot alone does not name the table, if that exists."""
    query = """
        SELECT prrelid::regclass::text FROM pg_publication_rel JOIN pg_publication p ON p.oid = prpubid
        WHERE pubname = %s AND prrelid = to_regclass(%s)"""
    if _users(connection, publication) != [slot]:
        return
    with _soon(connection):
        for (name,) in rows_of(connection, READING, query, (publication, table)):
            connection.execute(f"ALTER PUBLICATION {quoted(publication)} DROP TABLE {name}".encode())


def leave(connection: Connection, publication: str, slot: str) -> None:
    """The job with this slot no longer uses the publication; if we created it, it goes with its last user."""
    users = _users(connection, publication)
    if users is None or slot not in users:
        return
    others = [name for name in users if name != slot]
    if others:
        _note_users(connection, publication, others)
    else:
        connection.execute(f"DROP PUBLICATION {quoted(publication)}".encode())


def _users(connection: Connection, publication: str) -> list[str] | None:
    """The slots of the jobs that use a publication that we created; None for any other, or if there is none."""
    query = "SELECT obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = %s"
    row = connection.execute(query, (publication,)).fetchone()
    if row is None or row[0] is None or not row[0].startswith(MADE_BY_US):
        return None
    return [name for name in row[0].removeprefix(MADE_BY_US).split(", ") if name]


def _note_users(connection: Connection, publication: str, slots: Sequence[str]) -> None:
    """The comment names these slots, if the role owns the publication: another role could not drop it either."""
    import psycopg

    listed = ", ".join(dict.fromkeys(slots))
    with suppress(psycopg.errors.InsufficientPrivilege), connection.transaction():
        connection.execute(f"COMMENT ON PUBLICATION {quoted(publication)} IS '{MADE_BY_US}{listed}'".encode())
