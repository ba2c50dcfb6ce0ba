"""States in which errors of a DuckDB sink name a command, those about its markers included.

Each function brings one about in a scene of `hint_scene`, and returns the hint of the error.
"""

from collections.abc import Callable
from typing import Any

from half_done import EPOCH
from hint_scene import Scene

from backfill_cli.catalog import lease
from backfill_cli.model.checkpoint import Owner


def table_dropped(s: Scene) -> str:
    s.sql(s.sink, "DROP TABLE orders")
    return s.ended("resume", "orders")


def table_in_use(s: Scene) -> str:
    s.run("drop", "orders", "--confirm", "orders")
    s.sql(s.sink, "INSERT INTO orders VALUES (7, 'mine')")
    return s.refused("start", "--config", "job.toml")


def second_job(s: Scene) -> None:
    text = (s.folder / "job.toml").read_text()
    (s.folder / "second.toml").write_text(text.replace('name = "orders"', 'name = "second"', 1))


def table_of_another_job(s: Scene) -> str:
    second_job(s)
    return s.refused("start", "--config", "second.toml")


def table_of_a_job_whose_catalog_is_lost(s: Scene) -> str:
    second_job(s)
    s.catalog.path.unlink()
    return s.refused("start", "--config", "second.toml")


def token_is_older(s: Scene) -> str:
    s.config.open_sink().fence("orders", 50)
    return s.failed(lambda: s.config.open_sink().fence("orders", 1))


def marker_gone_under_a_runner(s: Scene) -> str:
    s.sink.unlink()
    return s.failed(lambda: s.commit(20, EPOCH))


def sink_restored_under_a_runner(s: Scene) -> str:
    return s.failed(lambda: s.commit(40, 30))


def owned_just_now(s: Scene) -> str:
    third = Owner("id-3", lease.this_host(), str(s.folder / "third.duckdb"))
    return s.failed(lambda: s.config.open_sink().own("orders", third, None))


def sink_gone_for_verify(s: Scene) -> str:
    s.sink.unlink()
    sink: Any = s.config.open_sink()

    def copy() -> None:
        with sink.copied("orders", False, s.folder):
            pass

    return s.failed(copy)


STATES: dict[str, tuple[Callable[[Scene], str], ...]] = {
    "backfill_cli/contracts/refusals.py:gone": (table_dropped,),
    "backfill_cli/contracts/refusals.py:rows_of_others": (table_in_use,),
    "backfill_cli/contracts/refusals.py:belongs_to": (table_of_a_job_whose_catalog_is_lost,),
    "backfill_cli/engine/job/ownership.py:owners_sought": (table_of_another_job,),
    "backfill_cli/contracts/refusals.py:refuse_old_token": (token_is_older,),
    "backfill_cli/contracts/refusals.py:marker_gone": (marker_gone_under_a_runner,),
    "backfill_cli/contracts/refusals.py:_restored": (sink_restored_under_a_runner,),
    "backfill_cli/contracts/refusals.py:taken": (owned_just_now,),
    "backfill_cli/sinks/duckdb/verify.py:copied": (sink_gone_for_verify,),
}
