"""What must be right in the database, checked before anything is created; the SQL that fixes each fault."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backfill_cli.errors import START_OVER, BadData, Hint, UsageError, in_config, joined, of_table, sql
from backfill_cli.model.reports import Refusal
from backfill_cli.model.units import plural
from backfill_cli.upstreams.postgres import publications, slot
from backfill_cli.upstreams.postgres.client import Connection, asking, row_of
from backfill_cli.upstreams.postgres.options import PostgresOptions
from backfill_cli.upstreams.postgres.tables import PgTable
from backfill_cli.upstreams.postgres.types import MONEY, SETTINGS, Column, quoted, spark_type

STANDBY_FROM = 160_000
"""From this version on a standby can have logical slots of its own."""

_ABLE = """
SELECT current_setting('wal_level'), current_setting('server_version_num')::int, pg_is_in_recovery(),
       current_user::text,
       (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user) OR EXISTS (
           SELECT FROM pg_roles WHERE rolname = 'rds_replication' AND pg_has_role(current_user, oid, 'MEMBER')),
       current_setting('max_replication_slots')::int, (SELECT count(*) FROM pg_replication_slots)::int
"""


def require_followable(tables: Sequence[PgTable]) -> None:
    """The log has each changed row's old key. Raises UsageError with the SQL that ensures it."""
    for table in tables:
        with of_table(table.name, UsageError):
            _require_followable(table)


def _require_followable(table: PgTable) -> None:
    if table.unlogged:
        raise UsageError(
            f"table {table.name!r}: it, or a partition of it, is unlogged or temporary: its changes are not "
            "in the log",
            sql(f"ALTER TABLE {table.sql} SET LOGGED") + "; for a partitioned table, each such partition",
        )
    _require_unique(table)
    _require_old_key(table)
    if table.differing:
        what = "DEFAULT" if table.identity == "d" else "FULL"
        leaves = table.differing if table.identity in "df" else (table.sql, *table.lesser)
        raise UsageError(
            f"table {table.name!r}: partitions have another REPLICA IDENTITY than the table, and do not "
            "inherit its own: the log has too little of their old rows",
            sql(*(f"ALTER TABLE {leaf} REPLICA IDENTITY {what}" for leaf in leaves))
            + "; if the job has already begun, then "
            + START_OVER,
        )


def require_no_heirs(tables: Sequence[PgTable]) -> None:
    """A query of a table shows its own rows only. Raises UsageError."""
    for table in tables:
        if table.heirs:
            raise _heirs(table).of(table.name)


def _heirs(table: PgTable) -> UsageError:
    return UsageError(
        f"other tables inherit from table {table.name!r}: a query of it shows their rows too, but the log "
        "has their changes under their own names",
        sql(*(f"ALTER TABLE {heir} NO INHERIT {table.sql}" for heir in table.heirs))
        + "; or name those tables instead of it",
    )


def _require_unique(table: PgTable) -> None:
    """At no moment two rows have one key: then a key's changes in the log are of one row after another."""
    if table.unique:
        return
    columns = ", ".join(quoted(column.name) for column in table.key)
    late = "; its DEFERRABLE primary key is not: the log would not say which of two rows with one key was changed"
    raise UsageError(
        f"table {table.name!r} has no unique index on its key ({columns}) that is checked row by row"
        + (late if table.deferrable else ""),
        _constraint(table, columns) + ("" if _has_old_key(table) else "; " + _full(table)),
    )


def _constraint(table: PgTable, columns: str) -> Hint:
    """SQL that makes a key unique. A constraint stays itself when REINDEX CONCURRENTLY replaces its index."""
    if table.kind == "p":
        return sql(f"ALTER TABLE {table.sql} ADD UNIQUE ({columns})")
    name = f"backfill_key_{table.oid}"
    return sql(
        f"CREATE UNIQUE INDEX CONCURRENTLY {name} ON {table.sql} ({columns})",
        f"ALTER TABLE {table.sql} ADD CONSTRAINT {name} UNIQUE USING INDEX {name}",
    )


def _has_old_key(table: PgTable) -> bool:
    late = table.identity == "d" and table.deferrable
    return not late and table.identifying.issuperset(column.name for column in table.key)


def _full(table: PgTable) -> Hint:
    return sql(*(f"ALTER TABLE {one} REPLICA IDENTITY FULL" for one in (table.sql, *table.lesser)))


def _require_old_key(table: PgTable) -> None:
    key = tuple(column.name for column in table.key)
    if _has_old_key(table):
        return
    by_primary, full = table.identity == "d" and set(key) <= set(table.primary), _full(table)
    if by_primary:
        raise UsageError(
            f"table {table.name!r}: its primary key is DEFERRABLE or invalid, and cannot be its replica "
            "identity: once the table is published, the server refuses UPDATE and DELETE",
            full,
        )
    if table.identity == "d" and not table.primary:
        raise UsageError(
            f"table {table.name!r}: without a primary key, the log does not name the key of a row", full
        )
    what = {
        "d": f"its primary key ({', '.join(table.primary)})",
        "n": "nothing",
        "i": "the columns of an index",
    }[table.identity]
    raise UsageError(
        f"table {table.name!r}: its replica identity is {what}, which lacks the key ({', '.join(key)})",
        full + (", or use the primary key: leave `key` out" if table.primary and table.identity == "d" else ""),
    )


def require_able(connection: Connection, options: PostgresOptions, tables: Sequence[PgTable]) -> None:
    """Nothing prevents a start. Raises UsageError listing all that does."""
    slot.require_none(slot.now(connection, options.slot), options.slot)
    found = list(_faults(connection, options, tables))
    if found:
        raise UsageError(
            "PostgreSQL is not ready for this job: " + "; ".join(what for what, _ in found),
            joined(fix for _, fix in found),
        )


def refusals(
    connection: Connection, options: PostgresOptions, tables: Sequence[PgTable], is_marked: bool
) -> list[Refusal]:
    """What would prevent a start, each with the SQL that fixes it. is_marked: the slot is a start's own."""
    found = list(_faults(connection, options, tables))
    if not is_marked:
        try:
            slot.require_none(slot.now(connection, options.slot), options.slot)
        except UsageError as error:
            found.append((error.message, error.hint))
    return [Refusal(what, Hint.of(fix)) for what, fix in found]


def lost_with_a_key(tables: Sequence[PgTable]) -> list[str]:
    """Which updates of keys would stop the job, as one sentence. tables: those whose keys may change."""
    lacking = [table.name for table in tables if table.may_lack()]
    if not lacking:
        return []
    return [
        "an UPDATE that changes the key of a row with values stored out of line (TOAST) stops the job until those "
        f"values are written again: the log omits them. If keys change in {', '.join(lacking)}, first run "
        "ALTER TABLE … REPLICA IDENTITY FULL"
    ]


def generated(tables: Sequence[PgTable]) -> list[str]:
    """The columns that are not copied, one sentence per table."""
    found = []
    for table in tables:
        left = sorted(table.numbers.keys() - {column.name for column in table.columns})
        if left:
            columns = f"{plural(len(left), 'column')} {', '.join(map(quoted, left))}"
            found.append(f"table {table.name!r}: not in the log, and left out: generated {columns}")
    return found


def would_make(connection: Connection, options: PostgresOptions, tables: Sequence[PgTable]) -> list[str]:
    """What a start would create, one sentence each."""
    published = publications.missing(connection, options.publication, tables) is not None
    first = [] if published else [f"start will run: {publications.statement(options.publication, tables)}"]
    made = f"start will create replication slot {options.slot!r}; backfill drop removes it"
    return [*first, made, *slot.limits(connection, options)]


def _faults(
    connection: Connection, options: PostgresOptions, tables: Sequence[PgTable]
) -> Iterator[tuple[str, Hint | str]]:
    found = row_of(connection, "checking whether it is ready", _ABLE)
    wal_level, version, standby, role, replicates, most, used = found
    if wal_level != "logical":
        yield (
            f"wal_level is {wal_level!r}",
            sql("ALTER SYSTEM SET wal_level = 'logical'") + "; then restart the server",
        )
    if standby and version < STANDBY_FROM:
        yield (
            "it is a standby, which can have logical slots only from version 16 on",
            in_config("name its primary in upstream.dsn"),
        )
    if not replicates:
        yield (
            f"role {role!r} is not allowed to replicate",
            sql(f"ALTER ROLE {quoted(role)} REPLICATION")
            + "; on Amazon RDS: "
            + sql(f"GRANT rds_replication TO {quoted(role)}"),
        )
    if used >= most:
        yield (
            f"all {most} replication slots are in use",
            "drop one that is not needed (SELECT slot_name, active FROM pg_replication_slots), or raise "
            "max_replication_slots",
        )
    for table in tables:
        may_select = "SELECT has_table_privilege(%s::oid, 'SELECT') AND has_schema_privilege(%s, 'USAGE')"
        is_hidden = "SELECT row_security_active(%s::oid)"
        if not row_of(connection, "checking grants", may_select, (table.oid, table.schema))[0]:
            yield (
                f"role {role!r} is not allowed to read table {table.name!r}",
                sql(f"GRANT SELECT ON {table.sql} TO {quoted(role)}"),
            )
        elif row_of(connection, "checking row security", is_hidden, (table.oid,))[0]:
            yield (
                f"a row security policy hides rows of table {table.name!r} from role {role!r}",
                sql(f"ALTER ROLE {quoted(role)} BYPASSRLS"),
            )
        if table.heirs:
            error = _heirs(table)
            yield error.message, error.hint
        if table.kind == "p" and not options.accept_partition_changes:
            yield (
                f"table {table.name!r} is partitioned: rows added or removed by ATTACH, DETACH, DROP or TRUNCATE "
                "of a single partition, or changed while it is UNLOGGED, are not in the log, so the sink would "
                "not follow",
                in_config(
                    "if that does not happen, or the sink need not follow: "
                    "upstream.accept_partition_changes = true"
                ),
            )
    yield from _other_money(connection, tables)
    missing = publications.missing(connection, options.publication, tables)
    for hint in missing or ():
        yield f"publication {options.publication!r} lacks changes that this job needs", hint
    unnamed = _unguarded(connection, options, tables)
    if unnamed is not None:
        yield unnamed.message, unnamed.hint
    if missing is None and standby:
        yield (
            f"publication {options.publication!r} is missing, and a standby cannot create it",
            "on its primary: " + sql(publications.statement(options.publication, tables)),
        )
    elif missing is None and not may_publish(connection, tables):
        yield (
            f"publication {options.publication!r} is missing, and role {role!r} is not allowed to create it",
            "as the tables' owner: " + sql(publications.statement(options.publication, tables)),
        )


def _other_money(connection: Connection, tables: Sequence[PgTable]) -> Iterator[tuple[str, Hint]]:
    """Columns of money where the database's locale gives it other than the two decimal places of our sessions."""
    found = [(table, column) for table in tables for column in table.columns if MONEY in column.reaches]
    if not found:
        return
    row = _by_lc_monetary(connection, "SELECT cash_send(1::numeric::money) <> int8send(100)", None)
    if row is not None and row[0]:
        table, column = found[0]
        yield (
            f"table {table.name!r}, column {column.name!r}: by the database's lc_monetary, money has not two "
            "decimal places, as backfill reads it",
            sql(f"ALTER TABLE {table.sql} ALTER COLUMN {quoted(column.name)} TYPE numeric"),
        )


def require_named(connection: Connection, options: PostgresOptions, tables: Sequence[PgTable]) -> None:
    """No table can be unlogged for a while without a trace: see `ddl`. Raises UsageError."""
    error = _unguarded(connection, options, tables)
    if error is not None:
        raise error


def _unguarded(connection: Connection, options: PostgresOptions, tables: Sequence[PgTable]) -> UsageError | None:
    """Of tables without a TOAST table, or with one that the next VACUUM FULL drops with its last column."""
    fixed = [table for table in tables if table.kind == "r" and not (table.toasted and _toasts(table))]
    found = publications.unnamed(connection, options.publication, fixed)
    if not found:
        return None
    return UsageError(
        f"publication {options.publication!r} does not name table {found[0].name!r}: the server then allows "
        "SET UNLOGGED, whose changes the log lacks, and without a TOAST table nothing tells it later",
        "name it in any publication: " + sql(publications.guarding(connection, options.slot, found)),
    ).of(found[0].name)


def _toasts(table: PgTable) -> bool:
    """Whether a column, or a generated one, may be stored out of line."""
    return len(table.columns) < len(table.numbers) or any(column.toasts for column in table.columns)


def rewrites_that_stop(connection: Connection, options: PostgresOptions, tables: Sequence[PgTable]) -> list[str]:
    """What stops a job whose publication does not name its tables, as one sentence."""
    found = publications.unnamed(connection, options.publication, [table for table in tables if table.kind == "r"])
    if not found:
        return []
    return [
        f"publication {options.publication!r} does not name table {found[0].name!r}: what makes a new TOAST table "
        "(ADD COLUMN … GENERATED … STORED, pg_repack) then stops the job, as SET UNLOGGED does; to avoid that, "
        f"name it in any publication: {publications.guarding(connection, options.slot, found)}"
    ]


def require_same_money(connection: Connection, tables: Sequence[PgTable]) -> None:
    """Rows that were read by the database's lc_monetary have the texts of our sessions. Raises BadData."""
    found = [(table, column) for table in tables for column in table.columns if MONEY in column.reaches]
    if not found:
        return
    both = "ARRAY[concat(1234.5::numeric::money), concat((-1234.5)::numeric::money)]"
    texts = f"SELECT {both}, current_setting('lc_monetary')"
    was, locale = _by_lc_monetary(connection, texts, None)
    now, _ = _by_lc_monetary(connection, texts, SETTINGS["lc_monetary"])
    if was != now:
        table, column = found[0]
        raise BadData(
            f"table {table.name!r}, column {column.name!r}: the job began when the database's lc_monetary, "
            f"{locale!r}, made the text of money: the sink has {was[0]!r} where it is now {now[0]!r}",
            START_OVER,
        )


def _by_lc_monetary(connection: Connection, query: str, value: str | None) -> Any:
    """The row of a query. value: of lc_monetary; None: what a session of the role has at first."""
    default = "SELECT set_config(name, coalesce(%s, reset_val), true) FROM pg_settings WHERE name = 'lc_monetary'"
    with asking("reading lc_monetary"), connection.transaction(force_rollback=True):
        connection.execute(default, (value,))
        return connection.execute(query.encode()).fetchone()


def may_publish(connection: Connection, tables: Sequence[PgTable]) -> bool:
    """Whether the role may create a publication of these tables."""
    query = """SELECT has_database_privilege(current_database(), 'CREATE') AND NOT pg_is_in_recovery()
               AND bool_and(pg_has_role(relowner, 'USAGE')) FROM pg_class WHERE oid = ANY(%s::oid[])"""
    return bool(row_of(connection, "checking who owns the tables", query, ([table.oid for table in tables],))[0])


def in_force(table: PgTable, known: Mapping[str, Any]) -> tuple[Column, ...]:
    """The known columns, as the catalog describes them now. known: Spark's field of each.

    Raises BadData for one that is gone, or has another type.
    """
    now = {column.name: column for column in table.columns}
    for name, was in known.items():
        kind = spark_type(now[name]) if name in now else None
        if kind != was["type"]:
            what = "was dropped or renamed" if kind is None else f"was {was['type']}, and is now {kind}"
            raise BadData(
                f"table {table.name!r}: column {name!r} {what}",
                START_OVER,
            )
    return tuple(now[name] for name in known)


def require_no_default(connection: Connection, table: PgTable, added: Sequence[str]) -> None:
    """Added columns are NULL in the rows that existed before: the log would not have their values.

    Raises BadData for a column that was added with a default. (A default that is not constant rewrites the table.)
    """
    query = """SELECT attname::text FROM pg_attribute
               WHERE (attrelid = %(oid)s OR attrelid IN (SELECT relid FROM pg_partition_tree(%(oid)s)))
               AND attname = ANY(%(added)s::text[]) AND atthasmissing LIMIT 1"""
    row = row_of(connection, "checking added columns", query, {"oid": table.oid, "added": list(added)})
    if row is not None:
        raise BadData(
            f"table {table.name!r}: column {row[0]!r} was added with a default: rows that existed before "
            "have a value that is not in the log",
            START_OVER,
        )
