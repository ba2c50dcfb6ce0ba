"""One job over PostgreSQL into a DuckDB file, typed as its config, run in this process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from postgres import Server
from postgres_database import Database, database

from backfill_cli.catalog import Catalog
from backfill_cli.config import load
from backfill_cli.engine.job.checks import plan
from backfill_cli.engine.job.held import held_logs
from backfill_cli.engine.loop.run import start
from backfill_cli.errors import HistoryGone
from backfill_cli.model.reports import PlanReport

CONFIG = """
[job]
name = "orders"
staging = "{folder}/staging"
[upstream]
type = "postgres"
dsn = "${{env:ORDERS_DSN}}"
slot = "{slot}"
max_retained = "40MB"
{tables}
[sink]
type = "duckdb"
path = "{folder}/sink.duckdb"
[barrier]
interval = "100ms"
[retry]
limit = "5s"
{more}
"""


class Run:
    """One job in this process; staging must not be on the way of another."""

    def __init__(self, db: Database, folder: Path, *tables: str, more: str = "") -> None:
        self.db, self.folder = db, folder
        listed = "\n".join(f'[[tables]]\nname = "{name}"' for name in tables)
        self.catalog = Catalog(folder / "catalog.duckdb")
        self.config = folder / "job.toml"
        self.config.write_text(CONFIG.format(folder=folder, slot=db.name, tables=listed, more=more))

    def catch_up(self) -> None:
        start(load(self.config), self.catalog, "caught-up", False, None)

    def planned(self) -> PlanReport:
        return plan(load(self.config), self.catalog)

    def plan_says_that_it_is_gone(self, how: str) -> None:
        """As a run would, and changing nothing."""
        before = self.catalog.jobs()
        with pytest.raises(HistoryGone, match=how) as told:
            self.planned()
        assert "backfill drop orders --with-rows --confirm orders" in str(told.value.hint)
        assert self.catalog.jobs() == before
        assert isinstance(held_logs(["orders"], self.catalog)["orders"], HistoryGone)

    def rows(self, query: str) -> list[Any]:
        with duckdb.connect(str(self.folder / "sink.duckdb"), read_only=True) as held:
            return held.execute(query).fetchall()

    def equal(self, *queries: str) -> None:
        for query in queries:
            assert self.rows(query) == self.db(query), query


@pytest.fixture
def db(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    with database(postgres) as made:
        monkeypatch.setenv("ORDERS_DSN", made.dsn)
        made(
            "CREATE TABLE t (id int PRIMARY KEY, n int, large text)",
            "ALTER TABLE t ALTER large SET STORAGE external",
        )
        made("INSERT INTO t SELECT n, 0, repeat(n::text, 3000) FROM generate_series(1, 50) n")
        yield made
