"""What `verify` refuses before it needs Spark, and its way on typed: it is then accepted."""

from collections.abc import Callable

import duckdb
import pytest
from command_builders import fake_engine
from hint_scene import EQUAL, PlainSink, Scene, scene
from hint_typed import typed

from backfill_cli.config import from_stored
from backfill_cli.engine.verify import job as verify_job
from backfill_cli.engine.verify.fix import _require_fixable
from backfill_cli.model.job import JobState
from backfill_cli.model.verify import Asked

__all__ = ["scene"]

pytestmark = pytest.mark.seconds


def test_a_job_with_a_runner_is_stopped_for_a_fix_and_goes_on(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    s = scene("0")
    s.catch_up()
    with s.catalog.claim("orders", "test", 5) as claim:
        for state in (JobState.STARTING, JobState.RUNNING):
            claim.store.become(state, "")
        told = s.refused("verify", "orders", "--table", "orders", "--fix")
        for state in (JobState.STOPPING, JobState.STOPPED):
            claim.store.become(state, "")
    with typed(told) as hint:
        assert _require_fixable("orders", s.catalog, Asked(("orders",))).name == "orders"
        fake_engine(monkeypatch, "verify.fix", would_fix=lambda *_: EQUAL)
        for words in hint.commands():
            done = s.run(*words)
            assert done.exit_code == 0, (words, done.output)


def test_a_job_in_its_snapshot_is_fixed_once_it_is_caught_up_and_stopped(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    s = scene("0")
    with typed(s.refused("verify", "orders", "--fix")) as hint:
        resume, wait, stop, fix = hint.commands()
        assert (resume, wait) == (["resume", "orders", "--detach"], ["wait", "orders", "--for", "caught-up"])
        s.catch_up()
        assert s.run(*wait).exit_code == s.run(*stop).exit_code == 0
        assert _require_fixable("orders", s.catalog, Asked()).name == "orders"
        fake_engine(monkeypatch, "verify.fix", would_fix=lambda *_: EQUAL)
        assert s.run(*fix).exit_code == 0


def test_a_sink_that_cannot_be_read_back_is_compared_with_its_own_sql(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    s = scene("0")
    config = from_stored(s.catalog.definition("orders").config)
    monkeypatch.setattr(verify_job.Resources, "sink", property(lambda self: PlainSink(config.open_sink())))
    with typed(s.refused("verify", "orders")) as hint:
        hint.says("compare its tables with the upstream's by its own SQL: orders")
        with duckdb.connect(str(s.sink)) as db:
            lacks = db.execute("SELECT count(*) FROM (FROM 'snapshot/*.parquet' EXCEPT FROM orders)").fetchall()
    assert lacks == [(3,)]
