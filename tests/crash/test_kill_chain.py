"""`kill -9` of a chain job over a landing zone that somebody sweeps: nothing taken is lost or repeated."""

import json
import signal
from pathlib import Path

import pytest

from .test_kill import CHANGE_FILES, backfill, resume_to_the_end, upstream

POINTS = (
    "spool-taken",
    "spool-sealed",
    "after-prepare:2",
    "spool-known",
)


def chain(folder: Path) -> None:
    text = (folder / "job.toml").read_text().replace('name = "crash"', 'name = "crash"\nstrategy = "chain"')
    (folder / "job.toml").write_text(text.replace("rate = 8000", "rate = 150"))


def taken(folder: Path) -> str:
    """The name of the newest change file that is in the spool."""
    entries = [json.loads(path.read_text()) for path in folder.glob(".backfill/spool/crash/*/entry.json")]
    return max((str(cursor) for entry in entries for _, cursor in entry["window"]["up_to"]["cursors"]), default="")


def sweep(folder: Path, up_to: str) -> None:
    """Somebody removes the files that are in the spool."""
    for path in (folder / "changes").iterdir():
        if path.name <= up_to:
            path.unlink()


@pytest.mark.in_turn("files into DuckDB under kills")
def test_deaths_at_every_point_of_the_taking_and_a_landing_zone_that_is_swept(tmp_path: Path) -> None:
    expected = upstream(tmp_path)
    chain(tmp_path)
    later = tmp_path / "later"
    later.mkdir()
    for path in sorted((tmp_path / "changes").iterdir())[1:]:
        path.rename(later / path.name)
    for number, point in enumerate(POINTS):
        run = backfill(tmp_path, "start", "--config", "job.toml", "--until", "caught-up", failpoint=point)
        assert run.returncode == -signal.SIGKILL, f"{point}: {run.returncode} {run.stderr}"
        if number == len(POINTS) - 2:
            assert backfill(tmp_path, "throttle", "--rate", "none").returncode == 0
        sweep(tmp_path, taken(tmp_path))
        for path in sorted(later.iterdir())[:1]:
            path.rename(tmp_path / "changes" / path.name)
    for path in sorted(later.iterdir()):
        path.rename(tmp_path / "changes" / path.name)
    resume_to_the_end(tmp_path, expected)
    assert len(list((tmp_path / "changes").iterdir())) < CHANGE_FILES
    assert [path.name for path in (tmp_path / ".backfill/spool/crash").iterdir()] == ["owner.json"]


@pytest.mark.long
def test_a_spool_that_was_damaged_stops_the_job_and_a_lost_catalog_finds_the_spool_again(tmp_path: Path) -> None:
    expected = upstream(tmp_path)
    chain(tmp_path)
    run = backfill(tmp_path, "start", "--config", "job.toml", "--until", "caught-up", failpoint="commit-known:2")
    assert run.returncode == -signal.SIGKILL, run.stderr
    newest = taken(tmp_path)
    assert newest
    sweep(tmp_path, newest)
    (tmp_path / "catalog.duckdb").unlink()
    rest = backfill(tmp_path, "resume", "crash", "--from-sink", "job.toml", failpoint="after-prepare")
    assert rest.returncode == -signal.SIGKILL, rest.stderr
    file = next((tmp_path / ".backfill/spool/crash").glob("*/t/*.parquet"))
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    stopped = backfill(tmp_path, "resume", "crash")
    assert stopped.returncode == 1
    assert f"{file.name} has the wrong size; it holds the changes from" in stopped.stderr
    file.write_bytes(whole)
    assert backfill(tmp_path, "throttle", "--rate", "none").returncode == 0
    resume_to_the_end(tmp_path, expected)


pytestmark = pytest.mark.seconds
