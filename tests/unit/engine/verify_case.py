"""A table of the upstream and its copy in a real DuckDB sink, of two columns or of every type, to be compared."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from backfill_cli.contracts import EpochCommit, JobDefinition, SavedJob, SinkTable
from backfill_cli.engine.verify.job import Verification
from backfill_cli.engine.verify.progress import Steps
from backfill_cli.engine.verify.table import compare
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import Staged, StagedFile, StagedTable
from backfill_cli.model.position import Position
from backfill_cli.model.verify import EVERYTHING, TableVerdict
from backfill_cli.sinks.duckdb import DuckDBOptions
from backfill_cli.sinks.duckdb.sink import DuckDBSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


UNTOLD = Steps("", lambda _: None, time.monotonic)
"""Progress that nobody is told of."""


def a_field(name: str, kind: object, logical: str | None = None) -> dict[str, object]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {"logical": logical} if logical else {}}


def an_array(of: str) -> dict[str, object]:
    return {"type": "array", "elementType": of, "containsNull": True}


A_MAP = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
A_STRUCT = {"type": "struct", "fields": [a_field("x", "long"), a_field("t", "timestamp")]}

# name -> (Spark type, SQL of row i); the last row of every column is NULL
COLUMNS = {
    "flag": (a_field("flag", "boolean"), "i % 3 = 0"),
    "tiny": (a_field("tiny", "byte"), "(i % 100 - 50)::TINYINT"),
    "small": (a_field("small", "short"), "(i * 31 - 9000)::SMALLINT"),
    "whole": (a_field("whole", "integer"), "(i * 1000003 - 300000000)::INTEGER"),
    "big": (a_field("big", "long"), "9223372036854775807 - i * 1000000007"),
    "price": (a_field("price", "decimal(12,2)"), "(i * 7919 - 99999)::DECIMAL(12,2) / 100"),
    "wide": (a_field("wide", "decimal(18,4)"), "99999999999999.9999 - i"),
    "huge": (a_field("huge", "decimal(38,10)"), "(i / 7)::DECIMAL(38,10) + 1234567890123456789012345678"),
    "ratio": (
        a_field("ratio", "double"),
        "CASE i % 4 WHEN 0 THEN i / 7.0 WHEN 1 THEN 'nan' ELSE '-inf' END::DOUBLE",
    ),
    "thin": (a_field("thin", "float"), "(i / 3.0)::FLOAT"),
    "word": (a_field("word", "string"), "['paid', '', 'größe', repeat('long ', 9), NULL][1 + i % 5]"),
    "note": (a_field("note", "string"), "'note ' || i"),
    "data": (a_field("data", "binary"), "encode('b' || i)"),
    "day": (a_field("day", "date"), "DATE '1500-02-27' + i::INTEGER * 200"),
    "at": (
        a_field("at", "timestamp"),
        "TIMESTAMPTZ '1890-01-01 00:00:00.000001+00' + to_microseconds(i * 86400000001)",
    ),
    "local": (
        a_field("local", "timestamp_ntz"),
        "TIMESTAMP '0001-01-01 00:00:00' + to_microseconds(i * 999999999)",
    ),
    "list": (a_field("list", an_array("string")), "CASE WHEN i % 2 = 0 THEN [NULL, 'a' || i] ELSE [] END"),
    "dict": (a_field("dict", A_MAP), "MAP {'k' || i: i, 'z': NULL}"),
    "nest": (a_field("nest", A_STRUCT), "{'x': i, 't': TIMESTAMPTZ '2020-01-01 00:00:00.000007+00'}"),
    "uid": (a_field("uid", "string", "uuid"), "upper(md5('u' || i)::UUID::VARCHAR)"),
    "doc": (a_field("doc", "string", "json"), """'{"a":  ' || i || '}'"""),
}
ROWS = 450


@dataclass
class Case:
    """A DuckDB sink that holds one table, and the upstream that it was filled from, as Parquet."""

    spark: "SparkSession"
    folder: Path
    table: SinkTable
    sink: DuckDBSink

    @classmethod
    def of(
        cls, spark: "SparkSession", folder: Path, key: tuple[str, ...], fields: list[object], sql: str
    ) -> "Case":
        schema = json.dumps({"type": "struct", "fields": fields})
        table = SinkTable("t", "t", key, schema)
        (folder / "up").mkdir()
        with duckdb.connect() as con:
            con.execute("SET TimeZone = 'UTC'")
            con.execute(f"COPY ({sql}) TO '{folder}/up/0.parquet' (FORMAT parquet)")
        case = cls(spark, folder, table, DuckDBSink(DuckDBOptions(path=str(folder / "w.duckdb"))))
        case.sink.prepare("j", [table], into_existing=False)
        case.commit(1, 0)
        return case

    def commit(self, epoch: int, prev: int, files: tuple[StagedFile, ...] = (StagedFile("0.parquet", 1),)) -> None:
        staged = Staged(f"a{epoch}", {"t": StagedTable(inserts=files, rows=len(files))})
        at = Checkpoint(epoch, prev, 0, f"a{epoch}", "{}", Phase.SNAPSHOT, Position.of({"log": epoch}))
        saved = SavedJob("{}", at)
        folder = str(self.folder / "up")
        self.sink.commit(EpochCommit("j", epoch, prev, 0, f"a{epoch}", (self.table,), folder, staged, (), saved))

    def expected(self) -> "DataFrame":
        return self.spark.read.parquet(str(self.folder / "up"))

    def stranger(self, sql: str) -> None:
        with duckdb.connect(str(self.folder / "w.duckdb")) as con:
            con.execute("SET TimeZone = 'UTC'")
            con.execute(sql)

    def verdict(self, limit: int = 20, sample: float | None = None) -> TableVerdict:
        folder = self.folder / f"v{time.monotonic_ns()}"
        folder.mkdir()
        with self.sink.copied("j", False, folder) as copy:
            return compare(self.spark, self.expected(), copy, self.table, limit, sample, UNTOLD).verdict


def verification(case: Case, job: JobDefinition, live: bool, staging: Path | None = None) -> Verification:
    config: Any = SimpleNamespace(job=SimpleNamespace(staging=str(staging or case.folder)))
    resources: Any = SimpleNamespace(spark=case.spark)
    return Verification(job, config, resources, case.sink.copied, live, EVERYTHING, UNTOLD)


@pytest.fixture
def orders(spark: "SparkSession", tmp_path: Path) -> Case:
    """Integer key, columns that both engines hash: no fallback to Spark's hash."""
    names = ("whole", "price", "word", "at", "day")
    return Case.of(spark, tmp_path, ("id",), *columns(names))


@pytest.fixture
def everything(spark: "SparkSession", tmp_path: Path) -> Case:
    return Case.of(spark, tmp_path, ("id",), *columns(tuple(COLUMNS)))


def columns(names: tuple[str, ...], key: str = "i AS id", kind: str = "long") -> tuple[list[object], str]:
    values = ", ".join(f'CASE WHEN i < {ROWS - 1} THEN {COLUMNS[name][1]} END AS "{name}"' for name in names)
    return [
        a_field("id", kind),
        *(COLUMNS[name][0] for name in names),
    ], f"SELECT {key}, {values} FROM range({ROWS}) r(i)"
