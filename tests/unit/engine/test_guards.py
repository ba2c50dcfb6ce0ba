"""Guards beside the loop: asked in threads of their own, what they decide is a command in the inbox."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from backfill_cli.catalog import wall_clock_ms
from backfill_cli.contracts import Unanswered
from backfill_cli.engine.job import gauges
from backfill_cli.engine.loop.guards import Asked, Guards
from backfill_cli.errors import Transient
from backfill_cli.model.guard import Guard, Level, Limited, Order
from backfill_cli.model.job import Command, Control, Hold, JobState, Verb, apply_command
from backfill_cli.model.upstream import Incomplete

RULE = Limited("load", 10.0, 0.8, "{:g}".format)


@dataclass
class Value:
    """A gauge in memory. said: a number, or the error that asking raises. hangs: until it is set free."""

    said: float | Exception = 0.0
    hangs: Event | None = None
    closed: bool = False

    def ask(self) -> float:
        if self.hangs is not None:
            self.hangs.wait(10)
        if isinstance(self.said, Exception):
            raise self.said
        return self.said

    def close(self) -> None:
        self.closed = True


@dataclass
class Job:
    control: Control = field(default_factory=Control)
    inbox: list[Command] = field(default_factory=list)

    def post(self, order: Order) -> None:
        number = len(self.inbox)
        self.inbox.append(Command(number, order.verb, order.by, 0, order.rate, order.guard, order.lifts))

    def barrier(self) -> None:
        taken, self.inbox = self.inbox, []
        for one in taken:
            self.control = apply_command(self.control, one, 1)

    def guarded(self, *guards: Asked) -> Guards:
        return Guards(guards, lambda: self.control, lambda: tuple(self.inbox), self.post)


def asked(value: Value, every_s: float = 0.1, timeout_s: float = 0.1) -> Asked:
    return Asked(Guard("g", RULE), value, every_s, timeout_s)


def soon(holds: Callable[[], bool], within_s: float = 10.0) -> float:
    began_s = time.monotonic()
    while not holds():
        assert time.monotonic() - began_s < within_s
        time.sleep(0.005)
    return time.monotonic() - began_s


def test_an_order_is_posted_once_while_it_waits_for_its_barrier() -> None:
    job, one = Job(), asked(Value(11.0))
    guards = job.guarded(one)
    one.ask()
    guards.look(0.0)
    guards.look(0.0)
    assert [command.verb for command in job.inbox] == [Verb.HOLD]
    job.barrier()
    guards.look(0.0)
    assert job.inbox == []
    assert job.control.paused


def test_one_answer_gives_one_order_also_while_a_barrier_takes_it() -> None:
    """The inbox has it no longer, the control not yet."""
    job, one = Job(), asked(Value(11.0))
    guards = job.guarded(one)
    one.ask()
    guards.look(0.0)
    job.inbox.clear()
    guards.look(0.0)
    assert job.inbox == []


def test_a_first_failure_changes_nothing_and_a_second_holds_the_job_until_it_answers() -> None:
    job, value = Job(), Value(Unanswered("connection refused"))
    one = asked(value)
    guards = job.guarded(one)
    one.ask()
    guards.look(0.0)
    assert job.inbox == []
    one.ask()
    guards.look(0.0)
    job.barrier()
    assert job.control.pauser == "guard 'g': cannot be asked: connection refused"
    value.said = 1.0
    one.ask()
    guards.look(0.0)
    job.barrier()
    assert not job.control.paused


def test_a_question_that_hangs_counts_as_one_without_an_answer() -> None:
    job, one = Job(), asked(Value(), every_s=1.0, timeout_s=2.0)
    guards = job.guarded(one)
    one.since_s = 100.0
    guards.look(102.5)
    assert job.inbox == []
    guards.look(103.1)
    job.barrier()
    assert job.control.pauser == "guard 'g': cannot be asked: no answer within 2 s"


def test_a_bug_of_a_gauge_is_no_answer_for_ever() -> None:
    job, one = Job(), asked(Value(ZeroDivisionError("x")))
    with pytest.raises(ZeroDivisionError):
        one.ask()
    job.guarded(one).look(0.0)
    assert job.inbox[0].by == "guard 'g': cannot be asked: its thread ended with an error: see the log"


def test_what_a_removed_guard_holds_is_lifted_as_the_run_begins() -> None:
    job = Job(Control(holds=(Hold("old", "guard 'old': …", 1),)))
    with job.guarded().beside():
        soon(lambda: bool(job.inbox))
        job.barrier()
    assert job.control == Control()


def test_what_a_removed_guard_holds_is_lifted_once_a_busy_catalog_takes_it() -> None:
    job, refusals = Job(Control(holds=(Hold("old", "guard 'old': …", 1),))), [Transient("busy", "")]

    def post(order: Order) -> None:
        if refusals:
            raise refusals.pop()
        job.post(order)

    with Guards((), lambda: job.control, lambda: tuple(job.inbox), post).beside():
        soon(lambda: bool(job.inbox))
        job.barrier()
    assert job.control == Control()


def test_it_stops_the_job_within_two_intervals_and_does_not_wait_for_one_that_hangs() -> None:
    """Each within its own interval; the slack is for a machine under load."""
    job, value, free = Job(), Value(), Event()
    hung = Value(hangs=free)
    took_s = []
    with job.guarded(asked(hung, 100.0, 100.0), asked(value)).beside():
        for _ in range(3):
            time.sleep(0.15)
            value.said = 11.0
            took_s.append(soon(lambda: bool(job.inbox)))
            job.barrier()
            value.said = 0.0
            soon(lambda: bool(job.inbox))
            job.barrier()
            assert job.control == Control()
        free.set()
    assert sorted(took_s)[1] <= 1.0, took_s
    assert value.closed


def test_free_disk_is_that_of_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    there = gauges.free_disk(tmp_path)
    assert gauges.free_disk(tmp_path / "not" / "yet") == pytest.approx(there, rel=0.1)
    assert there > 0


def test_the_load_and_the_time_of_day_are_numbers() -> None:
    assert gauges.load() >= 0
    assert 0 <= gauges.minutes_of_day() < 1440
    assert RULE.judged(9.0).level is Level.BETWEEN


def test_the_lag_of_a_job_that_waits_for_its_upstream_alone_holds_no_other_job() -> None:
    newest, now_ms = Incomplete("tx", 5, ("tiny",), 700), wall_clock_ms()

    def lag_s(pending: int, incomplete: Incomplete | None, oldest_ms: int | None) -> float:
        told = SimpleNamespace(
            looked_ms=now_ms, oldest_ms=oldest_ms, pending_epochs=pending, incomplete=incomplete
        )
        row = SimpleNamespace(state=JobState.RUNNING, live=True, progress=told)
        store: Any = SimpleNamespace(job=lambda _: row)
        return gauges.lag_s("orders", store)

    assert (lag_s(0, None, None), lag_s(1, newest, 700)) == (0, 0)
    assert lag_s(2, newest, 600) == pytest.approx((now_ms - 600) / 1000, rel=0.1)
    assert lag_s(1, None, 600) > 0
