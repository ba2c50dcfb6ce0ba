"""The ways of a lake table's rows, as upstream and as sink. A sink is read by the format's own library."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import psycopg
import pyarrow as pa
from deltalake import DeltaTable
from psycopg.rows import dict_row
from pyiceberg.table import StaticTable

from backfill_cli.contracts import Source
from backfill_cli.model.plan import EpochPlan, SnapshotRead
from backfill_cli.model.upstream import Pin
from oracle import changes_routes, lake_histories, lake_history_writers, plain
from oracle.answer import Answer, Rows
from oracle.jobs import loaded
from oracle.routes import Batch, Config, Held, route

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _of_delta(folder: Path) -> pa.Table:
    return DeltaTable(str(folder)).to_pyarrow_table()


def _of_iceberg(folder: Path) -> pa.Table:
    """The files that pyiceberg names, read by DuckDB: it reads a NULL list in a struct as an empty one itself."""
    files = [task.file.file_path for task in StaticTable.from_metadata(str(folder)).scan().plan_files()]
    with duckdb.connect() as con:
        return con.read_parquet(files).to_arrow_table()


READERS: Mapping[str, Callable[[Path], pa.Table]] = {"delta": _of_delta, "iceberg": _of_iceberg}
WIDER = {"delta": {"UUID": "VARCHAR"}, "iceberg": {"UUID": "VARCHAR", "TINYINT": "INTEGER", "SMALLINT": "INTEGER"}}
"""DuckDB's types of what a sink keeps in another one, by format."""


def in_lake(form: str) -> Held:
    """Rows in a table of this format, read by its own library."""

    def read(batch: Batch) -> tuple[dict[str, str], list[plain.Row]]:
        held = READERS[form](batch.folder / "lake" / "t")
        types = plain.types_of(held)
        return types, plain.rows_of(held, types)

    def kept(answer: Answer) -> Answer:
        if not isinstance(answer, Rows):
            return answer
        types = answer.types and tuple((name, _wider(form, kind)) for name, kind in answer.types)
        rows = tuple({name: _as_text(value) for name, value in row.items()} for row in answer.rows)
        return replace(answer, rows=rows, types=types)

    return Held(read, kept)


def _wider(form: str, kind: str) -> str:
    return re.sub(r'"[^"]*"|\w+', lambda found: WIDER[form].get(found[0], found[0]), kind)


def _as_text(value: plain.Value) -> plain.Value:
    return ("text", value[1]) if value is not None and value[0] == "uuid" else value


def into(batch: Batch, form: str) -> Config:
    return {**batch.config, "sink": {"type": form, "table": str(batch.folder / "lake" / "{table}")}}


def ranges(upstream: Source, pin: Pin) -> Iterable[EpochPlan]:
    """The snapshot in two epochs, cut inside each split that can be; then the log at once."""
    begun = [SnapshotRead(one.table, one.id, limit_rows=max(1, (one.rows or 0) // 3)) for one in pin.splits]
    read = upstream.closed("t", begun)
    left = tuple(replace(one, after=one.up_to, up_to=None) for one in read if one.up_to is not None)
    assert left
    yield EpochPlan(reads=tuple(read))
    yield EpochPlan(reads=left, closes_snapshot=("t",))
    yield from (plan for plan in changes_routes.plans(upstream, pin, 1) if plan.window is not None)


OF_ENGINE = ("staging.stage._by_spark:scan", "contracts.source.read_log:changes")


@route("into DuckDB", "delta", "iceberg", covers=OF_ENGINE)
def into_duckdb(batch: Batch, spark: "SparkSession") -> None:
    loaded(batch.config, spark, lambda upstream, pin: changes_routes.plans(upstream, pin, 3))


@route("into Delta", "iceberg", covers=OF_ENGINE, held=in_lake("delta"))
def into_delta(batch: Batch, spark: "SparkSession") -> None:
    loaded(into(batch, "delta"), spark, ranges)


@route("into Iceberg", "delta", covers=OF_ENGINE, held=in_lake("iceberg"))
def into_iceberg(batch: Batch, spark: "SparkSession") -> None:
    loaded(into(batch, "iceberg"), spark, ranges)


def _at_once(upstream: Source, pin: Pin) -> Iterable[EpochPlan]:
    return changes_routes.plans(upstream, pin, 1)


@route("Delta", "a lake", covers=(), held=in_lake("delta"), together=1000, refusals=0)
def of_files_into_delta(batch: Batch, spark: "SparkSession") -> None:
    loaded(into(batch, "delta"), spark, _at_once)


@route("Iceberg", "a lake", covers=(), held=in_lake("iceberg"), together=1000, refusals=0)
def of_files_into_iceberg(batch: Batch, spark: "SparkSession") -> None:
    loaded(into(batch, "iceberg"), spark, _at_once)


def _into_parted(batch: Batch, form: str, spark: "SparkSession") -> None:
    schema = lake_histories.schema_of(len(lake_histories.COLUMNS))
    lake_history_writers.empty(form, batch.folder / form / "t", schema, ("s",))
    config = {**batch.config, "sink": {"type": form, "table": f"{batch.folder}/{form}/{{table}}"}}
    loaded(config, spark, lambda upstream, pin: changes_routes.plans(upstream, pin, 2))


def _rows_in_each(batch: Batch) -> tuple[dict[str, str], list[plain.Row]]:
    """Those in DuckDB, once the others are seen to hold the same."""
    types, rows = plain.of_duckdb(batch.sink, "t")
    width = len(types) - 1
    tables = {"postgres": _of_postgres(lake_histories.schema_of(width))}
    if (delta := batch.folder / "delta" / "t").exists():
        iceberg = StaticTable.from_metadata(str(batch.folder / "iceberg" / "t")).scan().to_arrow()
        tables |= {"delta": _of_delta(delta), "iceberg": iceberg}
    for name, held in tables.items():
        found = plain.rows_of(held, plain.types_of(held))
        lacking, more = (
            Counter(repr(sorted(row.items())) for row in one) - Counter(repr(sorted(row.items())) for row in other)
            for one, other in ((rows, found), (found, rows))
        )
        assert not lacking, (name, list(lacking)[:3], list(more)[:3])
        assert not more, (name, list(more)[:3])
    return types, rows


def _of_postgres(schema: pa.Schema) -> pa.Table:
    with psycopg.connect(os.environ["ORACLE_DSN"], row_factory=dict_row) as con:
        return pa.Table.from_pylist(con.execute("SELECT * FROM t").fetchall(), schema)


@route("history into databases", "history", covers=(), refusals=0, held=Held(_rows_in_each, lambda answer: answer))
def history_into_databases(batch: Batch, spark: "SparkSession") -> None:
    """Files of lakes lack the columns that came later, so their libraries read them; no type here is nested."""
    loaded(batch.config, spark, lambda upstream, pin: changes_routes.plans(upstream, pin, 3))
    sink = {"type": "postgres", "dsn": "${env:ORACLE_DSN}"}
    loaded({**batch.config, "sink": sink}, spark, lambda upstream, pin: changes_routes.plans(upstream, pin, 2))


@route(
    "history into every sink", "history", covers=(), refusals=0, held=Held(_rows_in_each, lambda answer: answer)
)
def history_into_every_sink(batch: Batch, spark: "SparkSession") -> None:
    history_into_databases(batch, spark)
    for form in ("delta", "iceberg"):
        _into_parted(batch, form, spark)
