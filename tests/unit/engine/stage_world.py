"""A job of two tables over an upstream of lists, its stager, and what a staged epoch holds or leaves."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from backfill_cli.config import JobConfig, load
from backfill_cli.contracts import ArrowTasks, Capabilities, Piece, Pinned, Source
from backfill_cli.engine.staging.stage import SparkStager
from backfill_cli.errors import BackfillError, BadData
from backfill_cli.model.plan import ChangeWindow, SnapshotRead, Staged, StagedFile
from backfill_cli.model.position import START, Cursor, Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOB = """
[job]
name = "shop"
staging = "HERE/staging"
[upstream]
type = "files"
snapshot = { path = "{table}/snapshot", format = "parquet" }
changes = { path = "{table}/changes", format = "change-feed" }
[[tables]]
name = "orders"
key = ["id"]
[[tables]]
name = "items"
key = ["order", "line"]
[tables.transform]
select = ["line", "order AS `order id`", "upper(note) AS note"]
where = "note <> 'no'"
[sink]
type = "duckdb"
path = "w.duckdb"
"""
WINDOW = ChangeWindow(START, Position.of({"log": 2}), 5, 6, 2)


def struct(**columns: str) -> str:
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns.items()]
    return json.dumps({"type": "struct", "fields": fields})


SCHEMAS = {
    "orders": struct(id="long", v="integer"),
    "items": struct(order="integer", line="integer", note="string"),
}
ROWS = {
    "orders": [[(1, 10), (2, 20)], [(3, 30)], []],
    "items": [[(1, 1, "a"), (1, 2, "no"), (2, 1, "b")]],
}
CHANGES: dict[str, list[tuple[Any, ...]]] = {
    "orders": [("U", 1, 7, 1, 11), ("U", 2, 9, 1, 12), ("D", 3, 8, 3, None)],
    "items": [("U", 1, None, 1, 1, "no"), ("U", 2, None, 5, 5, "new")],
}


@dataclass
class Upstream(Source):
    """Rows of lists; split = index into a table's lists."""

    rows: dict[str, list[list[tuple[Any, ...]]]] = field(default_factory=lambda: dict(ROWS))
    log: dict[str, list[tuple[Any, ...]]] = field(default_factory=lambda: dict(CHANGES))
    asked: list[str] = field(default_factory=list)
    place: str = "INT"
    capabilities = Capabilities(Pinned(), True, True)

    def pin(self) -> Any: ...
    def restore(self, pin: Any) -> None: ...
    def observe(self, *_: Any) -> Any: ...

    def closed(self, table: str, reads: Sequence[SnapshotRead]) -> Sequence[SnapshotRead]:
        """Cursors are letters: a, b, c for the rows 0, 1, 2."""
        return [
            r
            if r.limit_rows is None
            else replace(r, up_to=letter(index(r.after, 0) + r.limit_rows), limit_rows=None)
            for r in reads
        ]

    def row_count(self, read: SnapshotRead) -> int | None:
        return None if read.up_to is None else index(read.up_to, 0) - index(read.after, 0)

    def part(self, table: str, read: SnapshotRead) -> list[tuple[Any, ...]]:
        return self.rows[table][int(read.split)][index(read.after, 0) : index(read.up_to, 99)]

    def scan(self, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]) -> "DataFrame":
        found = [(i, *row) for i, r in enumerate(reads) for row in self.part(table, r)]
        return spark.createDataFrame(found, "_backfill_read INT, " + ddl(SCHEMAS[table]))

    def changes(
        self, spark: "SparkSession", table: str, after: Position, up_to: Position, schema: str
    ) -> "DataFrame":
        self.asked.append(schema)
        columns = f"_backfill_op STRING, _backfill_seq {self.place}, _backfill_ms BIGINT, {ddl(schema)}"
        return spark.createDataFrame(self.log[table], columns)

    def failure(self, exc: Exception) -> BackfillError | None:
        return BadData("part-1 is no Parquet file") if "part-1" in str(exc) else None


@dataclass
class WorkersUpstream(Upstream):
    """The same, with rows and changes produced in workers; rows only if there is no transform.

    parts: how many the changes are.
    """

    parts: int = 1

    def batches(self, table: str, reads: Sequence[SnapshotRead], cores: int) -> ArrowTasks:
        return tasks([(i, self.part(table, r)) for i, r in enumerate(reads)], SCHEMAS[table])

    def change_batches(
        self, table: str, after: Position, up_to: Position, schema: str, cores: int
    ) -> ArrowTasks | None:
        if self.place != "INT":
            return None
        self.asked.append(schema)
        rows = sorted(self.log[table], key=lambda row: int(row[1]))
        size = -(-len(rows) // self.parts)
        marks = struct(_backfill_op="string", _backfill_seq="integer", _backfill_ms="long")
        fields = json.loads(marks)["fields"] + json.loads(schema)["fields"]
        cut = [(0, rows[at : at + size]) for at in range(0, len(rows), size)] if rows else []
        return tasks(cut, json.dumps({"type": "struct", "fields": fields}))


def tasks(parts: Sequence[tuple[int, list[tuple[Any, ...]]]], schema: str) -> ArrowTasks:
    """parts: the index of a read, and its rows."""
    fields = json.loads(schema)["fields"]
    names = [field["name"] for field in fields]
    alike = {"long": "int64", "integer": "int32", "double": "float64"}
    kinds = [alike.get(field["type"], "string") for field in fields]

    def make(rows: list[tuple[Any, ...]]) -> Iterator[Any]:
        import pyarrow as pa

        arrow = pa.schema(list(zip(names, map(pa.type_for_alias, kinds), strict=True)))
        yield pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows], arrow)

    return ArrowTasks(make, tuple((Piece(read, rows),) for read, rows in parts), schema)


def ddl(schema: str) -> str:
    return ", ".join(f"`{f['name']}` {f['type']}" for f in json.loads(schema)["fields"])


@pytest.fixture
def config(tmp_path: Path) -> JobConfig:
    (tmp_path / "job.toml").write_text(JOB.replace("HERE", str(tmp_path)), "utf-8")
    return load(tmp_path / "job.toml")


@pytest.fixture(params=[Upstream, WorkersUpstream])
def upstream(request: pytest.FixtureRequest) -> Upstream:
    """Runs each test twice: with rows that Spark reads, and with rows that workers produce."""
    made: Upstream = request.param()
    return made


@pytest.fixture
def stager(spark: "SparkSession", upstream: Upstream, config: JobConfig) -> SparkStager:
    return SparkStager(lambda: spark, upstream, config)  # type: ignore[arg-type]


def letter(row: int) -> str:
    return "abcdefghij"[row]


def index(cursor: Cursor | None, otherwise: int) -> int:
    return otherwise if cursor is None else "abcdefghij".index(str(cursor))


def read(table: str, split: int, after: int, up_to: int | None) -> SnapshotRead:
    return SnapshotRead(table, str(split), letter(after), None if up_to is None else letter(up_to))


def held(stager: SparkStager, staged: Staged, files: Sequence[StagedFile]) -> list[tuple[Any, ...]]:
    folder = Path(stager.folder(7, staged.attempt))
    rows = [tuple(row.values()) for f in files for row in pq.read_table(folder / f.path).to_pylist()]
    return sorted(rows, key=str)


def leftovers(stager: SparkStager) -> list[Path]:
    return list(Path(stager.folder(0, "x")).parent.glob("*"))
