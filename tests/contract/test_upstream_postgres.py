"""The PostgreSQL upstream against the suite for upstreams: state as it is now, a log that is taken."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from postgres import Server
from postgres_database import Database, database
from upstream_contract import UpstreamContract
from upstream_world import TABLE, Row

from backfill_cli.cdc import ranges
from backfill_cli.contracts import Source, TableSpec
from backfill_cli.upstreams.postgres import connector

Change = tuple[str, Row | None, Row | None]


@dataclass
class PostgresWorld:
    """A table, and the slot that a first job made."""

    db: Database
    opened: list[Any] = field(default_factory=list)

    def load(self, splits: Sequence[Sequence[Row]]) -> None:
        self.db(f"CREATE TABLE {TABLE} (id bigint PRIMARY KEY, name text)")
        with psycopg.connect(self.db.dsn) as connection:
            for rows in splits:
                for row in rows:
                    connection.execute(f"INSERT INTO {TABLE} VALUES (%(id)s, %(name)s)", row)
        self.db("ANALYZE")
        first: Any = self.open()
        first.pin()
        first.create(self.db.name)

    def land(self, changes: Sequence[Change]) -> None:
        with psycopg.connect(self.db.dsn) as connection:
            for op, before, after in changes:
                given = {"old": (before or {}).get("id"), **(after or {})}
                match op:
                    case "insert":
                        connection.execute(f"INSERT INTO {TABLE} VALUES (%(id)s, %(name)s)", given)
                    case "update":
                        query = f"UPDATE {TABLE} SET id = %(id)s, name = %(name)s WHERE id = %(old)s"
                        connection.execute(query, given)
                    case "delete":
                        connection.execute(f"DELETE FROM {TABLE} WHERE id = %(old)s", given)

    def open(self) -> Source:
        options = connector.options.model_validate({"dsn": self.db.dsn, "slot": f"contract_{self.db.name}"})
        self.opened.append(connector.open(options, [TableSpec(TABLE, ("id",))]))
        return self.opened[-1]  # type: ignore[no-any-return]


class TestPostgres(UpstreamContract):
    keeps_order_in_an_epoch = False

    @pytest.fixture
    def world(self, postgres: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresWorld]:
        monkeypatch.setattr(ranges, "SPLIT_ROWS", 30)
        with database(postgres) as db:
            made = PostgresWorld(db)
            yield made
            for upstream in made.opened:
                upstream.close()
