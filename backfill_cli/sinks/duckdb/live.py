"""The names that people query, made views of a job's tables; a cutover is one transaction of the file."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb

from backfill_cli.contracts.cutover import REPEAT, Swap
from backfill_cli.errors import UsageError
from backfill_cli.model.cutover import Found, Live, Lives, kept_name
from backfill_cli.sinks.duckdb.dialect import Target, quoted
from backfill_cli.sinks.duckdb.file import rows_of, transaction
from backfill_cli.sinks.duckdb.state import MARKERS, SideTable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LIVE = SideTable(
    "live",
    "backfill: the names that people query, made views of a job's tables by `backfill cutover`.",
    {
        "job": ("VARCHAR NOT NULL", "name of the job"),
        "table": ("VARCHAR NOT NULL", "the job's name for the table"),
        "live": ("VARCHAR NOT NULL", "schema.name that is a view of it, lower case"),
        "kept": ("VARCHAR", "new name in that schema of what had the name before; NULL: nothing had it"),
        "epoch": ("BIGINT NOT NULL", "the job's checkpoint at that time"),
        "since_ms": ("BIGINT NOT NULL", "when, milliseconds since 1970"),
        "until_ms": ("BIGINT NOT NULL", "until when it can be reversed"),
    },
)


def live(con: "DuckDBPyConnection", job: str, swaps: Sequence[Swap]) -> Lives:
    """See contracts.CutoverSink. Views in DuckDB refer to tables by name, and so are never left behind."""
    return {swap.table.name: _live(con, job, swap) for swap in swaps}


def cut_over(
    con: "DuckDBPyConnection", job: str, swaps: Sequence[Swap], epoch: int, now_ms: int, until_ms: int
) -> None:
    with transaction(con), _refusals():
        LIVE.create(con)
        for swap in swaps:
            found, name = _live(con, job, swap).found, Target.parse(swap.live)
            if found is Found.OURS:
                continue
            kept = None if found is Found.NOTHING else kept_name(name.table, epoch)
            if kept is not None:
                _rename(con, found, name, kept)
            con.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(name.schema)}")
            con.execute(f"CREATE VIEW {name.sql} AS SELECT * FROM {Target.of(swap.table).sql}")
            _forget(con, name)
            con.execute(
                f"INSERT INTO {LIVE.sql} VALUES (?, ?, ?, ?, ?, ?, ?)",
                [job, swap.table.name, name.identity, kept, epoch, now_ms, until_ms],
            )
    con.execute("CHECKPOINT")  # replay of a log that mixes DDL and rows has been seen to fail


def reverse(con: "DuckDBPyConnection", job: str, swaps: Sequence[Swap]) -> None:
    with transaction(con), _refusals():
        for swap in swaps:
            now, name = _live(con, job, swap), Target.parse(swap.live)
            if now.found is not Found.OURS:
                continue
            con.execute(f"DROP VIEW {name.sql}")
            if now.kept is not None:
                before = Target(name.schema, now.kept)
                kind = _kind(con, before)
                if kind is Found.NOTHING:
                    raise UsageError(
                        f"{before}, which was {name} before the cutover, is gone: the cutover cannot be reversed",
                        f"DROP VIEW {name.sql}, or leave it as it is",
                    )
                _rename(con, kind, before, name.table)
            _forget(con, name)
    con.execute("CHECKPOINT")


def views_of(con: "DuckDBPyConnection", targets: Sequence[str]) -> list[tuple[str, str]]:
    """(job, name) of each view that a cutover of the job made of these tables (given as `Target.identity`)."""
    if not LIVE.exists(con):
        return []
    query = f"""SELECT l.job, l.live FROM {LIVE.sql} l
                JOIN {MARKERS.sql} m ON m.job = l.job AND m."table" = l."table"
                WHERE list_contains(?, m.target) ORDER BY 2"""
    found = rows_of(con, query, list(targets))
    return [(job, name) for job, name in found if _kind(con, Target.parse(name)) is Found.VIEW]


def remove(con: "DuckDBPyConnection", job: str) -> None:
    """The job is forgotten: its views stay, and its cutovers can no longer be reversed."""
    if LIVE.exists(con):
        con.execute(f"DELETE FROM {LIVE.sql} WHERE job = ?", [job])


def _live(con: "DuckDBPyConnection", job: str, swap: Swap) -> Live:
    name = Target.parse(swap.live)
    kind = _kind(con, name)
    if kind is Found.TABLE:
        return Live(kind, depends=_bound(con, name))
    if kind is not Found.VIEW or not LIVE.exists(con):
        return Live(kind)
    query = f'SELECT kept, since_ms, until_ms FROM {LIVE.sql} WHERE job = ? AND "table" = ? AND live = ?'
    held = rows_of(con, query, job, swap.table.name, name.identity)
    return Live(Found.OURS, *held[0]) if held else Live(kind)


def _bound(con: "DuckDBPyConnection", name: Target) -> tuple[str, ...]:
    """Indexes of the table and foreign keys that refer to it: DuckDB does not rename a table that has any."""
    here = "database_name = current_database() AND lower(schema_name) = lower(?)"
    found = rows_of(
        con,
        f"SELECT 'index ' || index_name FROM duckdb_indexes() WHERE {here} AND lower(table_name) = lower(?) "
        "UNION SELECT 'a foreign key of table ' || table_name FROM duckdb_constraints() "
        f"WHERE {here} AND lower(referenced_table) = lower(?) "
        "AND lower(table_name) != lower(referenced_table) ORDER BY 1 DESC",
        *(name.schema, name.table) * 2,
    )
    return tuple(text for (text,) in found)


def _kind(con: "DuckDBPyConnection", name: Target) -> Found:
    for kind, listed, column in (
        (Found.TABLE, "duckdb_tables()", "table_name"),
        (Found.VIEW, "duckdb_views()", "view_name"),
    ):
        if rows_of(
            con,
            f"SELECT 1 FROM {listed} WHERE database_name = current_database() "
            f"AND lower(schema_name) = lower(?) AND lower({column}) = lower(?)",
            name.schema,
            name.table,
        ):
            return kind
    return Found.NOTHING


def _rename(con: "DuckDBPyConnection", kind: Found, name: Target, to: str) -> None:
    word = "TABLE" if kind is Found.TABLE else "VIEW"
    con.execute(f"ALTER {word} {name.sql} RENAME TO {quoted(to)}")


@contextmanager
def _refusals() -> Iterator[None]:
    """What DuckDB refuses to rename or create is raised as UsageError."""
    try:
        yield
    except (duckdb.DependencyException, duckdb.CatalogException) as exc:
        raise UsageError(f"nothing has changed: {str(exc).splitlines()[0]}", REPEAT) from exc


def _forget(con: "DuckDBPyConnection", name: Target) -> None:
    con.execute(f"DELETE FROM {LIVE.sql} WHERE live = ?", [name.identity])
