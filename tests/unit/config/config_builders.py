"""A config that is right, for tests to change."""

from collections.abc import Callable

from backfill_cli.config import JobConfig

GOOD = """
[job]
name = "orders"
[upstream]
type = "files"
snapshot = { path = "data/snapshot", format = "parquet" }
changes = { path = "data/changes", format = "debezium" }
[[tables]]
name = "orders"
key = ["id"]
[sink]
type = "duckdb"
path = "warehouse.duckdb"
"""

Load = Callable[[str], JobConfig]
