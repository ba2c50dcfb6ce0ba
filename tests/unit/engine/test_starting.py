"""What a killed start left is removed from the upstream that it used; errors say so, and how to continue."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hint_typed import typed

from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig, load
from backfill_cli.contracts import Extras
from backfill_cli.engine.job.held import holding, recover_start_before, settle
from backfill_cli.engine.job.resources import Resources
from backfill_cli.errors import BackfillError, ConfigError, Transient
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import PendingStart, Pin

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
    catalog.starts.begin(PendingStart("j", "m", config.stored(), Pin(Position(), None, None, ()), 1))
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
    assert "backfill drop j --without-upstream --confirm j" in str(error.hint)


@pytest.mark.parametrize(("now", "waits"), [("OLD", True), ("NEW", False)])
def test_only_an_upstream_that_the_job_needs_is_waited_for(
    config: Callable[[str], JobConfig], tmp_path: Path, now: str, waits: bool
) -> None:
    catalog = begun(config("OLD"), tmp_path)
    told: list[str] = []
    with Resources(config(now), told.append) as resources:
        error = refused(lambda: recover_start_before(config(now), catalog, resources), Transient)
    assert (bool(told), "correct upstream.dsn" in str(error.hint)) == (waits, waits)
    assert "to leave it there: backfill drop j --without-upstream --confirm j" in str(error.hint)
    assert "did not complete" in error.message


class Altered:
    """An upstream that a job holds, whose table gets a column meanwhile: between its two pins. Nothing else is."""

    def __init__(self, *schemas: str) -> None:
        self._schemas = iter(schemas)
        self.swept: list[str] = []
        self.lease, self.extras = self, Extras()

    def pin(self) -> Pin:
        return Pin(Position(), None, None, (), schema={"t": next(self._schemas)})

    def create(self, mark: str) -> None: ...

    def clean_up(self, mark: str, _pin: Pin) -> None:
        self.swept.append(mark)

    def adopt(self, mark: str, _pin: Pin) -> None: ...


def test_a_table_that_is_altered_while_its_job_is_created_is_taken_as_it_is_then_by_another_start(
    config: Callable[[str], JobConfig], tmp_path: Path
) -> None:
    catalog = Catalog(tmp_path / "c.duckdb")

    def started(*schemas: str) -> Pin:
        upstream: Any = Altered(*schemas)
        resources: Any = SimpleNamespace(with_retries=lambda act: act(), upstream=upstream)
        try:
            with holding(config("OLD"), catalog, upstream, upstream.pin(), resources) as held:
                return held
        finally:
            assert len(upstream.swept) == 1
            assert catalog.starts.of("j") is None

    error = refused(lambda: started("a", "a, b"), Transient)
    with typed(error) as hint:
        hint.says("start it again")
        assert started("a, b", "a, b").schema == {"t": "a, b"}
