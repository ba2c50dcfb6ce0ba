"""The catalog's file is private: its folder, its log, and what may not stand in its place."""

import errno
import os
from pathlib import Path

import duckdb
import pytest
from catalog_builders import Clock, end, leave_log_behind, mode, said, start_python, with_job
from hint_typed import typed

from backfill_cli.catalog import Catalog, store
from backfill_cli.errors import BackfillError, Transient, UsageError


def test_the_missing_folder_is_made_for_its_owner_alone(tmp_path: Path, clock: Clock) -> None:
    with_job(tmp_path / "a" / "b" / "catalog.duckdb", clock)
    assert mode(tmp_path / "a") == 0o700
    assert mode(tmp_path / "a" / "b") == 0o700


def test_every_file_is_private_whatever_the_umask(tmp_path: Path, clock: Clock) -> None:
    before = os.umask(0)
    try:
        catalog = with_job(tmp_path / "catalog.duckdb", clock)
        with catalog.claim("orders", "me", clock()):
            pass
    finally:
        os.umask(before)
    assert {file.name: mode(file) for file in tmp_path.iterdir() if mode(file) != 0o600} == {}


def test_a_log_that_a_crash_left_is_made_private(catalog: Catalog, path: Path) -> None:
    leave_log_behind(path)
    Path(f"{path}.wal").chmod(0o644)
    holder = start_python(
        "import sys; from pathlib import Path; from backfill_cli.catalog.store import Store\n"
        "with Store(Path(sys.argv[1])).reading(): print('open', flush=True); sys.stdin.readline()",
        path,
    )
    assert said(holder) == "open"
    assert mode(Path(f"{path}.wal")) == 0o600
    end(holder)


def test_a_symbolic_link_is_refused(catalog: Catalog, path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.duckdb"
    link.symlink_to(path)
    with pytest.raises(UsageError, match="symbolic link") as refused:
        Catalog(link).jobs()
    with typed(refused.value) as hint:
        assert Catalog(Path(hint.options()["--catalog"])).jobs() == catalog.jobs()


def test_a_link_to_nowhere_is_refused_and_not_followed(tmp_path: Path, clock: Clock) -> None:
    link = tmp_path / "link.duckdb"
    link.symlink_to(tmp_path / "elsewhere.duckdb")
    with pytest.raises(UsageError, match="symbolic link"):
        with_job(link, clock)
    assert not (tmp_path / "elsewhere.duckdb").exists()


def test_a_file_that_everybody_can_write_is_refused(catalog: Catalog, path: Path) -> None:
    path.chmod(0o666)
    with pytest.raises(UsageError, match="writable by everybody") as refused:
        catalog.jobs()
    with typed(refused.value) as hint:
        hint.run_in_shell("chmod")
        assert len(catalog.jobs()) == 1


def test_a_folder_that_everybody_can_write_is_refused(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(UsageError, match="everybody can replace") as refused:
        with_job(tmp_path / "open" / "catalog.duckdb", clock)
    assert list((tmp_path / "open").iterdir()) == []
    with typed(refused.value) as hint:
        hint.run_in_shell("chmod")
        with_job(tmp_path / "open" / "catalog.duckdb", clock)


def test_a_catalog_that_is_no_file_is_refused(tmp_path: Path, clock: Clock) -> None:
    with pytest.raises(UsageError, match="is not a file") as refused:
        Catalog(tmp_path).jobs()
    with typed(refused.value) as hint:
        hint.says("name a file with --catalog")
        with_job(tmp_path / "catalog.duckdb", clock)


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), Transient, "free disk space in"),
        (OSError(errno.EIO, "Input/output error"), Transient, "check the disk"),
        (OSError(errno.EROFS, "Read-only file system"), UsageError, "name another file with --catalog"),
        (duckdb.IOException("Could not set lock on file: Conflicting lock is held in X"), Transient, "close that"),
        (
            duckdb.IOException("Trying to read a database file with version number 999, but we can only read 64"),
            UsageError,
            "pip install --upgrade duckdb",
        ),
        (duckdb.IOException("Cannot open file: is not a valid DuckDB database file!"), UsageError, "another file"),
    ],
    ids=["full", "disk", "read-only", "held", "newer", "foreign"],
)
def test_what_a_disk_or_another_program_refuses_works_once_that_is_over(
    tmp_path: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    kind: type[BackfillError],
    says: str,
) -> None:
    def fails(_: object) -> None:
        raise error

    monkeypatch.setattr(store, "make_folder", fails)
    monkeypatch.setattr(store, "refuse_unsafe", fails)
    with pytest.raises(kind) as refused:
        with_job(tmp_path / "catalog.duckdb", clock)
    assert not (tmp_path / "catalog.duckdb").exists()
    with typed(refused.value) as hint:
        hint.says(says)
        monkeypatch.undo()
        assert len(with_job(tmp_path / "catalog.duckdb", clock).jobs()) == 1
