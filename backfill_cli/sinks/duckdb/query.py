"""Writes the result of a query to a Parquet file: DuckDB as a reader of files, without a database."""

from pathlib import Path

import duckdb

from backfill_cli.errors import BadData
from backfill_cli.sinks.duckdb.file import SETTINGS
from backfill_cli.sinks.duckdb.sql import literal

PLAIN = "leave out --independent"
"""The hint where only the job's own readers can read what the job read."""


def write_query(sql: str, path: Path, table: str) -> None:
    """The Parquet file `path` holds the rows of `sql`. Raises BadData if DuckDB cannot read the files it names."""
    with duckdb.connect(config={**SETTINGS}) as con:
        con.execute("SET TimeZone = 'UTC'")
        try:
            con.execute(f"COPY ({sql}) TO {literal(str(path))} (FORMAT parquet)")
        except duckdb.Error as exc:
            raise BadData(
                f"table {table!r}: DuckDB cannot read its snapshot as the job did: {exc}",
                PLAIN,
            ) from exc
