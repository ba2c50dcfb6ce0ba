"""pause, resume, throttle, stop, wait: what they post, what they say, what they wait for."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from caught_up_job import NOW
from command_builders import Run, end_job, fake_engine, make_job
from hint_scene import Scene, scene
from hint_typed import typed

from backfill_cli.catalog import Catalog, Claim
from backfill_cli.catalog.store import Store
from backfill_cli.model.checkpoint import EpochRecord
from backfill_cli.model.job import Barrier, Control, JobState, Phase, Verb
from backfill_cli.model.units import spell_epoch, spell_moment

__all__ = ["scene"]

pytestmark = pytest.mark.seconds


def newest(catalog: Catalog) -> str:
    """The newest barrier that the ledger has."""
    return spell_epoch(catalog.ledger("orders", 1)[0].epoch)


@pytest.mark.parametrize(
    ("words", "control"),
    [
        (["throttle", "--rate", "500"], Control(rate=500.0)),
        (["throttle", "--rate", "0"], Control(rate=0.0)),
        (["throttle", "--rate", "None"], Control(rate=None)),
        (["throttle", "--table", "orders", "--rate", "500"], Control(tables=(("orders", 500.0),))),
    ],
)
def test_without_a_runner_a_command_is_written_at_once(
    run: Run, catalog: Catalog, words: list[str], control: Control
) -> None:
    assert run(*words).exit_code == 0
    assert catalog.job("orders").control == control


def test_pause_without_a_runner_says_that_it_is_done(run: Run, catalog: Catalog) -> None:
    result = run("pause")
    assert (result.exit_code, result.stdout) == (0, "")
    (line,) = catalog.ledger("orders", 9)
    assert line.mutations == "pause"
    assert result.stderr == "job orders: paused\n"
    assert catalog.job("orders").control.paused


@pytest.mark.parametrize("live", [True, False])
def test_one_pause_has_one_epoch_wherever_it_is_shown(
    run: Run, catalog: Catalog, tmp_path: Path, live: bool
) -> None:
    claim = catalog.claim("orders", "test", 5).__enter__()
    claim.store.become(JobState.RUNNING, "")
    if not live:
        claim.__exit__(None, None, None)
    epoch = json.loads(run("pause", "--json").stdout)["epoch"]
    if live:  # the clock did not move on since the barrier before
        barrier = Barrier.taking(claim.store.commands(), 1_763_692_800_123, 1_763_692_800_123, Control())
        record = EpochRecord(barrier.epoch, barrier.prev_ms, Phase.SNAPSHOT, barrier.epoch, mutations="pause")
        claim.store.take(barrier.mutations.commands, barrier.mutations.control, JobState.PAUSED, record)
        claim.store.heartbeat(6, NOW)
        epoch = catalog.taken("orders", 1)
        assert epoch == 1_763_692_800_124
    (line,) = catalog.ledger("orders", 9)
    assert (line.epoch, line.mutations) == (epoch, "pause")
    said = spell_epoch(epoch)
    since = re.compile(f"since (epoch|commit) {re.escape(said)}")
    assert (f"since {spell_moment(epoch)}" in run("status", "orders").stdout) == live
    assert f"{epoch} " in run("history", "orders").stdout
    assert run("wait", "--for", "paused").stderr == f"job orders: paused, at commit {said}\n"
    run("report", "--out", str(tmp_path / "r.html"))
    assert f"<td>{epoch}</td>" in (tmp_path / "r.html").read_text()
    again = run("pause").stderr
    assert f"it was already paused, by {catalog.job('orders').control.paused_by} since " in again
    assert since.search(again)
    if live:
        claim.__exit__(None, None, None)


@pytest.mark.usefixtures("claim")
def test_with_a_runner_a_command_waits_for_a_barrier(run: Run, catalog: Catalog) -> None:
    result = run("stop")
    assert result.stderr == "job orders: stop requested; it takes effect at the next commit\n"
    assert [command.verb for command in catalog.job("orders").waiting] == [Verb.STOP]


def test_a_rate_of_0_says_what_becomes_of_the_changes_and_how_to_read_on(run: Run, catalog: Catalog) -> None:
    assert (
        "no row of the snapshot is read any more, and changes wait until it is read; "
        "to read on: backfill throttle orders --rate none\n"
    ) in run("throttle", "--rate", "0").stderr
    note = json.loads(run("throttle", "--rate", "0", "--json").stdout)["note"]
    assert note["text"].startswith("no row of the snapshot")
    assert note["commands"] == ["backfill throttle orders --rate none"]
    assert json.loads(run("throttle", "--rate", "1", "--json").stdout)["note"] is None


def test_one_table_is_throttled_beside_all_and_named_wherever_it_is_said(run: Run, catalog: Catalog) -> None:
    assert run("throttle", "--rate", "900").exit_code == 0
    wrong = run("throttle", "orders", "--table", "order lines", "--rate", "-3")
    assert "backfill throttle orders --table 'order lines' --rate 500, or --rate none" in wrong.stderr
    told = run("throttle", "--table", "orders", "--rate", "500")
    assert (told.exit_code, told.stderr) == (0, "job orders: throttled orders to 500 rows/s\n")
    assert catalog.job("orders").control == Control(rate=900.0, tables=(("orders", 500.0),))
    view = json.loads(run("status", "orders", "--json").stdout)["jobs"][0]
    assert (view["rate"], view["table_rates"]) == (900.0, {"orders": 500.0})
    assert "orders 500 rows/s" in run("status", "orders").stdout
    assert [one.mutations for one in catalog.ledger("orders", 9)] == ["throttle", "throttle"]
    stopped = run("throttle", "--table", "orders", "--rate", "0")
    note = "no row of the snapshot of orders is read any more, and changes wait until it is read; to read on: "
    assert note + "backfill throttle orders --table orders --rate none\n" in stopped.stderr
    lifted = json.loads(run("throttle", "--table", "orders", "--rate", "none", "--json").stdout)
    assert (lifted["table"], lifted["rate"], lifted["note"]) == ("orders", None, None)
    assert catalog.job("orders").control == Control(rate=900.0)


def test_a_table_that_the_job_does_not_have_is_not_throttled_and_the_nearest_named(
    scene: Callable[..., Scene],
) -> None:
    s = scene("throttle")
    before = s.catalog.job("orders").control
    with typed(s.refused("throttle", "orders", "--table", "order", "--rate", "5")) as hint:
        assert s.catalog.job("orders").control == before
        (again,) = hint.commands()
        assert s.run(*again).exit_code == 0
        assert s.catalog.job("orders").control.rates == {"orders": 5.0}


def test_a_command_whose_runner_dies_before_it_takes_it_is_written_without_one(run: Run, catalog: Catalog) -> None:
    class Dying(Catalog):
        """The runner is gone when the command is first asked about."""

        def taken(self, job: str, command_id: int) -> int | None:
            claim.__exit__(None, None, None)
            return super().taken(job, command_id)

    claim = catalog.claim("orders", "test", 5).__enter__()
    claim.store.become(JobState.RUNNING, "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backfill_cli.commands._options.Catalog", Dying)
        result = run("stop", "orders", "--wait", "--timeout", "5")
    assert (result.exit_code, result.stderr) == (0, "job orders: stopped, before its first commit\n")
    assert run("wait", "--for", "stopped").stderr == result.stderr
    assert catalog.job("orders").state is JobState.STOPPED


def test_a_stop_names_the_last_commit_of_the_sink_as_status_does(run: Run, catalog: Catalog) -> None:
    """The runner takes it at a barrier without rows, later than that commit."""
    last = 1_763_692_800_123

    class Stopping(Catalog):
        def taken(self, job: str, command_id: int) -> int | None:
            if (epoch := super().taken(job, command_id)) is None:
                barrier = Barrier.taking(claim.store.commands(), last + 5_000, last, Control())
                record = EpochRecord(
                    barrier.epoch, barrier.prev_ms, Phase.SNAPSHOT, barrier.epoch, mutations="stop"
                )
                claim.store.take(barrier.mutations.commands, barrier.mutations.control, JobState.STOPPING, record)
                claim.store.become(JobState.STOPPED, "")
                claim.__exit__(None, None, None)
            return epoch

    claim = catalog.claim("orders", "test", 5).__enter__()
    claim.store.become(JobState.RUNNING, "")
    claim.store.heartbeat(5, replace(NOW, epoch=last))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backfill_cli.commands._options.Catalog", Stopping)
        told = run("stop", "orders", "--wait", "--timeout", "5").stderr
    assert told == f"job orders: stopped, at commit {spell_epoch(last)}\n"
    assert json.loads(run("status", "orders", "--json").stdout)["jobs"][0]["epoch"] == last
    assert json.loads(run("stop", "orders", "--wait", "--json").stdout)["committed"] == last


@pytest.mark.usefixtures("claim")
def test_resume_posts_to_a_runner_and_returns(run: Run, catalog: Catalog) -> None:
    run("pause")
    result = run("resume")
    assert result.stderr == "job orders: resume requested; it takes effect at the next commit\n"
    assert [command.verb for command in catalog.job("orders").waiting] == [Verb.PAUSE, Verb.RESUME]


def test_resume_without_a_runner_runs_the_job_here(
    run: Run, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def resume(*arguments: Any) -> JobState:
        asked.append(arguments)
        arguments[-1].progressed()
        return JobState.DONE

    fake_engine(monkeypatch, "loop.run", resume=resume)
    end_job(catalog, "orders", JobState.STOPPED)
    result = run("resume")
    assert result.exit_code == 0
    assert asked[0][0] == "orders"
    assert asked[0][2:4] == (None, None)
    assert " orders: stopped, snapshot (copying); " in result.stderr.splitlines()[0]
    assert run("resume", "--until", "caught-up", "--wait", "--timeout", "1s").exit_code == 0
    assert asked[1][3] == "caught-up"


@pytest.mark.usefixtures("claim")
def test_a_runner_keeps_the_until_that_it_began_with(run: Run, catalog: Catalog) -> None:
    result = run("resume", "--until", "caught-up")
    assert result.exit_code == 2
    assert "has a runner already, whose options cannot change: --until" in result.stderr
    assert (catalog.job("orders").waiting, catalog.job("orders").until) == ((), "forever")


def test_a_second_pause_says_who_paused_and_since_when(run: Run, catalog: Catalog) -> None:
    with Store(catalog.path).writing() as db:
        db.execute("UPDATE jobs SET paused_by = 'ann@box', paused_since_ms = 1763692800123")
    again = run("pause")
    assert again.exit_code == 0
    said = "it was already paused, by ann@box since commit 1763692800123 (2025-11-21 02:40:00 UTC)"
    assert again.stderr.splitlines() == ["job orders: paused", said]
    assert json.loads(run("pause", "--json").stdout)["note"]["text"] == said
    assert json.loads(run("pause", "--all", "--json").stdout)["note"] is None, "the log is paused from here on"
    assert json.loads(run("pause", "--all", "--json").stdout)["note"]["text"] == said


def test_a_second_stop_says_that_the_job_was_stopped(run: Run, catalog: Catalog) -> None:
    assert run("stop", "--wait").stderr == "job orders: stopped\n"
    again = run("stop", "--wait")
    said = "job orders: stopped\nit was already stopped\n"
    assert (again.exit_code, again.stderr) == (0, said)
    assert json.loads(run("stop", "--json").stdout)["note"]["text"] == "it was already stopped"


@pytest.mark.usefixtures("claim")
def test_a_pause_that_waits_for_its_barrier_counts_as_one(run: Run) -> None:
    assert json.loads(run("pause", "--json").stdout)["note"] is None
    assert "already requested that; it takes effect at the next commit" in run("pause").stderr


def test_a_limit_that_changes_nothing_says_so(run: Run, catalog: Catalog, claim: Claim) -> None:
    assert "no effect" not in run("throttle", "--rate", "5").stderr
    claim.store.heartbeat(6, NOW)
    told = run("throttle", "--rate", "5")
    assert told.exit_code == 0
    assert "it limits refills and fills of derived tables alone now: the snapshot has been read" in told.stderr


def test_a_job_that_was_stopped_while_paused_is_paused(run: Run, catalog: Catalog) -> None:
    end_job(catalog, "orders", JobState.STOPPED)
    assert run("wait", "--for", "paused").exit_code == 9
    run("pause")
    done = run("wait", "--for", "paused", "--timeout", "1s")
    assert (done.exit_code, done.stderr) == (0, f"job orders: paused, at commit {newest(catalog)}\n")


def test_the_name_may_be_left_out_only_when_it_is_clear(run: Run, catalog: Catalog) -> None:
    make_job(catalog, "shop")
    result = run("pause")
    assert result.exit_code == 2
    assert "several jobs are active" in result.stderr
    end_job(catalog, "shop", JobState.DONE)
    assert run("pause").exit_code == 0


def test_the_catalog_is_named_by_option_then_variable_then_folder(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, name in (("option", "a"), ("variable", "b"), (".backfill/catalog", "c")):
        make_job(Catalog(folder / f"{place}.duckdb"), name)
    assert json.loads(run("status", "--json").stdout)["jobs"][0]["name"] == "c"
    monkeypatch.setenv("BACKFILL_CATALOG", "variable.duckdb")
    assert json.loads(run("status", "--json").stdout)["jobs"][0]["name"] == "b"
    assert json.loads(run("status", "--json", "--catalog", "option.duckdb").stdout)["jobs"][0]["name"] == "a"
