"""What is wrong with a DuckDB file is told with the way on, and the job goes on there; no Spark."""

import struct
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from hint_typed import typed
from sink_contract import Epochs, a_table, rows

from backfill_cli.errors import BackfillError, BadData, Fatal, Transient, UsageError
from backfill_cli.sinks.duckdb import DuckDBOptions
from backfill_cli.sinks.duckdb.file import Limits, opened
from backfill_cli.sinks.duckdb.sink import DuckDBSink

VERSION = slice(12, 20)
"""Of the storage, in a file's first block, which begins with a checksum of the rest."""


class Job:
    """A job whose first epoch is in its sink's file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "a job's.duckdb"
        self.sink = DuckDBSink(DuckDBOptions(path=str(self.path)))
        self.begin(folder / "staging")

    def begin(self, staging: Path) -> None:
        self.epochs = Epochs(staging)
        self.sink.prepare("orders", self.epochs.tables, into_existing=False)
        self.sink.fence("orders", 1)
        self.sink.commit(self.epochs.next(inserts=rows((1, "a"))))

    def sql(self, *statements: str) -> None:
        with duckdb.connect(str(self.path)) as con:
            for statement in statements:
                con.execute(statement)

    def refused(self, kind: type[BackfillError], match: str) -> BackfillError:
        """How the next epoch is refused."""
        self.due = self.epochs.next(upserts=rows((1, "A"), (2, "b")))
        with pytest.raises(kind, match=match) as caught:
            self.goes_on()
        return caught.value

    def goes_on(self) -> None:
        self.sink.commit(self.due)
        with duckdb.connect(str(self.path), read_only=True) as con:
            assert con.sql("FROM orders ORDER BY id").fetchall() == [(1, "A"), (2, "b")]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def damaged(whole: bytes) -> bytes:
    return whole[:12_288] + bytes(255 - byte for byte in whole[12_288:])


def newer(whole: bytes) -> bytes:
    made = bytearray(whole)
    made[VERSION] = (10_000).to_bytes(8, "little")
    check = 5381
    for (word,) in struct.iter_unpack("<Q", made[8:4096]):
        check ^= word * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
    made[:8] = check.to_bytes(8, "little")
    return bytes(made)


@pytest.mark.parametrize(
    ("made", "kind", "why", "way_on"),
    [
        (damaged, Fatal, "is damaged", "put a copy of it in its place"),
        (newer, UsageError, "was written by a newer DuckDB", "pip install --upgrade duckdb"),
    ],
)
def test_the_file_as_it_was_lets_the_job_go_on(
    job: Job, made: Callable[[bytes], bytes], kind: type[BackfillError], why: str, way_on: str
) -> None:
    whole = job.path.read_bytes()
    job.path.write_bytes(made(whole))
    with typed(job.refused(kind, why)) as hint:
        hint.says(way_on)
        job.path.write_bytes(whole)  # of a newer one: what a newer package would read
        job.goes_on()


@pytest.mark.parametrize(
    ("made", "kind", "why"),
    [
        (damaged, Fatal, "is damaged"),
        (lambda _: b"id,name\n" * 5000, UsageError, "is not a DuckDB file"),
    ],
)
def test_without_a_copy_the_file_is_moved_away_and_the_job_begins_again(
    job: Job, made: Callable[[bytes], bytes], kind: type[BackfillError], why: str
) -> None:
    job.path.write_bytes(made(job.path.read_bytes()))
    with typed(job.refused(kind, why)) as hint:
        hint.run_in_shell("mv")
        job.sink.drop(job.epochs.tables)  # what the command for starting over does
        job.sink.forget("orders")
        job.begin(job.path.parent / "again")
        job.due = job.epochs.next(upserts=rows((1, "A"), (2, "b")))
        job.goes_on()


def test_a_folder_in_the_files_place_is_not_written_to(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be used") as caught:
        DuckDBSink(DuckDBOptions(path=str(tmp_path))).prepare("orders", (a_table(),), into_existing=False)
    with typed(caught.value) as hint:
        hint.says("name another file in sink.path")
        hint.run_in_shell("ls")
        DuckDBSink(DuckDBOptions(path=f"{tmp_path}/a.duckdb")).prepare("orders", (a_table(),), into_existing=False)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder in which nobody may create a file, of Linux")
def test_a_folder_that_takes_no_file_is_found_by_the_check(tmp_path: Path) -> None:
    """Also one of which the system says that root may write there."""
    with pytest.raises(UsageError, match="/proc cannot be written") as caught:
        DuckDBSink(DuckDBOptions(path="/proc/x.duckdb")).check("orders", (a_table(),), into_existing=False)
    with typed(caught.value) as hint:
        hint.says("name a file in another folder")
        hint.run_in_shell("ls")
        DuckDBSink(DuckDBOptions(path=f"{tmp_path}/x.duckdb")).check("orders", (a_table(),), into_existing=False)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_does_not_exist_is_made_by_the_hint(tmp_path: Path) -> None:
    sink = DuckDBSink(DuckDBOptions(path=f"{tmp_path}/a b/x.duckdb"))
    with pytest.raises(UsageError, match="does not exist") as caught:
        sink.check("orders", (a_table(),), into_existing=False)
    with typed(caught.value) as hint:
        hint.run_in_shell("mkdir")
        sink.check("orders", (a_table(),), into_existing=False)


def test_what_others_changed_in_the_file_is_changed_back(job: Job) -> None:
    job.sql("ALTER TABLE orders RENAME name TO title")
    with typed(job.refused(Fatal, '"name"')) as hint:
        hint.says("change back in the file what the message names")
        job.sql("ALTER TABLE orders RENAME title TO name")
        job.goes_on()


def test_rows_that_an_index_of_others_refuses_are_corrected(job: Job) -> None:
    job.sql("CREATE UNIQUE INDEX by_name ON orders (name)", "INSERT INTO orders VALUES (7, 'b')")
    with typed(job.refused(BadData, "cannot store these rows")) as hint:
        hint.says("correct the rows upstream")
        job.sql("DELETE FROM orders WHERE id = 7")
        job.goes_on()


def test_more_memory_is_enough_for_what_did_not_fit(tmp_path: Path) -> None:
    sql = "CREATE TABLE t AS SELECT range AS i, md5(range::VARCHAR) AS s FROM range(200000)"
    path = tmp_path / "a.duckdb"
    with pytest.raises(Transient, match="needs more memory") as caught, opened(path, Limits("2MB", 1)) as con:
        con.run(sql)
    with typed(caught.value) as hint:
        hint.says("raise sink.memory_limit")
        with opened(path, Limits("200MB", 1)) as con:
            con.run(sql)


def test_a_file_that_this_process_has_open_with_other_settings_is_free_afterwards(job: Job) -> None:
    with opened(job.path, Limits("123MB")):
        refused = job.refused(Transient, "is already open in this process")
    with typed(refused) as hint:
        hint.says("it is retried automatically")
        job.goes_on()
