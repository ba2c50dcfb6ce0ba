"""A job over files, in this process, with DuckDB as its sink."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

from backfill_cli.catalog import Catalog
from backfill_cli.config import load
from backfill_cli.engine.loop.run import start
from backfill_cli.view.model import read_jobs

CONFIG = """
[job]
name = "orders"
staging = "HERE/staging"
[upstream]
type = "files"
on_error = "quarantine"
snapshot = { path = "HERE/snapshot", format = "csv", schema = "COLUMNS" }
changes = { path = "HERE/changes", CHANGES }
[[tables]]
name = "orders"
key = ["id"]
immutable_key = true
[sink]
type = "duckdb"
path = "HERE/sink.duckdb"
[barrier]
interval = "100ms"
[retry]
limit = "0s"
"""
KEPT = "SELECT file, line, value, reason FROM _backfill_quarantine_orders ORDER BY ALL"


class Run:
    """One job over files, in this process."""

    def __init__(self, here: Path, changes: str, more: str = "", snapshot: str = "id BIGINT, v INT") -> None:
        self.here, self.catalog = here, Catalog(here / "catalog.duckdb")
        self.config = here / "job.toml"
        self.config.write_text(
            CONFIG.replace("CHANGES", changes).replace("COLUMNS", snapshot).replace("HERE", str(here)) + more
        )
        for name in ("snapshot", "changes"):
            (here / name).mkdir(exist_ok=True)

    def catch_up(self) -> None:
        start(load(self.config), self.catalog, "caught-up", False, None)

    def rows(self, sql: str = "SELECT id, v FROM orders ORDER BY ALL") -> list[Any]:
        with duckdb.connect(str(self.here / "sink.duckdb"), read_only=True) as db:
            return db.execute(sql).fetchall()

    def run_sql(self, sql: str) -> None:
        """As somebody else who writes to the sink."""
        with duckdb.connect(str(self.here / "sink.duckdb")) as db:
            db.execute(sql)

    def kept(self) -> list[Any]:
        """(file, line, bytes) of each row that was kept; its reason is some text."""
        found = self.rows(KEPT)
        assert all(reason for *_, reason in found)
        return [(Path(file).name, line, value) for file, line, value, _ in found]

    def quarantined(self) -> Mapping[str, int]:
        (view,) = read_jobs(self.catalog, "orders")
        return view.quarantined
