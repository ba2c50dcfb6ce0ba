"""The catalog's file: opened by one process at a time, and whole after anything."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import pytest
from catalog_builders import Clock, end, leave_log_behind, progress, said, start_python, with_job
from filelock import FileLock, Timeout
from hint_typed import typed

from backfill_cli.catalog import Catalog
from backfill_cli.catalog.store import Store
from backfill_cli.errors import BackfillError, NoSuchJob, Transient


def test_reading_without_a_catalog_makes_none(path: Path) -> None:
    assert Catalog(path).jobs() == ()
    with pytest.raises(NoSuchJob, match="no catalog"):
        Catalog(path).definition("orders")
    assert list(path.parent.iterdir()) == []


def test_a_crash_after_a_commit_keeps_it(catalog: Catalog, path: Path) -> None:
    leave_log_behind(path)
    assert catalog.job("orders").reason == "left in the log"


@pytest.mark.parametrize(
    "sql",
    [
        "SET threads = 2",
        "SELECT * FROM read_text('/etc/passwd')",
        "INSTALL httpfs",
        "LOAD httpfs",
        "ATTACH '/tmp/x'",
    ],
)
def test_sql_reaches_nothing_outside_the_file(catalog: Catalog, path: Path, sql: str) -> None:
    with pytest.raises(duckdb.Error), Store(path).writing() as db:
        db.execute(sql)


def test_an_exception_undoes_the_whole_transaction(catalog: Catalog, path: Path) -> None:
    def change_and_fail() -> None:
        with Store(path).writing() as db:
            db.execute("DELETE FROM jobs")
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError):
        change_and_fail()
    assert [job.name for job in catalog.jobs()] == ["orders"]


def test_who_waits_too_long_is_told_who_has_it(catalog: Catalog, path: Path) -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with Store(path).writing():
            held.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    try:
        with pytest.raises(Transient, match=f"write, pid {os.getpid()}") as busy:
            Catalog(path, wait_s=0.05).jobs()
    finally:
        done.set()
        holder.join()
    with typed(busy.value) as hint:
        hint.says(f"find the process that holds it: fuser -v {path}.lock")
        assert len(Catalog(path, wait_s=0.05).jobs()) == 1


def test_who_waits_first_is_served_before_those_who_come_later(catalog: Catalog, path: Path) -> None:
    """Without the queue a process that comes back again and again overtakes those who poll."""
    served: list[str] = []
    came: list[threading.Thread] = []

    def come(name: str) -> None:
        def use() -> None:
            with Store(path).locked(name):
                served.append(name)

        came.append(threading.Thread(target=use))
        came[-1].start()

    with Store(path).locked("hold"):
        come("first")
        while not is_held(Path(f"{path}.queue")):
            threading.Event().wait(0.02)
        for _ in range(5):
            come("later")
    for thread in came:
        thread.join()
    assert served == ["first", *["later"] * 5]


def is_held(file: Path) -> bool:
    try:
        with FileLock(file, timeout=0):
            return False
    except Timeout:
        return True


HOLD = (
    "import duckdb, sys\n"
    "db = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.readline(); db.close()"
)


def test_another_program_that_has_the_file_is_named(catalog: Catalog, path: Path) -> None:
    other = start_python(HOLD, path)
    assert said(other) == "open"
    try:
        with pytest.raises(Transient, match=f"PID {other.pid}") as busy:
            Catalog(path, wait_s=0.05).jobs()
        assert busy.value.exit_code == 6
    finally:
        end(other)
    with typed(busy.value) as hint:
        hint.says("close that program and try again")
        assert len(Catalog(path, wait_s=0.05).jobs()) == 1


def test_another_program_that_has_the_file_is_waited_for(catalog: Catalog, path: Path) -> None:
    other = start_python(HOLD, path)
    assert said(other) == "open"
    assert other.stdin is not None
    letting_go = threading.Timer(0.2, lambda: other.communicate("\n"))
    letting_go.start()
    try:
        assert [job.name for job in catalog.jobs()] == ["orders"]
    finally:
        letting_go.join()


def test_case_43_a_full_disk_passes_and_loses_nothing_acknowledged(catalog: Catalog, path: Path) -> None:
    """The size limit of the process stands for the disk's end: the write fails in the middle of a commit."""
    code = """if True:
        import resource, signal, sys
        from pathlib import Path
        from backfill_cli.catalog.store import Store
        from backfill_cli.errors import Transient
        store = Store(Path(sys.argv[1]))
        with store.writing() as db:
            db.execute("UPDATE jobs SET reason = 'acknowledged'")
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
        try:
            with store.writing() as db:
                db.execute("UPDATE jobs SET reason = 'lost', config = repeat('x', 1000000)")
        except Transient as exc:
            print("transient", exc.exit_code, flush=True)
    """
    full = start_python(code, path)
    assert said(full) == "transient 6"
    end(full)
    assert catalog.job("orders").reason == "acknowledged"


def test_a_folder_that_cannot_be_written_is_an_error_with_a_way_out(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BackfillError) as refused:
        with_job(tmp_path / "file" / "catalog.duckdb", clock)
    assert refused.value.exit_code == 2
    with typed(refused.value) as hint:
        hint.says("name another file with --catalog")
        with_job(tmp_path / "catalog.duckdb", clock)


def test_importing_the_catalog_imports_no_database_and_no_spark() -> None:
    code = "import sys, backfill_cli.catalog; print({'duckdb', 'pyspark', 'pydantic'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"


def test_reading_jobs_imports_no_spark_and_little_else(catalog: Catalog, path: Path, clock: Clock) -> None:
    with catalog.claim("orders", "me", clock()) as claim:
        claim.store.heartbeat(clock(), progress())
    code = (
        "import sys; from pathlib import Path; from backfill_cli.catalog import Catalog\n"
        "Catalog(Path(sys.argv[1])).jobs(); print({'pyspark', 'pyarrow', 'pydantic', 'numpy'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"
