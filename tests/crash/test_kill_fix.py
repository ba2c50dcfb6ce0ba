"""`verify --fix` of the real command: the sink ends as the upstream, also when it dies on the way.

What the sink must hold is a dict that the upstream was made from; nothing of ours reads it.
"""

import json
import shlex
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

from backfill_cli.catalog import Catalog
from backfill_cli.model.refill import RefillState

from .test_kill import CHANGE_FILES, CONFIG, FILES, ROWS, backfill, began, held, resume_to_the_end, upstream

WRONG, MISSING, STRANGERS, TWICE = (5, 77, 4_000), (6, 3_001), (-8, 900_000), 9
FIX_POINTS = (
    "fix-prepared",
    "recovery-before-commit",
    "sink-before-commit",
    "sink-before-close",
    "recovery-committed",
    "recovery-done",
)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, int]]:
    """A job that is done, and what its table must hold."""
    folder = tmp_path_factory.mktemp("fix")
    expected = upstream(folder)
    (folder / "job.toml").write_text(CONFIG.replace("rate = 8000", "rate = 1000000"))
    ended = backfill(folder, "start", "--config", "job.toml", "--until", "caught-up")
    assert ended.returncode == 0, ended.stderr
    assert held(folder) == expected
    (folder / "kept").mkdir()
    for name in ("sink.duckdb", "catalog.duckdb"):
        shutil.copy(folder / name, folder / "kept" / name)
    return folder, expected


@pytest.fixture
def job(done: tuple[Path, dict[int, int]]) -> tuple[Path, dict[int, int]]:
    """The same, sink and catalog as they were then."""
    folder, _ = done
    for name in ("sink.duckdb", "catalog.duckdb"):
        shutil.copy(folder / "kept" / name, folder / name)
        (folder / f"{name}.wal").unlink(missing_ok=True)
    return done


def damaged(folder: Path, expected: dict[int, int]) -> None:
    """Others wrote in the table: values that are wrong, rows gone, rows of theirs, a row twice."""
    keys = sorted(expected)
    wrong, missing = [keys[at] for at in WRONG], [keys[at] for at in MISSING]
    with duckdb.connect(str(folder / "sink.duckdb")) as db:
        db.execute(f"UPDATE t SET v = v + 1 WHERE id IN {tuple(wrong)}")
        db.execute(f"DELETE FROM t WHERE id IN {tuple(missing)}")
        db.execute(f"INSERT INTO t VALUES ({STRANGERS[0]}, 1), ({STRANGERS[1]}, NULL)")
        db.execute(f"INSERT INTO t SELECT * FROM t WHERE id = {keys[TWICE]}")


def verified(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    done = backfill(folder, "verify", "crash", "--json", *words)
    assert done.stdout, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, told


def killed(folder: Path, failpoint: str) -> None:
    died = backfill(folder, "verify", "crash", "--fix", "--confirm", "crash", failpoint=failpoint)
    assert died.returncode == -signal.SIGKILL, f"{failpoint}: {died.stderr}"


def rows(folder: Path) -> list[tuple[int, int]]:
    with duckdb.connect(str(folder / "sink.duckdb"), read_only=True) as db:
        return db.execute("FROM t ORDER BY ALL").fetchall()


def everything(folder: Path) -> object:
    with duckdb.connect(str(folder / "sink.duckdb"), read_only=True) as db:
        return rows(folder), db.execute("FROM _backfill_markers").fetchall()


def test_what_others_wrote_is_counted_shown_and_put_right(job: tuple[Path, dict[int, int]]) -> None:
    folder, expected = job
    damaged(folder, expected)
    before = everything(folder)
    dry = backfill(folder, "verify", "crash", "--fix")
    assert dry.returncode == 3
    assert "nothing was changed" in dry.stdout
    assert "table t would be fixed: 2 missing inserted, 3 changed replaced, 3 extra removed" in dry.stdout
    assert everything(folder) == before

    hint = dry.stderr.split("Try: ", 1)[1].strip()
    fixed = backfill(folder, *shlex.split(hint)[1:])
    assert fixed.returncode == 0, fixed.stderr
    assert "table t is about to be fixed: 2 missing" in fixed.stderr
    assert "upstream and sink are equal" in fixed.stdout
    assert held(folder) == expected

    history = json.loads(backfill(folder, "history", "crash", "--json").stdout)["epochs"]
    assert history[-1]["mutations"] == "verify --fix"
    code, told = verified(folder, "--fix")
    assert (code, told["equal"], told["fix"]["tables"]) == (0, True, [])
    assert told["tables"][0]["rows_upstream"] == len(expected)


def test_a_fix_that_is_killed_is_whole_or_undone_and_a_resume_ends_it(job: tuple[Path, dict[int, int]]) -> None:
    folder, expected = job
    damaged(folder, expected)
    before = rows(folder)
    killed(folder, "fix-staged")
    assert rows(folder) == before
    killed(folder, "fix-prepared")
    assert rows(folder) == before
    told = json.loads(backfill(folder, "history", "crash", "--json").stdout)["verified"]
    assert told["equal"] is False, "it was found to differ before it was to be fixed"
    resume_to_the_end(folder, expected)
    with duckdb.connect(str(folder / "sink.duckdb")) as db:  # as after a kill right after `renew`
        db.execute("DELETE FROM by_digit WHERE digit < 5")
        db.execute("UPDATE _backfill_markers SET epoch = 0, attempt = 'anew' WHERE \"table\" = 'by_digit'")
    code, found = verified(folder)
    assert (code, [one["table"] for one in found["tables"] if not one["equal"]]) == (3, ["by_digit"])
    resume_to_the_end(folder, expected)  # though nothing is left to follow


@pytest.mark.long
@pytest.mark.parametrize("failpoint", FIX_POINTS)
def test_a_fix_killed_at_any_point_is_finished_by_a_resume(
    job: tuple[Path, dict[int, int]], failpoint: str
) -> None:
    folder, expected = job
    damaged(folder, expected)
    killed(folder, failpoint)
    resume_to_the_end(folder, expected)


def test_a_sample_finds_what_is_in_it_and_says_that_it_is_one(job: tuple[Path, dict[int, int]]) -> None:
    folder, expected = job
    code, told = verified(folder, "--sample", "0.1")
    assert (code, told["sample"]) == (0, 0.1)
    compared = told["tables"][0]["rows_upstream"]
    assert told["tables"][0]["rows_sink"] == compared
    assert 0.07 < compared / len(expected) < 0.13

    with duckdb.connect(str(folder / "sink.duckdb")) as db:
        db.execute("UPDATE t SET v = v + 1")
    differs = backfill(folder, "verify", "crash", "--sample", "10%")
    assert differs.returncode == 3
    assert "differ in a sample of 10% of the keys" in differs.stdout
    assert f"{compared:,} changed" in differs.stdout


def test_a_fix_is_refused_where_it_would_not_be_right(job: tuple[Path, dict[int, int]]) -> None:
    folder, expected = job
    damaged(folder, expected)
    before = everything(folder)
    for words, code, said in (
        (("--fix", "--sample", "1%"), 2, "--fix and --sample cannot be used together"),
        (("--fix", "--independent"), 2, "--fix and --independent cannot be used together"),
        (("--fix", "--confirm", "crush"), 2, "--confirm names 'crush'"),
        (("--confirm", "crash"), 2, "--confirm works only with --fix"),
        (
            ("--table", "tt"),
            2,
            "job 'crash': table 'tt' does not exist; did you mean t?\nTry: backfill verify crash --table t",
        ),
        (("--sample", "0%"), 2, "more than 0% and at most 100%"),
        (("--sample", "101%"), 2, "more than 0% and at most 100%"),
        (("--sample", "5"), 2, 'write "5%"'),
    ):
        refused = backfill(folder, "verify", "crash", *words)
        assert (refused.returncode, refused.stdout) == (code, ""), refused.stderr
        assert said in refused.stderr
        assert everything(folder) == before


@pytest.mark.long
def test_a_fix_leaves_a_job_with_a_runner_alone_and_names_the_way_on(job: tuple[Path, dict[int, int]]) -> None:
    folder, expected = job
    with began(folder, "start", "--config", "job.toml") as runner:
        deadline = time.monotonic() + 60
        while (row := Catalog(folder / "catalog.duckdb").job("crash")).state != "running" or not row.live:
            assert time.monotonic() < deadline, row
            time.sleep(0.1)
        with duckdb.connect(str(folder / "sink.duckdb")) as db:
            db.execute("DELETE FROM t WHERE id = (SELECT min(id) FROM t)")
        refused = backfill(folder, "verify", "crash", "--fix", "--confirm", "crash")
        assert refused.returncode == 5
        hint = refused.stderr.split("Try: ", 1)[1].strip()
        assert len(held(folder)) == len(expected) - 1
        stop, see, _ = (shlex.split(one)[1:] for one in hint.split("; "))
        assert see == ["verify", "crash", "--fix"]
        assert backfill(folder, *stop).returncode == 0
        runner.wait(60)
        assert backfill(folder, *see, "--confirm", "crash").returncode == 0
        assert held(folder) == expected


def test_a_job_in_its_snapshot_is_not_fixed(tmp_path: Path) -> None:
    upstream(tmp_path)
    (tmp_path / "job.toml").write_text(CONFIG.replace("rate = 8000", "rate = 60"))
    died = backfill(tmp_path, "start", "--config", "job.toml", "--until", "caught-up", failpoint="commit-known")
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert 0 < len(held(tmp_path)) < FILES * ROWS
    refused = backfill(tmp_path, "verify", "crash", "--fix", "--confirm", "crash")
    assert refused.returncode == 2
    assert "its snapshot is still being read" in refused.stderr


def test_history_that_is_gone_is_named_and_nobody_is_told_to_start_over(job: tuple[Path, dict[int, int]]) -> None:
    folder, _ = job
    away = (folder / "changes" / "0002.parquet").rename(folder / "away")
    done = backfill(folder, "verify", "crash")
    away.rename(folder / "changes" / "0002.parquet")
    assert done.returncode == 7
    assert "1 of the 6 change files" in done.stderr
    assert "may still be right" in done.stderr
    assert "drop" not in done.stderr


@pytest.mark.long
def test_a_chain_whose_spool_is_drained_is_fixed_and_goes_on(tmp_path: Path) -> None:
    expected = upstream(tmp_path)
    text = CONFIG.replace("rate = 8000", "rate = 1000000")
    (tmp_path / "job.toml").write_text(text.replace('name = "crash"', 'name = "crash"\nstrategy = "chain"'))
    later = tmp_path / "later.parquet"
    (tmp_path / "changes" / f"{CHANGE_FILES:04d}.parquet").rename(later)
    assert backfill(tmp_path, "start", "--config", "job.toml", "--until", "caught-up").returncode == 0
    before = held(tmp_path)
    damaged(tmp_path, before)
    code, told = verified(tmp_path, "--fix", "--confirm", "crash")
    assert (code, told["equal"], held(tmp_path)) == (0, True, before)
    later.rename(tmp_path / "changes" / f"{CHANGE_FILES:04d}.parquet")
    resume_to_the_end(tmp_path, expected)


@pytest.mark.in_turn("files into DuckDB under kills")
def test_a_refill_whose_runner_dies_on_the_way_is_done_by_the_next(job: tuple[Path, dict[int, int]]) -> None:
    """A run until the job is caught up lasts until the refill is done."""
    folder, expected = job
    damaged(folder, expected)
    assert backfill(folder, "refill", "crash").returncode == 0
    for point in ("refill-staged", "sink-before-close"):  # others: schedules of tests/simulation/test_joined.py
        died = backfill(folder, "resume", "crash", failpoint=point)
        assert died.returncode == -signal.SIGKILL, f"{point}: {died.stderr}"
    ended = backfill(folder, "resume", "crash")
    assert ended.returncode == 0, ended.stderr
    assert rows(folder) == sorted(expected.items())
    (found,) = Catalog(folder / "catalog.duckdb").job("crash").refills
    assert (found.state, found.inserted, found.replaced, found.removed) == (RefillState.DONE, 2, 4, 2)
    assert not list(folder.rglob("refill-*"))
