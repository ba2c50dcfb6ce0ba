"""A job forgotten by the file: its rows in the side tables, and these tables themselves once no job is left."""

from typing import TYPE_CHECKING

from backfill_cli.sinks.duckdb import live, owner, state
from backfill_cli.sinks.duckdb.file import rows_of, transaction

if TYPE_CHECKING:
    import duckdb

_EVERY = (*state.SIDE_TABLES, owner.OWNERS, live.LIVE)


def forget(con: "duckdb.DuckDBPyConnection", job: str) -> None:
    with transaction(con):
        state.remove(con, job)
        owner.remove(con, job)
        live.remove(con, job)
    # Nobody else can have the file open, so no job begins in between.
    there = [side for side in _EVERY if side.exists(con)]
    if not any(rows_of(con, f"SELECT 1 FROM {side.sql} LIMIT 1") for side in there):
        with transaction(con):
            for side in there:
                con.execute(f"DROP TABLE {side.sql}")
        con.execute("CHECKPOINT")  # replay of a log that mixes DDL and rows has been seen to fail
