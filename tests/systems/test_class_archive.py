"""The class archive with a real Java: made, mapped, and harmless when it is broken."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backfill_cli.spark import class_data
from backfill_cli.spark.java import find_java

# Says whether the driver mapped an archive of ours: its path then stands in the process's memory map.
SESSION = """
from pathlib import Path
import psutil
from backfill_cli.spark.session import open_session

spark = open_session("local[1]", {"spark.driver.memory": "1g"})
assert spark.range(3).count() == 3
maps = [one.path for child in psutil.Process().children() for one in child.memory_maps()]
print("mapped" if any(path.endswith(".jsa") and "/backfill/" in path for path in maps) else "not mapped")
"""


def session(cache: Path) -> str:
    env = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run([sys.executable, "-c", SESSION], env=env, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def place(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    file = class_data.archive_file(find_java(os.environ), {})
    assert file is not None
    return file


@pytest.mark.long
def test_an_archive_is_made_and_then_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = place(tmp_path, monkeypatch)

    subprocess.run([sys.executable, "-m", "backfill_cli.spark.class_data_maker"], check=True, timeout=600)

    assert file.stat().st_size > 10_000_000
    assert {one.name for one in file.parent.iterdir()} == {file.name, f"{file.name}.lock"}
    assert session(tmp_path) == "mapped"


def test_a_broken_archive_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = place(tmp_path, monkeypatch)
    file.parent.mkdir()
    file.write_bytes(b"not an archive" * 1000)

    assert session(tmp_path) == "not mapped"
