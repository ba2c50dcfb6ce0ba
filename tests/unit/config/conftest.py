"""Fixtures of the config's tests."""

from collections.abc import Callable
from pathlib import Path

import pytest
from config_builders import Load, config_text

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


@pytest.fixture
def written(load_text: Load, tmp_path: Path) -> Callable[..., str]:
    """What `init` writes for files with these texts, by their names."""

    def write(changes: bool = False, **files: str) -> str:
        for name, text in files.items():
            file = tmp_path / ("changes" if name.startswith("change") else "orders") / name.replace("__", ".")
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return config_text("orders", changes="changes" if changes else None)

    return write
