"""The instance of DuckDB that stays: what it can open, and what is left when a use of it fails."""

import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from backfill_cli.duckdb_instance import Instance

pytestmark = pytest.mark.usefixtures("confined")

HELD = "import duckdb, sys; db = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "it's a catalog.duckdb"
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE t AS SELECT 1 AS n")
    return path


@pytest.fixture
def instance(file: Path) -> Instance:
    return Instance([file], {})


def rows(instance: Instance, file: Path) -> list[tuple[int]]:
    with instance.attached(file, read_only=True) as db:
        return db.execute("FROM t ORDER BY n").fetchall()


def test_what_is_not_committed_is_rolled_back_and_another_process_can_open_the_file(
    instance: Instance, file: Path
) -> None:
    with instance.attached(file, read_only=False) as db:
        db.execute("INSERT INTO t VALUES (2)")
    with instance.attached(file, read_only=False) as db:
        db.begin()
        db.execute("INSERT INTO t VALUES (3)")
    assert rows(instance, file) == [(1,), (2,)]
    assert sorted(file.parent.iterdir()) == [file], "the log is in the file"
    look = "import duckdb, sys; print(duckdb.connect(sys.argv[1]).execute('FROM t').fetchall())"
    seen = subprocess.run([sys.executable, "-c", look, file], capture_output=True, text=True, check=True)
    assert seen.stdout == "[(1,), (2,)]\n"


def test_a_file_that_another_process_holds_can_be_opened_afterwards(instance: Instance, file: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HELD, file], stdin=-1, stdout=-1) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(duckdb.IOException, match="Conflicting lock"), instance.attached(file, read_only=True):
            pass
        holder.stdin.close()
    assert rows(instance, file) == [(1,)]


def test_sql_in_the_file_reaches_no_other_file(instance: Instance, file: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    with duckdb.connect(str(file)) as db:
        db.execute(f"CREATE VIEW spy AS FROM read_csv('{secret}')")
    with instance.attached(file, read_only=True) as db:
        for sql in ("FROM spy", f"ATTACH '{tmp_path / 'other.duckdb'}' AS o", "SET enable_external_access = true"):
            with pytest.raises(duckdb.Error, match=r"disabled by configuration|locked"):
                db.execute(sql)


def test_a_file_that_is_replaced_between_two_uses_is_the_new_one(instance: Instance, file: Path) -> None:
    assert rows(instance, file) == [(1,)]
    file.unlink()
    with duckdb.connect(str(file)) as db:
        db.execute("CREATE TABLE t AS SELECT 9 AS n")
    assert rows(instance, file) == [(9,)]


def test_a_folder_of_what_memory_cannot_hold_may_be_removed_while_it_is_used(file: Path) -> None:
    spilled = Path(f"{file}.tmp")
    instance = Instance([file], {"temp_directory": str(spilled), "memory_limit": "8MB", "threads": "1"})
    large = "CREATE OR REPLACE TEMP TABLE large AS SELECT md5(range::VARCHAR) FROM range(400000)"

    def removed_meanwhile() -> None:
        with instance.attached(file, read_only=True) as db:
            db.execute(large)
            shutil.rmtree(spilled)
            db.execute("CREATE TEMP TABLE more AS SELECT n, md5(range::VARCHAR) FROM range(9) a(n), range(400000)")

    with pytest.raises(duckdb.IOException):
        removed_meanwhile()
    with instance.attached(file, read_only=True) as db:
        db.execute(large)
    assert not spilled.exists()


def test_a_thread_that_still_has_it_when_the_process_ends_leaves_no_noise(file: Path) -> None:
    ends = """if True:
        import sys, threading, time
        from pathlib import Path
        from backfill_cli.duckdb_instance import Instance
        file = Path(sys.argv[1])
        instance = Instance([file], {})
        def used():
            with instance.attached(file, read_only=True) as db:
                print(db.execute("FROM t").fetchall())
        used()
        threading.Thread(target=lambda held: time.sleep(600), args=[instance], daemon=True).start()
    """
    done = subprocess.run([sys.executable, "-c", ends, file], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[(1,)]\n", "")
