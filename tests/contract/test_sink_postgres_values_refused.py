"""Values, types and names that PostgreSQL cannot have are refused by name."""

import hashlib
import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hint_typed import typed
from postgres_database import Database
from postgres_sink import begun, sink_of, staging
from postgres_values import FIRST_US, JOBS, db, table_of
from sink_epochs import Epochs

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import BadData, UsageError
from backfill_cli.model.schema import field
from backfill_cli.sinks.postgres.sink import PostgresSink
from backfill_cli.spark.names import backticked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["db"]

BAD: dict[str, tuple[SinkTable, pa.Array, str]] = {
    "NUL": (table_of("string"), pa.array(["a", "b\0c"]), "0x00"),
    "NUL in an array": (
        table_of({"type": "array", "elementType": "string", "containsNull": True}),
        pa.array([["a"], ["\0"]]),
        "0x00",
    ),
    "no UUID": (table_of("string", logical="uuid"), pa.array([str(uuid.uuid4()), "nonsense"]), "is not a UUID"),
    "no JSON": (table_of("string", logical="json"), pa.array(["1", "{"]), "json"),
    "too early a time": (
        table_of("timestamp_ntz"),
        pa.array([0, FIRST_US - 1], pa.int64()).cast(pa.timestamp("us")),
        "out of range",
    ),
    "a time that no subtraction reaches": (
        table_of("timestamp"),
        pa.array([0, -(2**63) + 2], pa.int64()).cast(pa.timestamp("us", "UTC")),
        "before PostgreSQL's first",
    ),
    "too late a date": (
        table_of("date"),
        pa.array([0, 2_145_042_906], pa.int32()).cast(pa.date32()),
        "out of range",
    ),
}


def emptied(db: Database) -> PostgresSink:
    sink = sink_of(db.dsn)
    db("DROP TABLE IF EXISTS orders")
    sink.forget("orders")
    JOBS.clear()
    return sink


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("staged", ["inserts", "changes"])
def test_a_value_that_postgresql_cannot_hold_is_named_with_its_column_and_key(
    db: Database, tmp_path: Path, case: str, staged: str
) -> None:
    table, values, why = BAD[case]
    sink = emptied(db)
    epochs = begun(sink, tmp_path, table)
    rows = pa.table({"id": pa.array([70, 71], pa.int64()), "v": values})
    if staged == "changes":
        rows = rows.add_column(0, "_backfill_op", pa.array(["U", "U"]))
    with pytest.raises(BadData, match=rf"'orders', column 'v': .*\(id\) = \(71\).*{why}"):
        sink.commit(staging(epochs, **{staged: rows}))
    assert db("SELECT * FROM orders") == []


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("bad", ["inserts", "changes"])
def test_of_an_insert_and_a_change_with_the_same_number_the_one_with_the_value_is_named(
    db: Database, tmp_path: Path, case: str, bad: str
) -> None:
    table, values, why = BAD[case]
    sink = emptied(db)
    epochs = begun(sink, tmp_path, table)
    good = values.take(pa.array([0, 0]))
    inserts = pa.table({"id": pa.array([60, 61], pa.int64()), "v": values if bad == "inserts" else good})
    changes = pa.table({"_backfill_op": ["U", "U"], "id": [70, 71], "v": values if bad == "changes" else good})
    key = 61 if bad == "inserts" else 71
    with pytest.raises(BadData, match=rf"'orders', column 'v': .*\(id\) = \({key}\).*{why}"):
        sink.commit(staging(epochs, inserts=inserts, changes=changes))


def test_a_value_is_shown_as_its_record_has_it_and_not_as_python_does(db: Database, tmp_path: Path) -> None:
    sink = emptied(db)
    epochs = begun(sink, tmp_path, table_of({"type": "array", "elementType": "string", "containsNull": True}))
    with pytest.raises(BadData) as told:
        sink.commit(staging(epochs, inserts=pa.table({"id": [1], "v": [["é", "it's", None, "\0"]]})))
    assert """cannot hold ["é", "it's", null, "\\u0000"] of""" in told.value.message


@pytest.mark.parametrize("staged", ["inserts", "changes"])
@pytest.mark.parametrize("length", [4_000, 20_000])
def test_a_text_that_is_too_long_for_an_index_is_named_with_its_row(
    db: Database, tmp_path: Path, staged: str, length: int
) -> None:
    """PostgreSQL compresses what it indexes: text of one letter could be longer."""
    fields = [field("k", "string"), field("v", "string")]
    table = SinkTable("orders", "orders", ("k",), json.dumps({"type": "struct", "fields": fields}))
    sink = emptied(db)
    epochs = begun(sink, tmp_path, table)
    long = "".join(hashlib.sha256(bytes([n % 256, n // 256])).hexdigest() for n in range(length // 64))
    rows = pa.table({"k": ["a", long], "v": ["x" * 30_000, "y"]})
    told = rows.add_column(0, "_backfill_op", pa.array(["U", "U"])) if staged == "changes" else rows
    found = rf"index of public.orders .*{len(long):,} bytes in column 'k', is in .* the key \(k\) = \({long[:9]}"
    with pytest.raises(BadData, match=found) as refused:
        sink.commit(staging(epochs, **{staged: told}))
    with typed(refused.value) as hint:
        hint.says("correct the rows upstream")
        corrected = Epochs(tmp_path / "corrected", tables=(table,))
        sink.commit(staging(corrected, inserts=rows.slice(0, 1)))
    assert db("SELECT k FROM orders") == [("a",)]


NESTED = {
    "struct": {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]},
    "map": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
    "array of arrays": {
        "type": "array",
        "elementType": {"type": "array", "elementType": "long", "containsNull": True},
        "containsNull": True,
    },
}


@pytest.mark.parametrize("kind", [*NESTED, "variant", "interval"])
def test_a_type_without_an_exact_counterpart_is_refused_before_anything_is_made(db: Database, kind: str) -> None:
    with pytest.raises(BadData, match=r"'odd', column 'v'.*no exact counterpart") as told:
        sink_of(db.dsn).check("other", (table_of(NESTED.get(kind, kind), "odd"),), into_existing=False)
    assert ("to_json(v)" in str(told.value.hint)) == (kind != "interval")


EXPRESSIONS = {
    "v": "named_struct('a', 1)",
    "a map": "map('a', 1)",
    "é": "array(array(1))",
    "`": "parse_json('{\"a\": 1}')",
    "select": "INTERVAL '1' DAY",
    "d e": "array(INTERVAL '1' MONTH)",
}


def test_a_column_that_is_converted_as_the_hint_says_is_accepted(spark: "SparkSession", db: Database) -> None:
    """Types and names that need quotes: the expression is run by Spark, its type is what the sink then gets."""
    sink = sink_of(db.dsn)
    held = [f"{expression} AS {backticked(name)}" for name, expression in EXPRESSIONS.items()]
    for one in held:
        frame = spark.range(1).selectExpr("id", one)
        table = SinkTable("odd", "odd", ("id",), frame.schema.json())
        with pytest.raises(BadData, match="no exact counterpart") as told:
            sink.check("other", (table,), into_existing=False)
        with typed(told.value) as hint:
            (converted,) = hint.settings().values()
            made = frame.selectExpr("id", *converted)  # type: ignore[misc]
            assert made.columns == frame.columns
            sink.check("other", (replace(table, schema=made.schema.json()),), into_existing=False)


@pytest.mark.parametrize("name", ["_backfill_op", "_backfill_unsent", "ctid", "x" * 64, "", "ID"])
def test_a_name_that_the_table_cannot_have_is_refused(db: Database, name: str) -> None:
    fields = [{"name": n, "type": "long", "nullable": True, "metadata": {}} for n in ("id", name)]
    table = SinkTable("odd", "odd", ("id",), json.dumps({"type": "struct", "fields": fields}))
    with pytest.raises(UsageError, match="'odd'") as told:
        sink_of(db.dsn).check("other", (table,), into_existing=False)
    with typed(told.value) as hint:
        hint.says("rename" if name else "give it a name upstream")
        fields[1]["name"] = (
            str(hint.settings()["select"]).split(" AS ")[1][:-2] if "its_" in hint.hint else "other"
        )
        table = replace(table, schema=json.dumps({"type": "struct", "fields": fields}))
        sink_of(db.dsn).check("other", (table,), into_existing=False)


def test_a_key_that_cannot_be_compared_or_is_left_out_is_converted_or_added_as_the_hint_says(
    db: Database,
) -> None:
    sink = sink_of(db.dsn)
    table = replace(table_of("string", "odd", logical="json"), key=("v",))
    with pytest.raises(BadData, match="'v' is json") as told:
        sink.check("other", (table,), into_existing=False)
    with typed(told.value) as hint:
        assert hint.settings() == {"select": ["CAST(v AS STRING) AS v"]}
        sink.check("other", (replace(table_of("string", "odd"), key=("v",)),), into_existing=False)
    lacking = replace(table_of("string", "odd"), key=("id", "other key"))
    with pytest.raises(UsageError, match="'other key' is not among its columns") as told:
        sink.check("other", (lacking,), into_existing=False)
    with typed(told.value) as hint:
        assert hint.settings() == {"select": ["`other key`"]}
        whole = json.loads(lacking.schema)
        whole["fields"].append({"name": "other key", "type": "long", "nullable": True, "metadata": {}})
        sink.check("other", (replace(lacking, schema=json.dumps(whole)),), into_existing=False)


def test_names_with_quotes_dots_and_blanks_are_kept(db: Database, tmp_path: Path) -> None:
    names = ['a "b"', "c.d", "E f", "é", "select", "x" * 63]
    fields = [{"name": n, "type": "long", "nullable": True, "metadata": {}} for n in ("id", *names)]
    table = SinkTable("odd", 'Odd "t"', ("id", 'a "b"'), json.dumps({"type": "struct", "fields": fields}))
    epochs = begun(sink_of(db.dsn), tmp_path, table)
    rows = {name: pa.array([1, 2], pa.int64()) for name in ("id", *names)}
    sink_of(db.dsn).commit(staging(epochs, inserts=pa.table(rows)))
    changed = {"_backfill_op": pa.array(["U", "D"]), **rows, "c.d": pa.array([7, None], pa.int64())}
    sink_of(db.dsn).commit(staging(epochs, changes=pa.table(changed)))
    assert db('SELECT * FROM "Odd ""t"""') == [(1, 1, 7, 1, 1, 1, 1)]
