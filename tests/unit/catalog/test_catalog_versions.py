"""The catalog's version: what is no catalog, upgrades, and a crash while its tables are made."""

import signal
from pathlib import Path

import duckdb
import pytest
from catalog_builders import Clock, end, leave_log_behind, mode, start_python, with_job
from hint_typed import typed

from backfill_cli.catalog import Catalog
from backfill_cli.catalog.store import Store, shipped_migrations
from backfill_cli.errors import StateConflict, UsageError
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.codec import decode

NOW = len(shipped_migrations())
NEXT = (*shipped_migrations(), "ALTER TABLE jobs ADD COLUMN colour VARCHAR DEFAULT 'blue'")


def version_of(path: Path) -> int:
    with duckdb.connect(str(path), read_only=True) as db:
        row = db.execute("SELECT max(version) FROM catalog_version").fetchone()
    assert row is not None
    return int(row[0])


def test_a_catalog_of_a_newer_version_is_refused_with_what_to_do(path: Path) -> None:
    Store(path, migrations=NEXT).create()
    with pytest.raises(
        UsageError, match=f"version {NOW + 1}, this backfill supports versions up to {NOW}"
    ) as refused:
        Catalog(path).jobs()
    assert refused.value.exit_code == 2
    with typed(refused.value) as hint:
        hint.says("pip install --upgrade backfill-cli, or name another file with --catalog")
        with Store(path, migrations=NEXT).reading():
            """As the newer version opens it."""
        Catalog(path.with_name("another.duckdb")).made()


def test_a_database_that_is_no_catalog_is_refused_and_left_alone(path: Path, clock: Clock) -> None:
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE mine AS SELECT 42 AS answer")
    with pytest.raises(UsageError, match="not a backfill catalog") as refused:
        with_job(path, clock)
    with typed(refused.value) as hint:
        hint.says("name another file with --catalog")
        with_job(path.with_name("another.duckdb"), clock)
    with duckdb.connect(str(path)) as db:
        assert db.execute("SELECT * FROM mine").fetchall() == [(42,)]


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, clock: Clock) -> None:
    path.write_text("id,status\n" * 1000)
    with pytest.raises(UsageError, match="not a valid DuckDB database") as refused:
        with_job(path, clock)
    with typed(refused.value) as hint:
        hint.says("name another file with --catalog")
        with_job(path.with_name("another.duckdb"), clock)
    assert path.read_text() == "id,status\n" * 1000


def test_a_damaged_catalog_is_told_apart_from_a_busy_one(catalog: Catalog, path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:12288] + bytes(b ^ 0xFF for b in whole[12288:]))
    with pytest.raises(StateConflict, match="damaged") as broken:
        catalog.jobs()
    assert "--from-sink" in str(broken.value.hint)


def test_a_new_catalog_does_not_meet_the_log_of_a_lost_one(catalog: Catalog, path: Path, clock: Clock) -> None:
    leave_log_behind(path)
    lost = path.rename(path.with_name("lost"))
    with_job(path, clock, "other")
    assert [job.name for job in Catalog(path, clock).jobs()] == ["other"]
    lost.rename(path)
    Path(f"{path}.wal.left").rename(f"{path}.wal")
    assert [(job.name, job.reason) for job in Catalog(path, clock).jobs()] == [("orders", "left in the log")]


def test_a_copy_beside_the_log_of_a_later_catalog_is_refused_and_moved_away_with_it(
    catalog: Catalog, path: Path, clock: Clock
) -> None:
    whole = path.read_bytes()
    with Store(path).writing() as db:
        db.execute("UPDATE jobs SET reason = 'checkpointed'")
    leave_log_behind(path)
    path.write_bytes(whole)
    with pytest.raises(StateConflict, match="is damaged") as broken:
        catalog.jobs()
    with typed(broken.value) as hint:
        hint.run_in_shell("mv")
        hint.says("put a backup in its place")
        path.write_bytes(whole)
        assert [job.name for job in catalog.jobs()] == ["orders"]
    assert Path(f"{path}.damaged.wal").exists()


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
        pytest.raises(UsageError, match="still runs job 'orders'") as refused,
        Store(path, migrations=NEXT).reading(),
    ):
        pass
    assert version_of(path) == NOW
    with typed(refused.value) as hint:
        hint.says("stop job 'orders' with the older backfill, then try again")
        with Store(path, migrations=NEXT).reading():
            assert version_of(path) == NOW + 1


# Kills the process when it closes the file that it has just brought to a version.
DIE_AFTER_DDL = """if True:
    import os, sys
    from contextlib import contextmanager
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
    attached = store.Store._attached
    @contextmanager
    def dying(*args, **named):
        with attached(*args, **named) as db:
            yield (watched := Dying(db))
            if watched.migrated:
                os.kill(os.getpid(), 9)
    store.Store._attached = dying
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
