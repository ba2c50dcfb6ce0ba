"""Fixtures of the config's tests."""

from pathlib import Path

import pytest
from config_builders import Load

from backfill_cli.config import JobConfig, load


@pytest.fixture
def load_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load a config from its text, standing in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def load_it(text: str) -> JobConfig:
        file = tmp_path / "job.toml"
        file.write_text(text, encoding="utf-8")
        return load(file)

    return load_it
