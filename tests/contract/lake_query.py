"""SQL over a lake's tables for the contract of derived tables: SELECTs by DuckDB, changes by Spark."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import duckdb
import pyarrow as pa

Rows = list[tuple[Any, ...]]


def ran(
    sql: str, tables: Mapping[str, pa.Table], change: Callable[[str], None], name: Callable[[str], str]
) -> Rows:
    """The rows of a SELECT; none of a statement that changes a table. name: of a table in Spark's SQL."""
    if sql.startswith("SELECT"):
        with duckdb.connect() as con:
            for one, rows in tables.items():
                con.register(one, rows)
            return con.execute(sql).fetchall()
    found = re.fullmatch(r"(CREATE TABLE|INSERT INTO|DELETE FROM|UPDATE) (\w+)(.*)", sql)
    assert found is not None
    rest = re.sub(r"\btext\b", "string", found[3]) if found[1] == "CREATE TABLE" else found[3]
    change(f"{found[1]} {name(found[2])}{rest}")
    return []
