"""`wait`: what it waits for, and when it gives up."""

import json
import subprocess
from dataclasses import replace

import pytest
from caught_up_job import NOW
from command_builders import Run, end_job

from backfill_cli.api.waiting import Wait
from backfill_cli.catalog import Catalog, Claim, lease
from backfill_cli.catalog.store import Store
from backfill_cli.errors import BackfillError
from backfill_cli.model.checkpoint import EpochRecord, Progress
from backfill_cli.model.job import Control, JobState, Phase
from backfill_cli.model.limit import Limit
from backfill_cli.model.refill import Extent, RefillState
from backfill_cli.model.upstream import Incomplete

pytestmark = pytest.mark.seconds


@pytest.mark.usefixtures("claim")
def test_waiting_for_a_barrier_that_does_not_come_is_code_8(run: Run) -> None:
    result = run("pause", "--wait", "--timeout", "0.2")
    assert result.exit_code == 8
    assert "the pause did not complete within 0.2 s; the request stays in place" in result.stderr


def test_wait_prints_the_epoch_that_took_the_command(run: Run, catalog: Catalog, claim: Claim) -> None:
    class Taking(Catalog):
        """The runner takes the command when it is first asked about."""

        def taken(self, job: str, command_id: int) -> int | None:
            if waiting := claim.store.commands():
                record = EpochRecord(1234, 1, Phase.SNAPSHOT, 1234, mutations="pause")
                claim.store.take(waiting, Control("me", 5), JobState.PAUSED, record)
            return super().taken(job, command_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backfill_cli.commands._options.Catalog", Taking)
        result = run("pause", "orders", "--wait", "--json")
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert (told["schema"], told["job"], told["command"], told["epoch"]) == (2, "orders", "pause", 1234)


@pytest.mark.parametrize(
    ("state", "goal", "code"),
    [
        (JobState.DONE, "caught-up", 0),
        (JobState.DONE, "stopped", 0),
        (JobState.DONE, "done", 0),
        (JobState.DONE, "paused", 9),
        (JobState.STOPPED, "stopped", 0),
        (JobState.STOPPED, "caught-up", 9),
    ],
)
def test_wait_returns_at_the_goal_and_with_9_when_the_job_ends_first(
    run: Run, catalog: Catalog, state: JobState, goal: str, code: int
) -> None:
    end_job(catalog, "orders", state, "part-7 is gone")
    result = run("wait", "--for", goal)
    assert result.exit_code == code
    assert (f"is {state} (part-7 is gone) before it was {goal}" in result.stderr) == (code == 9)


@pytest.mark.parametrize("goal", ["caught-up", "paused", "stopped", "done"])
def test_wait_for_a_failed_job_ends_with_1_and_its_reason(run: Run, catalog: Catalog, goal: str) -> None:
    end_job(catalog, "orders", JobState.FAILED, "part-7 is gone", NOW)
    result = run("wait", "--for", goal)
    assert result.exit_code == 1
    assert f"job 'orders' failed before it was {goal}: part-7 is gone" in result.stderr


def test_wait_for_the_snapshot_returns_once_the_sink_has_it_and_also_when_the_job_failed_later(
    run: Run, catalog: Catalog, claim: Claim
) -> None:
    reading = replace(NOW, phase=Phase.SNAPSHOT, caught_up_ms=None)
    claim.store.heartbeat(6, reading)
    late = run("wait", "--for", "snapshot", "--timeout", "100ms")
    assert late.exit_code == 8
    assert "job 'orders': not past its snapshot after" in late.stderr
    for told in (replace(reading, snapshot_finished_ms=6), replace(NOW, phase=Phase.LOG_STORE)):
        claim.store.heartbeat(6, told)
        done = run("wait", "--for", "snapshot")
        assert done.exit_code == 0
        assert "job orders: past its snapshot, at commit" in done.stdout + done.stderr


def test_wait_for_refills_returns_once_those_that_were_pending_are_done_and_says_why_one_failed(
    run: Run, catalog: Catalog, claim: Claim
) -> None:
    assert run("wait", "--for", "refilled").exit_code == 0, "none is pending"
    number, _ = catalog.refill("orders", "orders", Extent(), "me", 1)
    assert run("wait", "--for", "refilled", "--timeout", "100ms").exit_code == 8
    asked = catalog.refills.of("orders", number)
    assert asked is not None
    waits = Wait(catalog, catalog.job("orders"), "refilled")
    assert waits.look() is None
    claim.store.note_refill(replace(asked, state=RefillState.DONE, ended_ms=5))
    catalog.refill("orders", "orders", Extent(), "me", 6)
    found = waits.look()
    assert found is not None, "another one, asked for later, is pending"
    assert found.goal == "refilled"
    (later,) = catalog.refills.pending("orders")
    waits = Wait(catalog, catalog.job("orders"), "refilled")
    claim.store.note_refill(replace(later, state=RefillState.FAILED, why=Limit("the log is gone")))
    with pytest.raises(BackfillError, match="failed: the log is gone"):
        waits.look()


def test_wait_names_the_newest_commit_of_the_upstream_that_waits_for_more_of_it(run: Run, claim: Claim) -> None:
    newest = Incomplete("tx", 5, ("tiny", "other"), 700)
    claim.store.heartbeat(6, replace(NOW, incomplete=newest))
    result = run("wait", "--for", "caught-up")
    assert result.exit_code == 0
    said = "; tx = 5 is not applied yet: no row with it has landed for tables tiny, other, nor a later one for any"
    assert said in " ".join((result.stdout + result.stderr).split())
    told = json.loads(run("wait", "--for", "caught-up", "--json").stdout)["incomplete"]
    assert (told["column"], told["value"], told["lacking"]) == ("tx", 5, ["tiny", "other"])
    assert told["text"] == newest.text


@pytest.mark.parametrize("ended", [JobState.STOPPED, None])
def test_a_job_that_was_caught_up_in_an_earlier_run_is_not_now(
    run: Run, catalog: Catalog, ended: JobState | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backfill_cli.api.waiting.GONE_AFTER_S", 0.0)
    if ended is None:
        with catalog.claim("orders", "test", 5) as claim:
            claim.store.become(JobState.RUNNING, "")
            claim.store.heartbeat(5, NOW)
    else:
        end_job(catalog, "orders", ended, "", NOW)
    assert run("wait", "--for", "caught-up").exit_code == 9
    with catalog.claim("orders", "test", 5) as claim:  # the next runner, which has not said anything yet
        claim.store.become(JobState.STARTING, "")
        claim.store.become(JobState.RUNNING, "")
        assert run("wait", "--for", "caught-up", "--timeout", "100ms").exit_code == 8
        claim.store.heartbeat(6, replace(NOW, token=claim.token))
        assert run("wait", "--for", "caught-up").exit_code == 0


@pytest.mark.parametrize(
    "told",
    [
        replace(NOW, settled_ms=None),
        replace(NOW, settled_ms=1_763_692_800_000),
        replace(NOW, waiting_for=Limit("the sink")),
        replace(NOW, caught_up_ms=None),
        replace(NOW, phase=Phase.LOG_STORE),
    ],
    ids=["never settled", "settled before", "waiting", "not yet", "log store"],
)
def test_a_runner_that_is_behind_now_is_not_caught_up(
    run: Run, catalog: Catalog, claim: Claim, told: Progress
) -> None:
    claim.store.heartbeat(6, told)
    assert run("wait", "--for", "caught-up", "--timeout", "100ms").exit_code == 8
    claim.store.heartbeat(6, NOW)
    assert run("wait", "--for", "caught-up").exit_code == 0


def test_a_word_of_a_process_that_is_gone_does_not_count(run: Run, catalog: Catalog, claim: Claim) -> None:
    claim.store.heartbeat(6, NOW)
    gone = subprocess.Popen(["true"])
    gone.wait()
    with Store(catalog.path).writing() as db:
        lease.write(db, "orders", replace(lease.read(db, "orders"), pid=gone.pid))
    assert run("wait", "--for", "caught-up", "--timeout", "100ms").exit_code == 8


@pytest.mark.usefixtures("claim")
def test_wait_times_out_with_8(run: Run) -> None:
    result = run("wait", "--for", "caught-up", "--timeout", "100ms")
    assert result.exit_code == 8
    assert "not caught-up after 0.1 s; it is running, phase snapshot" in result.stderr


@pytest.mark.usefixtures("catalog")
def test_wait_does_not_wait_for_a_runner_that_died(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backfill_cli.api.waiting.GONE_AFTER_S", 0.0)
    result = run("wait", "--for", "done")
    assert result.exit_code == 9
    assert "has no runner" in result.stderr


def test_wait_does_not_say_running_of_a_runner_that_died(run: Run, catalog: Catalog) -> None:
    with catalog.claim("orders", "test", 5) as claim:
        claim.store.become(JobState.RUNNING, "")
        claim.lock.release()
        result = run("wait", "--for", "done", "--timeout", "100ms")
    assert result.exit_code == 8
    assert "it is dead, phase snapshot" in result.stderr
