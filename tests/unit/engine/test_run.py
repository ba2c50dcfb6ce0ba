"""From a job's claim to its loop: a start can take long, and the job stays claimed."""

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from backfill_cli.catalog import Catalog, JobRow
from backfill_cli.config import load
from backfill_cli.contracts import JobDefinition, SinkTable
from backfill_cli.engine.job.resources import NoWatcher, Resources
from backfill_cli.engine.loop import run as loop_run
from backfill_cli.engine.loop.run import FIRST, _Run
from backfill_cli.errors import START_OVER, Fatal, Hint, SparkEnded, Transient, command, in_config
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Control, JobState, Phase
from backfill_cli.model.limit import Limit
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import Pin
from backfill_cli.spark import driver

TABLE = SinkTable("orders", "orders", ("id",), "{}")
JOB = JobDefinition("orders", "{}", "{}", Pin(Position(), None, None, ()), "forever", "snapshot", (TABLE,))


class AtOnce:
    """Resources that try everything once."""

    def __init__(self) -> None:
        self.tell: Callable[[str], None] = lambda _doing: None

    def with_retries(self, act: Callable[[], Any]) -> Any:
        return act()


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = Catalog(tmp_path / "catalog.duckdb")
    made.create_job(JOB, Control(), Checkpoint(0, 0, 0, "", "{}", Phase.SNAPSHOT, Position()))
    return made


CONFIG: Any = SimpleNamespace(retry=SimpleNamespace(limit_s=60.0))


def test_the_lease_is_renewed_from_the_claim_on_however_long_the_start_takes(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backfill_cli.engine.loop.process.HEARTBEAT_S", 0.02)
    resources: Any = AtOnce()
    run = _Run("orders", catalog, NoWatcher())
    with catalog.lock_job("orders") as lock, run._claimed(JOB, CONFIG, resources, lock):
        claimed = catalog.job("orders")
        deadline = time.monotonic() + 30
        while catalog.job("orders").lease.renewed_ms == claimed.lease.renewed_ms:
            assert time.monotonic() < deadline, "nobody renews it"
            time.sleep(0.02)
        assert catalog.job("orders").progress == claimed.progress


def test_a_catalog_that_cannot_be_told_what_a_start_waits_for_does_not_end_it(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    resources: Any = AtOnce()
    run = _Run("orders", catalog, NoWatcher())
    with catalog.lock_job("orders") as lock, run._claimed(JOB, CONFIG, resources, lock) as (claim, _):
        become, full = claim.store.become, [Transient("no space left")]

        def fails(state: JobState, reason: Limit | str) -> None:
            if full:
                raise full.pop()
            become(state, reason)

        monkeypatch.setattr(claim.store, "become", fails)
        resources.tell("starting Spark")
        assert full == []


DROP = "backfill drop orders --with-rows --confirm orders"


@pytest.mark.parametrize(
    ("hint", "way_on"),
    [
        ("", "backfill resume orders"),
        ("start the broker", "start the broker; then: backfill resume orders"),
        (in_config("raise sink.memory_limit"), "raise sink.memory_limit; then: backfill start --config FILE"),
        (in_config("set accept_gap"), "set accept_gap; then: backfill start --config FILE"),
        ("fix it, then " + START_OVER, f"fix it, then {DROP}, and start over"),
        (command("resume orders --from-sink job.toml"), "backfill resume orders --from-sink job.toml"),
    ],
)
def test_a_job_that_fails_keeps_its_errors_way_on(catalog: Catalog, hint: Hint | str, way_on: str) -> None:
    resources: Any = AtOnce()
    run = _Run("orders", catalog, NoWatcher())
    with (
        pytest.raises(Fatal),
        catalog.lock_job("orders") as lock,
        run._claimed(JOB, CONFIG, resources, lock),
    ):
        raise Fatal("it is gone", hint)
    assert str(catalog.job("orders").why) == f"it is gone; to continue: {way_on}"


def test_a_job_that_was_started_into_existing_is_told_to_start_over_without_its_rows(tmp_path: Path) -> None:
    beside = replace(JOB, tables=(replace(TABLE, plain_inserts=False),))
    catalog = Catalog(tmp_path / "catalog.duckdb")
    catalog.create_job(beside, Control(), Checkpoint(0, 0, 0, "", "{}", Phase.SNAPSHOT, Position()))
    resources: Any = AtOnce()
    run = _Run("orders", catalog, NoWatcher())
    with pytest.raises(Fatal), catalog.lock_job("orders") as lock, run._claimed(beside, CONFIG, resources, lock):
        raise Fatal("it is gone", START_OVER)
    assert str(catalog.job("orders").why).endswith("backfill drop orders --confirm orders, and start over")


def test_a_job_whose_java_was_killed_says_so_instead_of_how_python_noticed(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    resources: Any = AtOnce()
    monkeypatch.setattr(
        driver, "ended", lambda _wait_s=0.0: SparkEnded("Spark's Java process ended", driver.AGAIN)
    )
    run = _Run("orders", catalog, NoWatcher())
    with (
        pytest.raises(SparkEnded),
        catalog.lock_job("orders") as lock,
        run._claimed(JOB, CONFIG, resources, lock),
    ):
        raise ConnectionRefusedError(111, "Connection refused")
    told = catalog.job("orders")
    assert (told.state, str(told.why)) == (
        JobState.FAILED,
        "Spark's Java process ended; to continue: backfill resume orders",
    )


def started(folder: Path, create: Callable[..., JobDefinition], monkeypatch: pytest.MonkeyPatch) -> None:
    """A start with a catalog in the folder `held`. create: what makes the job."""
    monkeypatch.setattr("backfill_cli.engine.job.create.create", create)
    (folder / "job.toml").write_text(
        '[job]\nname = "orders"\n[upstream]\ntype = "files"\n'
        'snapshot = { path = "x", format = "parquet" }\n'
        '[[tables]]\nname = "orders"\nkey = ["id"]\n[sink]\ntype = "duckdb"\npath = "w.duckdb"\n'
    )
    catalog = Catalog(folder / "held" / "catalog.duckdb")
    loop_run.start(load(folder / "job.toml"), catalog, "forever", False, None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_start_that_is_interrupted_before_there_is_a_job_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def interrupted(*_: Any) -> JobDefinition:
        signal.raise_signal(number)
        raise AssertionError("the signal ends the process")

    with pytest.raises(SystemExit) as ended:
        started(tmp_path, interrupted, monkeypatch)
    assert ended.value.code == 128 + number
    assert [file.name for file in tmp_path.iterdir()] == ["job.toml"]


def test_a_start_that_is_refused_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> JobDefinition:
        raise Fatal("no files there", "name others, then " + START_OVER + ": it is pinned")

    with pytest.raises(Fatal, match="no files there") as ended:
        started(tmp_path, refused, monkeypatch)
    assert str(ended.value.hint) == "name others, then start again: it is pinned"
    assert [file.name for file in tmp_path.iterdir()] == ["job.toml"]


def test_a_start_is_seen_from_its_first_moment_with_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, seen = Catalog(tmp_path / "held" / "catalog.duckdb"), list[JobRow]()

    def created(_config: Any, _catalog: Any, resources: Resources, *_: Any) -> JobDefinition:
        seen.extend(catalog.listed())
        resources.tell("starting Spark")
        seen.extend(catalog.listed())
        raise Fatal("no files there", "name others")

    with pytest.raises(Fatal):
        started(tmp_path, created, monkeypatch)
    assert [(row.name, row.state, row.live, row.created) for row in seen] == [
        ("orders", JobState.STARTING, True, False)
    ] * 2
    assert [row.reason for row in seen] == [FIRST, "starting Spark"]
    assert [row.lease.pid for row in seen] == [os.getpid()] * 2


def test_a_refused_start_puts_back_what_a_killed_one_left_and_keeps_the_jobs_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog(tmp_path / "held" / "catalog.duckdb")
    catalog.starters.begin("orders", "me", "starting Spark", "{}", "job.toml")
    before = catalog.starters.of("orders")

    def refused(*_: Any) -> JobDefinition:
        raise Fatal("no files there", "name others")

    with pytest.raises(Fatal):
        started(tmp_path, refused, monkeypatch)
    assert catalog.starters.of("orders") == before


class Interrupts:
    """A signal as the nth line of the program in this thread is about to run."""

    def __init__(self, at: int) -> None:
        self.at, self.lines = at, 0

    def __call__(self, frame: FrameType, event: str, _arg: object) -> "Interrupts | None":
        if "backfill_cli" not in frame.f_code.co_filename:
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                signal.raise_signal(signal.SIGTERM)
        return self


def signalled(catalog: Catalog, act: Callable[[Any], None]) -> None:
    """A start in which this is done ends by SIGTERM."""
    resources: Any = AtOnce()
    run = _Run("orders", catalog, NoWatcher())
    with (
        catalog.lock_job("orders") as lock,
        run.signals.installed(),
        run._claimed(JOB, CONFIG, resources, lock),
    ):
        act(resources)


# All of the first 152 lines were tried once. Where the catalog's transaction was cut off, the job's end waited for
# the lock that it held itself: seen at 22 and at 26, where the first trial ended.
@pytest.mark.parametrize("at", [22, 26, 60, 110, 150])
def test_a_signal_at_any_moment_of_a_start_leaves_the_job_stopped(catalog: Catalog, at: int) -> None:
    trace, before = Interrupts(at), sys.gettrace()

    def told(resources: Any) -> None:
        sys.settrace(trace)
        try:
            resources.tell("the sink is held")
        finally:
            sys.settrace(before)

    with pytest.raises(SystemExit, match="143"):
        signalled(catalog, told)
    assert trace.lines >= at
    assert catalog.job("orders").state is JobState.STOPPED


def test_an_error_of_what_a_signal_has_cut_off_is_no_failure_of_the_job(catalog: Catalog) -> None:
    def cut_off(_resources: Any) -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except SystemExit:
            raise Fatal("the sink's file is not attached") from None

    with pytest.raises(SystemExit, match="143"):
        signalled(catalog, cut_off)
    assert catalog.job("orders").state is JobState.STOPPED


def test_what_a_set_brings_to_the_sink_is_called_so_and_other_tables_are_another_job() -> None:
    """`history` called a `set` redefined."""
    table = SinkTable("orders", "orders", ("id",), "{}")
    pin = Pin(Position(), None, None, ())
    had = JobDefinition("orders", '{"derived": []}', "{}", pin, "forever", "snapshot", (table,))
    config = replace(had, config='{"derived": [], "throttle": {"rate": 7}}')
    more = replace(config, tables=(table, replace(table, name="refunds")))
    assert [loop_run._as_found(had, one) for one in (had, config, more)] == ["recovered", "set", "redefined"]
