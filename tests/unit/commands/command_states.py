"""States in which what is typed, or the config that it names, is refused with a command as hint.

Each function brings one about in a scene of `hint_scene`, and returns the hint of the error.
"""

import os
from collections.abc import Callable
from dataclasses import replace

import pytest
from hint_scene import Scene

from backfill_cli.model.job import JobState
from backfill_cli.model.verify import TableVerdict, VerifyReport
from backfill_cli.view.verify import show_verify


def no_config_named(s: Scene) -> str:
    (s.folder / "job.toml").unlink()
    return s.refused("start")


def no_config(s: Scene) -> str:
    (s.folder / "job.toml").unlink()
    return s.refused("plan", "--config", "job.toml")


def faulty_config(s: Scene) -> str:
    text = (s.folder / "job.toml").read_text()
    (s.folder / "job.toml").write_text(text + "oops = 1\n")
    hint = s.refused("plan", "--config", "job.toml")
    (s.folder / "job.toml").write_text(text)
    return hint


def differs(s: Scene) -> str:
    return shown(s, VerifyReport("orders", 5, (TableVerdict("orders", "orders", False, 1, 2),), 1.0))


def differs_while_converging(s: Scene) -> str:
    s.sql(s.catalog.path, "UPDATE jobs SET state = 'done', caught_up_ms = 5")
    report = VerifyReport("orders", 5, (TableVerdict("orders", "orders", False, 1, 2),), 1.0)
    return shown(s, replace(report, converging=True))


def shown(s: Scene, report: VerifyReport) -> str:
    return s.failed(lambda: show_verify(report, True))


def config_is_there(s: Scene) -> str:
    return s.refused("init")


def looked_at(s: Scene, name: str, *words: str) -> str:
    """`init` of a new config looks at a file of this name, which breaks off."""
    (s.folder / "job.toml").unlink()
    (s.folder / "more").mkdir()
    (s.folder / "more" / name).write_bytes(b'{"id": 1, "name')
    return s.refused("init", "--from", "more/", *words)


def init_of_a_name_that_is_a_pattern(s: Scene) -> str:
    return looked_at(s, "a[1].parquet")


def init_of_a_broken_file(s: Scene) -> str:
    return looked_at(s, "a.json")


def not_confirmed(s: Scene) -> str:
    return s.refused("drop", "orders")


def not_confirmed_with_rows(s: Scene) -> str:
    return s.refused("drop", "orders", "--with-rows")


def failed_before_caught_up(s: Scene) -> str:
    with s.catalog.claim("orders", "test", 5) as claim:
        claim.store.become(JobState.STARTING, "")
        claim.store.become(JobState.FAILED, "it broke")
    return s.refused("wait", "--for", "caught-up")


def not_confirmed_for_a_sink(s: Scene) -> str:
    s.catalog.path.unlink()
    return s.refused("drop", "orders", "--sink", "job.toml")


def not_a_rate(s: Scene) -> str:
    return s.refused("throttle", "--rate", "fast")


def not_a_time(s: Scene) -> str:
    return s.refused("wait", "--for", "stopped", "--timeout", "soon")


def not_taken_in_time(s: Scene) -> str:
    with s.catalog.claim("orders", "test", 5) as claim:
        claim.store.become(JobState.STARTING, "")
        claim.store.become(JobState.RUNNING, "")
        return s.ended("pause", "--wait", "--timeout", "1ms")


def no_barrier_in_time(s: Scene) -> str:
    class Runner:
        pid = 1

        def poll(self) -> None:
            """It lives, and is still starting."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backfill_cli.api.background.subprocess.Popen", lambda *_, **__: Runner())
        return s.ended("resume", "orders", "--detach", "--wait", "--timeout", "1ms")


def no_job_at_all(s: Scene) -> str:
    s.run("drop", "orders", "--confirm", "orders")
    s.sql(s.sink, "DROP TABLE orders")
    return s.refused("pause")


def no_job_here_but_above(s: Scene) -> str:
    (s.folder / "below").mkdir()
    os.chdir(s.folder / "below")
    return s.refused("pause")


def stopped_before_caught_up(s: Scene) -> str:
    return s.refused("wait", "--for", "caught-up")


def not_caught_up_in_time(s: Scene) -> str:
    with s.catalog.claim("orders", "test", 5) as claim:
        claim.store.become(JobState.STARTING, "")
        claim.store.become(JobState.RUNNING, "")
        return s.refused("wait", "--for", "caught-up", "--timeout", "1ms")


STATES: dict[str, tuple[Callable[[Scene], str], ...]] = {
    "backfill_cli/config/__init__.py:read": (no_config,),
    "backfill_cli/config/__init__.py:_checked": (faulty_config,),
    "backfill_cli/view/verify.py:show_verify": (differs, differs_while_converging),
    "commands/init.py:init": (config_is_there,),
    "backfill_cli/upstreams/files/inference/sample.py:folder": (init_of_a_name_that_is_a_pattern,),
    "backfill_cli/upstreams/files/inference/sample.py:opened": (init_of_a_broken_file,),
    "commands/drop.py:drop": (not_confirmed, not_confirmed_for_a_sink, not_confirmed_with_rows),
    "commands/throttle.py:rows_per_second": (not_a_rate,),
    "backfill_cli/api/posting.py:_waited": (not_taken_in_time,),
    "backfill_cli/api/background.py:start_detached": (no_barrier_in_time,),
    "commands/_options.py:config_file": (no_config_named,),
    "commands/_options.py:no_job": (no_job_at_all, no_job_here_but_above),
    "backfill_cli/api/waiting.py:look": (failed_before_caught_up, stopped_before_caught_up),
    "backfill_cli/api/waiting.py:within": (not_caught_up_in_time,),
}
