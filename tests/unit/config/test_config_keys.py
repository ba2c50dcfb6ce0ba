"""A config that names no keys is read once the system that knows them answers."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from backfill_cli import config
from backfill_cli.commands.start import _patiently
from backfill_cli.config import load
from backfill_cli.errors import ConfigError, Transient

TOML = """
[job]
name = "orders"
[upstream]
type = "kafka"
bootstrap_servers = "127.0.0.1:1"
topic = "orders"
value = { encoding = "avro" }
key = { format = "avro" }
registry = { url = "http://127.0.0.1:1" }
[retry]
limit = "LIMIT"
[[tables]]
name = "orders"
[sink]
type = "duckdb"
path = "w.duckdb"
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The registry answers the third time."""
    times: list[str] = []

    def keys(_tree: Any, _upstream: Any, unkeyed: Sequence[str]) -> Mapping[str, Sequence[str]]:
        times.append("asked")
        if len(times) < 3:
            raise Transient("the schema registry does not answer", "start it")
        return {table: ["id"] for table in unkeyed}

    monkeypatch.setattr(config, "_primary_keys", keys)
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _s: None)
    return times


def file_of(folder: Path, limit: str) -> Path:
    path = folder / "job.toml"
    path.write_text(TOML.replace("LIMIT", limit))
    return path


def test_a_start_waits_for_the_system_that_knows_the_keys(
    asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = load(file_of(tmp_path, "1 h"), asking=_patiently)
    assert (job.table("orders").key, len(asked)) == (["id"], 3)
    said = "waiting: the schema registry does not answer; to continue: start it\n"
    assert capsys.readouterr().err == said


def test_a_start_waits_no_longer_than_a_run_does(asked: list[str], tmp_path: Path) -> None:
    with pytest.raises(Transient, match="does not answer"):
        load(file_of(tmp_path, "0 s"), asking=_patiently)
    assert len(asked) == 1


def test_a_command_that_runs_no_job_does_not_wait(asked: list[str], tmp_path: Path) -> None:
    with pytest.raises(Transient, match="does not answer"):
        load(file_of(tmp_path, "1 h"))
    assert len(asked) == 1


def test_a_table_that_a_sample_does_not_show_has_the_key_of_its_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(config, "_primary_keys", lambda *_: {"items": ["no", "line"]})
    path = file_of(tmp_path, "0 s")
    path.write_text(path.read_text() + '[[tables]]\nname = "items"\n')
    job = load(path, of_job=lambda name: {"orders": {"key": [name]}, "items": {"key": ["id"]}, "lines": {}})
    assert [one.key for one in job.tables] == [["orders"], ["no", "line"]]
    with pytest.raises(ConfigError, match=re.escape("tables[0].key: missing")):
        load(path)
