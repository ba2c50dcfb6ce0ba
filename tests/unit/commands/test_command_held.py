"""What commands say of a job whose upstream keeps log for it, while no runner sees to that."""

import json

import pytest
from command_builders import Run, end_job, fake_engine

from backfill_cli.catalog import Catalog
from backfill_cli.catalog.store import Store
from backfill_cli.model.checkpoint import Progress
from backfill_cli.model.job import JobState, Phase
from backfill_cli.model.upstream import HeldLog

pytestmark = pytest.mark.seconds

KEEPS = Progress(Phase.UPSTREAM, 20, 9, 9, 0, 0, {}, 0, 0, None, None, "nothing", held_bytes=5 << 20)


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

    fake_engine(monkeypatch, "job.held", told_by_upstreams=told)
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
