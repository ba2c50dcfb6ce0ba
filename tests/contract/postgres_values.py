"""A table of one column of any type in a PostgreSQL sink, and the ends of its times."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from postgres import Server
from postgres_database import Database, database
from sink_contract import Epochs

from backfill_cli.contracts import SinkTable

JOBS: dict[SinkTable, Epochs] = {}
"""The job whose table is in the database now; a test's examples use it one after the other."""
FIRST_US, LAST_US = -210_866_803_200_000_000, 2**63 - 2


@pytest.fixture(scope="module")
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        made(f"ALTER DATABASE {made.name} SET timezone TO 'UTC'")
        yield made


def table_of(kind: Any, name: str = "orders", **metadata: str) -> SinkTable:
    fields = [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "v", "type": kind, "nullable": True, "metadata": metadata},
    ]
    return SinkTable(name, name, ("id",), json.dumps({"type": "struct", "fields": fields}))
