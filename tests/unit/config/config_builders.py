"""A config that is right, for tests to change."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from backfill_cli.config import JobConfig
from backfill_cli.config.draft import Asked, Draft, drafted
from backfill_cli.config.template import FILL_IN, template

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


def draft(source: str | None = None, **asked: Any) -> Draft:
    """What is known of a job from files, or from this place, into DuckDB, with a config in the current folder."""
    return drafted(Asked(source, **asked), Path.cwd())


def config_text(source: str | None = None, full: bool = False, **asked: Any) -> str:
    """What `init` writes for it."""
    return template(draft(source, **asked), full)


def ready(load_text: Load, text: str) -> Any:
    """The `[upstream]` of a config that can be planned as it is: what there is fits what it says."""
    assert FILL_IN not in text.replace(f"immutable_key = false   {FILL_IN}", "")
    text = text.replace("immutable_key = false", "immutable_key = true")
    told = load_text(text)
    upstream = told.open_upstream()
    upstream.observe(upstream.pin().position, snapshot_open=True)
    sides = {
        side: {k: v for k, v in options.items() if k != "path"} for side, options in upstream_of(told).items()
    }
    return {**sides, "key": list(told.tables[0].key)}


def upstream_of(told: JobConfig) -> dict[str, Any]:
    return {side: options for side, options in told.tree["upstream"].items() if side != "type"}
