"""Whole jobs from topics whose schemas are in a registry, as often as a test runs them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from backfill_cli.catalog import Catalog
from backfill_cli.config import from_stored
from backfill_cli.engine.loop.run import start

PLACE = "kafka_partition, kafka_offset, kafka_timestamp"


class Job:
    """A job from a topic into DuckDB, which can run again."""

    def __init__(
        self,
        servers: str,
        topic: str,
        folder: Path,
        key: Sequence[str] = (),
        /,
        retry_limit: str = "0s",
        **upstream: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        at = {"type": "kafka", "bootstrap_servers": servers, "topic": topic}
        self._config = json.dumps(
            {
                "job": {"name": "orders", "staging": str(folder / "staging")},
                "upstream": {**at, **upstream},
                "tables": [{"name": "t", **({"key": list(key)} if key else {})}],
                "sink": {"type": "duckdb", "path": str(folder / "sink.duckdb")},
                "barrier": {"interval": "50ms"},
                "retry": {"limit": retry_limit},
            }
        )

    def rows(self) -> list[dict[str, Any]]:
        """The sink's rows by id, once the job is caught up."""
        start(from_stored(self._config), Catalog(self._folder / "catalog.duckdb"), "caught-up", False, None)
        with duckdb.connect(str(self._folder / "sink.duckdb"), read_only=True) as db:
            found: list[dict[str, Any]] = (
                db.sql(f"SELECT * EXCLUDE ({PLACE}) FROM t ORDER BY id").to_arrow_table().to_pylist()
            )
        return found
