"""One transaction of more changes than are held: files of it, whole, in memory that does not grow with it."""

import resource
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import duckdb
import pytest
from log_world import World
from postgres import Server
from postgres_database import database

from backfill_cli.cdc import window
from backfill_cli.upstreams.postgres import client, slot

ROWS = 300_000
HELD_BYTES = 16 << 20
"""All of it held at once took 348 MB, in parts 100 MB."""


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def take_apart(world: World, answers: Connection) -> None:
    """Runs in a process of its own, whose peak begins at what it was forked with."""
    before = peak_bytes()
    taken = world.take()
    files = [one.path for one in taken.tables["t"].files]
    answers.send((peak_bytes() - before, taken.transactions, taken.tables["t"].changes, files))


def test_a_server_frees_the_slot_soon_after_the_process_that_reads_it_was_killed(postgres: Server) -> None:
    """By hand, 2 million changes: after 0.5 s, otherwise once all is decoded."""
    with database(postgres) as db, client.connected(db.dsn) as connection:
        slot.ends_with_us(connection)
        assert connection.execute("SHOW client_connection_check_interval").fetchone() == ("500ms",)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_transaction_larger_than_memory_is_taken_in_several_files(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "HELD_BYTES", HELD_BYTES)
    with database(postgres) as db:
        db("CREATE TABLE t (id int PRIMARY KEY, v text)")
        world = World(db, tmp_path, {"t": ["id"]})
        db(
            f"""DO $$ BEGIN
                INSERT INTO t SELECT n, repeat(md5(n::text), 8) FROM generate_series(1, {ROWS}) n;
                UPDATE t SET v = v || '!' WHERE id % 10 = 0;
                DELETE FROM t WHERE id % 10 = 1;
            END $$"""
        )
        ours, theirs = get_context("fork").Pipe()
        apart = get_context("fork").Process(target=take_apart, args=(world, theirs))
        apart.start()
        theirs.close()
        grown_bytes, transactions, changes, files = ours.recv()
        apart.join()
        assert (transactions, changes) == (1, ROWS + ROWS // 10 * 2)
        assert grown_bytes < 200 << 20, f"{grown_bytes >> 20} MB"
        assert len(files) > 5
        with duckdb.connect() as reader:
            found = reader.execute(
                """SELECT count(*), sum(id)::bigint, sum(length(v))::bigint FROM (
                       SELECT arg_max(_backfill_op, _backfill_seq) AS op, arg_max(v, _backfill_seq) AS v, id
                       FROM read_parquet($1) GROUP BY id) WHERE op = 'U'""",
                [[str(tmp_path / name) for name in files]],
            ).fetchall()
        assert found == db("SELECT count(*), sum(id)::bigint, sum(length(v))::bigint FROM t")
