"""States of a job whose sink is a Delta table, in which errors of the sink name a command. No Spark is started.

Each function brings one about in the scene of a job that is half done, and returns the hint of the error.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from half_done import EPOCH

from backfill_cli.catalog import lease
from backfill_cli.model.checkpoint import Owner
from backfill_cli.sinks.delta.marks import MarkedTable

SINK = '[sink]\ntype = "delta"\ntable = "lake/{table}"\n'
"""Instead of the sink of half_done.CONFIG."""


def marked(s: Any) -> MarkedTable:
    """The job's table as its sink has it."""
    (table,) = s.config.open_sink()._marked("orders")
    assert isinstance(table, MarkedTable)
    return table


def folder(s: Any) -> Path:
    found: Path = s.folder / "lake"
    return found


def table_gone(s: Any) -> str:
    """As where a job has several tables, and others are there."""
    shutil.rmtree(folder(s) / "orders")
    return str(s.failed(lambda: s.config.open_sink().check("orders", s.job.tables, True)))


def table_in_use(s: Any) -> str:
    s.run("drop", "orders", "--confirm", "orders")
    rows = pa.table({"id": pa.array([7], pa.int64()), "name": ["mine"]})
    write_deltalake(str(folder(s) / "orders"), rows, mode="append")
    return str(s.refused("start", "--config", "job.toml"))


def table_of_another_job(s: Any) -> str:
    text = (s.folder / "job.toml").read_text()
    (s.folder / "second.toml").write_text(text.replace('name = "orders"', 'name = "second"', 1))
    return str(s.refused("start", "--config", "second.toml"))


def table_of_a_job_whose_catalog_is_lost(s: Any) -> str:
    hint = table_of_another_job(s)
    s.catalog.path.unlink()
    assert "--catalog" in hint
    return str(s.refused("start", "--config", "second.toml"))


def table_restored(s: Any) -> str:
    DeltaTable(str(folder(s) / "orders")).restore(0)
    return str(s.ended("resume", "orders"))


def token_is_older(s: Any) -> str:
    marked(s).raise_token(50)
    return str(s.failed(lambda: marked(s).raise_token(3)))


def attempt_unknown(s: Any) -> str:
    table = marked(s)
    for name in table.marks.names():
        table.marks.delete(name)
    return str(s.ended("resume", "orders"))


def another_attempt(s: Any) -> str:
    marked(s).mark(1, 99, "first", EPOCH)
    return str(s.failed(lambda: marked(s).mark(1, 99, "second", EPOCH)))


def skipped_without_a_word(s: Any) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MarkedTable, "write", lambda *_: True)
        return str(s.failed(lambda: s.commit(20, EPOCH)))


def owned_just_now(s: Any) -> str:
    third = Owner("id-3", lease.this_host(), str(s.folder / "third.duckdb"))
    return str(s.failed(lambda: s.config.open_sink().own("orders", third, None)))


STATES: dict[str, tuple[Callable[[Any], str], ...]] = {
    "backfill_cli/contracts/refusals.py:taken": (owned_just_now,),
    "backfill_cli/sinks/delta/marks.py:_attempt": (attempt_unknown,),
    "backfill_cli/sinks/delta/marks.py:mark": (another_attempt,),
    "backfill_cli/contracts/refusals.py:refuse_old_token": (token_is_older,),
    "backfill_cli/sinks/delta/restored.py:_gone": (table_restored,),
    "backfill_cli/sinks/delta/sink.py:_require_ours": (skipped_without_a_word,),
    "backfill_cli/contracts/refusals.py:rows_of_others": (table_in_use,),
    "backfill_cli/contracts/refusals.py:belongs_to": (table_of_a_job_whose_catalog_is_lost,),
    "backfill_cli/engine/job/ownership.py:owners_sought": (table_of_another_job,),
    "backfill_cli/contracts/refusals.py:gone": (table_gone,),
}
