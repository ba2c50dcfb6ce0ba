"""start, plan, verify and drop: what they hand to the engine and what they print."""

import json
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_builders import Run, end_job, fake_engine, make_job, write_config

from backfill_cli.catalog import Catalog
from backfill_cli.errors import command
from backfill_cli.model.job import JobState
from backfill_cli.model.limit import Kind, Limit
from backfill_cli.model.reports import PlanReport, Refusal
from backfill_cli.model.verify import TableVerdict, VerifyReport


def test_start_hands_the_config_to_the_engine_and_tells_the_end(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def start(config: Any, catalog: Catalog, until: str, into_existing: bool, watcher: Any, *_: Any) -> JobState:
        asked.append((config.job.name, until, into_existing))
        make_job(catalog)
        end_job(catalog, "orders", JobState.DONE, "caught up")
        return JobState.DONE

    fake_engine(monkeypatch, "loop.run", start=start)
    result = run("start", "--config", write_config(folder), "--until", "caught-up", "--into-existing", "--json")
    assert result.exit_code == 0
    assert asked == [("orders", "caught-up", True)]
    assert json.loads(result.stdout)["jobs"][0]["state"] == "done"


def test_start_off_a_terminal_tells_plain_lines_of_what_it_does_and_how_far_it_is(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(config: Any, catalog: Catalog, until: str, into_existing: bool, watcher: Any, *_: Any) -> JobState:
        watcher.tell("starting Spark")
        watcher.tell("starting Spark")
        watcher.tell(Limit("it is held", Kind.WAITING))
        make_job(catalog)
        end_job(catalog, "orders", JobState.DONE)
        watcher.progressed()
        return JobState.RUNNING

    fake_engine(monkeypatch, "loop.run", start=start)
    result = run("start", "--config", write_config(folder))
    assert "\x1b" not in result.output
    stamps, lines = zip(*(line.split("Z ", 1) for line in result.stderr.splitlines()), strict=True)
    assert [datetime.fromisoformat(stamp) for stamp in stamps] == sorted(map(datetime.fromisoformat, stamps))
    assert lines[:2] == ("orders: starting Spark", "orders: waiting: it is held")
    assert lines[2].startswith("orders: done, snapshot (copying); ")
    assert (folder / ".backfill/logs/orders.log").read_text() == result.stderr


def test_a_start_whose_metrics_have_no_place_leaves_nothing_behind(run: Run, folder: Path) -> None:
    config = write_config(folder)
    before = set(folder.rglob("*"))
    assert run("start", "--config", config, "--metrics-port", "http").exit_code == 2
    assert set(folder.rglob("*")) == before


def test_plan_and_verify_print_what_the_engine_found(
    run: Run, catalog: Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine(
        monkeypatch,
        "job.checks",
        plan=lambda config, *_: PlanReport(config.job.name, "snapshot", "x", (), "0"),
    )
    verdict = VerifyReport("orders", 5, (TableVerdict("orders", "orders", True, 1, 1),), 1.0)
    fake_engine(monkeypatch, "verify.job", verify=lambda *_: verdict)
    assert run("plan", "--config", write_config(folder)).stdout.startswith("job         orders\n")
    assert json.loads(run("verify", "--json").stdout)["equal"] is True


def test_a_plan_that_start_would_refuse_ends_with_2_and_names_the_catalog_that_was_typed(
    run: Run, catalog: Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = Refusal("t has rows", command("start --config job.toml --into-existing"))
    report = PlanReport("orders", "snapshot", "x", (), "LSN 0/1", pending_epochs=None, refused=(refusal,))
    fake_engine(monkeypatch, "job.checks", plan=lambda *_: report)
    file = write_config(folder)
    ended = run("plan", "--config", file, "--catalog", "c.duckdb")
    assert ended.exit_code == 2
    assert f"start would refuse: {str(refusal).replace('job.toml', file)} --catalog c.duckdb" in ended.stdout
    assert "change log  from LSN 0/1\n" in ended.stdout


def test_drop_wants_the_name_twice(run: Run, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[str] = []
    left = "SELECT pg_drop_replication_slot('orders')"

    def forget(
        job: str, where: Catalog, without_sink: bool, with_rows: bool, without_upstream: bool
    ) -> SimpleNamespace:
        dropped.append(job + " without its sink" * without_sink)
        told = {"left": (left,) * without_upstream, "why": "it was not asked"}
        return SimpleNamespace(known=True, tables=("orders", "lines"), gone=with_rows, others=(), live=(), **told)

    fake_engine(monkeypatch, "job.drop", drop=forget, live_names=lambda job, where: ())
    assert run("drop", "orders").exit_code == 2
    assert dropped == []
    done = run("drop", "orders", "--without-upstream", "--confirm", "orders")
    assert done.exit_code == 0
    assert "dropped; the rows in the sink are kept, in orders, lines; to fill them again: " in done.stderr
    assert f"it was not asked. To remove it, run there:\n  {left}" in done.stderr
    assert dropped == ["orders"]
    asked = run("drop", "orders", "--with-rows")
    assert (asked.exit_code, dropped) == (2, ["orders"])
    assert "all rows of its tables" in asked.stderr
    gone = run("drop", "orders", "--with-rows", "--confirm", "orders")
    assert "dropped; its tables and their rows are gone: orders, lines" in gone.stderr
    assert run("drop", "orders", "--with-rows", "--without-sink", "--confirm", "orders").exit_code == 2
