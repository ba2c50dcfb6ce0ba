"""What a user gets wrong, typed for real: what is wrong, what to do; catalog and sink as they were."""

from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typed import Place

Spoil = Callable[[Place], None]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def told(*replaced: tuple[str, str]) -> Spoil:
    return lambda place: place.configured(*replaced)


def other_columns(place: Place) -> None:
    table = pq.read_table(place.folder / "orders" / "orders-0000.parquet")
    table = table.set_column(0, "id", table["id"].cast(pa.string()))
    pq.write_table(table, place.folder / "orders" / "orders-0009.parquet")


def no_files(place: Place) -> None:
    for file in (place.folder / "orders").iterdir():
        file.unlink()


def half_a_file(place: Place) -> None:
    (place.folder / "orders" / "orders-0009.parquet").write_bytes(b"PAR1")


def a_file_as_staging(place: Place) -> None:
    (place.folder / "taken").touch()
    place.configured(('name = "orders"\n[up', 'name = "orders"\nstaging = "taken/here"\n[up'))


BAD: dict[str, tuple[Spoil, int, str]] = {
    "missing path": (told(('path = "orders"', 'path = "nowhere"')), 2, "no parquet files at"),
    "empty path": (no_files, 2, "no parquet files at"),
    "no key": (told(('key = ["id"]', "")), 2, "tables[0].key: missing"),
    "a key that is no column": (told(('["id"]', '["nope"]')), 2, "key column 'nope' is not in"),
    "a key of another type": (other_columns, 1, "column 'id' is string, but is bigint in"),
    "unknown type": (told(('"files"', '"fliles"')), 2, "unknown upstream type 'fliles'; did you mean files?"),
    "unknown format": (told(('"parquet"', '"parkett"')), 2, "must be 'parquet', 'json', 'csv' or 'avro'"),
    "half a file": (half_a_file, 1, "orders-0009.parquet: not a complete parquet file"),
    "a name that is a path": (told(('name = "orders"\n[up', 'name = "../x"\n[up')), 2, "it is not a path"),
    "a select without the key": (
        told(("[barrier]", '[transform]\nselect = ["status"]\n[barrier]')),
        2,
        "the key column id of table orders must be selected unchanged",
    ),
    "a select that draws lots": (
        told(("[barrier]", '[transform]\nselect = ["id", "rand() AS r"]\n[barrier]')),
        2,
        "rand is not deterministic",
    ),
    "a setting that Spark cannot read": (
        told(('"600m" }', '"600m", "spark.sql.shuffle.partitions" = "abc" }')),
        2,
        "The value 'abc' in the config \"spark.sql.shuffle.partitions\" is invalid",
    ),
    "a parallelism that Spark cannot read": (
        told(('"600m" }', '"600m", "spark.default.parallelism" = "abc" }')),
        2,
        "spark.default.parallelism",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_input_is_told_and_leaves_no_trace(place: Place, bad: str) -> None:
    spoil, code, message = BAD[bad]
    spoil(place)
    ended = place.typed("start", "--config", "job.toml")
    assert (ended.returncode, ended.stdout) == (code, ""), ended.stderr
    assert message in ended.stderr
    assert "\nTry: " in ended.stderr
    assert not (place.folder / "warehouse.duckdb").exists()
    assert not (place.folder / ".backfill/catalog.duckdb").exists()


def test_a_staging_that_cannot_be_made_and_a_table_of_others_leave_no_job(place: Place) -> None:
    a_file_as_staging(place)
    ended = place.typed("start", "--config", "job.toml")
    assert ended.returncode == 2
    assert "job.staging" in ended.stderr
    planned = place.typed("plan", "--config", "job.toml")
    assert (planned.returncode, "job.staging" in planned.stderr) == (2, True)
    assert not (place.folder / "warehouse.duckdb").exists()

    place.configured()
    with duckdb.connect(str(place.folder / "warehouse.duckdb")) as con:
        con.execute("CREATE TABLE orders (id BIGINT); INSERT INTO orders VALUES (1)")
    before = (place.folder / "warehouse.duckdb").read_bytes()
    planned = place.typed("plan", "--config", "job.toml")
    assert planned.returncode == 2
    assert "start would refuse: " in planned.stdout
    told = place.typed("plan", "--config", "job.toml", "--into-existing")
    assert (told.returncode, "start would refuse" in told.stdout) == (0, False)
    ended = place.typed("start", "--config", "job.toml")
    assert ended.returncode == 2
    assert "Try: name another target" in ended.stderr
    assert "write into it by key: backfill start --config job.toml --into-existing" in ended.stderr
    assert (place.folder / "warehouse.duckdb").read_bytes() == before
    assert place.job()["state"] == "none"


def test_a_job_keeps_its_result_and_its_table(place: Place) -> None:
    place.configured(("rate = 100", "rate = 100000"))
    assert place.typed("start", "--config", "job.toml", "--until", "caught-up").returncode == 0
    place.configured(("[barrier]", '[transform]\nwhere = "amount > 0"\n[barrier]'))
    for verb in ("plan", "start"):
        ended = place.typed(verb, "--config", "job.toml")
        assert ended.returncode == 2
        assert 'tables.orders.transform.where: nothing → "amount > 0"' in ended.stderr
        assert "spool, spark, hooks, guards, staging, live, and what a" in ended.stderr
    place.configured(('name = "orders"\n[up', 'name = "other"\n[up'))
    ended = place.typed("start", "--config", "job.toml")
    assert ended.returncode == 5
    assert "belongs to job 'orders'" in ended.stderr
    assert [line.split()[:2] for line in place.typed("status").stdout.splitlines()[1:]] == [["orders", "done"]]
