"""A catalog with a job in it, and an engine that does as it is told, for the commands' tests."""

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from backfill_cli.catalog import Catalog
from backfill_cli.contracts import JobDefinition, SinkTable
from backfill_cli.model.checkpoint import Checkpoint, Progress
from backfill_cli.model.job import Control, JobState, Phase
from backfill_cli.model.limit import Limit
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin

Run = Callable[..., Result]

CONFIG = """
[job]
name = "orders"
[upstream]
type = "files"
snapshot = { path = "data/snapshot", format = "parquet" }
[[tables]]
name = "orders"
key = ["id"]
[sink]
type = "duckdb"
path = "warehouse.duckdb"
"""


def make_job(catalog: Catalog, name: str = "orders") -> None:
    """A job that was created and never run."""
    splits = tuple(Split("orders", f"part-{i}", 10, 1000) for i in range(4))
    pin = Pin(Position(), None, None, splits)
    table = SinkTable("orders", "orders", ("id",), "{}")
    definition = JobDefinition(name, "{}", "{}", pin, "forever", "snapshot", (table,))
    catalog.create_job(definition, Control(), Checkpoint(0, 0, 0, "-", "{}", Phase.SNAPSHOT, Position()))


def end_job(
    catalog: Catalog, name: str, state: JobState, reason: Limit | str = "", told: Progress | None = None
) -> None:
    """A runner had the job, and it ended so. told: what it said last."""
    with catalog.claim(name, "test", 5) as claim:
        claim.store.become(JobState.RUNNING, "")
        claim.store.heartbeat(5, told)
        if state is JobState.STOPPED:
            claim.store.become(JobState.STOPPING, "")
        claim.store.become(state, reason)


def fake_engine(monkeypatch: pytest.MonkeyPatch, module: str, **functions: Callable[..., Any]) -> None:
    """`backfill_cli.engine.<module>` is these functions."""
    fake = types.ModuleType(f"backfill_cli.engine.{module}")
    for name, function in functions.items():
        setattr(fake, name, function)
    monkeypatch.setitem(sys.modules, f"backfill_cli.engine.{module}", fake)


def write_config(folder: Path, text: str = CONFIG) -> str:
    file = folder / "job.toml"
    file.write_text(text)
    return str(file)
