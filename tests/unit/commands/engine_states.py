"""States in which errors of the engine name a command: whoever creates, runs, recovers, verifies or drops a job.

Each function brings one about in a scene of `hint_scene`, and returns the hint of the error.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from half_done import EPOCH
from hint_scene import NoStager, Scene
from sink_contract import schema_json

from backfill_cli import errors
from backfill_cli.config import JobConfig, load
from backfill_cli.contracts import SinkTable, Swap
from backfill_cli.engine.loop import run as engine_run
from backfill_cli.engine.loop.orchestrator import Tick
from backfill_cli.engine.loop.ports import Job
from backfill_cli.engine.loop.process import Heartbeat, Wake
from backfill_cli.engine.loop.recovery import take_back
from backfill_cli.errors import BadData
from backfill_cli.model.checkpoint import Owner
from backfill_cli.model.job import Control
from backfill_cli.model.plan import Staged
from backfill_cli.model.verify import EVERYTHING


def nothing_to_verify(s: Scene) -> str:
    from backfill_cli.engine.verify.job import Verification
    from backfill_cli.engine.verify.progress import Steps

    s.sql(s.sink, "DELETE FROM _backfill_jobs")
    sink: Any = s.config.open_sink()
    config: Any = SimpleNamespace(job=SimpleNamespace(staging=str(s.folder / "v")))
    untold = Steps("", lambda _: None, time.monotonic)
    verification = Verification(s.job, config, None, sink.copied, False, EVERYTHING, untold)  # type: ignore[arg-type]
    return s.failed(lambda: verification.against(lambda *_: None))  # type: ignore[arg-type,return-value]


def history_gone_for_verify(s: Scene) -> str:
    from backfill_cli.engine.verify.job import history_named

    def compared() -> None:
        with history_named("orders"):
            raise errors.HistoryGone("a change file is gone", "put it back, or " + errors.START_OVER)

    return s.failed(compared)


def two_tables(s: Scene) -> None:
    """Of a promised epoch one table has it, the other does not."""
    s.sql(
        s.sink,
        "INSERT INTO _backfill_markers "
        "SELECT job, 'more', 'main.more', 20, token, 'a20', NULL FROM _backfill_markers",
    )
    s.sql(s.catalog.path, f"UPDATE jobs SET sink_tables = '{more_tables(s)}'")


def more_tables(s: Scene) -> str:
    from backfill_cli.model.codec import encode

    more = SinkTable("more", "more", ("id",), schema_json(id="long", name="string"))
    s.sql(s.sink, "CREATE TABLE more (id BIGINT NOT NULL, name VARCHAR)")
    return f"[{', '.join(encode(table) for table in (*s.job.tables, more))}]"


def staging_damaged_between_tables(s: Scene) -> str:
    two_tables(s)
    s.prepared(Staged("gone"))
    return s.ended("resume", "orders")


def refused_between_tables(s: Scene) -> str:
    two_tables(s)
    s.prepared(Staged("a20"))
    with s.catalog.claim("orders", "test", 5) as claim:
        promised = claim.store.load().prepared
        assert promised is not None
        job = Job("orders", claim.token, (*s.job.tables, replace(s.job.tables[0], name="more")), "")
        refusal = BadData("a row that the sink can never take")
        world: Any = claim.store, s.config.open_sink(), NoStager()
        return s.failed(lambda: take_back(job, *world, promised, refusal))


def heartbeat_died(s: Scene) -> str:
    def renew() -> None:
        raise RuntimeError("a fault of ours")

    heartbeat = Heartbeat("orders", renew, 1_000, Wake())
    return s.failed(lambda: heartbeat._by_name(heartbeat.beat))


def sink_newer(s: Scene) -> str:
    s.commit(20, EPOCH)
    return s.ended("resume", "orders")


def sink_older(s: Scene) -> str:
    s.sql(s.sink, "UPDATE _backfill_markers SET epoch = 0")
    return s.ended("resume", "orders")


def stopped_early(s: Scene) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_run, "run_loop", lambda *_: Tick.STOPPED)
        return s.ended("start", "--config", "job.toml", "--until", "caught-up")


def other_result(s: Scene) -> str:
    text = (s.folder / "job.toml").read_text()
    (s.folder / "job.toml").write_text(text.replace('key = ["id"]', 'key = ["name"]'))
    return s.refused("start", "--config", "job.toml")


def other_result_of_an_unknown_job(s: Scene) -> str:
    s.catalog.path.unlink()
    text = (s.folder / "job.toml").read_text()
    (s.folder / "job.toml").write_text(text.replace('key = ["id"]', 'key = ["name"]'))
    return s.refused("resume", "--from-sink", "job.toml")


def moved_away(s: Scene) -> str:
    before = s.folder
    s.move()
    hint = s.refused("start", "--config", "job.toml")
    assert f"mv {s.folder} {before}; or" in " ".join(hint.split())
    return hint


def moved_away_of_an_unknown_job(s: Scene) -> str:
    s.move()
    s.catalog.path.unlink()
    return s.refused("resume", "--from-sink", "job.toml")


def sink_deleted(s: Scene) -> str:
    s.sink.unlink()
    return s.refused("resume", "orders")


def nothing_saved(s: Scene) -> str:
    s.sink.unlink()
    return s.refused("resume", "--from-sink", "job.toml")


def nothing_saved_of_an_unknown_job(s: Scene) -> str:
    s.sink.unlink()
    s.catalog.path.unlink()
    return s.refused("resume", "--from-sink", "job.toml")


def not_known_here(s: Scene) -> str:
    s.config.open_sink().own("orders", s.catalog.made(), s.catalog.made())
    s.sql(s.sink, "DELETE FROM _backfill_owners")
    return s.refused("start", "--config", "job.toml", "--catalog", "other/catalog.duckdb")


def of_a_catalog_that_is_there(s: Scene) -> str:
    return s.refused("start", "--config", "job.toml", "--catalog", "other/catalog.duckdb")


def of_a_catalog_that_is_lost(s: Scene) -> str:
    s.catalog.path.unlink()
    return s.refused("start", "--config", "job.toml")


def of_a_lost_catalog_before_the_first_commit(s: Scene) -> str:
    s.sql(s.sink, "DELETE FROM _backfill_jobs; UPDATE _backfill_markers SET epoch = 0")
    return of_a_catalog_that_is_lost(s)


def of_a_catalog_elsewhere(s: Scene) -> str:
    s.config.open_sink().own("orders", Owner("id-2", "far-host", "/far/c.duckdb"), s.catalog.made())
    s.catalog.path.unlink()
    return s.refused("start", "--config", "job.toml")


def drop_sink_of_a_known_job(s: Scene) -> str:
    return s.refused("drop", "orders", "--sink", "job.toml", "--confirm", "orders")


def rows_of_others_to_drop(s: Scene) -> str:
    with s.catalog.claim("orders", "test", 5) as claim:
        committed = claim.store.load().committed
    existing = tuple(replace(table, plain_inserts=False) for table in s.job.tables)
    s.catalog.rebuild(replace(s.job, tables=existing), committed, Control(), 9)
    return s.refused("drop", "orders", "--with-rows", "--confirm", "orders")


def sink_deleted_before_a_cutover(s: Scene) -> str:
    with_live_name(s)
    s.sink.unlink()
    return s.refused("cutover", "orders", "--dry-run")


def people_query_what_is_to_go(s: Scene) -> str:
    sink: Any = with_live_name(s).open_sink()
    sink.cut_over("orders", [Swap(s.job.tables[0], "shown")], EPOCH, 1, 2**42)
    return s.refused("drop", "orders", "--with-rows", "--confirm", "orders")


def with_live_name(s: Scene) -> JobConfig:
    config = s.folder / "job.toml"
    config.write_text(config.read_text().replace("[sink]", 'live = "shown"\n[sink]'))
    job = load(config)
    with s.catalog.claim("orders", "test", 5) as claim:
        claim.store.redefine(job.stored(), "forever", job.file)
    return job


STATES: dict[str, tuple[Callable[[Scene], str], ...]] = {
    "backfill_cli/engine/verify/job.py:against": (nothing_to_verify,),
    "backfill_cli/engine/verify/job.py:history_named": (history_gone_for_verify,),
    "backfill_cli/engine/loop/recovery.py:_drop": (staging_damaged_between_tables,),
    "backfill_cli/engine/loop/recovery.py:_require_agreement": (sink_newer, sink_older),
    "backfill_cli/engine/loop/run.py:_ended": (stopped_early,),
    "backfill_cli/engine/job/select.py:_different": (
        other_result,
        other_result_of_an_unknown_job,
        moved_away,
        moved_away_of_an_unknown_job,
    ),
    "backfill_cli/engine/job/create.py:rebuild": (nothing_saved, nothing_saved_of_an_unknown_job),
    "backfill_cli/engine/job/ownership.py:require_new": (not_known_here,),
    "backfill_cli/engine/job/ownership.py:require_kept": (sink_deleted, sink_deleted_before_a_cutover),
    "backfill_cli/engine/job/ownership.py:_of_another": (
        of_a_catalog_that_is_there,
        of_a_catalog_that_is_lost,
        of_a_lost_catalog_before_the_first_commit,
        of_a_catalog_elsewhere,
    ),
    "backfill_cli/engine/job/drop.py:_to_drop": (rows_of_others_to_drop,),
    "backfill_cli/engine/job/drop.py:_refuse_queried": (people_query_what_is_to_go,),
    "backfill_cli/engine/job/drop.py:drop_from_sink": (drop_sink_of_a_known_job,),
    "backfill_cli/engine/loop/recovery.py:take_back": (refused_between_tables,),
    "backfill_cli/errors.py:thread_failed": (heartbeat_died,),
}
