"""Values of snapshot files come out exactly, or the file and the column are named."""

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files_values import FAILURES, UTC, scanned, snapshot_of

from backfill_cli.contracts import TableSpec, own
from backfill_cli.errors import BadData
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.spark.failures import from_spark
from backfill_cli.upstreams.files import connector
from backfill_cli.upstreams.files.reading import lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


CSV_DDL = (
    "id BIGINT, s STRING, b BOOLEAN, n SMALLINT, f DOUBLE, p DECIMAL(20,3), d DATE, l TIMESTAMP_NTZ, i TIMESTAMP"
)
CSV_ROWS = """id,s,b,n,f,p,d,l,i
1,,,,,,,,
2,"",true,-5,1e300,-12345678901234567.125,1500-01-01,1500-01-01 00:00:00.000001,2026-06-01T12:00:00.5+02:00
3,null,false,0,-0.0,1.5000,9999-12-31,2026-06-01T12:00:00,2026-06-01T12:00:00Z
4,"a ""b"", c",1,7,NaN,+3,0001-01-01,2026-06-01 12:00:00.1230000000,2026-06-01
"""


def test_case_25_csv_keeps_null_and_empty_and_every_type_exactly(tmp_path: Path, spark: "SparkSession") -> None:
    rows = scanned(snapshot_of(tmp_path, "csv", CSV_DDL, CSV_ROWS), spark)
    assert [r["s"] for r in rows] == [None, "", "null", 'a "b", c']
    assert [r["b"] for r in rows] == [None, True, False, True]
    assert [r["n"] for r in rows] == [None, -5, 0, 7]
    assert [repr(r["f"]) for r in rows] == ["None", "1e+300", "-0.0", "nan"]
    assert [r["p"] for r in rows] == [None, Decimal("-12345678901234567.125"), Decimal("1.500"), Decimal("3.000")]
    assert [r["d"] for r in rows] == [None, dt.date(1500, 1, 1), dt.date(9999, 12, 31), dt.date(1, 1, 1)]
    assert [r["l"] for r in rows] == [
        None,
        dt.datetime(1500, 1, 1, 0, 0, 0, 1),
        dt.datetime(2026, 6, 1, 12),
        dt.datetime(2026, 6, 1, 12, 0, 0, 123000),
    ]
    assert [r["i"] and r["i"].astimezone(UTC) for r in rows] == [
        None,
        dt.datetime(2026, 6, 1, 10, 0, 0, 500000, UTC),
        dt.datetime(2026, 6, 1, 12, tzinfo=UTC),
        dt.datetime(2026, 6, 1, tzinfo=UTC),
    ]


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_slices_of_text_have_each_row_once_and_each_its_own_read(
    tmp_path: Path, spark: "SparkSession", kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "SLICED_BYTES", 100)
    monkeypatch.setattr(lines, "SLICE_PART_BYTES", 70)
    monkeypatch.setattr(lines, "_BLOCK", 50)
    told = [(id, "é" * (id % 9)) for id in range(60)]
    spelled = {"csv": "{},{}\n", "json": '{{"id": {}, "s": "{}"}}\n'}[kind]
    content = "id,s\n" * (kind == "csv") + "".join(spelled.format(*row) for row in told)
    upstream = snapshot_of(tmp_path, kind, "id BIGINT, s STRING", content)
    (split,) = upstream.pin().splits
    upstream.restore(upstream.pin())
    open_read = SnapshotRead("t", split.id, limit_rows=7)
    slices = []
    while not slices or slices[-1].up_to is not None:
        after = slices[-1].up_to if slices else None
        slices += upstream.closed("t", [replace(open_read, after=after)])
    assert len(slices) > 4
    found = upstream.scan(spark, "t", slices).orderBy("id").toArrow().to_pylist()
    assert [(row["id"], row["s"] or "") for row in found] == told
    of_reads = [row[own.READ] for row in found]
    assert of_reads == sorted(of_reads)
    alone = upstream.scan(spark, "t", slices[2:3]).orderBy("id").toArrow().to_pylist()
    assert [row["id"] for row in alone] == [row["id"] for row in found if row[own.READ] == 2]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("1,2.5", "'n'"),
        ("1", "2 fields"),
        ("1,2,3", "2 fields"),
        ("x,2", "'id'"),
        ("1,99999", "'n'"),
    ],
)
def test_a_csv_line_that_does_not_fit_is_named(
    tmp_path: Path, spark: "SparkSession", line: str, text: str
) -> None:
    upstream = snapshot_of(tmp_path, "csv", "id BIGINT, n SMALLINT", f"id,n\n5,5\n{line}\n6,6\n")
    with pytest.raises(FAILURES) as caught:
        scanned(upstream, spark)
    error = from_spark(caught.value)
    assert isinstance(error, BadData)
    assert "data.csv" in error.message
    assert text in error.message


JSON_ROWS = """{"id": 1, "p": 1.10, "s": "x", "t": "2026-01-01T00:00:00.000001", "r": "AP8=", "a": [{"q": 0.30}]}
{"id": 2, "p": 123456789012345678.99, "s": null, "t": null, "a": []}

{"id": 3}
"""


def test_json_keeps_every_digit(tmp_path: Path, spark: "SparkSession") -> None:
    ddl = "id BIGINT, p DECIMAL(20,2), s STRING, t TIMESTAMP_NTZ, r BINARY, a ARRAY<STRUCT<q: DECIMAL(4,2)>>"
    rows = scanned(snapshot_of(tmp_path, "json", ddl, JSON_ROWS), spark)
    assert [r["p"] for r in rows] == [Decimal("1.10"), Decimal("123456789012345678.99"), None]
    assert [r["t"] for r in rows] == [dt.datetime(2026, 1, 1, 0, 0, 0, 1), None, None]
    assert [r["r"] for r in rows] == [b"\x00\xff", None, None]
    assert [r["a"] for r in rows] == [[{"q": Decimal("0.30")}], [], None]


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_case_25_bytes_that_are_no_text_are_named(tmp_path: Path, spark: "SparkSession", kind: str) -> None:
    upstream = snapshot_of(tmp_path, kind, "id BIGINT, s STRING", "")
    good = b"id,s\n1,a\xff\n" if kind == "csv" else b'{"id": 1, "s": "a\xff"}\n'
    (tmp_path / f"data.{kind}").write_bytes(good)
    with pytest.raises(FAILURES) as caught:
        scanned(upstream, spark)
    error = caught.value if isinstance(caught.value, BadData) else from_spark(caught.value)
    assert isinstance(error, BadData)
    assert f"data.{kind}" in error.message


@pytest.mark.parametrize("line", ['{"id": 1, "p": 1.111}', '{"id": 1, "p": 1', '{"id": "x", "p": 1}', "[1]", "7"])
def test_a_json_line_that_does_not_fit_is_named(tmp_path: Path, spark: "SparkSession", line: str) -> None:
    upstream = snapshot_of(tmp_path, "json", "id BIGINT, p DECIMAL(4,2)", f'{{"id": 5, "p": 1}}\n{line}\n')
    with pytest.raises(FAILURES) as caught:
        scanned(upstream, spark)
    error = from_spark(caught.value)
    assert isinstance(error, BadData)
    assert "data.json" in error.message


def test_odd_file_names_are_read_and_told_apart(tmp_path: Path, spark: "SparkSession") -> None:
    names = ["a b", "a+b", "a%20b", "x[1]", "x{1,2}", "q?", "s*", "ü", "h#h", "back\\slash", 'quote\'s "q"']
    (tmp_path / "data").mkdir()
    for index, name in enumerate(names):
        (tmp_path / "data" / f"{name}.json").write_text(f'{{"id": {index}}}\n')
        table = pa.table({"id": list(range(index * 10, index * 10 + 10))})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=2)
    text = {"path": str(tmp_path / "data"), "format": "json", "schema": "id BIGINT"}
    upstream = connector.open(connector.options.model_validate({"snapshot": text}), [TableSpec("t", ("id",))])
    reads = [SnapshotRead("t", s.id, 0, None) for s in upstream.pin().splits]
    found = {r["_backfill_read"]: r["id"] for r in upstream.scan(spark, "t", reads).collect()}
    assert {reads[read].split: key for read, key in found.items()} == {f"{n}.json": i for i, n in enumerate(names)}
    glob = {"path": str(tmp_path / "*.parquet"), "format": "parquet"}
    upstream = connector.open(connector.options.model_validate({"snapshot": glob}), [TableSpec("t", ("id",))])
    upstream.pin()
    slices = [SnapshotRead("t", f"{n}.parquet", i % 4, i % 4 + (1 if i % 2 else 6)) for i, n in enumerate(names)]
    expected = [i * 10 + k for i in range(len(names)) for k in range(i % 4, i % 4 + (1 if i % 2 else 6))]
    assert sorted(r["id"] for r in upstream.scan(spark, "t", slices).collect()) == sorted(expected)


def test_case_10_columns_in_another_order_are_the_same_columns(tmp_path: Path, spark: "SparkSession") -> None:
    (tmp_path / "data").mkdir()
    one = pa.table({"b": [f"b{i}" for i in range(100)], "a": list(range(100))})
    other = pa.table({"a": list(range(100, 200)), "b": [f"b{i}" for i in range(100, 200)]})
    pq.write_table(one, tmp_path / "data" / "1.parquet", row_group_size=5)
    pq.write_table(other, tmp_path / "data" / "2.parquet", row_group_size=5)
    options = connector.options.model_validate({"snapshot": {"path": str(tmp_path / "data"), "format": "parquet"}})
    upstream = connector.open(options, [TableSpec("t", ("a", "b"))])
    upstream.pin()
    slices = [("1.parquet", 0, 10), ("2.parquet", 3, 7), ("1.parquet", 10, 100), ("2.parquet", 7, 90)]
    frame = upstream.scan(spark, "t", [SnapshotRead("t", *one) for one in slices])
    assert sorted((r["a"], r["b"]) for r in frame.collect()) == [
        (i, f"b{i}") for i in sorted([*range(100), *range(103, 190)])
    ]
