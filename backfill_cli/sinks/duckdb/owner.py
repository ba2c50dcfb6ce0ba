"""Which catalog owns each job of the file: a separate side table, since older files do not have it."""

from typing import TYPE_CHECKING

from backfill_cli.contracts.targets import taken
from backfill_cli.model.checkpoint import Owner
from backfill_cli.sinks.duckdb.file import rows_of, transaction
from backfill_cli.sinks.duckdb.state import SideTable

if TYPE_CHECKING:
    import duckdb

OWNERS = SideTable(
    "owners",
    "backfill: which catalog owns each job. Files of older versions lack this table; the next run creates it.",
    {
        "job": ("VARCHAR NOT NULL", "name of the job"),
        "catalog": ("VARCHAR NOT NULL", "id of the catalog, from its table catalog_identity"),
        "host": ("VARCHAR NOT NULL", "machine that the catalog was used from"),
        "path": ("VARCHAR NOT NULL", "the catalog's file there"),
    },
)


def owner_of_job(con: "duckdb.DuckDBPyConnection", job: str) -> Owner | None:
    """The catalog that owns the job; None if none is recorded."""
    if not OWNERS.exists(con):
        return None
    found = rows_of(con, f"SELECT catalog, host, path FROM {OWNERS.sql} WHERE job = ?", job)
    return Owner(*found[0]) if found else None


def own(con: "duckdb.DuckDBPyConnection", job: str, owner: Owner, instead_of: Owner | None) -> None:
    """The catalog `owner` owns the job. Raises Held if a catalog other than `instead_of` now owns it."""
    if not OWNERS.exists(con):
        with transaction(con):
            OWNERS.create(con)
        con.execute("CHECKPOINT")  # replay of a log that mixes DDL and rows has been seen to fail
    with transaction(con):
        held = owner_of_job(con, job)
        if held is not None and held.catalog not in (owner.catalog, instead_of and instead_of.catalog):
            raise taken(job, held)
        remove(con, job)
        con.execute(f"INSERT INTO {OWNERS.sql} VALUES (?, ?, ?, ?)", [job, owner.catalog, owner.host, owner.path])


def remove(con: "duckdb.DuckDBPyConnection", job: str) -> None:
    if OWNERS.exists(con):
        con.execute(f"DELETE FROM {OWNERS.sql} WHERE job = ?", [job])
