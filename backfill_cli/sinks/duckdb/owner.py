"""Which catalog has each job of the file: a side table of its own, since older files have none."""

from typing import TYPE_CHECKING

from backfill_cli.errors import Held
from backfill_cli.model.checkpoint import Owner
from backfill_cli.sinks.duckdb.file import rows_of, transaction
from backfill_cli.sinks.duckdb.sql import SIDE_PREFIX
from backfill_cli.sinks.duckdb.state import SideTable

if TYPE_CHECKING:
    import duckdb

OWNERS = SideTable(
    "owners",
    "backfill: which catalog has each job. A file of an older version has no such table: the next run makes it.",
    {
        "job": ("VARCHAR NOT NULL", "name of the job"),
        "catalog": ("VARCHAR NOT NULL", "id of the catalog, from its table catalog_identity"),
        "host": ("VARCHAR NOT NULL", "machine that the catalog was used from"),
        "path": ("VARCHAR NOT NULL", "the catalog's file there"),
    },
)


def owner_of_job(con: "duckdb.DuckDBPyConnection", job: str) -> Owner | None:
    """The catalog that has the job, None when nothing says so."""
    if not _is_there(con):
        return None
    found = rows_of(con, f"SELECT catalog, host, path FROM {OWNERS.sql} WHERE job = ?", job)
    return Owner(*found[0]) if found else None


def own(con: "duckdb.DuckDBPyConnection", job: str, owner: Owner, instead_of: Owner | None) -> None:
    """The catalog `owner` has the job. Raises Held when another one than `instead_of` has it by now."""
    if not _is_there(con):
        with transaction(con):
            OWNERS.create(con)
        con.execute("CHECKPOINT")  # a log that mixes DDL and rows was seen to fail its replay
    with transaction(con):
        held = owner_of_job(con, job)
        if held is not None and held.catalog not in (owner.catalog, instead_of and instead_of.catalog):
            raise Held(
                f"another catalog took job {job!r} just now: {held}",
                f"backfill status {job} {held.option}",
            )
        remove(con, job)
        con.execute(f"INSERT INTO {OWNERS.sql} VALUES (?, ?, ?, ?)", [job, owner.catalog, owner.host, owner.path])


def remove(con: "duckdb.DuckDBPyConnection", job: str) -> None:
    if _is_there(con):
        con.execute(f"DELETE FROM {OWNERS.sql} WHERE job = ?", [job])


def _is_there(con: "duckdb.DuckDBPyConnection") -> bool:
    where = "database_name = current_database() AND schema_name = 'main' AND table_name = ?"
    return bool(rows_of(con, f"SELECT 1 FROM duckdb_tables() WHERE {where}", SIDE_PREFIX + OWNERS.name))
