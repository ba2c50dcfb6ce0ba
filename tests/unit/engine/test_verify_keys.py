"""`verify` by keys: of any type and number, under any name, and those of a sample."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from verify_case import COLUMNS, Case, a_field, columns, orders

from backfill_cli.model.verify import DifferentRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["orders"]


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("'k' || i AS id", "string"),
        ("i::DOUBLE / 7 AS id", "double"),
        ("DATE '1999-12-31' + i::INTEGER AS id", "date"),
        ("9223372036854775807 - i * 20000000000000000 AS id", "long"),
        ("(i::DECIMAL(18,2) / 4)::DECIMAL(18,2) AS id", "decimal(18,2)"),
    ],
)
def test_keys_of_any_type(spark: "SparkSession", tmp_path: Path, key: str, kind: str) -> None:
    case = Case.of(spark, tmp_path, ("id",), *columns(("whole", "note"), key, kind))
    assert (case.verdict().equal, case.verdict().ranges) == (True, 1)
    case.stranger("UPDATE t SET note = 'other' WHERE note = 'note 7'")
    case.stranger("DELETE FROM t WHERE note = 'note 8'")
    assert [(row.column, row.sink) for row in case.verdict().rows] == [(None, "0 rows"), ("note", "other")]


def test_a_string_key_with_many_values_is_compared_by_sparks_hash_alone(
    spark: "SparkSession", tmp_path: Path
) -> None:
    sql = "SELECT 'key ' || i AS id, i AS whole FROM range(5000) r(i)"
    case = Case.of(spark, tmp_path, ("id",), [a_field("id", "string"), a_field("whole", "long")], sql)
    assert case.verdict().equal
    case.stranger("UPDATE t SET whole = -1 WHERE id = 'key 4321'")
    verdict = case.verdict()
    assert [(row.key, row.upstream, row.sink) for row in verdict.rows] == [((("id", "key 4321"),), "4321", "-1")]
    assert verdict.different[0].columns == ("whole",)
    assert "of 64 by hash of id" in verdict.different[0].name


def test_a_key_of_several_columns(spark: "SparkSession", tmp_path: Path) -> None:
    fields: list[object] = [a_field("region", "string"), a_field("id", "long"), a_field("v", "double")]
    case = Case.of(
        spark,
        tmp_path,
        ("region", "id"),
        fields,
        "SELECT 'r' || i % 3 AS region, i // 3 AS id, i / 4.0 AS v FROM range(90) r(i)",
    )
    assert case.verdict().equal
    case.stranger("UPDATE t SET v = -0.5 WHERE region = 'r1' AND id = 4")
    assert [(row.key, row.column) for row in case.verdict().rows] == [((("region", "r1"), ("id", "4")), "v")]


def test_case_48_names_are_data(spark: "SparkSession", tmp_path: Path) -> None:
    odd = 'a[/b] "q" `t` .{x} %s'
    quoted = '"' + odd.replace('"', '""') + '"'
    fields: list[object] = [a_field(odd, "long"), a_field(odd + "2", "string")]
    sql = f"SELECT i AS {quoted}, 'x' || i AS {quoted[:-1]}2\" FROM range(9) r(i)"
    case = Case.of(spark, tmp_path, (odd,), fields, sql)
    assert case.verdict().equal
    case.stranger(f"DELETE FROM t WHERE {quoted} = 3")
    assert case.verdict().rows == (DifferentRow(((odd, "3"),), None, "1 row", "0 rows"),)


def test_a_difference_of_hashes_without_a_row_that_differs_is_no_alarm(
    orders: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    import backfill_cli.sinks.sql.verify as sink_side

    monkeypatch.setattr(sink_side, "xxhash64", lambda data: 1)
    verdict = orders.verdict()
    assert (verdict.equal, verdict.different, verdict.ranges > 1) == (True, (), True)


SAMPLED = [  # a key with a word, one that only Spark hashes, one of several columns, a column without a word
    (("id",), "i AS id", "long", ("whole", "word")),
    (("id",), "'key ' || i AS id", "string", ("whole",)),
    (("id",), "i::DOUBLE / 7 AS id", "double", ("note",)),
    (("id", "whole"), "i AS id", "long", ("whole", "note")),
]


@pytest.mark.parametrize(("keys", "key", "kind", "names"), SAMPLED)
def test_of_a_sample_every_difference_is_found_and_of_the_rest_none(
    spark: "SparkSession",
    tmp_path: Path,
    keys: tuple[str, ...],
    key: str,
    kind: str,
    names: tuple[str, ...],
) -> None:
    """Emptying the sink shows which keys are in the sample: the missing ones."""
    rows = 2_400
    sql = ", ".join(f"{COLUMNS[name][1]} AS {name}" for name in names)
    fields = [a_field("id", kind), *(COLUMNS[name][0] for name in names)]
    case = Case.of(spark, tmp_path, keys, fields, f"SELECT {key}, {sql} FROM range({rows}) r(i)")
    assert case.verdict(sample=0.1).equal
    case.stranger("CREATE TABLE kept AS FROM t; DELETE FROM t")
    emptied = case.verdict(limit=rows, sample=0.1)
    chosen = {row.key[0][1] for row in emptied.rows}
    assert emptied.missing == emptied.rows_upstream == len(chosen)
    assert 0.07 < len(chosen) / rows < 0.13

    listed = ", ".join(f"'{text}'" for text in chosen)
    inside = f"CAST(id AS VARCHAR) IN ({listed})"
    case.stranger(f"INSERT INTO t FROM kept; UPDATE t SET {names[-1]} = NULL WHERE NOT {inside}")
    assert case.verdict(sample=0.1).equal
    case.stranger(f"DELETE FROM t WHERE NOT {inside}")
    assert case.verdict(sample=0.1).equal
    case.stranger(f"UPDATE t SET {names[-1]} = NULL WHERE {inside} AND {names[-1]} IS NOT NULL")
    case.stranger(f"INSERT INTO t SELECT * FROM t WHERE CAST(id AS VARCHAR) = '{min(chosen)}'")
    found = case.verdict(sample=0.1)
    assert (found.extra, found.changed > len(chosen) // 2, found.missing) == (1, True, 0)
