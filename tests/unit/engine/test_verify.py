"""`verify` finds and names every difference, without false alarms. Runs Spark against a real DuckDB sink."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hint_typed import typed
from verify_case import COLUMNS, ROWS, UNTOLD, Case, a_field, everything, orders

from backfill_cli.contracts import JobDefinition
from backfill_cli.engine.verify.fix import _refuse, _Stage
from backfill_cli.engine.verify.table import compare
from backfill_cli.errors import BadData, UsageError
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.digest import xxhash64
from backfill_cli.model.job import Phase
from backfill_cli.model.position import START
from backfill_cli.model.upstream import Pin
from backfill_cli.model.verify import Asked, DifferentRow, TableVerdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["everything", "orders"]


def test_xxhash64_is_sparks(spark: "SparkSession") -> None:
    texts = ["", "a", "größe", "null", *("x" * n for n in (3, 4, 7, 8, 31, 32, 33, 64, 100)), "\N{SNOWMAN}" * 40]
    hashes = ", ".join(f"xxhash64(CAST(X'{text.encode().hex()}' AS STRING))" for text in texts)
    row = spark.sql(f"SELECT array({hashes}) AS h").toArrow().to_pylist()
    assert row == [{"h": [xxhash64(text.encode()) for text in texts]}]


def test_every_type_is_equal_to_itself(everything: Case) -> None:
    assert everything.verdict() == TableVerdict("t", "t", True, ROWS, ROWS)


def test_a_value_that_differs_is_named_whatever_its_type(everything: Case) -> None:
    """One value of each column becomes NULL, and a NULL of each another row's value."""
    for at, name in enumerate(COLUMNS):
        everything.stranger(f'UPDATE t SET "{name}" = NULL WHERE id = {20 * at + 6}')
    last = ", ".join(f'"{name}" = (SELECT "{name}" FROM t WHERE id = 0)' for name in COLUMNS)
    everything.stranger(f"UPDATE t SET {last} WHERE id = {ROWS - 1}")
    verdict = everything.verdict(limit=100)
    told = {(row.key[0][1], row.column): (row.upstream is None, row.sink is None) for row in verdict.rows}
    emptied = {(str(20 * at + 6), name): (False, True) for at, name in enumerate(COLUMNS)}
    filled = {(str(ROWS - 1), name): (True, False) for name in COLUMNS}
    assert told == {**emptied, **filled}
    ranges = [found.columns for found in verdict.different]
    assert ranges[:-1] == [(name,) for name in COLUMNS]
    assert set(ranges[-1]) == set(COLUMNS)


def test_columns_of_rows_on_one_side_only_do_not_differ(orders: Case) -> None:
    """Their hashes do, with those of all other columns."""
    orders.stranger("DELETE FROM t WHERE id = 1")
    orders.stranger(f"DELETE FROM t WHERE id = {ROWS // 2}; UPDATE t SET word = 'x' WHERE id = {ROWS // 2 + 1}")
    orders.stranger(f"INSERT INTO t BY NAME SELECT {ROWS} AS id, 'x' AS word")
    verdict = orders.verdict()
    assert (verdict.missing, verdict.extra, verdict.changed) == (2, 1, 1)
    assert [found.columns for found in verdict.different] == [(), ("word",), ()]


def test_a_null_that_moves_to_the_next_column_is_seen(spark: "SparkSession", tmp_path: Path) -> None:
    fields: list[object] = [a_field("id", "long"), a_field("x", "double"), a_field("y", "double")]
    case = Case.of(spark, tmp_path, ("id",), fields, "SELECT 1::BIGINT AS id, 1.5::DOUBLE AS x, NULL::DOUBLE AS y")
    case.stranger("UPDATE t SET x = NULL, y = 1.5")
    assert [(row.column, row.upstream, row.sink) for row in case.verdict().rows] == [
        ("x", "1.5", None),
        ("y", None, "1.5"),
    ]


def test_a_microsecond_and_an_infinite_time_are_seen(everything: Case) -> None:
    everything.stranger("UPDATE t SET nest = {'x': id, 't': nest.t + INTERVAL 1 MICROSECOND} WHERE id = 3")
    everything.stranger('UPDATE t SET "at" = "at" + INTERVAL 1 MICROSECOND WHERE id = 33')
    everything.stranger("UPDATE t SET \"at\" = 'infinity' WHERE id = 63")
    everything.stranger(f"UPDATE t SET day = '-infinity' WHERE id IN (93, {ROWS - 1})")  # the last one is NULL
    told = [(row.key[0][1], row.column) for row in everything.verdict().rows]
    assert told == [("3", "nest"), ("33", "at"), ("63", "at"), ("93", "day"), (str(ROWS - 1), "day")]


def test_infinite_dates_and_times_of_a_parquet_file_are_equal_to_themselves(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """DuckDB and Parquet keep them as numbers that Spark reads as distant times."""
    fields = [
        a_field("id", "long"),
        a_field("d", "date"),
        a_field("t", "timestamp"),
        a_field("l", "timestamp_ntz"),
    ]
    ends = ("'infinity'", "'-infinity'", "'2000-01-01'")
    rows = (f"({i}::BIGINT, {v}::DATE, {v}::TIMESTAMPTZ, {v}::TIMESTAMP)" for i, v in enumerate(ends))
    case = Case.of(
        spark, tmp_path, ("id",), list(fields), f"SELECT * FROM (VALUES {', '.join(rows)}) r(id, d, t, l)"
    )
    assert case.verdict().equal
    case.stranger("UPDATE t SET d = '-infinity', t = '-infinity', l = '-infinity' WHERE id = 0")
    assert [row.column for row in case.verdict().rows] == ["d", "t", "l"]


def test_case_47_what_a_stranger_wrote_is_named(orders: Case) -> None:
    orders.stranger("UPDATE t SET price = price + 0.01 WHERE id = 77")
    orders.stranger("DELETE FROM t WHERE id = 5")
    orders.stranger("INSERT INTO t SELECT * FROM t WHERE id = 300")
    orders.stranger("INSERT INTO t (id) VALUES (-8), (99999)")
    verdict = orders.verdict()
    assert not verdict.equal
    assert (verdict.rows_upstream, verdict.rows_sink) == (ROWS, ROWS + 2)
    assert (verdict.missing, verdict.extra, verdict.changed) == (1, 3, 1)
    assert set(verdict.rows) == {
        DifferentRow((("id", "-8"),), None, "0 rows", "1 row"),
        DifferentRow((("id", "5"),), None, "1 row", "0 rows"),
        DifferentRow((("id", "77"),), "price", "5097.64", "5097.65"),
        DifferentRow((("id", "300"),), None, "1 row", "2 rows"),
        DifferentRow((("id", "99999"),), None, "0 rows", "1 row"),
    }
    assert verdict.different[0].name == "id from the first to 1554"

    with pytest.raises(UsageError, match="into-existing") as refused:
        _refuse(_into_existing(orders), Checkpoint(1, 0, 0, "a1", "{}", Phase.UPSTREAM, START), Asked())
    with typed(refused.value) as hint:
        hint.says("correct the rows that verify lists with SQL")
        orders.stranger("UPDATE t SET price = price - 0.01 WHERE id = 77")
        orders.stranger("DELETE FROM t WHERE id IN (-8, 99999, 300)")
        orders.stranger(f"INSERT INTO t FROM '{orders.folder}/up/0.parquet' WHERE id IN (5, 300)")
        assert orders.verdict().equal


def _into_existing(case: Case) -> JobDefinition:
    table = replace(case.table, plain_inserts=False)
    return JobDefinition("j", "{}", "{}", Pin(START, None, None, ()), "forever", "snapshot", (table,))


def test_a_row_without_a_key_is_deleted_before_a_fix(orders: Case) -> None:
    orders.stranger("ALTER TABLE t ALTER id DROP NOT NULL; INSERT INTO t (word) VALUES ('of others')")
    take = _Stage(lambda attempt: orders.folder / "fix" / attempt).begun()
    with orders.sink.copied("j", False, orders.folder) as copy:
        compared = compare(orders.spark, orders.expected(), copy, orders.table, 20, None, UNTOLD)
        with pytest.raises(BadData, match=r"the key \(id\) is NULL in 1 row") as refused:
            take(orders.table, compared.changes())
    with typed(refused.value) as hint:
        hint.says("delete them there with SQL, then verify again")
        orders.stranger("DELETE FROM t WHERE id IS NULL")
        assert orders.verdict().equal


def test_two_values_that_changed_places_are_named(orders: Case) -> None:
    orders.stranger("UPDATE t SET word = CASE id WHEN 10 THEN '' ELSE 'paid' END WHERE id IN (10, 11)")
    assert [(row.key[0][1], row.upstream, row.sink) for row in orders.verdict().rows] == [
        ("10", "paid", ""),
        ("11", "", "paid"),
    ]


def test_null_and_empty_string_differ(orders: Case) -> None:
    orders.stranger("UPDATE t SET word = '' WHERE word IS NULL AND id < 10")
    assert [(row.upstream, row.sink) for row in orders.verdict().rows] == [(None, ""), (None, "")]


def test_no_more_rows_are_named_than_asked_for(orders: Case) -> None:
    orders.stranger("UPDATE t SET whole = 0")
    verdict = orders.verdict(limit=3)
    assert [row.key[0][1] for row in verdict.rows] == ["0", "1", "2"]
    assert len(verdict.different) == verdict.ranges
    assert (verdict.missing, verdict.extra, verdict.changed) == (0, 0, ROWS)


def test_an_emptied_sink_and_an_empty_upstream_are_told_apart(orders: Case) -> None:
    orders.stranger("DELETE FROM t")
    verdict = orders.verdict(limit=2)
    assert (verdict.equal, verdict.rows_upstream, verdict.rows_sink) == (False, ROWS, 0)
    assert (verdict.missing, verdict.extra, verdict.changed) == (ROWS, 0, 0)
