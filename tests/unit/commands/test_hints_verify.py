"""What `verify` refuses before it needs Spark, and its way on typed: it is then accepted."""

from collections.abc import Callable
from dataclasses import replace

import duckdb_shared
import pytest
from command_builders import fake_engine
from hint_scene import EQUAL, PlainSink, Scene, scene
from hint_typed import typed

import backfill_cli as bf
from backfill_cli.config import from_stored
from backfill_cli.engine.verify import job as verify_job
from backfill_cli.engine.verify.fix import _require_fixable
from backfill_cli.errors import UsageError
from backfill_cli.model.job import JobState
from backfill_cli.model.refill import Extent
from backfill_cli.model.verify import Asked, TableVerdict

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


@pytest.mark.parametrize("other", [("--fix",), ("--independent",), ("--sample", "1%"), ("--restart",)])
def test_a_range_is_compared_by_itself(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch, other: tuple[str, ...]
) -> None:
    s = scene("0")
    s.catch_up()
    asked: list[Asked] = []
    fake_engine(
        monkeypatch,
        "verify.job",
        compared_of=verify_job.compared_of,
        verify=lambda *of: asked.append(of[3]) or EQUAL,
    )
    with typed(s.refused("verify", "orders", "--table", "orders", "--range", "1..2", *other)) as hint:
        hint.says(f"leave {other[0]} out")
        assert s.run("verify", "orders", "--table", "orders", "--range", "1..2").exit_code == 0
        if other == ("--fix",):
            (words,) = hint.commands()
            assert s.run(*words).exit_code == 0
            assert [str(one) for one in s.catalog.refills.pending("orders")] == ["orders, keys 1..2"]
    assert asked == [Asked(("orders",), None, Extent("", "1", "2"))]


@pytest.mark.parametrize("other", ["sample", "independent"])
def test_a_range_is_verified_by_itself_from_python(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    s = scene("0")
    s.catch_up()
    job, asked = bf.Job("orders", s.catalog.path), []
    monkeypatch.setattr(verify_job, "verify", lambda *words: asked.append(words[3]))
    with pytest.raises(UsageError) as refused:
        job.verify(between="1..2", **{other: 0.5})  # type: ignore[arg-type]
    with typed(refused.value) as hint:
        hint.says(f"leave {other} out")
        job.verify(between="1..2")
    assert asked == [Asked(("orders",), None, Extent("", "1", "2"))]


@pytest.mark.parametrize(
    "words",
    [("--range", "a..b"), ("--range", "1..2", "--table", "orders", "--table", "lines"), ("--range", "1", "TYPE")],
)
def test_what_is_no_range_of_a_table_is_refused(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    s = scene("0")
    s.catch_up()
    fake_engine(monkeypatch, "verify.job", compared_of=verify_job.compared_of, verify=lambda *_: EQUAL)
    if words[-1] == "TYPE":
        words = words[:-1]
        monkeypatch.setattr("backfill_cli.api.refilling.OF_TYPE", {})
    with typed(s.refused("verify", "orders", *words)) as hint:
        (again,) = hint.commands()
        assert again[0] == "verify"
        assert s.run(*again).exit_code == 0


def test_a_range_that_differs_is_refilled(scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch) -> None:
    s = scene("0")
    s.catch_up()
    verdict = TableVerdict("orders", "orders", False, 2, 2, changed=1)
    found = replace(EQUAL, tables=(verdict,), fixable=True, keys="1..2")
    fake_engine(monkeypatch, "verify.job", compared_of=verify_job.compared_of, verify=lambda *_: found)
    done = s.run("verify", "orders", "--range", "1..2")
    assert done.exit_code == 3
    assert "upstream and sink differ in the keys 1..2 (took" in done.stdout
    assert "a range: keys outside it were not compared and may differ\n" in done.stdout
    with typed(s.ended("verify", "orders", "--range", "1..2")) as hint:
        (words,) = hint.commands()
        assert s.run(*words).exit_code == 0
        assert [str(one) for one in s.catalog.refills.pending("orders")] == ["orders, keys 1..2"]


def test_a_sink_that_cannot_be_read_back_is_compared_with_its_own_sql(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    s = scene("0")
    config = from_stored(s.catalog.definition("orders").config)
    monkeypatch.setattr(verify_job.Resources, "sink", property(lambda self: PlainSink(config.open_sink())))
    with typed(s.refused("verify", "orders")) as hint:
        hint.says("compare its tables with the upstream's by its own SQL: orders")
        with duckdb_shared.opened(s.sink) as db:
            lacks = db.execute("SELECT count(*) FROM (FROM 'snapshot/*.parquet' EXCEPT FROM orders)").fetchall()
    assert lacks == [(3,)]
