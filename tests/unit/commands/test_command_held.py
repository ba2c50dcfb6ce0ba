"""What commands say of a job whose upstream keeps log for it, while no runner sees to that."""

import json
import tomllib

import pytest
from command_builders import CONFIG, Run, end_job, fake_engine

from backfill_cli.catalog import Catalog
from backfill_cli.catalog.store import Store
from backfill_cli.errors import Transient
from backfill_cli.model.checkpoint import Progress
from backfill_cli.model.job import JobState, Phase
from backfill_cli.model.limit import Limit
from backfill_cli.model.upstream import HeldLog

pytestmark = pytest.mark.seconds

KEEPS = Progress(Phase.UPSTREAM, 20, 9, 9, 0, 0, {}, 0, 0, None, None, Limit("nothing"), held_bytes=5 << 20)


@pytest.fixture
def done(catalog: Catalog) -> Catalog:
    """The job `orders` is done, and its upstream keeps log for the next run."""
    end_job(catalog, "orders", JobState.DONE, "caught up", KEEPS)
    return catalog


def limited(catalog: Catalog, limit: str | None) -> None:
    with Store(catalog.path).writing() as db:
        config = json.dumps({"upstream": {"type": "postgres", "max_retained": limit}})
        db.execute("UPDATE jobs SET config = ?", [config])


@pytest.mark.parametrize(("limit", "said"), [("10GB", True), (None, False)])
def test_a_command_without_a_runner_says_that_nobody_keeps_the_limit(
    run: Run, done: Catalog, limit: str | None, said: bool
) -> None:
    limited(done, limit)
    told = run("pause").stderr
    assert "the upstream keeps 5.0 MB of its log for this job" in told
    assert ("upstream.max_retained; to check: backfill status orders --check" in told) == said


def test_a_health_check_asks_the_upstream_of_a_job_that_no_runner_has(
    run: Run, done: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def told(names: list[str], where: Catalog) -> dict[str, HeldLog]:
        asked.append(names)
        return {"orders": HeldLog(2 << 30, 1 << 30)}

    fake_engine(monkeypatch, "job.held", held_logs=told)
    ill = run("status", "--check")
    assert (ill.exit_code, asked) == (1, [["orders"]])
    assert "keeps 2.0 GB of its log for this job, more than upstream.max_retained (1.0 GB) allows" in ill.stdout
    assert "backfill resume orders" in ill.stdout
    there = run("status", "--check", "--catalog", str(done.path)).stdout
    assert there.endswith(f"backfill resume orders --catalog {done.path}\n")
    asked.pop()
    run("status")
    assert asked == [["orders"]]
    with done.claim("orders", "test", 5):
        run("status", "--check")
    assert asked == [["orders"]]


def test_a_health_check_without_the_variables_of_the_config_is_not_healthy(
    run: Run, done: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOP_DSN", raising=False)
    config = tomllib.loads(CONFIG)
    config["upstream"] = {"type": "postgres", "dsn": "${env:SHOP_DSN}", "slot": "shop", "max_retained": "10GB"}
    with Store(done.path).writing() as db:
        db.execute("UPDATE jobs SET config = ?", [json.dumps(config)])
    ill = run("status", "--check")
    assert ill.exit_code == 1
    assert "orders: NOT healthy: done; its upstream could not be asked how much log it keeps: " in ill.stdout
    assert "${env:SHOP_DSN}: not set in the environment" in ill.stdout
    assert ill.stdout.endswith("; set here, too, what the config refers to\n")


def test_a_health_check_whose_upstream_does_not_answer_is_healthy_only_without_a_limit(
    run: Run, done: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = {"orders": Transient("no answer within 5 s", "check the network")}
    fake_engine(monkeypatch, "job.held", held_logs=lambda names, where: silent)
    limited(done, None)
    assert run("status", "--check").exit_code == 0
    limited(done, "10GB")
    ill = run("status", "--check")
    assert ill.exit_code == 1, ill.output
    with Store(done.path).writing() as db:  # a snapshot and its changes from two systems
        db.execute("UPDATE jobs SET config = ?", [json.dumps({"upstream": {"changes": {"max_retained": "10GB"}}})])
    assert run("status", "--check").exit_code == 1
