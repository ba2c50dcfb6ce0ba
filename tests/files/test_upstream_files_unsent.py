"""What a change of Debezium does beside its own row's values: a value that was not sent, a truncate."""

import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from files_job import Run
from files_values import event, failure, opened, read
from hint_typed import typed

from backfill_cli.engine.verify.job import verify
from backfill_cli.errors import BadData
from backfill_cli.model.refill import Extent
from backfill_cli.model.verify import Asked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = "__debezium_unavailable_value"
BYTES = list(TEXT.encode())
TEXTS = pa.map_(pa.string(), pa.string())


def test_a_key_that_was_not_sent_is_never_stored(tmp_path: Path, spark: "SparkSession") -> None:
    upstream = opened(tmp_path, {"id": pa.string(), "v": pa.int64()}, {"format": "debezium"})
    (tmp_path / "changes" / "1.json").write_text(event("u", None, {"id": TEXT, "v": 1}))
    assert "column 'id'" in failure(upstream, spark).message


def test_values_that_resemble_placeholders_are_data(tmp_path: Path, spark: "SparkSession") -> None:
    kinds = {"t": pa.string(), "n": pa.list_(pa.int32()), "b": pa.list_(pa.bool_()), "m": TEXTS}
    upstream = opened(tmp_path, {"id": pa.int64(), **kinds}, {"format": "debezium"})
    rows: list[dict[str, Any]] = [
        {"t": TEXT[1:], "n": BYTES[1:], "b": [True] * 27, "m": [("a", f"{TEXT}y")]},
        {"t": f"{TEXT} ", "n": [*BYTES, 1], "b": [True] * 29, "m": [(f"{TEXT}x", "b")]},
        {"t": None, "n": [None], "b": [None, True], "m": [("a", None)]},
        {"t": "", "n": [], "b": [], "m": []},
        {"t": "x", "n": None, "b": None, "m": None},
    ]
    lines = []
    for number, row in enumerate(rows):
        after = {**row, "m": None if row["m"] is None else dict(row["m"])}
        lines.append(event("c", None, {"id": number, **after}))
    (tmp_path / "changes" / "1.json").write_text("\n".join(lines))
    assert read(upstream, spark, *kinds) == rows


@pytest.fixture
def job(tmp_path: Path) -> Run:
    """A job whose snapshot has the row 1, and which has applied an update of it."""
    run = Run(tmp_path, 'format = "debezium"', snapshot="id BIGINT, v STRING, n INT")
    (tmp_path / "snapshot" / "a.csv").write_text("id,v,n\n1,large,1\n2,other,2\n")
    return run


def change(run: Run, name: str, *lines: tuple[str, Any, Any]) -> None:
    (run.here / "changes" / name).write_text("".join(event(*one) + "\n" for one in lines))
    run.catch_up()


COLUMNS = "SELECT id, v, n FROM orders ORDER BY id"


def test_case_08_a_value_that_was_not_sent_stays_as_the_sink_has_it(spark: "SparkSession", job: Run) -> None:
    change(job, "a.json", ("u", None, {"id": 1, "v": TEXT, "n": 10}))
    assert job.rows(COLUMNS) == [(1, "large", 10), (2, "other", 2)]
    late = {"id": 3, "v": "new", "n": 3}
    change(job, "b.json", ("c", None, late), ("u", late, {**late, "v": TEXT, "n": 4}))
    change(job, "c.json", ("u", None, {"id": 1, "v": TEXT, "n": 11}), ("u", None, {"id": 2, "v": "x", "n": 5}))
    assert job.rows(COLUMNS) == [(1, "large", 11), (2, "x", 5), (3, "new", 4)]
    assert verify("orders", job.catalog).equal


def test_a_row_that_was_written_as_the_error_told_is_equal_but_in_what_the_log_tells(
    spark: "SparkSession", job: Run
) -> None:
    """`verify --fix` would delete it: to the log it is less than a row."""
    updates = [("u", None, {"id": key, "v": TEXT, "n": n}) for key, n in ((9, 10), (1, 5))]
    with pytest.raises(BadData, match=r"orders has no row with the key \(id\) .*: \(9\), without v") as refused:
        change(job, "a.json", *updates)
    with typed(refused.value) as hint:
        hint.says("restore them")
        job.run_sql("INSERT INTO orders (id, v, n) VALUES (9, 'of the source', 0)")
        job.catch_up()
        assert job.rows(COLUMNS) == [(1, "large", 5), (2, "other", 2), (9, "of the source", 10)]
    assert verify("orders", job.catalog).equal
    job.run_sql("UPDATE orders SET n = 11 WHERE id = 9")
    table, _ = verify("orders", job.catalog).tables
    assert (table.missing, table.extra, table.changed) == (0, 0, 1)
    told = job.catalog.job("orders").verified
    parts = {}
    for first, last in (("1", "8"), ("2", "9")):
        (table,) = verify("orders", job.catalog, asked=Asked(("orders",), None, Extent("", first, last))).tables
        parts[first] = (table.equal, table.rows_upstream, table.rows_sink, table.changed)
    assert parts == {"1": (True, 2, 2, 0), "2": (False, 2, 2, 1)}
    assert job.catalog.job("orders").verified == told, "of the whole table"


def test_case_08_a_transform_that_needs_a_value_that_was_not_sent_stops_the_job(tmp_path: Path, job: Run) -> None:
    shaped = '[transform]\nselect = ["id", "upper(v) AS v", "n"]\n'
    run = Run(tmp_path, 'format = "debezium"', shaped, snapshot="id BIGINT, v STRING, n INT")
    change(run, "a.json", ("u", None, {"id": 1, "v": "y", "n": 10}))
    with pytest.raises(
        BadData, match=r"changes leave out the value of v, .* needed by: upper\(v\) AS v"
    ) as refused:
        change(run, "b.json", ("u", None, {"id": 1, "v": TEXT, "n": 11}))
    with typed(refused.value) as hint:
        assert hint.statements() == ["ALTER TABLE orders REPLICA IDENTITY FULL"]
        assert refused.value.hint.starts_over
    assert run.rows(COLUMNS) == [(1, "Y", 10), (2, "OTHER", 2)]


def test_case_23_a_truncate_empties_the_table(spark: "SparkSession", job: Run) -> None:
    change(job, "a.json", ("u", None, {"id": 1, "v": "x", "n": 10}))
    new = ("c", None, {"id": 4, "v": "new", "n": 4})
    before = ("c", None, {"id": 3, "v": "gone", "n": 3})
    change(job, "b.json", before, ("t", None, None), new, ("u", new[2], {"id": 4, "v": TEXT, "n": 5}))
    assert job.rows(COLUMNS) == [(4, "new", 5)]
    assert verify("orders", job.catalog).equal
    change(job, "c.json", ("t", None, None), before, ("t", None, None))
    assert job.rows(COLUMNS) == []
    assert verify("orders", job.catalog).equal


def test_a_job_follows_the_partitions_of_a_topic_as_kafka_connect_writes_them(
    spark: "SparkSession", tmp_path: Path
) -> None:
    run = Run(tmp_path, 'format = "debezium", columns = "more INT"', snapshot="id BIGINT, v STRING, n INT")
    (tmp_path / "snapshot" / "a.csv").write_text("id,v,n\n1,a,1\n2,b,2\n")
    first, second = tmp_path / "changes" / "partition=0", tmp_path / "changes" / "year=2026" / "month=01"
    first.mkdir()
    second.mkdir(parents=True)
    (first / "orders+0+0000000000.json").write_text(event("u", None, {"id": 1, "v": "x", "n": 1}) + "\nnull\n")
    lines = [event("u", None, {"id": 2, "v": name, "n": 2}) for name in ("y", "z")]
    (second / "orders+1+9999999999.json.gz").write_bytes(gzip.compress(f"{lines[0]}\n".encode()))
    (second / "orders+1+10000000000.json.gz").write_bytes(gzip.compress(f"{lines[1]}\n".encode()))
    run.catch_up()
    assert run.rows(COLUMNS) == [(1, "x", 1), (2, "z", 2)]
    assert verify("orders", run.catalog).equal
    (first / "orders+0+0000000002.json").write_text(event("d", {"id": 1, "v": "x", "n": 1}, None) + "\n")
    wide = event("c", None, {"id": 3, "v": "x", "n": 1, "more": 7})
    (second / "orders+1+10000000001.json").write_text(wide + "\n")
    run.catch_up()
    (first / "orders+0+0000000003.json").write_text(event("c", None, {"id": 4, "v": "w", "n": 4}) + "\n")
    run.catch_up()
    wanted = "SELECT id, v, n, more FROM orders ORDER BY id"
    assert run.rows(wanted) == [(2, "z", 2, None), (3, "x", 1, 7), (4, "w", 4, None)]
    assert verify("orders", run.catalog).equal
