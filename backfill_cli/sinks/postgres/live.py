"""The names that people query, made views of a job's tables; a cutover is one transaction of the database."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from backfill_cli.contracts import own
from backfill_cli.contracts.cutover import REPEAT, Swap
from backfill_cli.errors import UsageError
from backfill_cli.model.cutover import Found, Live, Lives, kept_name
from backfill_cli.sinks.postgres import session
from backfill_cli.sinks.postgres.dialect import Target, literal, quoted
from backfill_cli.sinks.postgres.edge import client, said, state_of
from backfill_cli.sinks.postgres.session import Connection, rows_of, run
from backfill_cli.sinks.postgres.state import SideTable

LIVE = SideTable(
    "live",
    "backfill: the names that people query, made views of a job's tables by `backfill cutover`.",
    {
        "job": ("text NOT NULL", "name of the job"),
        "table": ("text NOT NULL", "the job's name for the table"),
        "schema": ("text", "schema of the name that is a view of it"),
        "name": ("text", "the name itself"),
        "kept": ("text", "new name of what had the name before; NULL: nothing had it"),
        "epoch": ("bigint NOT NULL", "the job's checkpoint at that time"),
        "since_ms": ("bigint NOT NULL", "when, milliseconds since 1970"),
        "until_ms": ("bigint NOT NULL", "until when it can be reversed"),
    },
    ("schema", "name"),
)
_KINDS = {"r": Found.TABLE, "p": Found.TABLE, "f": Found.TABLE, "v": Found.VIEW, "m": Found.VIEW}
_WORDS = {"r": "TABLE", "p": "TABLE", "f": "FOREIGN TABLE", "v": "VIEW", "m": "MATERIALIZED VIEW"}
_DEPENDS = """
    SELECT DISTINCT 'view ' || d.refobjid::regclass || ' is read by ' || r.ev_class::regclass
    FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid
    WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass
    AND d.refobjid = $1::regclass AND r.ev_class <> $1::regclass
    UNION SELECT 'foreign key ' || conname || ' of ' || conrelid::regclass FROM pg_catalog.pg_constraint
    WHERE contype = 'f' AND confrelid = $1::regclass AND conrelid <> $1::regclass ORDER BY 1"""
"""SQL: what refers to the relation by its OID, and so keeps using it after it is renamed."""
_DEPENDED_ON = "2BP01"
_WRONG_NAME_OR_RIGHT = "42"
"""The SQLSTATE class for names that are taken or of another kind, and for missing privileges."""


def live(con: Connection, schema: str, job: str, swaps: Sequence[Swap]) -> Lives:
    """See contracts.CutoverSink."""
    return {swap.table.name: _live(con, schema, job, swap) for swap in swaps}


def cut_over(
    con: Connection, schema: str, job: str, swaps: Sequence[Swap], epoch: int, now_ms: int, until_ms: int
) -> None:
    _do_not_wait_long(con)
    for statement in LIVE.create(schema):
        run(con, statement)
    with _refusals():
        for swap in swaps:
            _make(con, schema, job, swap, (epoch, now_ms, until_ms))
    con.commit()


def _make(con: Connection, schema: str, job: str, swap: Swap, moments: tuple[int, int, int]) -> None:
    """moments: epoch, now_ms, until_ms."""
    if _live(con, schema, job, swap).found is Found.OURS:
        return
    name = _name(swap, schema)
    kind = _relkind(con, name)
    kept = None if kind is None else kept_name(name.table, moments[0])
    if kept is not None:
        run(con, f"ALTER {_word(kind, name)} {name.sql} RENAME TO {quoted(kept)}")
    elif not rows_of(con, "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1", name.schema):
        run(con, f"CREATE SCHEMA {quoted(name.schema)}")
    run(con, f"CREATE VIEW {name.sql} AS SELECT * FROM {Target.of(swap.table, schema).sql}")
    if kept is not None:
        for grant in _reading_grants(con, Target(name.schema, kept), name):
            run(con, grant)
    run(con, f"DELETE FROM {_table(schema)} WHERE schema = $1 AND name = $2", name.schema, name.table)
    run(
        con,
        f"INSERT INTO {_table(schema)} VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        *(job, swap.table.name, name.schema, name.table, kept, *moments),
    )


def reverse(con: Connection, schema: str, job: str, swaps: Sequence[Swap]) -> None:
    _do_not_wait_long(con)
    with _refusals():
        for swap in swaps:
            _put_back(con, schema, job, swap)
    con.commit()


def _put_back(con: Connection, schema: str, job: str, swap: Swap) -> None:
    now, name = _live(con, schema, job, swap), _name(swap, schema)
    if now.found is not Found.OURS:
        return
    run(con, f"DROP VIEW {name.sql}")
    if now.kept is not None:
        before = Target(name.schema, now.kept)
        kind = _relkind(con, before)
        if kind is None:
            raise UsageError(
                f"{before}, which was {name} before the cutover, is gone: the cutover cannot be reversed",
                f"DROP VIEW {name.sql}, or leave it as it is",
            )
        run(con, f"ALTER {_word(kind, before)} {before.sql} RENAME TO {quoted(name.table)}")
    run(con, f"DELETE FROM {_table(schema)} WHERE schema = $1 AND name = $2", name.schema, name.table)


def widened(con: Connection, schema: str, job: str, added: Sequence[tuple[str, Target]]) -> Iterator[str]:
    """SQL that adds the new columns of these tables to the views of them.

    added: the job's name for each table that gains columns, and where the table is.
    """
    for table, target in added:
        for name in _names_of(con, schema, job, table):
            if _relkind(con, name) == "v":
                yield f"CREATE OR REPLACE VIEW {name.sql} AS SELECT * FROM {target.sql}"


def remove(con: Connection, schema: str, job: str) -> None:
    """The job is forgotten: its views stay, and its cutovers can no longer be reversed."""
    if _is_there(con, schema):
        run(con, f"DELETE FROM {_table(schema)} WHERE job = $1", job)


def _live(con: Connection, schema: str, job: str, swap: Swap) -> Live:
    name = _name(swap, schema)
    kind = _relkind(con, name)
    if kind is None:
        return Live(Found.NOTHING)
    _word(kind, name)
    if kind == "v" and _is_there(con, schema):
        query = f"""SELECT kept, since_ms, until_ms FROM {_table(schema)}
                    WHERE job = $1 AND "table" = $2 AND schema = $3 AND name = $4"""
        held = rows_of(con, query, job, swap.table.name, name.schema, name.table)
        if held:
            return Live(Found.OURS, *held[0])
    return Live(_KINDS[kind], depends=tuple(found for (found,) in rows_of(con, _DEPENDS, name.sql)))


def _name(swap: Swap, schema: str) -> Target:
    return Target.parse(swap.live, schema)


def _relkind(con: Connection, name: Target) -> str | None:
    found = rows_of(
        con,
        "SELECT c.relkind::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n "
        "ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2",
        name.schema,
        name.table,
    )
    return found[0][0] if found else None


def _word(kind: str | None, name: Target) -> str:
    if kind not in _WORDS:
        raise UsageError(f"{name} is neither a table nor a view", "name another one: tables.live")
    return _WORDS[kind]


def _reading_grants(con: Connection, before: Target, name: Target) -> Iterator[str]:
    """SQL that grants SELECT on the view to whoever could read what had the name before; no write privileges."""
    query = """SELECT CASE WHEN g.grantee = 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(r.rolname) END
               FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) g
               LEFT JOIN pg_catalog.pg_roles r ON r.oid = g.grantee
               WHERE c.oid = $1::regclass AND g.privilege_type = 'SELECT' AND g.grantee <> c.relowner
               UNION SELECT pg_catalog.quote_ident(r.rolname) FROM pg_catalog.pg_class c
               JOIN pg_catalog.pg_roles r ON r.oid = c.relowner
               WHERE c.oid = $1::regclass AND r.rolname <> current_user"""
    for (role,) in rows_of(con, query, before.sql):
        yield f"GRANT SELECT ON {name.sql} TO {role}"


def _names_of(con: Connection, schema: str, job: str, table: str) -> list[Target]:
    if not _is_there(con, schema):
        return []
    query = f'SELECT schema, name FROM {_table(schema)} WHERE job = $1 AND "table" = $2'
    return [Target(*found) for found in rows_of(con, query, job, table)]


@contextmanager
def _refusals() -> Iterator[None]:
    """What the database refuses to rename, create or drop is raised as UsageError."""
    try:
        yield
    except client().Error as exc:
        state = state_of(exc)
        if state != _DEPENDED_ON and not state.startswith(_WRONG_NAME_OR_RIGHT):
            raise
        raise UsageError(f"nothing has changed: {said(exc)}", REPEAT) from exc


def _do_not_wait_long(con: Connection) -> None:
    """DDL gives up its wait for a lock soon, as new readers wait behind it; the command can be repeated."""
    rows_of(con, f"SELECT pg_catalog.set_config('lock_timeout', '{session.DDL_LOCK_TIMEOUT_S}s', true)")


def side_target(schema: str) -> Target:
    """Where the side table is, if there is one."""
    return Target(schema, own.PREFIX + LIVE.name)


def _table(schema: str) -> str:
    return side_target(schema).sql


def _is_there(con: Connection, schema: str) -> bool:
    return bool(rows_of(con, f"SELECT 1 WHERE pg_catalog.to_regclass({literal(_table(schema))}) IS NOT NULL"))
