"""The upstream restored from a backup behind its address: the same system, without what the sink may have."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from plain_job import PlainJob, small
from postgres import Server, running
from postgres_database import Database, open_folder

from backfill_cli.errors import HistoryGone, StateConflict

__all__ = ["small"]
pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def server() -> Iterator[Server]:
    with open_folder() as folder, running(folder) as server:
        yield server


@pytest.fixture
def job(server: Server, tmp_path: Path) -> PlainJob:
    db = Database(server, "postgres")
    db("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t SELECT n, n FROM generate_series(1, 40) n")
    job = PlainJob(db, tmp_path, {"t": ("id",)})
    job.follow()
    return job


def restored(server: Server, copy: Path) -> None:
    """The server is what it was when its folder was copied."""
    server.stop()
    shutil.rmtree(server.data)
    copied(copy, server.data)
    server.start()


def copied(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


def test_a_disk_or_a_base_backup_from_before_stops_the_job(server: Server, job: PlainJob) -> None:
    backup = server.folder / "backup"
    source = f"host=127.0.0.1 port={server.port} user=postgres"
    server._run("pg_basebackup", "-D", str(backup), "-d", source, "-X", "stream", "-c", "fast")
    server.stop()
    disk = server.folder / "disk"
    copied(server.data, disk)
    server.start()
    job.die()
    job.db("UPDATE t SET v = 'lost' WHERE id <= 3", "INSERT INTO t VALUES (41, 'lost')")
    job.follow()
    job.upstream.close()
    restored(server, disk)
    job.die()
    with pytest.raises(StateConflict, match="the database was restored from an older copy"):
        job.step()
    job.upstream.close()
    restored(server, backup)  # which has no slots
    job.die()
    with pytest.raises((HistoryGone, StateConflict), match=r"is gone|older copy"):
        job.step()
    job.db(
        "CREATE TABLE noise AS SELECT n FROM generate_series(1, 1000) n",
        f"SELECT pg_create_logical_replication_slot('{job.slot}', 'pgoutput')",
        "CHECKPOINT",
    )
    with pytest.raises(HistoryGone, match=r"was recreated, or advanced by others to "):
        job.step()
    job.upstream.close()
    server.stop()
    shutil.copy2(server.data / "PG_VERSION", server.data / "standby.signal")  # owned as the server's files are
    shutil.chown(server.data / "standby.signal", (server.data / "PG_VERSION").stat().st_uid)
    server.start()
    job.db("SELECT pg_promote()", "CHECKPOINT")
    job.die()
    with pytest.raises(StateConflict, match="failed over: its timeline was 00000001, and is now 00000002"):
        job.step()
    job.upstream.close()
