"""A DuckDB file that another process holds: one of ours is named by what it does."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
from hint_typed import typed

from backfill_cli.errors import Transient
from backfill_cli.sinks.duckdb.file import Limits, opened, writer_of

HOLD = "import duckdb, sys; held = duckdb.connect(sys.argv[1], read_only=True); print('held', flush=True); input()"


@contextmanager
def held_by(path: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process, which reads the file. words: what its command ends with."""
    command = [sys.executable, "-c", HOLD, str(path), *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.communicate(b"\n")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "sink.duckdb"
    duckdb.connect(str(made)).close()
    return made


def test_a_verify_that_holds_the_file_is_named_with_its_process(path: Path) -> None:
    with held_by(path, "/opt/bin/backfill", "--no-color", "verify", "orders") as verify:
        named = rf"is held by backfill verify \(pid {verify.pid}\)"
        with pytest.raises(Transient, match=named) as told, opened(path, Limits()):
            pass
        with typed(told.value) as hint:
            hint.run_in_shell("kill")
            verify.wait()  # its name goes before its lock
            with opened(path, Limits()):
                pass
    assert writer_of(path) is None
    with opened(path, Limits()):
        assert writer_of(path) is None  # we ourselves


def test_another_program_that_holds_the_file_is_named_as_duckdb_names_it(path: Path) -> None:
    with (
        held_by(path, "nightly") as other,
        pytest.raises(Transient, match=f"PID {other.pid}") as told,
        opened(path, Limits()),
    ):
        pass
    assert "lsof" in str(told.value.hint)
