"""A runner's signals: what the first and the second one do. And what a run does while it has to wait."""

import os
import signal
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import pytest

from backfill_cli.engine.job.resources import NoWatcher, Resources
from backfill_cli.engine.loop.failures import Failures
from backfill_cli.engine.loop.orchestrator import Tick
from backfill_cli.engine.loop.process import Heartbeat, Signals, Wake, run_loop
from backfill_cli.errors import Fatal, Held, SparkEnded, Transient
from backfill_cli.model.limit import Limit
from backfill_cli.spark import driver


class Loop:
    """Records that it was asked to stop."""

    asked = 0

    def ask_stop(self) -> None:
        self.asked += 1


class Watcher(NoWatcher):
    left = told = 0

    def stopping(self) -> None:
        self.told += 1

    def leave(self) -> None:
        self.left += 1


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The codes with which the process would have exited at once."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    return codes


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_the_loop_and_the_second_ends_the_process(ends: list[int], number: int) -> None:
    loop: Any = Loop()
    watcher = Watcher()
    signals = Signals(watcher)
    with signals.installed():
        signals.ask(loop)
        signal.raise_signal(number)
        assert (loop.asked, watcher.told, signals.caught, ends) == (1, 1, number, [])
        signal.raise_signal(number)
        assert (watcher.left, ends) == (1, [128 + number])


def test_a_signal_before_there_is_a_loop_unwinds(ends: list[int]) -> None:
    signals = Signals(NoWatcher())
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, signals.installed():
        signal.raise_signal(signal.SIGTERM)
    assert (ended.value.code, ends) == (143, [])
    assert signal.getsignal(signal.SIGTERM) == before


class Retry:
    limit_s = 30.0


class Config:
    retry = Retry()


def flaky(times: int) -> Callable[[], str]:
    left = [Transient("a.duckdb is held by python (PID 7)", "close it")] * times

    def act() -> str:
        if left:
            raise left.pop()
        return "done"

    return act


def test_what_fails_in_passing_is_tried_again_and_what_is_waited_for_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _s: None)
    told: list[str] = []
    config: Any = Config()
    resources, failures = Resources(config, told.append), Failures()
    resources.failed = failures.count
    assert resources.with_retries(flaky(2)) == "done"
    assert failures.by_cause == {"Transient": 2}
    assert [str(one) for one in told] == ["waiting: a.duckdb is held by python (PID 7); to continue: close it"] * 2


def test_a_failure_that_outlasts_the_limit_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Retry, "limit_s", 0.0)
    config: Any = Config()
    with pytest.raises(Transient, match="is held"):
        Resources(config, lambda _doing: None).with_retries(flaky(1))


def test_nothing_is_tried_again_once_java_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    config: Any = Config()
    monkeypatch.setattr(
        driver, "ended", lambda _wait_s=0.0: SparkEnded("Spark's Java process ended", driver.AGAIN)
    )
    told: list[str] = []
    with pytest.raises(SparkEnded) as ended, Resources(config, told.append) as resources:
        resources.with_retries(flaky(1))
    assert (told, str(ended.value.hint)) == ([], "run the command again")


# -- asleep ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_sleep_of_an_idle_loop_at_once(number: int) -> None:
    loop: Any = Loop()
    signals = Signals(NoWatcher())
    with signals.installed():
        signals.ask(loop)
        threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
        began = time.monotonic()
        signals.wake.sleep(20)
    assert loop.asked == 1
    assert time.monotonic() - began < 15


def test_a_signal_just_before_the_sleep_is_not_slept_through_and_rings_only_once() -> None:
    wake = Wake()
    wake.ring()
    wake.ring()
    began = time.monotonic()
    wake.sleep(20)
    assert time.monotonic() - began < 15
    wake.sleep(0.05)
    assert time.monotonic() - began >= 0.05


# -- the heartbeat -----------------------------------------------------------------------------------------------


class Stepping:
    """A loop that is idle, or ends on request; its heartbeat calls `heart`."""

    state = types.SimpleNamespace(control=None, phase=None)
    caught_up = opening = False
    recorded: int | None = 1
    waits: str | None = None

    def __init__(self, ticks: list[Tick], heart: Callable[[], None]) -> None:
        self.ticks = ticks
        self.heartbeat = heart

    def step(self) -> Tick:
        return self.ticks.pop(0) if self.ticks else Tick.IDLE

    def waiting_for(self) -> Limit | None:
        return self.waits

    def asked(self) -> bool:
        return False

    def wait_ms(self) -> int:
        return 20_000

    def committing(self) -> None:
        return None


class Heart:
    """Raises each of the given errors once; counts its beats."""

    def __init__(self, *failures: BaseException) -> None:
        self.failures = list(failures)
        self.beats = 0

    def __call__(self) -> None:
        self.beats += 1
        if self.failures:
            raise self.failures.pop(0)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backfill_cli.engine.loop.process.HEARTBEAT_S", 0.02)


FULL = Transient("catalog /x could not be written: No space left on device", "make room")
NEVER_MS = 10**9


def run(loop: Any, heart: Heart, limit_ms: int = NEVER_MS) -> Tick:
    wake = Wake()
    with Heartbeat("j", heart, limit_ms, wake) as heartbeat:
        return run_loop(loop, NoWatcher(), heartbeat, wake)


def test_a_heartbeat_that_is_to_be_shown_and_meets_a_full_disk_does_not_end_the_run() -> None:
    heart = Heart(*[FULL] * 50)
    loop = Stepping([Tick.WORKED] * 3 + [Tick.DONE], heart)
    loop.caught_up = False
    steps = loop.step

    def step() -> Tick:
        loop.caught_up, loop.waits = True, "the sink"
        return steps()

    loop.step = step  # type: ignore[method-assign]
    assert run(loop, heart) == Tick.DONE
    assert heart.beats > 0


def test_a_commit_that_an_idle_barrier_records_is_told_when_nothing_follows() -> None:
    """The view reads the catalog only when told: its line came with the next event, minutes later."""
    loop = Stepping([Tick.WORKED] + [Tick.IDLE] * 4 + [Tick.DONE], lambda: None)
    recorded = iter([None, None, 2, 2, 2, 2])
    steps, loop.wait_ms = loop.step, lambda: 0  # type: ignore[method-assign]

    def step() -> Tick:
        loop.recorded = next(recorded)
        return steps()

    loop.step = step  # type: ignore[method-assign]
    told: list[int | None] = []

    class Told(NoWatcher):
        def progressed(self) -> None:
            told.append(loop.recorded)

    wake = Wake()
    with Heartbeat("j", lambda: None, NEVER_MS, wake) as heartbeat:
        assert run_loop(loop, Told(), heartbeat, wake) == Tick.DONE  # type: ignore[arg-type]
    assert told == [None, 2]


def test_a_heartbeat_that_fails_for_the_limit_ends_the_run_with_what_failed(quick: None) -> None:
    heart = Heart(*[FULL] * 10_000)
    began = time.monotonic()
    with pytest.raises(Transient, match="No space left"):
        run(Stepping([], heart), heart, limit_ms=300)
    assert 0.3 <= time.monotonic() - began < 10


def test_one_heartbeat_that_works_begins_the_count_of_failures_anew(quick: None) -> None:
    heart, failures = Heart(FULL, FULL), Failures()
    with Heartbeat("j", heart, NEVER_MS, Wake()) as heartbeat:
        heartbeat.failed = failures.count
        while heart.beats < 4:
            time.sleep(0.01)
        heartbeat.check()
    assert heartbeat._trouble.tries == 0
    assert failures.by_cause == {"Transient": 2}


@pytest.mark.parametrize(
    ("failure", "kind", "says"),
    [
        (Held("job 'j' was taken over"), Held, "taken over"),
        (RuntimeError("deque mutated"), Fatal, "job 'j': its heartbeat failed: RuntimeError: deque mutated"),
    ],
    ids=["held", "a fault of ours"],
)
def test_a_heartbeat_that_ends_for_good_ends_an_idle_run_at_once_and_by_name(
    quick: None, failure: Exception, kind: type[Exception], says: str
) -> None:
    heart = Heart(failure)
    began = time.monotonic()
    with pytest.raises(kind, match=says):
        run(Stepping([], heart), heart)
    assert time.monotonic() - began < 10
    assert heart.beats == 1


def test_java_that_has_ended_ends_an_idle_run_before_a_heartbeat_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    heart = Heart()
    monkeypatch.setattr(
        driver, "ended", lambda _wait_s=0.0: SparkEnded("Spark's Java process ended", driver.AGAIN)
    )
    began = time.monotonic()
    with pytest.raises(SparkEnded):
        run(Stepping([], heart), heart)
    assert time.monotonic() - began < 9, "the next change, or heartbeat, was ten seconds away"


def test_a_fault_in_what_is_new_ends_the_run_by_name_too() -> None:
    """Else nothing would renew the lease any more, and nobody would know."""

    def faulty() -> bool:
        raise ValueError("no number")

    wake = Wake()
    beat = Heartbeat("job", lambda: None, 1000, wake)
    beat.has_news = faulty
    with beat:
        wake.sleep(5)
        with pytest.raises(Fatal, match="its heartbeat failed: ValueError: no number"):
            beat.check()


def test_what_is_new_is_told_before_a_heartbeat_is_due() -> None:
    told = threading.Event()
    beat = Heartbeat("job", told.set, 1000, Wake())
    beat.has_news = lambda: not told.is_set()
    shown = threading.Event()
    beat.reported = shown.set
    with beat:
        assert told.wait(5), "the next was due in ten seconds"
        assert shown.wait(5), "whoever shows the job looks at it"
