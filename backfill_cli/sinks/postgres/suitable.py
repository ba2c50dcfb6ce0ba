"""Refuses existing tables that could lose, hide or mix up rows while the marker says that they hold them."""

from collections.abc import Iterable, Sequence

from backfill_cli.errors import UsageError
from backfill_cli.sinks.postgres.session import Connection, Place, rows_of
from backfill_cli.sinks.postgres.sql import TREE, Target, quoted


def require_suitable(con: Connection, place: Place, target: Target, key: Sequence[str]) -> None:
    """Raises UsageError for a table that could lose, hide or mix up rows, with the statement that corrects it."""
    require_logged(con, [target])
    _refuse_rules(con, target)
    _refuse_children(con, target)
    _refuse_policies(con, place, target)
    _refuse_blurred_key(con, target, key)


def require_logged(con: Connection, targets: Iterable[Target]) -> None:
    """No table or partition is UNLOGGED: a crash would empty it but keep the markers."""
    for target in targets:
        found = rows_of(
            con,
            f"{TREE} SELECT n.nspname, c.relname FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid "
            "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relpersistence = 'u' AND c.relkind = 'r' ORDER BY 1, 2",
            target.sql,
        )
        if found:
            unlogged = [Target(schema, table) for schema, table in found]
            what = f"{unlogged[0]}, a partition of {target}," if unlogged[0] != target else str(target)
            raise UsageError(
                f"{what} is UNLOGGED: a crash of the server would empty it, and the job would not notice",
                "; ".join(f"ALTER TABLE {one.sql} SET LOGGED" for one in unlogged),
            )


def _refuse_rules(con: Connection, target: Target) -> None:
    found = rows_of(
        con,
        "SELECT rulename FROM pg_catalog.pg_rewrite WHERE ev_class = $1::regclass AND ev_type IN ('2', '3', '4') "
        "AND ev_enabled <> 'D' ORDER BY 1",
        target.sql,
    )
    if found:
        raise UsageError(
            f"the rule {found[0][0]!r} rewrites what is written to {target}, but COPY bypasses rules",
            f"ALTER TABLE {target.sql} " + ", ".join(f"DISABLE RULE {quoted(name)}" for (name,) in found),
        )


def _refuse_children(con: Connection, target: Target) -> None:
    found = rows_of(
        con,
        "SELECT n.nspname, c.relname FROM pg_catalog.pg_inherits i "
        "JOIN pg_catalog.pg_class p ON p.oid = i.inhparent AND p.relkind = 'r' "
        "JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE i.inhparent = $1::regclass ORDER BY 1, 2",
        target.sql,
    )
    if found:
        children = [Target(schema, table) for schema, table in found]
        raise UsageError(
            f"{children[0]} inherits from {target}: its rows would count as rows of {target}, and be deleted",
            "name another target, or: "
            + "; ".join(f"ALTER TABLE {one.sql} NO INHERIT {target.sql}" for one in children),
        )


def _refuse_policies(con: Connection, place: Place, target: Target) -> None:
    active, user = rows_of(con, "SELECT pg_catalog.row_security_active($1::regclass::oid), user", target.sql)[0]
    if active:
        raise UsageError(
            f"PostgreSQL {place}: row-level security of {target} may hide rows from the role {user}",
            f"ALTER ROLE {quoted(user)} BYPASSRLS",
        )


def _refuse_blurred_key(con: Connection, target: Target, key: Sequence[str]) -> None:
    """No key column's collation treats different texts as equal: a change would reach another key's row."""
    found = rows_of(
        con,
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
                f'ALTER TABLE {target.sql} ALTER COLUMN {quoted(name)} TYPE {kind} COLLATE "C"',
            )
