"""`set`: what may change acts without a stop; what may not is refused, and has changed nothing."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from half_done import CONFIG
from hint_scene import Scene, scene
from hint_typed import typed

from backfill_cli.catalog import Claim
from backfill_cli.config import JobConfig, load
from backfill_cli.contracts import Source
from backfill_cli.engine.job.change import setting
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.loop import run as engine_run
from backfill_cli.engine.loop.orchestrator import Tick
from backfill_cli.engine.loop.redefine import redefined
from backfill_cli.model.job import JobState, Verb
from backfill_cli.model.limit import Limit

__all__ = ["scene"]

pytestmark = pytest.mark.seconds

MORE = '[throttle]\nrate = 7\n[barrier]\ninterval = "2s"\n'
OTHER_KEY = CONFIG.replace('key = ["id"]', 'key = ["name"]')


@pytest.fixture
def s(scene: Callable[..., Scene]) -> Scene:
    return scene("set")


def edit(s: Scene, text: str) -> Path:
    (s.folder / "job.toml").write_text(text)
    return s.folder / "job.toml"


def test_without_a_runner_the_config_is_the_jobs_at_once_and_plan_names_the_command(s: Scene) -> None:
    edit(s, CONFIG + MORE)
    told = s.run("plan").stdout
    use = f"backfill set orders --config {s.folder}/job.toml"
    assert f"differs from the job's: throttle.rate, barrier.interval; for the job to use it: {use}" in told
    done = s.run(*use.split()[1:])
    assert done.exit_code == 0, done.stderr
    assert "job orders: set: throttle.rate, barrier.interval" in done.stderr
    row = s.catalog.job("orders")
    assert (row.control.rate, row.waiting) == (7.0, ())
    assert json.loads(s.catalog.definition("orders").config)["barrier"] == {"interval": "2s"}
    assert "differs" not in s.run("plan").stdout


def test_a_rate_of_a_table_is_the_configs_from_then_on_and_stays_what_was_typed_where_that_is_as_before(
    s: Scene,
) -> None:
    both = "throttle.rate, barrier.interval"
    for text, rates, named in (
        (CONFIG.replace("[[tables]]", "[[tables]]\nrate = 9"), {"orders": 9.0}, "tables.orders.rate"),
        (CONFIG.replace("[[tables]]", "[[tables]]\nrate = 9") + MORE, {"orders": 4.0}, both),
        (CONFIG + MORE, {}, "tables.orders.rate"),
    ):
        done = s.run("set", "orders", "--config", str(edit(s, text)))
        assert done.exit_code == 0, done.stderr
        assert f"job orders: set: {named}" in done.stderr
        assert ("; at most 9 rows/s" in s.run("plan").stdout) == bool(rates)
        assert s.catalog.job("orders").control.rates == rates
        if rates:
            assert s.run("throttle", "orders", "--table", "orders", "--rate", "4").exit_code == 0


def test_a_config_that_would_give_another_result_is_refused(s: Scene) -> None:
    edit(s, OTHER_KEY)
    assert "undo these changes" in s.refused("set", "orders", "--config", "job.toml")


def test_the_config_of_another_job_is_refused_and_the_hint_names_that_job(s: Scene) -> None:
    (s.folder / "other.toml").write_text(CONFIG.replace("orders", "fresh"))
    with typed(s.refused("set", "orders", "--config", "other.toml")) as hint:
        (words,) = hint.commands()
    assert words[:3] == ["set", "fresh", "--config"]


def test_a_job_whose_config_is_not_known_asks_for_it(s: Scene) -> None:
    s.sql(s.catalog.path, "UPDATE jobs SET config_file = NULL")
    with typed(s.refused("set", "orders")) as hint:
        named = hint.options()
        assert s.run("set", "orders", *(word for one in named.items() for word in one)).exit_code == 0


@contextmanager
def live(s: Scene) -> Iterator[Claim]:
    with s.catalog.claim("orders", "test", 5) as claim:
        for state in (JobState.STARTING, JobState.RUNNING):
            claim.store.become(state, "")
        yield claim


def test_with_a_runner_it_is_taken_by_its_barrier_and_the_next_run_is_named_for_what_needs_one(s: Scene) -> None:
    with live(s) as claim, Resources(s.config) as resources, ExitStack() as opened:
        edit(s, CONFIG.replace("600m", "700m") + MORE)
        done = s.run("set", "orders", "--config", "job.toml")
        assert "set: spark.conf" in done.stderr
        assert "takes effect at the next commit" in done.stderr
        assert 'driver.memory": as the next run begins: backfill stop orders' in done.stderr
        said: list[object] = []
        job, config, after = redefined(
            s.catalog.definition("orders"),
            s.config,
            resources,
            claim.store,
            s.catalog,
            opened,
            said.append,
            claim.token,
        )
        assert config.throttle.rate == 7.0
        assert job == s.catalog.definition("orders")
        assert after.opening is resources.opening
        assert s.catalog.job("orders").control.rate == 7.0
        assert [one.mutations for one in s.catalog.ledger("orders", 1)] == ["set"]
        assert claim.store.commands() == ()


def test_what_only_its_barrier_can_tell_is_refused_there_and_the_job_goes_on_as_it_was(s: Scene) -> None:
    with live(s) as claim, Resources(s.config) as resources, ExitStack() as opened:
        before = s.catalog.definition("orders")
        change = setting("orders", load(edit(s, CONFIG + MORE)), s.catalog)
        tree = json.loads(change.config)
        tree["tables"][0]["key"] = ["name"]
        change = replace(change, config=json.dumps(tree))
        posted = s.catalog.post("orders", Verb.SET, None, "ann", 5, payload=change.stored)
        said: list[object] = []
        job, config, _ = redefined(
            before, s.config, resources, claim.store, s.catalog, opened, said.append, claim.token
        )
        assert (job, config) == (before, s.config)
        assert s.catalog.definition("orders") == before
        assert str(said[0]).startswith("set, requested by ann, was refused: job 'orders' exists, and this config")
        refusal = s.catalog.refusal("orders", posted)
        assert isinstance(refusal, Limit)
        assert refusal.hint


@pytest.mark.parametrize(("again", "rate"), [("start", 9.0), ("resume", 7.0)])
def test_a_set_whose_runner_died_gives_way_to_the_config_of_a_later_start_and_a_resume_takes_it(
    s: Scene, monkeypatch: pytest.MonkeyPatch, again: str, rate: float
) -> None:
    with live(s):
        posted = s.run("set", "orders", "--config", str(edit(s, CONFIG + MORE)))
        assert posted.exit_code == 0, posted.stderr
    (waiting,) = s.catalog.job("orders").waiting
    edit(s, CONFIG + MORE.replace("7", "9"))

    def loop(*_: object) -> Tick:
        """As the first barrier does."""
        redefines = any(one.verb is Verb.SET for one in s.catalog.job("orders").waiting)
        return Tick.REDEFINED if redefines else Tick.DONE

    monkeypatch.setattr(engine_run, "run_loop", loop)
    done = s.run(again, *(("--config", "job.toml") if again == "start" else ("orders",)))
    assert done.exit_code == 0, done.output
    assert json.loads(s.catalog.definition("orders").config)["throttle"] == {"rate": rate}
    refusal = s.catalog.refusal("orders", waiting.id)
    assert (refusal is not None and refusal.text) == (again == "start" and "a later start took its place")


def test_the_rates_and_the_pause_of_a_start_that_was_killed_before_its_first_barrier_are_not_lost(
    s: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing differs from the stored config for the next start, which would go on at the rate of before."""
    s.run("throttle", "orders", "--rate", "3")
    edit(s, CONFIG.replace("[[tables]]", "[[tables]]\nrate = 4") + MORE)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(engine_run._Run, "_made_ready", killed)
        s.run("start", "--config", "job.toml", "--paused")
    assert json.loads(s.catalog.definition("orders").config)["throttle"] == {"rate": 7.0}

    waiting = list[tuple[Verb, float | None, str]]()

    def loop(*_: object) -> Tick:
        waiting.extend((one.verb, one.rate, one.table) for one in s.catalog.job("orders").waiting)
        return Tick.DONE

    monkeypatch.setattr(engine_run, "run_loop", loop)
    asked = [(Verb.PAUSE, None, ""), (Verb.THROTTLE, 7.0, ""), (Verb.THROTTLE, 4.0, "orders")]
    done = s.run("start", "--config", "job.toml")
    assert (done.exit_code, waiting) == (0, asked), done.output
    waiting.clear()
    done = s.run("resume", "orders")  # which ends the pause
    assert (done.exit_code, waiting) == (0, [*asked, (Verb.RESUME, None, "")]), done.output
    assert (
        s.run("throttle", "orders", "--table", "orders", "--rate", "4").exit_code == 0
    )  # no runner: all are applied
    control = s.catalog.job("orders").control
    assert (control.rate, control.rates, control.paused) == (7.0, {"orders": 4.0}, False)


def test_a_job_that_is_set_often_holds_the_connections_of_two_definitions_at_most(
    s: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: set[int] = set()
    most, left = [0], list(range(6))
    opens = JobConfig.open_upstream

    def opened(config: JobConfig) -> Source:
        upstream = opens(config)
        held.add(id(upstream))
        closes = upstream.close
        monkeypatch.setattr(upstream, "close", lambda: (held.discard(id(upstream)), closes()))
        return upstream

    def loop(*_: object) -> Tick:
        most[0] = max(most[0], len(held))
        if not left:
            return Tick.DONE
        text = CONFIG + MORE.replace("7", str(left.pop() + 8))
        change = setting("orders", load(edit(s, text)), s.catalog)
        if left and left[-1] % 2:  # refused
            tree = json.loads(change.config)
            tree["tables"][0]["key"] = ["name"]
            change = replace(change, config=json.dumps(tree))
        s.catalog.post("orders", Verb.SET, None, "ann", 5, payload=change.stored)
        return Tick.REDEFINED

    monkeypatch.setattr(JobConfig, "open_upstream", opened)
    monkeypatch.setattr(engine_run, "run_loop", loop)
    done = s.run("resume", "orders")
    assert done.exit_code == 0, done.output
    assert (most, held, left) == ([2], set(), [])
