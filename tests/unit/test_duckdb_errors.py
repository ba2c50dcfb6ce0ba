"""What DuckDB says of a held, a foreign, a damaged file and of rows, as the program itself says it."""

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from backfill_cli.duckdb_errors import ErrorKind, classify, holder

HOLDS = """
import duckdb, sys
held = duckdb.connect(sys.argv[1])
held.execute("CREATE TABLE IF NOT EXISTS t (i INTEGER)")
print("held", flush=True)
sys.stdin.read()
"""


def refused(path: Path) -> duckdb.Error:
    with pytest.raises(duckdb.Error) as caught:
        duckdb.connect(str(path)).execute("FROM t")
    return caught.value


@pytest.fixture
def database(tmp_path: Path) -> Path:
    with duckdb.connect(str(tmp_path / "a.duckdb")) as db:
        db.execute("CREATE TABLE t AS SELECT range AS i, md5(range::VARCHAR) AS s FROM range(200000)")
    return tmp_path / "a.duckdb"


def test_a_held_file_names_its_holder(database: Path) -> None:
    told = [sys.executable, "-c", HOLDS, str(database)]
    with subprocess.Popen(told, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        error = refused(database)
        other.communicate()
    assert (classify(error), f"PID {other.pid}" in str(holder(error))) == (ErrorKind.HELD, True)


def test_a_process_that_is_ending_has_no_name() -> None:
    error = duckdb.IOException(
        'IO Error: Could not set lock on file "a.duckdb": Conflicting lock is held in . (PID 4711). See also https://…'
    )
    assert (classify(error), holder(error)) == (ErrorKind.HELD, None)


def test_a_file_that_is_no_database_a_damaged_one_and_one_of_a_newer_version(database: Path) -> None:
    whole = database.read_bytes()
    foreign, damaged, newer = (database.with_name(f"{name}.duckdb") for name in ("foreign", "damaged", "newer"))
    foreign.write_text("id,name\n" * 5000)
    damaged.write_bytes(whole[:12_288] + bytes(255 - byte for byte in whole[12_288:]))
    newer.write_bytes(whole[:12] + (10_000).to_bytes(8, "little") + whole[20:])
    assert classify(refused(foreign)) is ErrorKind.FOREIGN
    assert classify(refused(damaged)) is ErrorKind.DAMAGED
    assert classify(refused(newer)) in (ErrorKind.NEWER, ErrorKind.DAMAGED)  # its checksum is looked at first


def test_a_folder_in_the_way_is_refused(tmp_path: Path) -> None:
    assert classify(refused(tmp_path)) is ErrorKind.REFUSED


@pytest.mark.parametrize(
    "sign", ["no space left", "Could not set lock", "not a valid DuckDB database", "checksum"]
)
def test_a_value_that_looks_like_another_error_is_a_value(sign: str) -> None:
    with pytest.raises(duckdb.Error) as caught:
        duckdb.execute("SELECT CAST(? AS INTEGER)", [f"{sign} on device"])
    assert sign in str(caught.value)
    assert classify(caught.value) is ErrorKind.ROWS


def test_a_duplicate_key_and_other_sql() -> None:
    with duckdb.connect() as db:
        db.execute("CREATE TABLE t (i INTEGER PRIMARY KEY)")
        with pytest.raises(duckdb.Error) as twice:
            db.execute("INSERT INTO t VALUES (1), (1)")
        with pytest.raises(duckdb.Error) as unknown:
            db.execute("FROM nowhere")
    assert (classify(twice.value), classify(unknown.value)) == (ErrorKind.ROWS, ErrorKind.OTHER)
