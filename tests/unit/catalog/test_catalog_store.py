"""The catalog's file: private, versioned, opened by one process at a time, and whole after anything."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import pytest
from catalog_builders import Clock, end, progress, said, start_python, with_job
from filelock import FileLock, Timeout

from backfill_cli.catalog import Catalog
from backfill_cli.catalog.store import Store, shipped_migrations
from backfill_cli.errors import BackfillError, NoSuchJob, StateConflict, Transient, UsageError
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.codec import decode

NOW = len(shipped_migrations())
NEXT = (*shipped_migrations(), "ALTER TABLE jobs ADD COLUMN colour VARCHAR DEFAULT 'blue'")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def version_of(path: Path) -> int:
    with duckdb.connect(str(path), read_only=True) as db:
        row = db.execute("SELECT max(version) FROM catalog_version").fetchone()
    assert row is not None
    return int(row[0])


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
    with pytest.raises(UsageError, match="symbolic link"):
        Catalog(link).jobs()


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
    assert "chmod o-w" in refused.value.hint


def test_a_folder_that_everybody_can_write_is_refused(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(UsageError, match="everybody can replace"):
        with_job(tmp_path / "open" / "catalog.duckdb", clock)
    assert list((tmp_path / "open").iterdir()) == []


def test_reading_without_a_catalog_makes_none(path: Path) -> None:
    assert Catalog(path).jobs() == ()
    with pytest.raises(NoSuchJob, match="no catalog"):
        Catalog(path).definition("orders")
    assert list(path.parent.iterdir()) == []


def test_a_catalog_of_a_newer_version_is_refused_with_what_to_do(path: Path) -> None:
    Store(path, migrations=NEXT).create()
    with pytest.raises(
        UsageError, match=f"version {NOW + 1}, this backfill supports versions up to {NOW}"
    ) as refused:
        Catalog(path).jobs()
    assert "pip install --upgrade" in refused.value.hint
    assert refused.value.exit_code == 2


def test_a_database_that_is_no_catalog_is_refused_and_left_alone(path: Path, clock: Clock) -> None:
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE mine AS SELECT 42 AS answer")
    with pytest.raises(UsageError, match="not a backfill catalog"):
        with_job(path, clock)
    with duckdb.connect(str(path)) as db:
        assert db.execute("SELECT * FROM mine").fetchall() == [(42,)]


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, clock: Clock) -> None:
    path.write_text("id,status\n" * 1000)
    with pytest.raises(UsageError, match="not a valid DuckDB database"):
        with_job(path, clock)
    assert path.read_text() == "id,status\n" * 1000


def test_a_damaged_catalog_is_told_apart_from_a_busy_one(catalog: Catalog, path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:12288] + bytes(b ^ 0xFF for b in whole[12288:]))
    with pytest.raises(StateConflict, match="damaged") as broken:
        catalog.jobs()
    assert "--from-sink" in broken.value.hint


def test_an_upgrade_keeps_a_copy_and_all_jobs(catalog: Catalog, path: Path) -> None:
    store = Store(path, migrations=NEXT)
    with store.reading() as db:
        assert db.execute("SELECT name, colour FROM jobs").fetchall() == [("orders", "blue")]
    kept = Path(f"{path}.v{NOW}")
    assert (version_of(path), version_of(kept), mode(kept)) == (NOW + 1, NOW, 0o600)


def test_a_catalog_of_the_first_version_gets_an_id_that_it_keeps_wherever_it_is_moved(path: Path) -> None:
    Store(path, migrations=shipped_migrations()[:1]).create()
    made = Catalog(path).identity()
    assert made is not None
    assert made.path == str(path)
    moved = path.rename(path.with_name("moved.duckdb"))
    later = Catalog(moved).identity()
    assert later is not None
    assert (later.catalog, later.path) == (made.catalog, str(moved))
    assert Catalog(path).made().catalog != made.catalog


def test_a_ledger_of_version_9_does_not_tell_how_its_rows_were_written(path: Path) -> None:
    Store(path, migrations=shipped_migrations()[:9]).create()
    with duckdb.connect(str(path)) as db:
        for epoch, rows in ((1, 5), (2, 0)):
            line = f"('j', {epoch}, 0, 'upstream', {epoch}, 0, {rows}, {rows}, 1, 0, 0, NULL, 0, '')"
            db.execute(f"INSERT INTO ledger VALUES {line}")
    with Store(path).writing() as db:
        told = db.execute(
            "SELECT rows_inserted, rows_upserted, rows_deleted FROM ledger ORDER BY epoch"
        ).fetchall()
    assert told == [(None, None, None), (0, 0, 0)]


def test_a_split_of_an_older_catalog_goes_on_where_it_was_a_promised_epoch_too(path: Path, clock: Clock) -> None:
    """Made with the SQL and the JSON of version 2: the index of the next row was a number."""
    split = '{"status": "consuming", "after": 7, "rows": 7, "epoch": 900, "target": null}'
    read = '{"table": "orders", "split": "a", "after": 5, "up_to": 7}'
    body = (
        '{"epoch": 900, "prev_ms": 800, "token": 3, "attempt": "a", "state": "{}", "phase": "snapshot", '
        f'"position": {{"cursors": []}}, "splits": [[["orders", "a"], {split}]], "plan": {{"reads": [{read}]}}}}'
    )
    Store(path, migrations=shipped_migrations()[:2]).create()
    with duckdb.connect(str(path)) as db:
        db.execute("INSERT INTO splits VALUES ('j', 'orders', 'a', 0, 9, 99, true, '{}', 0)")
        db.execute("INSERT INTO split_progress VALUES ('j', 'orders', 'a', 'consuming', 5, 5, 800, NULL)")
        db.execute("INSERT INTO checkpoints VALUES ('j', 'prepared', 900, 'snapshot', 3, 'a', '{}', ?)", [body])
    with Store(path).writing() as db:
        assert db.execute('SELECT "cursor", rows_read FROM split_progress').fetchall() == [("5", 5)]
        (kept,) = db.execute("SELECT body FROM checkpoints").fetchall()[0]
    promised = decode(Checkpoint, kept)
    assert promised.splits["orders", "a"].cursor == 7
    assert promised.plan is not None
    assert promised.plan.reads[0].after == 5


def test_an_upgrade_that_fails_leaves_the_old_version(catalog: Catalog, path: Path) -> None:
    broken = (*shipped_migrations(), "CREATE TABLE half (a INTEGER); SELECT no_such_column FROM jobs")
    with pytest.raises(duckdb.BinderException), Store(path, migrations=broken).writing():
        pass
    assert [job.name for job in catalog.jobs()] == ["orders"]


def test_an_upgrade_waits_for_runners_of_the_older_version(catalog: Catalog, path: Path, clock: Clock) -> None:
    with (
        catalog.claim("orders", "me", clock()),
        pytest.raises(UsageError, match="still runs job 'orders'"),
        Store(path, migrations=NEXT).reading(),
    ):
        pass
    assert version_of(path) == NOW


# Kills the process when it closes the file that it has just brought to a version.
DIE_AFTER_DDL = """if True:
    import os, sys
    from pathlib import Path
    from backfill_cli.catalog import store
    class Dying:
        def __init__(self, db):
            self.db, self.migrated = db, False
        def __getattr__(self, name):
            return getattr(self.db, name)
        def execute(self, sql, *values):
            self.migrated |= "INTO catalog_version" in sql
            return self.db.execute(sql, *values)
        def close(self):
            if self.migrated:
                os.kill(os.getpid(), 9)
            self.db.close()
    connect = store.Store._connect
    store.Store._connect = lambda *args, **named: Dying(connect(*args, **named))
    more = ["ALTER TABLE jobs ADD COLUMN colour VARCHAR DEFAULT 'blue'"][: int(sys.argv[2])]
    file = store.Store(Path(sys.argv[1]), migrations=[*store.shipped_migrations(), *more])
    file.create()
    with file.reading():
        pass
"""


def test_case_44_a_crash_while_the_catalog_is_made_leaves_none(path: Path, clock: Clock) -> None:
    died = start_python(DIE_AFTER_DDL, path, 0)
    assert died.wait() == -signal.SIGKILL
    end(died)
    assert not path.exists()
    assert Catalog(path).jobs() == ()
    assert [job.name for job in with_job(path, clock).jobs()] == ["orders"]


def test_case_44_what_a_crash_left_of_a_new_catalog_is_swept(path: Path, clock: Clock) -> None:
    path.with_name("catalog.duckdb.new").write_text("half")
    path.with_name("catalog.duckdb.new.wal").write_text("half")
    assert [job.name for job in with_job(path, clock).jobs()] == ["orders"]


def test_case_44_no_ddl_is_left_in_the_log(catalog: Catalog, path: Path) -> None:
    """The replay of DDL has failed after crashes: an upgrade ends with a checkpoint, and a copy is kept."""
    died = start_python(DIE_AFTER_DDL, path, 1)
    assert died.wait() == -signal.SIGKILL
    end(died)
    assert not Path(f"{path}.wal").exists()
    assert (version_of(path), version_of(Path(f"{path}.v{NOW}"))) == (NOW + 1, NOW)


def test_a_crash_after_a_commit_keeps_it(catalog: Catalog, path: Path) -> None:
    leave_log_behind(path)
    assert catalog.job("orders").reason == "left in the log"


def leave_log_behind(path: Path) -> None:
    """A process committed to the catalog and was killed before it closed the file."""
    code = """if True:
        import os, sys
        from pathlib import Path
        from backfill_cli.catalog.store import Store
        with Store(Path(sys.argv[1])).writing() as db:
            db.execute("UPDATE jobs SET reason = 'left in the log'")
            db.commit()
            os.kill(os.getpid(), 9)
    """
    died = start_python(code, path)
    assert died.wait() == -signal.SIGKILL
    end(died)
    assert Path(f"{path}.wal").exists()


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
        with pytest.raises(Transient, match=f"write, pid {os.getpid()}"):
            Catalog(path, wait_s=0.05).jobs()
    finally:
        done.set()
        holder.join()


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
    assert "--catalog" in refused.value.hint


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
