"""Several processes, one catalog: real ones, killed for real."""

import os
import signal
import time
from pathlib import Path

import pytest
from catalog_builders import Clock, claimed, end, said, start_python

from backfill_cli.catalog import Catalog
from backfill_cli.catalog.catalog import wall_clock_ms
from backfill_cli.errors import Held
from backfill_cli.model.job import JobState, Verb

pytestmark = pytest.mark.seconds

# Holds the job, with a child that outlives it (as Spark's JVM does), and reports what it is told.
RUNNER = """if True:
    import subprocess, sys, time
    from pathlib import Path
    from backfill_cli.catalog import Catalog
    from backfill_cli.catalog.catalog import wall_clock_ms
    claim = Catalog(Path(sys.argv[1])).claim("orders", "runner", wall_clock_ms())
    claim.store.become("running", "")
    child = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    claim.store.commands()
    print(claim.token, child.pid, flush=True)
    while not (commands := claim.store.commands()):
        time.sleep(0.01)
    print(*(c.verb.value for c in commands), flush=True)
    sys.stdin.readline()
"""

BUSY = """if True:
    import sys
    from pathlib import Path
    from backfill_cli.catalog.store import Store
    store = Store(Path(sys.argv[1]))
    print("busy", flush=True)
    while True:
        with store.writing() as db:
            db.execute("UPDATE jobs SET caught_up_ms = coalesce(caught_up_ms, 0) + 1")
"""


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    """The same catalog on the real clock, as the other processes see it."""
    return Catalog(catalog.path)


def test_case_40_a_second_runner_is_refused_and_told_who_has_the_job(catalog: Catalog) -> None:
    runner = start_python(RUNNER, catalog.path)
    _, child = said(runner).split()
    try:
        with pytest.raises(Held, match=f"held by runner on .*, pid {runner.pid}, since"):
            catalog.claim("orders", "second", wall_clock_ms())
        assert catalog.job("orders").live
    finally:
        end(runner)
        os.kill(int(child), signal.SIGKILL)


def test_kill_9_frees_the_job_at_once_and_the_next_token_is_higher(catalog: Catalog) -> None:
    """Its child lives on, and the lease row is young: neither keeps the job."""
    runner = start_python(RUNNER, catalog.path)
    token, child = map(int, said(runner).split())
    end(runner)
    try:
        row = catalog.job("orders")
        assert (row.live, row.state, row.lease.pid) == (False, JobState.RUNNING, runner.pid)
        with catalog.claim("orders", "next", wall_clock_ms()) as claim:
            assert claim.token == token + 1
            claim.store.become(JobState.STARTING, "")
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_command_of_another_process_is_seen_by_the_runner(catalog: Catalog) -> None:
    runner = start_python(RUNNER, catalog.path)
    _, child = said(runner).split()
    try:
        posted = catalog.post("orders", Verb.PAUSE, None, "cli", wall_clock_ms())
        assert said(runner) == "pause"
        assert catalog.taken("orders", posted) is None
        assert catalog.job("orders").shown_state == JobState.PAUSING
    finally:
        end(runner)
        os.kill(int(child), signal.SIGKILL)


def test_status_is_answered_while_another_process_writes_in_a_loop(catalog: Catalog) -> None:
    """The loops give the file back for microseconds only."""
    writers = [start_python(BUSY, catalog.path) for _ in range(2)]
    try:
        assert {said(writer) for writer in writers} == {"busy"}
        end_s = time.monotonic() + 60
        while not catalog.job("orders").caught_up_ms:  # they say that they are busy before they write
            assert time.monotonic() < end_s
        began = time.monotonic()
        seen = [catalog.job("orders").caught_up_ms or 0 for _ in range(10)]
        took_s = time.monotonic() - began
    finally:
        for writer in writers:
            end(writer)
    assert seen == sorted(seen)
    assert seen[-1] > seen[0]
    assert took_s < 30  # 1 s when nothing else runs


def test_no_write_of_several_processes_is_lost(catalog: Catalog, path: Path) -> None:
    code = """if True:
        import sys
        from pathlib import Path
        from backfill_cli.catalog import Catalog
        from backfill_cli.model.job import Verb
        for n in range(10):
            Catalog(Path(sys.argv[1])).post("orders", Verb.PAUSE, None, sys.argv[2], n)
    """
    with claimed(catalog, Clock(wall_clock_ms())) as claim:
        posters = [start_python(code, path, name) for name in ("a", "b", "c")]
        assert [poster.wait() for poster in posters] == [0, 0, 0]
        for poster in posters:
            end(poster)
        commands = claim.store.commands()
    assert [c.id for c in commands] == list(range(1, 31))
    assert sorted((c.by, c.at_ms) for c in commands) == [(name, n) for name in "abc" for n in range(10)]
