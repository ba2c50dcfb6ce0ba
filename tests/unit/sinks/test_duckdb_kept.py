"""The instance that a DuckDB sink keeps: what it opens is closed after each call, whatever the file is called."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import duckdb
import pytest
from duckdb_processes import held_by_another_process, in_another_process
from hint_typed import typed
from sink_contract import Epochs, a_table, rows

from backfill_cli.errors import Fatal, Transient
from backfill_cli.model.checkpoint import Marker, Owner
from backfill_cli.sinks.duckdb import DuckDBOptions
from backfill_cli.sinks.duckdb.file import Kept, Limits
from backfill_cli.sinks.duckdb.sink import DuckDBSink

pytestmark = pytest.mark.usefixtures("confined")

NAMES = (
    'it\'s "a"; file.duckdb',
    "memory.duckdb",
    "temp.db",
    "_backfill_file.duckdb",
    "catalog",
    "%3F*?[a].duckdb",
    "ünï\n.duckdb",
    ".duckdb",
    "x.duckdb.wal",
)


@contextmanager
def here(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """The file open in this process, which fails while anything else in it has the file open."""
    with duckdb.connect(str(path), config={"memory_limit": "100MB"}) as con:
        yield con


@pytest.mark.parametrize("name", NAMES)
def test_each_call_finds_the_job_and_leaves_the_file_closed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    sink = DuckDBSink(DuckDBOptions(path=str(path)))
    epochs = Epochs(tmp_path / "staging", tables=(a_table('or"ders; DROP'),))
    owner = Owner("c", "h", "p")
    sink.prepare("orders", epochs.tables, into_existing=False)
    for call in (
        lambda: sink.own("orders", owner, None),
        lambda: sink.fence("orders", 1),
        lambda: sink.commit(epochs.next(inserts=rows((1, "a")))),
        lambda: sink.check("orders", epochs.tables, into_existing=True),
        lambda: sink.prepare("orders", epochs.tables, into_existing=True),
        lambda: sink.commit(epochs.next(upserts=rows((1, "A")))),
    ):
        call()
        with here(path) as con:
            con.execute("CREATE OR REPLACE TABLE theirs AS SELECT 1")
    assert sink.owner("orders") == owner
    assert sink.committed("orders") == {'or"ders; DROP': Marker(20, 1, "a20")}
    with here(path) as con:
        assert con.execute('FROM "or""ders; DROP"').fetchall() == [(1, "A")]
    sink.drop(epochs.tables)
    sink.forget("orders")
    with here(path) as con:
        assert con.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("theirs",)]


def test_a_link_that_names_another_file_by_now_is_followed(tmp_path: Path) -> None:
    link = tmp_path / "link.duckdb"
    sink = DuckDBSink(DuckDBOptions(path=str(link)))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / name / f"{name}.duckdb")
        sink.prepare(name, (a_table(name),), into_existing=False)
        assert in_another_process(link, "print(con.sql('SHOW TABLES').fetchall())").count(f"('{name}',)") == 1
    assert (sink.committed("one"), [*sink.committed("two")]) == ({}, ["two"])


def test_a_file_that_others_hold_is_free_for_the_next_call(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    sink = DuckDBSink(DuckDBOptions(path=str(path)))
    sink.prepare("orders", (a_table(),), into_existing=False)
    with held_by_another_process(path) as pid, pytest.raises(Transient, match=f"PID {pid}") as refused:
        sink.committed("orders")
    with typed(refused.value) as hint:
        hint.says("close the program that holds it")
        assert [*sink.committed("orders")] == ["orders"]
    with here(path), pytest.raises(Transient, match="is already open in this process") as refused:
        sink.fence("orders", 1)
    with typed(refused.value) as hint:
        hint.says("it is retried automatically")
        sink.fence("orders", 1)
        assert sink.committed("orders")["orders"].token == 1


def test_an_error_in_a_call_leaves_nothing_of_it_to_the_next(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a.duckdb", Limits())
    with kept.opened() as con:
        con.run("CREATE TABLE t (i INTEGER)")
    with pytest.raises(Fatal, match="nothing"), kept.opened() as con:
        con.run("BEGIN; INSERT INTO t VALUES (1); CREATE TEMP TABLE own AS SELECT 1; FROM nothing")
    with kept.opened(read_only=True) as con:
        assert con.rows("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM duckdb_tables())") == [(0, 1)]


def test_times_are_in_utc_and_memory_goes_to_disk_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/Lima")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    kept = Kept(tmp_path / "in" / "a.duckdb", Limits("8MB", 1))
    for _ in range(2):  # what is removed between two uses, by whoever cleans up, is made again
        with kept.opened() as con, con.cursor() as other:
            zoned = "SELECT current_setting('TimeZone'), CAST(TIMESTAMPTZ '2026-01-01 23:00Z' AS DATE)"
            assert other.rows(zoned) == [("UTC", date(2026, 1, 1))]
            con.run("CREATE TEMP TABLE t AS SELECT range AS i, md5(range::VARCHAR) AS s FROM range(400000)")
            assert [one for one in os.listdir("in") if one.endswith(".tmp")] == ["a.duckdb.tmp"]
        assert os.listdir("in") == ["a.duckdb"]
    assert os.listdir() == ["in"]
