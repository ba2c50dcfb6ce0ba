"""The command of a hook: what it gets, how long it may take, and that nobody waits for it."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from backfill_cli.api import running
from backfill_cli.api.running import HookRunner
from backfill_cli.config.sections import Hooks

pytestmark = pytest.mark.seconds


class Told:
    def __init__(self) -> None:
        self.lines: list[tuple[str, bool]] = []

    def __call__(self, line: str, warning: bool) -> None:
        self.lines.append((line, warning))


def runner(told: Told, shell: str, timeout_s: float = 20.0) -> HookRunner:
    hooks = Hooks(on=["failed", "done"], command=["sh", "-c", shell], timeout=timeout_s)
    return HookRunner(hooks, {"BACKFILL_CATALOG": "/c.duckdb"}, told)


def event(name: str = "failed", **more: Any) -> dict[str, Any]:
    return {"event": name, **more}


def test_the_command_gets_the_event_as_one_line_of_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKFILL_DETACHED_LOG", "/log")
    told = Told()
    out = tmp_path / "out"
    hooks = runner(told, f'cat >> {out}; echo "$BACKFILL_CATALOG $BACKFILL_DETACHED_LOG." >> {out}')
    hooks.hear(event("failed", reason='a "quoted"\nreason'))
    hooks.hear(event("paused"))
    hooks.hear(event("done"))
    hooks.close()
    lines = out.read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines[::2]] == ["failed", "done"]
    assert json.loads(lines[0])["reason"] == 'a "quoted"\nreason'
    assert lines[1] == "/c.duckdb ."  # a command of ours in it is not the process in the background
    assert told.lines == [("hook for failed: ran", False), ("hook for done: ran", False)]


@pytest.mark.parametrize(
    ("shell", "said"),
    [
        ("echo first >&2; echo 'no such host' >&2; exit 3", "hook for failed: exit code 3: no such host"),
        ("exit 4", "hook for failed: exit code 4"),
        ("kill -9 $$", "hook for failed: signal 9 (SIGKILL)"),
    ],
)
def test_what_goes_wrong_is_a_line(shell: str, said: str) -> None:
    told = Told()
    hooks = runner(told, shell)
    hooks.hear(event())
    hooks.close()
    assert told.lines == [(said, True)]


def test_a_command_that_is_gone_is_a_line() -> None:
    told = Told()
    hooks = HookRunner(Hooks(on=["failed"], command=["/no/such/program"]), {}, told)
    hooks.hear(event())
    hooks.close()
    assert told.lines == [("hook for failed: /no/such/program: No such file or directory", True)]


def test_who_does_not_read_its_event_is_no_failure() -> None:
    told = Told()
    hooks = runner(told, "exit 0")
    hooks.hear(event(reason="x" * 200_000))
    hooks.close()
    assert told.lines == [("hook for failed: ran", False)]


def test_a_command_is_killed_at_its_limit_with_what_it_started(tmp_path: Path) -> None:
    told = Told()
    hooks = runner(told, f"sleep 600 & echo $! > {tmp_path}/pid; wait", timeout_s=1.0)
    began_s = time.monotonic()
    hooks.hear(event())
    assert told.lines == []
    hooks.close()
    assert time.monotonic() - began_s < 10
    assert told.lines == [("hook for failed: killed after 1 s", True)]
    child = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not Path(f"/proc/{child}").exists() or " Z " in Path(f"/proc/{child}/stat").read_text():
            return
        time.sleep(0.05)
    os.kill(child, 9)
    pytest.fail("what it started lives")


def test_at_the_end_what_waits_has_one_time_limit_in_all() -> None:
    told = Told()
    hooks = runner(told, "sleep 600", timeout_s=2.0)
    for _ in range(4):
        hooks.hear(event())
    began_s = time.monotonic()
    hooks.close()
    assert time.monotonic() - began_s < 7.9, "four limits"
    assert len(told.lines) == 4
    assert "hook for failed: dropped, the run has ended and the time limit is used up" in [
        line for line, _ in told.lines
    ]


def test_events_beyond_those_that_may_wait_are_dropped_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "WAITING_AT_MOST", 2)
    told = Told()
    hooks = runner(told, "sleep 600", timeout_s=2.0)
    for _ in range(5):
        hooks.hear(event())
    hooks.close()
    dropped = [line for line, _ in told.lines if "2 events are already waiting" in line]
    assert 2 <= len(dropped) <= 3


def test_at_the_end_a_full_queue_costs_no_more_than_one_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "WAITING_AT_MOST", 2)
    told = Told()
    hooks = runner(told, "sleep 600", timeout_s=4.0)
    for _ in range(5):
        hooks.hear(event())
    began_s = time.monotonic()
    hooks.close()
    assert time.monotonic() - began_s < 7.9, "two limits, of the two that waited"
    assert len(told.lines) == 5


def test_a_run_without_events_starts_nothing() -> None:
    told = Told()
    hooks = runner(told, "exit 1")
    hooks.hear(event("paused"))
    hooks.close()
    assert told.lines == []
