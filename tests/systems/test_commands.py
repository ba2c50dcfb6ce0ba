"""The real commands against a real run: what a user types, sees and gets as exit code. Each test is one story."""

import json
import os
import shutil
import signal
from pathlib import Path

import duckdb
import pytest
from typed import Place

CAUGHT_UP = ("start", "--config", "job.toml", "--until", "caught-up")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_case_45_a_pause_outlives_its_runner_and_a_run_ends_where_it_was_told_last(place: Place) -> None:
    with place.began("start", "--config", "job.toml", "--paused") as runner:
        begun = place.until(lambda job: job.get("as_of_ms") is not None)
        assert (begun["state"], begun["rows_read"], begun["limited_by"]["kind"]) == ("paused", 0, "paused")
        assert place.typed("resume", "--wait").returncode == 0
        place.until(lambda job: job.get("rows_read", 0) > 0)
        paused = place.typed("pause", "--wait", "--json")
        assert (paused.returncode, json.loads(paused.stdout)["epoch"] > 0) == (0, True)
        runner.kill()
        runner.wait()
    assert place.job()["limited_by"]["kind"] == "no_runner"

    with place.began(*CAUGHT_UP) as runner:
        # The state alone is that of the runner before until the new one has taken the job.
        job = place.until(lambda job: "it stays paused" in job["reason"])
        assert (job["state"], job["until"], job["runner"]["alive"]) == ("paused", "caught-up", True)
        assert job["limited_by"]["kind"] == "paused"

        again = place.typed("start", "--config", "job.toml")
        assert again.returncode == 5
        assert f"pid {job['runner']['pid']}" in again.stderr

        went_on = place.typed("resume", "--wait")
        assert went_on.returncode == 0
        assert "resumed, at commit" in went_on.stderr
        place.until(lambda later: later["rows_read"] > job["rows_read"])
        throttled = place.typed("throttle", "--rate", "90", "--wait")
        assert "throttled to 90 rows/s, at commit" in throttled.stderr
        assert place.typed("wait", "--for", "caught-up", "--timeout", "300ms").returncode == 8

        assert place.typed("pause").returncode == 0
        place.state("paused")
        assert place.typed("stop").returncode == 0
        assert place.typed("wait", "--for", "caught-up").returncode == 9
        assert runner.wait(60) == 9
    assert "was stopped before it was caught up\nTry: backfill resume orders" in place.said
    assert place.job()["state"] == "stopped"

    before = place.job()["rows_read"]
    with place.began("resume") as runner:
        place.until(lambda later: later["rows_read"] > before)
        job = place.job()
        assert (job["state"], job["paused_by"], job["rate"]) == ("running", None, 90)
        runner.send_signal(signal.SIGTERM)
        assert runner.wait(60) == 128 + signal.SIGTERM
    assert place.job()["state"] == "stopped"
    a_lost_catalog_comes_back_from_the_sink(place)


def a_lost_catalog_comes_back_from_the_sink(place: Place) -> None:
    """The end of the story above: of a job that was stopped in its snapshot."""
    shutil.rmtree(place.folder / ".backfill")
    assert place.typed("resume", "orders").returncode == 4
    other = ('key = ["id"]', 'key = ["customer_id"]')
    place.configured(other, name="other.toml")
    assert place.typed("resume", "--from-sink", "other.toml").returncode == 2
    place.configured(("rate = 100", "rate = 100000"))
    ended = place.typed("resume", "--from-sink", "job.toml")
    assert ended.returncode == 0, ended.stderr
    assert place.job()["state"] == "done"
    assert place.job()["rows_read"] == 6_000
    equal = place.typed("verify")
    assert equal.returncode == 0, equal.stdout


def test_a_held_sink_is_waited_for_and_who_holds_it_is_told(place: Place) -> None:
    with place.sink_held() as holder:
        with place.began("start", "--config", "job.toml") as runner:
            place.until_said(f"(PID {holder})")
            runner.send_signal(signal.SIGINT)
            assert runner.wait(60) == 130
        assert place.job()["state"] == "none"

        with place.began("start", "--config", "job.toml") as runner:
            place.until_said(f"(PID {holder})")
            os.kill(holder, signal.SIGKILL)
            place.until(lambda job: job.get("rows_read", 0) > 0)

            with place.sink_held() as other:
                job = place.until(lambda job: job["limited_by"]["kind"] == "waiting")
                assert f"(PID {other})" in job["limited_by"]["text"]
                assert f"lsof {place.folder / 'warehouse.duckdb'}" in job["limited_by"]["hint"]["text"]
                epoch = job["epoch"]
            place.until(lambda job: job["epoch"] > epoch and job["limited_by"]["kind"] != "waiting")
            assert place.typed("stop", "--wait").returncode == 0
            assert runner.wait(60) == 0

    with place.sink_held() as holder, place.began("resume", "orders") as runner:
        job = place.until(lambda job: f"(PID {holder})" in job["limited_by"]["text"])
        assert job["state"] == "starting"
        runner.send_signal(signal.SIGTERM)
        assert runner.wait(60) == 143
        assert place.job()["state"] == "stopped"


@pytest.mark.long
def test_ctrl_c_while_the_sink_is_held_ends_soon_and_the_promised_epoch_is_kept(place: Place) -> None:
    place.own_java = True
    with place.began("start", "--config", "job.toml") as runner:
        place.until(lambda job: job.get("rows_read", 0) > 0)
        with place.sink_held():
            place.until(lambda job: job["limited_by"]["kind"] == "waiting")
            runner.send_signal(signal.SIGINT)
            assert runner.wait(60) == 130, place.said
    place.own_java = False
    assert "orders: stopping after the current commit" in place.said
    assert place.job()["state"] == "stopped"
    assert place.typed("throttle", "--rate", "none").returncode == 0
    ended = place.typed(*CAUGHT_UP)
    assert ended.returncode == 0, ended.stderr
    assert place.typed("verify").returncode == 0


def test_a_detached_run_and_the_cron_job_that_repeats_it(place: Place) -> None:
    (place.folder / "backfill_cli").mkdir()  # as in a checkout of the program: neither runner nor workers load it
    (place.folder / "backfill_cli/__init__.py").write_text("raise RuntimeError('not the installed package')")
    begun = place.typed(*CAUGHT_UP, "--detach", "--json")
    assert begun.returncode == 0, begun.stderr
    told = json.loads(begun.stdout)
    for again in (place.typed(*CAUGHT_UP), place.typed(*CAUGHT_UP, "--detach")):
        assert again.returncode == 5
        assert again.stdout == ""
        assert len(again.stderr.splitlines()) == 2
        assert f"pid {told['pid']}" in again.stderr
    assert place.typed("throttle", "--rate", "none").returncode == 0
    assert place.typed("wait", "--for", "done", "--timeout", "2m").returncode == 0
    with place.began("logs", "-f"):  # the job is let go of before the last lines are said
        place.until_said("rate: ")
    log = Path(told["log"]).read_text()
    said = [line.split(" orders: ", 1)[1] for line in log.splitlines() if " orders: " in line]
    assert said[:2] == ["starting Spark", "checking the job"]
    assert said[2].startswith("running, snapshot (copying); ")
    assert any(line.startswith("throttle to no limit by ") and " at commit " in line for line in said)
    assert [line.split(":")[0] for line in said[-5:]] == ["rows", "changes", "rejected", "time", "rate"]
    assert "6,000 read from the snapshot, " in said[-5]
    assert place.typed("logs", "--last", "5").stdout.splitlines() == log.splitlines()[-5:]
    assert "\x1b" not in log
    assert "is held" not in log
    after = place.typed_in(place.java(f"touch {place.folder}/java/ran; exit 1"), *CAUGHT_UP)
    assert (after.returncode, after.stdout) == (0, ""), after.stderr
    assert not (place.folder / "java/ran").exists(), "there was nothing new, for which no Java is needed"
    resumed = place.typed("resume", "--detach", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["log"] == told["log"]
    assert place.typed("wait", "--for", "done", "--timeout", "2m").returncode == 0


def test_people_query_the_new_table_once_every_gate_is_open(place: Place) -> None:
    place.configured(
        ('key = ["id"]', 'key = ["id"]\ntarget = "orders_v2"\nlive = "orders"'), ("rate = 100", "rate = 1e6")
    )
    with duckdb.connect(str(place.folder / "warehouse.duckdb")) as con:
        con.execute("CREATE TABLE orders AS SELECT 1 AS id")
    assert place.typed(*CAUGHT_UP).returncode == 0

    early = place.typed("cutover", "--json")
    assert early.returncode == 2
    closed = [gate for gate in json.loads(early.stdout)["gates"] if not gate["open"]]
    assert [(gate["name"], gate["fix"]["text"]) for gate in closed] == [("verified", "backfill verify orders")]
    assert place.typed("verify").returncode == 0
    looked = place.typed("cutover", "--dry-run")
    assert (looked.returncode, "every gate is open" in looked.stdout) == (0, True)

    done = place.typed("cutover")
    assert done.returncode == 0, done.stderr
    assert "can be reversed until" in done.stdout
    rows = "SELECT count(*) FROM orders"
    with duckdb.connect(str(place.folder / "warehouse.duckdb"), read_only=True) as con:
        assert con.sql(rows).fetchall() == con.sql("SELECT count(*) FROM orders_v2").fetchall() != [(1,)]
    assert place.typed("cutover").returncode == 0
    held = place.typed("drop", "orders", "--with-rows", "--confirm", "orders")
    assert (held.returncode, "--reverse" in held.stderr) == (2, True)

    assert place.typed("cutover", "--reverse").returncode == 0
    with duckdb.connect(str(place.folder / "warehouse.duckdb"), read_only=True) as con:
        assert con.sql(rows).fetchall() == [(1,)]
    assert place.typed("cutover", "--reverse").returncode == 2
