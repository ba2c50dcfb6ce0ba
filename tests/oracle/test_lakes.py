"""Lake tables on both sides: exactly the rows that the formats' libraries wrote, and read; or the column is named.

As an upstream: one table of many small logs, a column of each of the format's types. As a sink: files and changes
as they are in DuckDB, in a table that deltalake or pyiceberg reads.
"""

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from postgres import Server
from postgres_database import database

from backfill_cli.contracts import ArrowTasks
from backfill_cli.lake.key_ranges import KeyRead
from backfill_cli.lake.plain_files import PlainFiles
from oracle import (
    debezium_inputs,
    lake_histories,
    lake_inputs,
    lake_routes,
    parquet_examples,
    parquet_inputs,
    routes,
    typed,
)
from oracle.inputs import SEED, TIMES, Drawn, generated, written
from oracle.judge import judge
from oracle.parquet_inputs import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

assert lake_routes
LOGS = 120
HISTORIES = 300
TITLES = {"delta": "A Delta table", "iceberg": "An Iceberg table"}
UPSTREAM = [(form, route.name) for form in TITLES for route in routes.of(form)]
OTHERS = ("parquet, all types", "debezium")
SINK = [(form, route.name) for route in routes.of("a lake") for form in OTHERS]


@pytest.mark.parametrize(("form", "route"), UPSTREAM)
def test_a_table_and_its_changes_are_exact_or_refused(
    form: str, route: str, spark: "SparkSession", judged: Callable[[int], None]
) -> None:
    logs = int(LOGS * TIMES)
    inputs = [Drawn(lake_inputs.whole(form, random.Random(SEED), logs))]
    inputs += [Drawn(lake_inputs.OddColumn(form, kind)) for kind in lake_inputs.ODD[form]]
    found = judge(routes.ROUTES[route], inputs, spark)
    typed.note(form, route, found)
    judged(logs)
    assert not found.findings, "\n\n".join(str(one)[:6000] for one in found.findings)


@pytest.mark.parametrize(("form", "route"), [("delta", "into DuckDB"), ("iceberg", "into Delta")])
def test_a_table_that_workers_read_without_spark_is_exact(
    form: str, route: str, spark: "SparkSession", judged: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, tasks, taken = int(LOGS // 2 * TIMES), PlainFiles.tasks, []

    def noted(files: PlainFiles, reads: Sequence[KeyRead], cores: int) -> ArrowTasks | None:
        made = tasks(files, reads, cores)
        taken.append(made is not None)
        return made

    monkeypatch.setattr(PlainFiles, "tasks", noted)
    inputs = [Drawn(lake_inputs.whole(form, random.Random(SEED + 1), logs, lake_inputs.flat(form)))]
    found = judge(routes.ROUTES[route], inputs, spark)
    judged(logs)
    assert not found.findings, "\n\n".join(str(one)[:6000] for one in found.findings)
    assert taken
    assert all(taken)


@pytest.mark.in_turn("histories of partitioned tables")
@pytest.mark.parametrize(
    ("form", "writer", "partitions", "sinks"),
    [
        ("delta", "its library", "day", "every sink"),
        ("iceberg", "its library", "s", "databases"),
        pytest.param("iceberg", "its library", "s", "every sink", marks=pytest.mark.long),
        # What Spark writes of all that Delta has is in formats/test_delta_hostile.py, too.
        ("delta", "Spark", "s", "databases"),
        ("iceberg", "Spark", "i", "databases"),
    ],
)
def test_case_71_histories_of_partitioned_tables_are_exact_in_every_sink(
    form: str, writer: str, partitions: str, sinks: str, spark: "SparkSession", postgres: Server,
    judged: Callable[[int], None], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    logs, chance = int(HISTORIES * TIMES), random.Random(f"{SEED} {form} {writer}")
    inputs = [Drawn(lake_histories.history(form, writer, tuple(partitions.split()), chance, logs))]
    with database(postgres) as db:
        monkeypatch.setenv("ORACLE_DSN", db.dsn)
        found = judge(routes.ROUTES[f"history into {sinks}"], inputs, spark)
    judged(logs * (4 if sinks == "every sink" else 2))
    assert not found.findings, "\n\n".join(str(one)[:6000] for one in found.findings)


def drawn(form: str) -> tuple[list[Drawn], int]:
    """Those of one job, and how many they are."""
    if form == "debezium":
        chance, pool = random.Random(SEED), debezium_inputs.pools("us", "precise", 60)
        logs = [debezium_inputs.log(chance, pool, 1, False) for _ in range(int(100 * TIMES))]
        return [Drawn(debezium_inputs.merged(logs))], len(logs)
    wide = [*written(parquet_examples.WIDE_EXAMPLES[:1]), *generated(parquet_inputs.wide(), 11)]
    wide = [replace(one, input=replace(one.input, writer=Writer())) for one in wide]  # type: ignore[type-var]
    return wide, sum(one.input.size for one in wide)


@pytest.mark.parametrize(("form", "route"), SINK)
def test_files_and_changes_are_in_a_lake_as_they_are_in_duckdb(
    form: str, route: str, spark: "SparkSession", judged: Callable[[int], None]
) -> None:
    inputs, count = drawn(form)
    found = judge(routes.ROUTES[route], inputs, spark)
    typed.note(f"{form}, a lake", route, found)
    judged(count)
    assert not found.findings, "\n\n".join(str(one)[:6000] for one in found.findings)


def test_the_page_of_types_is_what_was_measured() -> None:
    if not {*UPSTREAM, *((f"{form}, a lake", route) for form, route in SINK)} <= set(typed.MEASURED):
        missing = "not all routes were measured in this run"
        pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
    tables = [typed.table(title, [form]) for form, title in TITLES.items()]
    tables.append(typed.table("Files, into a lake", [f"{form}, a lake" for form in OTHERS]))
    typed.checked("lakes", "\n".join(tables))
