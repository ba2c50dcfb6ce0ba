"""What a killed `verify` leaves is removed by the next one and by a runner; a running one's folder is kept."""

import subprocess
import sys
from pathlib import Path

import pytest

from backfill_cli.engine.staging.scratch import folder_of, sweep

HOLDS = """
import sys
from pathlib import Path
from backfill_cli.engine.staging.scratch import folder_of
with folder_of(Path(sys.argv[1])) as folder:
    (folder / "copy.duckdb").write_bytes(b"x" * 1000)
    print(folder, flush=True)
    input()
"""


def another(parent: Path) -> "tuple[subprocess.Popen[bytes], Path]":
    command = [sys.executable, "-c", HOLDS, str(parent)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().decode().strip())


def ended(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate()


@pytest.mark.parametrize("by", ["the next verify", "a runner"])
def test_a_killed_ones_copy_is_swept(tmp_path: Path, by: str) -> None:
    process, folder = another(tmp_path)
    ended(process)
    assert (folder / "copy.duckdb").exists()
    if by == "a runner":
        sweep(tmp_path)
    else:
        with folder_of(tmp_path) as ours:
            assert {path.name for path in tmp_path.iterdir()} == {ours.name, f"{ours.name}.lock"}
    assert list(tmp_path.iterdir()) == []


def test_a_living_ones_copy_is_left_alone(tmp_path: Path) -> None:
    process, folder = another(tmp_path)
    try:
        sweep(tmp_path)
        with folder_of(tmp_path):
            pass
        assert (folder / "copy.duckdb").exists()
    finally:
        ended(process)
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_an_older_version_is_swept_and_others_are_kept(tmp_path: Path) -> None:
    for name in ("verify-abc", "7-attempt", "notes"):
        (tmp_path / name).mkdir()
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["7-attempt", "notes"]


@pytest.mark.parametrize("there", ["", "a"])
def test_all_parents_that_were_made_for_the_folder_go_with_it(tmp_path: Path, there: str) -> None:
    (tmp_path / there).mkdir(exist_ok=True)
    with folder_of(tmp_path / "a" / "b" / "c") as folder:
        (folder / "x").write_text("x")
    assert [path.name for path in tmp_path.rglob("*")] == [there] * bool(there)


def test_a_parent_that_somebody_uses_meanwhile_stays(tmp_path: Path) -> None:
    with folder_of(tmp_path / "a" / "b"):
        (tmp_path / "a" / "of another job").mkdir()
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "of another job"]
