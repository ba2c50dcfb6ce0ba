"""`verify` of a job that goes on: commits beside it, and epochs that are applied again."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from verify_case import Case, orders, verification

from backfill_cli.contracts import JobDefinition, SinkTable
from backfill_cli.errors import UsageError
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.position import START, Position
from backfill_cli.model.upstream import Pin
from backfill_cli.model.verify import VerifyReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["orders"]


def definition(case: Case, complete_at: Position | None = None) -> JobDefinition:
    pin = Pin(START, None, complete_at, ())
    return JobDefinition("j", "{}", "{}", pin, "forever", "snapshot", (case.table,))


def compared(case: Case, job: JobDefinition, live: bool) -> VerifyReport:
    return verification(case, job, live).against(lambda *_: case.expected())


def test_a_live_job_commits_while_it_is_verified(orders: Case) -> None:
    def expected(table: SinkTable, at: Checkpoint) -> "DataFrame":
        orders.commit(2, 1)
        assert at.epoch == 1
        return orders.expected()

    report = verification(orders, definition(orders), True, orders.folder / "st").against(expected)
    assert (report.equal, report.epoch, report.live) == (True, 1, True)
    assert orders.sink.committed("j")["t"].epoch == 2
    assert list((orders.folder / "st").glob("*")) == []


def test_verify_waits_for_a_commit_in_flight(orders: Case) -> None:
    with held_for(orders.folder / "w.duckdb", seconds=1.0) as held_until:
        report = compared(orders, definition(orders), live=True)
        assert time.monotonic() > held_until
    assert report.equal


def test_case_47_no_false_alarm_after_a_resume_applied_an_epoch_again(orders: Case) -> None:
    orders.commit(1, 0)
    report = compared(orders, definition(orders), live=False)
    assert report.equal


def test_a_fuzzy_load_says_that_it_is_still_converging(orders: Case) -> None:
    for complete_at, converging in ((1, False), (2, True)):
        told = definition(orders, Position.of({"log": complete_at}))
        report = compared(orders, told, live=False)
        assert report.converging is converging


def test_a_job_without_a_commit_has_nothing_to_compare(orders: Case) -> None:
    other = replace(definition(orders), name="other")
    with pytest.raises(UsageError, match="committed nothing yet"):
        compared(orders, other, live=False)


@contextmanager
def held_for(path: Path, seconds: float) -> Iterator[float]:
    """Another process holds the file, as a runner does while it commits; yields when it will release it."""
    script = f"import duckdb; con = duckdb.connect({str(path)!r}); print('held', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        holder.stdout.readline()
        release = threading.Timer(seconds, holder.stdin.close)
        release.start()
        yield time.monotonic() + seconds
        release.join()
