"""One runner a job: refused with the holder's name, fenced by token, free when its holder is gone."""

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
from catalog_builders import Clock, checkpoint, claimed, progress, record
from hint_typed import typed

from backfill_cli.catalog import Catalog, lease
from backfill_cli.catalog.lease import Run
from backfill_cli.catalog.store import Store
from backfill_cli.errors import Held, NoSuchJob
from backfill_cli.model.job import Control, JobState, Verb


def elsewhere(path: Path, renewed_ms: int, token: int = 7) -> None:
    """A runner on another machine has the lease."""
    with Store(path).writing() as db:
        lease.write(db, "orders", lease.Lease(token, "cron", "far-host", 4711, renewed_ms, renewed_ms))


def test_a_second_claim_is_told_who_has_the_job(catalog: Catalog, clock: Clock) -> None:
    with claimed(catalog, clock), pytest.raises(Held) as refused:
        catalog.claim("orders", "other", clock())
    assert f"held by me on {lease.this_host()}, pid " in refused.value.message
    assert "since 2025-11-21 02:40:00 UTC" in refused.value.message
    assert refused.value.exit_code == 5


def test_who_is_refused_for_a_runner_before_its_claim_is_not_told_of_the_dead_one(
    catalog: Catalog, path: Path, clock: Clock
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    with Store(path).writing() as db:
        lease.write(db, "orders", lease.Lease(1, "me", lease.this_host(), ended.pid, clock(), clock()))
    with catalog.lock_job("orders"), pytest.raises(Held, match="that this catalog does not know") as refused:
        Catalog(path, clock).claim("orders", "other", clock())
    assert str(ended.pid) not in refused.value.message
    with typed(refused.value) as hint:
        assert hint.commands() == [["status"]]
        assert Catalog(path, clock).jobs()


def test_every_claim_has_a_larger_token(catalog: Catalog, clock: Clock) -> None:
    tokens = []
    for _ in range(3):
        with claimed(catalog, clock) as claim:
            tokens.append(claim.token)
    assert tokens == [1, 2, 3]


def test_when_a_job_had_a_runner_and_how_each_ended_is_kept(catalog: Catalog, path: Path, clock: Clock) -> None:
    with claimed(catalog, clock) as claim:
        begun_ms = clock()
        claim.store.heartbeat(begun_ms + 5, None)
        claim.lock.release()  # as a process that is killed leaves it
        clock.ms += 100
        with claimed(catalog, clock):
            again_ms = clock()
            assert catalog.runs("orders") == (
                Run(begun_ms, begun_ms + 5, died=True),
                Run(again_ms, None, died=False),
            )
        done = catalog.runs("orders")[-1]
        assert (done.claimed_ms, done.died) == (again_ms, False)
        assert done.ended_ms is not None
        assert done.ended_ms >= again_ms
    assert catalog.runs("orders")[0].died


def test_only_the_newest_runs_are_kept(catalog: Catalog, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RUNS_KEPT", 3)
    for _ in range(5):
        with claimed(catalog, clock):
            pass
    assert len(catalog.runs("orders")) == 3


def test_a_refused_claim_leaves_the_lease_alone(catalog: Catalog, clock: Clock) -> None:
    with claimed(catalog, clock) as claim:
        with pytest.raises(Held):
            catalog.claim("orders", "other", clock())
        claim.store.heartbeat(clock(), progress())
        assert catalog.job("orders").lease.token == claim.token


def test_a_job_that_is_not_there_cannot_be_claimed(catalog: Catalog, clock: Clock) -> None:
    with pytest.raises(NoSuchJob, match="'users'"):
        catalog.claim("users", "me", clock())


def test_a_younger_lease_of_another_machine_binds(catalog: Catalog, path: Path, clock: Clock) -> None:
    elsewhere(path, clock() - lease.LEASE_MS + 1)
    assert catalog.job("orders").live
    with pytest.raises(Held, match="cron on far-host, pid 4711") as refused:
        catalog.claim("orders", "me", clock())
    assert "try again 30 s after" in str(refused.value.hint)


DAY_MS = 86_400_000


@pytest.mark.parametrize("off_ms", [-lease.LEASE_MS, -DAY_MS, DAY_MS], ids=["old", "a day old", "of tomorrow"])
def test_a_lease_of_another_machine_that_nobody_renews_is_taken_over(
    path: Path, catalog: Catalog, clock: Clock, off_ms: int
) -> None:
    elsewhere(path, clock() + off_ms)
    began = time.monotonic()
    with claimed(Catalog(path, clock, watch_s=0.3), clock) as claim:
        assert claim.token == 8
    assert time.monotonic() - began >= 0.3


Act = Callable[[Catalog], object]


@pytest.mark.seconds
@pytest.mark.parametrize("off_ms", [-DAY_MS, DAY_MS], ids=["behind", "ahead"])
@pytest.mark.parametrize(
    "act",
    [lambda c: c.claim("orders", "me", 5), lambda c: c.drop("orders")],
    ids=["claim", "drop"],
)
def test_a_runner_that_renews_keeps_its_lease_though_its_clock_is_a_day_off(
    path: Path, catalog: Catalog, clock: Clock, off_ms: int, act: Act
) -> None:
    elsewhere(path, clock() + off_ms)
    threading.Timer(0.2, elsewhere, (path, clock() + off_ms + 10_000)).start()
    with pytest.raises(Held, match="cron on far-host"):
        act(Catalog(path, clock, watch_s=5))


@pytest.mark.seconds
@pytest.mark.parametrize("off_ms", [-DAY_MS, DAY_MS], ids=["behind", "ahead"])
def test_a_command_for_a_runner_whose_clock_is_a_day_off_waits_for_its_barrier(
    path: Path, catalog: Catalog, clock: Clock, off_ms: int
) -> None:
    elsewhere(path, clock() + off_ms)
    threading.Timer(0.2, elsewhere, (path, clock() + off_ms + 10_000)).start()
    posted = Catalog(path, clock, watch_s=5).post("orders", Verb.PAUSE, None, "cli", clock())
    assert catalog.taken("orders", posted) is None
    assert [command.verb for command in catalog.job("orders").waiting] == [Verb.PAUSE]


def test_a_command_for_a_runner_that_died_on_another_machine_is_written_at_once_it_is_known(
    path: Path, catalog: Catalog, clock: Clock
) -> None:
    elsewhere(path, clock() - DAY_MS)
    posted = Catalog(path, clock, watch_s=0.2).post("orders", Verb.PAUSE, None, "cli", clock())
    assert catalog.taken("orders", posted) is not None
    assert catalog.job("orders").control.paused


def test_on_one_machine_the_lock_tells_not_the_clock(catalog: Catalog, path: Path, clock: Clock) -> None:
    with Store(path).writing() as db:
        lease.write(db, "orders", lease.Lease(3, "dead", lease.this_host(), 1, clock(), clock()))
    with claimed(catalog, clock) as claim:
        assert claim.token == 4


def test_a_refused_claim_does_not_keep_the_lock_file(path: Path, catalog: Catalog, clock: Clock) -> None:
    catalog = Catalog(path, clock, watch_s=0.1)
    elsewhere(path, clock())
    with pytest.raises(Held):
        catalog.claim("orders", "me", clock())
    clock.ms += lease.LEASE_MS
    with claimed(catalog, clock) as claim:
        assert claim.token == 8


def test_a_released_job_is_free_for_other_machines_at_once(catalog: Catalog, clock: Clock) -> None:
    with claimed(catalog, clock):
        pass
    with patch.object(lease, "this_host", lambda: "far-host"):
        assert not catalog.job("orders").live
        with claimed(catalog, clock) as claim:
            assert claim.token == 2


def test_case_40_a_runner_that_was_taken_over_changes_nothing_more(
    catalog: Catalog, path: Path, clock: Clock
) -> None:
    """Two runners, one job: the older one was frozen for longer than its lease, another machine took over."""
    with claimed(catalog, clock) as old:
        old.store.become(JobState.RUNNING, "")
        old.store.prepare(checkpoint(100), None, progress())
        elsewhere(path, clock(), token=2)
        before = Path(path).read_bytes()
        acts = (
            lambda: old.store.load(),
            lambda: old.store.prepare(checkpoint(200), record(100), progress()),
            lambda: old.store.mark(record(100), progress()),
            lambda: old.store.unprepare(100),
            lambda: old.store.take((), Control("cli", 1), JobState.PAUSED, record(200)),
            lambda: old.store.heartbeat(clock(), progress()),
            lambda: old.store.become(JobState.FAILED, "late"),
        )
        for act in acts:
            with pytest.raises(Held, match="was taken over by another runner"):
                act()
        assert Path(path).read_bytes() == before
    assert catalog.job("orders").lease.host == "far-host"


def test_a_new_job_can_be_locked_before_it_exists(path: Path, clock: Clock) -> None:
    catalog = Catalog(path, clock)
    with catalog.lock_job("orders"):
        assert not path.exists()
        with pytest.raises(Held, match="just starting"):
            Catalog(path, clock).lock_job("orders")
    with catalog.lock_job("orders"):
        pass


def test_a_claim_takes_a_held_lock_over_and_releases_it(catalog: Catalog, clock: Clock) -> None:
    with catalog.lock_job("orders") as lock, catalog.claim("orders", "me", clock(), lock) as claim:
        assert claim.lock is lock
    assert not catalog.job("orders").live


def test_looking_at_a_job_is_never_taken_for_a_runner(catalog: Catalog, clock: Clock) -> None:
    for _ in range(3):
        assert not catalog.job("orders").live
        catalog.post("orders", Verb.PAUSE, None, "cli", clock())
        with claimed(catalog, clock):
            pass


def test_a_job_that_was_never_made_leaves_no_file(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "deep" / "catalog.duckdb")
    lock = catalog.lock_job("orders")
    assert list((tmp_path / "deep").iterdir())
    catalog.leave_nothing(lock)
    assert list(tmp_path.iterdir()) == []
    with catalog.lock_job("orders"):
        pass


def test_the_lock_of_a_job_that_is_there_stays(catalog: Catalog) -> None:
    with catalog.lock_job("orders") as lock:
        catalog.leave_nothing(lock)
        assert lock.held
    with catalog.lock_job("other") as lock:
        catalog.leave_nothing(lock)
        assert not Path(f"{catalog.path}.other.runner").exists()
        assert Path(f"{catalog.path}.lock").exists()


def test_who_waits_for_a_lock_that_is_removed_gets_the_new_one(tmp_path: Path) -> None:
    """Two processes never hold one lock: whoever waited sees that the file has no name any more."""
    store, over = Store(tmp_path / "catalog.duckdb"), threading.Event()
    held: list[int] = []
    most: list[int] = []

    def work() -> None:
        while not over.is_set():
            with Store(tmp_path / "catalog.duckdb").locked("lock"):
                held.append(1)
                most.append(sum(held))
                held.append(-1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        store.remove_locks()
    over.set()
    for thread in threads:
        thread.join()
    assert set(most) == {1}
