"""`verify --independent`: DuckDB reads the files that a job copied; errors of our own readers are detected."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hint_typed import typed

from backfill_cli.catalog import Catalog
from backfill_cli.config import load
from backfill_cli.contracts import SinkTable
from backfill_cli.engine.loop.run import start
from backfill_cli.engine.verify.expected import IndependentRows
from backfill_cli.engine.verify.job import verify
from backfill_cli.errors import BadData, UsageError
from backfill_cli.formats.listing import Listing, place
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Phase
from backfill_cli.model.position import START, Position
from backfill_cli.model.schema import field
from backfill_cli.model.split import Split, SplitProgress, SplitStatus
from backfill_cli.model.upstream import Pin
from backfill_cli.sinks.duckdb.file import write_query
from backfill_cli.upstreams.files.options import CsvOptions, SnapshotOptions
from backfill_cli.upstreams.files.reading import csv_files
from backfill_cli.upstreams.files.reading.text_rows import TextRows
from backfill_cli.upstreams.files.snapshot.by_duckdb import rows_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = """
[job]
name = "j"
staging = "HERE/staging"
[upstream]
type = "files"
snapshot = { path = "HERE/in", format = "FORMAT"SCHEMA }
[[tables]]
name = "t"
key = ["id"]
[sink]
type = "duckdb"
path = "HERE/w.duckdb"
"""
DDL = "id BIGINT, price DECIMAL(12,2), note STRING, at TIMESTAMP, day DATE, ratio DOUBLE, flag BOOLEAN"
TYPES = {
    "id": "BIGINT",
    "price": "DECIMAL(12,2)",
    "note": "VARCHAR",
    "at": "TIMESTAMP WITH TIME ZONE",
    "day": "DATE",
    "ratio": "DOUBLE",
    "flag": "BOOLEAN",
}
ROWS: list[dict[str, Any]] = [
    {"id": 1, "price": "0.10", "note": 'a "quoted", ü', "at": "2020-01-01T00:00:00.000001Z", "ratio": 0.1},
    {"id": 2, "price": "-9999999999.99", "note": "", "day": "1500-02-28", "flag": True},
    {"id": 3},
]


def written(folder: Path, kind: str, rows: list[dict[str, Any]] = ROWS) -> None:
    """The rows in two files, as text files have them; by DuckDB as Parquet."""
    folder.mkdir(exist_ok=True)
    for at, part in enumerate((rows[:2], rows[2:])):
        file = folder / f"{at}.{kind}"
        if kind == "csv":
            lines = [",".join(_csv(row.get(name)) for name in TYPES) for row in part]
            file.write_text("\n".join([",".join(TYPES), *lines, ""]), "utf-8")
            continue
        lines = [json.dumps({name: row.get(name) for name in TYPES}) for row in part]
        told = "\n".join([*lines, ""])
        file.write_text(told.replace('"price": "', '"price": ').replace('0.10"', "0.10").replace('.99"', ".99"))
        if kind == "parquet":
            text = file.rename(folder.parent / "text.json")
            columns = json.dumps(TYPES).replace('"', "'")
            sql = f"SELECT * FROM read_json('{text}', format = 'newline_delimited', columns = {columns})"
            with duckdb.connect() as db:
                db.execute("SET TimeZone = 'UTC'")
                db.execute(f"COPY ({sql}) TO '{file}' (FORMAT parquet)")


def _csv(value: Any) -> str:
    if value is None:
        return ""
    return '"' + str(value).replace('"', '""') + '"' if isinstance(value, str) else str(value).lower()


def options(kind: str, **more: Any) -> SnapshotOptions:
    ddl = None if kind == "parquet" else DDL
    return SnapshotOptions(path="x", format=kind, ddl=ddl, **more)  # type: ignore[call-arg, arg-type]


def read(folder: Path, told: SnapshotOptions, types: dict[str, str]) -> list[dict[str, Any]]:
    where = place(str(folder), "t")
    write_query(rows_sql(told, where, list(Listing(where).files().values()), types), folder.parent / "out", "t")
    return pq.read_table(folder.parent / "out").sort_by("id").to_pylist()


@pytest.mark.parametrize("kind", ["parquet", "json", "csv"])
def test_duckdb_reads_what_is_in_the_files(tmp_path: Path, kind: str) -> None:
    written(tmp_path / "in", kind)
    found = read(tmp_path / "in", options(kind), TYPES)
    assert [{name: str(value) for name, value in row.items() if value is not None} for row in found] == [
        {
            "id": "1",
            "price": "0.10",
            "note": 'a "quoted", ü',
            "at": "2020-01-01 00:00:00.000001+00:00",
            "ratio": "0.1",
        },
        {"id": "2", "price": "-9999999999.99", "note": "", "day": "1500-02-28", "flag": "True"},
        {"id": "3"},
    ]


@pytest.mark.parametrize("kind", ["json", "csv"])
@pytest.mark.parametrize(("column", "value"), [("price", "1.005"), ("id", "7.5"), ("id", "9223372036854775808")])
def test_a_number_that_does_not_fit_is_an_error_and_never_rounded(
    tmp_path: Path, kind: str, column: str, value: str
) -> None:
    (tmp_path / "in").mkdir()
    text = f'{{"{column}": {value}}}\n' if kind == "json" else f"{column}\n{value}\n"
    (tmp_path / "in" / f"0.{kind}").write_text(text)
    with pytest.raises(BadData, match="DuckDB cannot read its snapshot as the job did"):
        read(tmp_path / "in", options(kind), TYPES)


@pytest.mark.parametrize(
    ("told", "types", "name", "why"),
    [
        (options("json"), {"d": "DECIMAL(38,10)"}, "0.json", "column 'd' is DECIMAL"),
        (options("json"), {"d": "STRUCT(x DECIMAL(3,1))"}, "0.json", "column 'd' is STRUCT"),
        (options("csv"), {"d": "INTEGER[]"}, "0.csv", "which CSV cannot hold"),
        (options("csv", csv=CsvOptions(multi_line=True)), TYPES, "0.csv", "csv.multi_line"),
        (options("csv", csv=CsvOptions(escape="\\")), TYPES, "0.csv", "csv.escape"),
        (options("parquet"), TYPES, "a[1].parquet", "for a pattern"),
    ],
)
def test_what_duckdb_would_read_otherwise_is_refused_by_name(
    tmp_path: Path, told: SnapshotOptions, types: dict[str, str], name: str, why: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_text("id\n1\n")
    with pytest.raises(UsageError, match="verify --independent: ") as caught:
        read(tmp_path / "in", told, types)
    assert why in caught.value.message
    if told.format == "csv":
        with typed(caught.value) as hint:
            hint.says("leave --independent out: the job's own readers can read these files")
            assert ours(tmp_path / "in", told.csv)[-1] == "1"


def ours(folder: Path, told: CsvOptions) -> list[str]:
    """The first column of CSV as the job's own reader reads it."""
    where = place(str(folder), "t")
    (part,) = csv_files.parts(where, list(Listing(where).files().values()), told)
    rows = TextRows(told, ("c",), {"c": field("c", "string")})
    return [value for batch in csv_files.batches(rows, part) for value in batch["c"].to_pylist()]


def job(folder: Path, kind: str, more: str = "") -> Catalog:
    schema = "" if kind == "parquet" else f', schema = "{DDL}"'
    text = JOB.replace("HERE", str(folder)).replace("FORMAT", kind).replace("SCHEMA", schema)
    (folder / "job.toml").write_text(text + more, "utf-8")
    catalog = Catalog(folder / "c.duckdb")
    start(load(folder / "job.toml"), catalog, "caught-up", False, None)
    return catalog


@pytest.mark.parametrize("kind", ["parquet", "json", "csv"])
def test_a_finished_snapshot_is_compared_and_a_value_that_differs_is_named(
    spark: "SparkSession", tmp_path: Path, kind: str
) -> None:
    written(tmp_path / "in", kind)
    catalog = job(tmp_path, kind)
    report = verify("j", catalog, independent=True)
    assert (report.equal, report.independent, report.tables[0].rows_upstream) == (True, True, 3)
    with duckdb.connect(str(tmp_path / "w.duckdb")) as db:
        db.execute("UPDATE t SET note = '' WHERE id = 3")
    (row,) = verify("j", catalog, independent=True).tables[0].rows
    assert (row.column, row.upstream, row.sink) == ("note", None, "")
    assert not (tmp_path / "staging" / "j").exists() or not list((tmp_path / "staging" / "j").glob("verify-*"))


def test_a_transform_is_spark_sql_and_refused(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "in" / "0.parquet")
    catalog = job(tmp_path, "parquet", '[transform]\nwhere = "id > 1"\n')
    why = "table 't' cannot be verified independently: it has a transform"
    with pytest.raises(UsageError, match=why) as refused:
        verify("j", catalog, independent=True)
    with typed(refused.value) as hint:
        assert hint.options() == {"--independent": ""}
        assert verify("j", catalog).equal


@pytest.mark.parametrize(
    ("status", "position", "why"),
    [
        (SplitStatus.CONSUMED, "3.json", "changes have been applied since its snapshot"),
        (SplitStatus.CONSUMING, "", "its snapshot is not finished"),
    ],
)
def test_what_only_our_readers_know_is_refused(
    tmp_path: Path, status: SplitStatus, position: str, why: str
) -> None:
    written(tmp_path / "in", "json")
    text = JOB.replace("HERE", str(tmp_path)).replace("FORMAT", "json").replace("SCHEMA", f', schema = "{DDL}"')
    (tmp_path / "job.toml").write_text(text, "utf-8")
    config = load(tmp_path / "job.toml")
    at = Checkpoint(
        1, 0, 0, "a", "{}", Phase.UPSTREAM, Position.of({"t": position} if position else {}),
        splits={("t", "0.json"): SplitProgress(status, 1, 1, 1)},
    )  # fmt: skip
    rows = IndependentRows(None, config.open_upstream(), config, Pin(START, None, None, ()), tmp_path)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=f"table 't' cannot be verified independently: {why}"):
        rows(SinkTable("t", "t", ("id",), "{}"), at)


@pytest.mark.parametrize("table", ["t", "t.quarantine"])
def test_quarantined_rows_are_told_by_our_readers_alone(tmp_path: Path, table: str) -> None:
    """Without any, the side table is empty."""
    written(tmp_path / "in", "json")
    text = JOB.replace("HERE", str(tmp_path)).replace("FORMAT", "json").replace("SCHEMA", f', schema = "{DDL}"')
    (tmp_path / "job.toml").write_text(text, "utf-8")
    config = load(tmp_path / "job.toml")
    rows = IndependentRows(None, config.open_upstream(), config, Pin(START, None, None, ()), tmp_path)  # type: ignore[arg-type]
    at = Checkpoint(1, 0, 0, "a", "{}", Phase.UPSTREAM, START, quarantined={"_backfill_quarantine_t": 1})
    with pytest.raises(UsageError, match="rows are quarantined"):
        rows(SinkTable(table, table, (), "{}", side="." in table), at)


def test_a_file_that_the_job_has_not_begun_is_part_of_its_snapshot(tmp_path: Path) -> None:
    """A sink keeps only the splits that advanced."""
    written(tmp_path / "in", "json")
    text = JOB.replace("HERE", str(tmp_path)).replace("FORMAT", "json").replace("SCHEMA", f', schema = "{DDL}"')
    (tmp_path / "job.toml").write_text(text, "utf-8")
    config = load(tmp_path / "job.toml")
    read = {("t", "0.json"): SplitProgress(SplitStatus.CONSUMED, None, 1, 1)}
    at = Checkpoint(1, 0, 0, "a", "{}", Phase.SNAPSHOT, START, splits=read)
    pin = Pin(START, None, None, (Split("t", "0.json", None, 9), Split("t", "1.json", None, 9)))
    rows = IndependentRows(None, config.open_upstream(), config, pin, tmp_path)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="its snapshot is not finished"):
        rows(SinkTable("t", "t", ("id",), "{}"), at)
