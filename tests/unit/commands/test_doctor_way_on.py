"""doctor: each fix that it shows is typed, where it is shown; afterwards doctor finds nothing there."""

from collections.abc import Callable, Iterator

import pytest
from doctor_checks import found, installed, java
from half_done import EPOCH
from hint_scene import Scene, scene
from hint_typed import typed

from backfill_cli.catalog import lease
from backfill_cli.catalog.store import Store
from backfill_cli.engine.job import machine

__all__ = ["java", "scene"]

pytestmark = pytest.mark.seconds


def runner_died(s: Scene) -> list[str]:
    s.sql(s.catalog.path, "UPDATE jobs SET state = 'running'")
    with Store(s.catalog.path).writing() as db:
        lease.write(db, "orders", lease.Lease(1, "cli", lease.this_host(), 2**22, 1, 2))
    return []


def failed(s: Scene) -> list[str]:
    """For a reason that is over, and that a plan does not detect."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backfill_cli.engine.loop.run.run_loop", lambda *_: 1 / 0)
        assert s.run("resume", "orders").exit_code == 1
    return []


def failed_of_the_config(s: Scene) -> list[str]:
    return [*failed(s), "job.toml"]


def failed_with_a_way_on(s: Scene) -> list[str]:
    """The sink was restored from a copy: `_require_agreement`."""
    s.commit(20, EPOCH)
    s.ended("resume", "orders")
    return ["job.toml"]


def table_in_use(s: Scene) -> list[str]:
    assert s.run("drop", "orders", "--confirm", "orders").exit_code == 0
    s.sql(s.sink, "INSERT INTO orders VALUES (7, 'mine')")
    return ["job.toml"]


STATES: dict[str, tuple[Callable[[Scene], list[str]], ...]] = {
    "engine/doctor.py:_left_behind": (runner_died,),
    "engine/doctor.py:_failed": (failed, failed_of_the_config, failed_with_a_way_on),
    "engine/doctor.py:_planned": (table_in_use,),
}
"""By function that makes the check: how its state is reached, and what `doctor` is given then."""


@pytest.mark.parametrize("state", [pytest.param(one, id=one.__name__) for each in STATES.values() for one in each])
def test_each_command_of_a_fix_leads_to_where_doctor_shows_none(
    scene: Callable[..., Scene], state: Callable[[Scene], list[str]]
) -> None:
    index, count = 0, 1
    while index < count:
        s = scene(str(index))
        words = state(s)
        with typed(_fix(s, words)) as hint:
            commands = hint.commands(FILE="job.toml")
            count = len(commands)
            done = s.run(*commands[index])
            assert done.exit_code == 0, (commands[index], done.stderr, done.exception)
            assert list(_fixes(s, words)) == []
        index += 1


def test_what_prevents_a_plan_is_corrected_first(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    s = scene("0")
    monkeypatch.setattr(machine, "_version", lambda name: "0.1" if name == "duckdb" else installed(name))
    with typed(_fix(s, ["job.toml"])) as hint:
        hint.says("correct those first")
        monkeypatch.setattr(machine, "_version", installed)
        (planned,) = found(s.run, "job.toml")["plan"]
        assert planned["status"] == "ok"


def _fix(s: Scene, words: list[str]) -> str:
    (fix,) = _fixes(s, words)
    return fix


def _fixes(s: Scene, words: list[str]) -> Iterator[str]:
    """Of what concerns jobs: this machine may have too little room, or packages that were not tried."""
    for name in ("job", "jobs", "plan"):
        yield from (check["fix"] for check in found(s.run, *words).get(name, ()) if check["fix"])
