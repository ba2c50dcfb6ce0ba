"""What a killed start left is removed from the upstream that it used; errors say so, and how to continue."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig, load
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.job.starting import settle, settle_before
from backfill_cli.errors import BackfillError, ConfigError, Transient
from backfill_cli.model.begun import Begun
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import Pin

CONFIG = """
[job]
name = "j"
staging = "staging"
[upstream]
type = "postgres"
dsn = "{dsn}"
slot = "sl"
[[tables]]
name = "public.t"
key = ["id"]
[sink]
type = "duckdb"
path = "s.duckdb"
[retry]
limit = "1s"
"""
CLOSED = "postgresql://u@127.0.0.1:1/x"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], JobConfig]:
    monkeypatch.chdir(tmp_path)
    for name in ("OLD", "NEW"):
        monkeypatch.setenv(name, CLOSED)

    def made(name: str) -> JobConfig:
        (tmp_path / "job.toml").write_text(CONFIG.format(dsn=f"${{env:{name}}}"))
        return load(tmp_path / "job.toml")

    return made


def begun(config: JobConfig, folder: Path) -> Catalog:
    """A catalog that knows of a start that was killed, and of no job."""
    catalog = Catalog(folder / "c.duckdb")
    catalog.starts.begin(Begun("j", "m", config.stored(), Pin(Position(), None, None, ()), 1))
    return catalog


def refused(act: Callable[[], Any], kind: type[BackfillError]) -> BackfillError:
    with pytest.raises(kind) as caught:
        act()
    return caught.value


def test_a_start_whose_secret_is_gone_is_named_and_the_way_on_works(
    config: Callable[[str], JobConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = begun(config("OLD"), tmp_path)
    monkeypatch.delenv("OLD")
    error = refused(lambda: settle("j", catalog), ConfigError)
    assert error.message.startswith("a start of job 'j', begun 1970")
    assert "${env:OLD}: not set in the environment" in error.message
    assert "backfill drop j --without-upstream --confirm j" in error.hint


@pytest.mark.parametrize(("now", "waits"), [("OLD", True), ("NEW", False)])
def test_only_an_upstream_that_the_job_needs_is_waited_for(
    config: Callable[[str], JobConfig], tmp_path: Path, now: str, waits: bool
) -> None:
    catalog = begun(config("OLD"), tmp_path)
    told: list[str] = []
    with Resources(config(now), told.append) as resources:
        error = refused(lambda: settle_before(config(now), catalog, resources), Transient)
    assert (bool(told), "correct upstream.dsn" in error.hint) == (waits, waits)
    assert "to leave it there: backfill drop j --without-upstream --confirm j" in error.hint
    assert "did not complete" in error.message
