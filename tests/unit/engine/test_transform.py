"""The net change of each key, compared with applying the changes one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from backfill_cli.cdc.net import net as net_of
from backfill_cli.config.sections import Transform
from backfill_cli.engine.staging import transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "_backfill_op STRING, n INT, _backfill_seq STRUCT<file: STRING, line: INT>, _backfill_ms BIGINT, a INT, "
    "`b c` STRING, v INT, w STRING"
)


@dataclass(frozen=True)
class Change:
    """A change of key (a, b): the row after it, or only the key of a deleted row."""

    op: str
    a: int
    b: str
    v: int | None = None
    w: str | None = None
    ms: int | None = None


def frame(spark: "SparkSession", cases: Sequence[Sequence[Change]]) -> "DataFrame":
    """Each case's changes in log order, over two files; the rows themselves in any order."""
    rows: list[Any] = []
    for case, changes in enumerate(cases):
        for i, c in enumerate(changes):
            seq = (f"{i // 3:03}", i % 3)
            rows.append((c.op, case, seq, c.ms, c.a, c.b, c.v, c.w))
    rows.sort(key=lambda row: (row[4], row[3] or 0, -row[2][1]))
    return spark.createDataFrame(rows, SCHEMA)


def in_order(changes: Sequence[Change], keeps: Any = lambda row: True) -> dict[tuple[int, str], Any]:
    """The reference: one change after the other; the last change of a key counts. None: it is deleted."""
    last: dict[tuple[int, str], Any] = {}
    for c in changes:
        stays = c.op == "U" and keeps(c)
        last[c.a, c.b] = (c.v, c.w) if stays else None
    return last


changes = st.lists(
    st.builds(
        Change,
        op=st.sampled_from("UUUD"),
        a=st.integers(0, 2),
        b=st.sampled_from(("x", "y")),
        v=st.none() | st.integers(-2, 2),
        w=st.none() | st.sampled_from(("", "null")),
        ms=st.none() | st.integers(0, 1),
    ),
    max_size=8,
)
CASES = 60  # in one Spark job
many = st.lists(changes, min_size=CASES, max_size=CASES)
few = settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking would run a Spark job for each step
)


def shaped(changes: "DataFrame", key: Sequence[str], shape: Transform) -> "DataFrame":
    return transform.shaped(net_of(changes, key), shape)


def found(net: "DataFrame", columns: Sequence[str]) -> list[dict[tuple[int, str], Any]]:
    """By case: key -> the row's other columns, None for a 'D'."""
    cases: list[dict[tuple[int, str], Any]] = [{} for _ in range(CASES)]
    for row in net.collect():
        key = (row["a"], row["b c"])
        assert key not in cases[row["n"]], "a key stands once"
        assert row["_backfill_op"] in ("U", "D")
        cases[row["n"]][key] = tuple(row[c] for c in columns) if row["_backfill_op"] == "U" else None
    return cases


@few
@given(many)
def test_the_net_change_is_the_last_word_on_each_key(spark: "SparkSession", cases: list[list[Change]]) -> None:
    net = shaped(frame(spark, cases), ["n", "a", "b c"], Transform())
    assert net.columns == ["_backfill_op", "n", "a", "b c", "v", "w"]
    assert found(net, ("v", "w")) == [in_order(case) for case in cases]


@few
@given(many)
def test_case_78_a_row_that_where_no_longer_takes_is_deleted_by_its_key_alone(
    spark: "SparkSession", cases: list[list[Change]]
) -> None:
    net = shaped(frame(spark, cases), ["n", "a", "b c"], Transform(where="v > 0 OR w = 'null'"))
    takes = [in_order(case, lambda c: (c.v or 0) > 0 or c.w == "null") for case in cases]
    assert found(net, ("v", "w")) == takes


@few
@given(many)
def test_the_selected_columns_are_those_of_the_last_row(spark: "SparkSession", cases: list[list[Change]]) -> None:
    shape = Transform(select=["n", "a", "`b c`", "coalesce(v, 0) + a AS sum"], where="v IS NOT NULL")
    net = shaped(frame(spark, cases), ["n", "a", "b c"], shape)
    assert net.columns == ["_backfill_op", "n", "a", "b c", "sum"]
    sums = [
        {key: row and (row[0] + key[0],) for key, row in in_order(case, lambda c: c.v is not None).items()}
        for case in cases
    ]
    assert found(net, ("sum",)) == sums


def only(net: "DataFrame") -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in net.drop("n").collect()), key=str)


KEY = ["a", "b c"]


def test_case_05_a_delete_and_an_insert_of_one_key_in_one_epoch_leave_the_new_row(spark: "SparkSession") -> None:
    log = [Change("U", 1, "x", 1), Change("D", 1, "x", ms=5), Change("U", 1, "x", 2, ms=5)]
    assert only(shaped(frame(spark, [log]), KEY, Transform())) == [("U", 1, "x", 2, None)]


def test_case_06_of_updates_with_equal_times_the_last_in_the_log_stands(spark: "SparkSession") -> None:
    log = [Change("U", 1, "x", v, ms=5) for v in (9, 1, 8, 2, 7, 3)]
    assert only(shaped(frame(spark, [log]), KEY, Transform())) == [("U", 1, "x", 3, None)]


def test_case_24_a_change_with_an_older_time_that_comes_later_in_the_log_stands(spark: "SparkSession") -> None:
    log = [Change("U", 1, "x", 1, ms=9), Change("U", 1, "x", 2, ms=3)]
    assert only(shaped(frame(spark, [log]), KEY, Transform())) == [("U", 1, "x", 2, None)]


def test_case_04_a_key_change_is_a_delete_of_the_old_key_and_a_row_of_the_new(spark: "SparkSession") -> None:
    there_and_back = [
        *(Change("D", 1, "x"), Change("U", 2, "x", 1)),
        *(Change("D", 2, "x"), Change("U", 1, "x", 2)),
    ]
    net = shaped(frame(spark, [there_and_back[:2]]), KEY, Transform())
    assert only(net) == [("D", 1, "x", None, None), ("U", 2, "x", 1, None)]
    net = shaped(frame(spark, [there_and_back]), KEY, Transform())
    assert only(net) == [("D", 2, "x", None, None), ("U", 1, "x", 2, None)]


def test_a_where_that_is_null_does_not_take_the_row(spark: "SparkSession") -> None:
    net = shaped(frame(spark, [[Change("U", 1, "x")]]), KEY, Transform(where="v > 0"))
    assert [row[0] for row in only(net)] == ["D"]


@pytest.mark.parametrize(
    ("select", "columns"),
    [
        (None, ["n", "a", "b c", "v", "w"]),
        (["*"], ["n", "a", "b c", "v", "w"]),
        (["*", "v + 1 AS next"], ["n", "a", "b c", "v", "w", "next"]),
        (["* EXCEPT (n, w)"], ["a", "b c", "v"]),
        ([" * EXCEPT (v)", "w AS v"], ["n", "a", "b c", "w", "v"]),
    ],
)
def test_a_star_stands_for_the_rows_own_columns(
    spark: "SparkSession", select: list[str] | None, columns: list[str]
) -> None:
    net = shaped(frame(spark, [[Change("U", 1, "x", 4)]]), KEY, Transform(select=select))
    assert net.columns == ["_backfill_op", *columns]


def test_a_key_may_be_renamed(spark: "SparkSession") -> None:
    shape = Transform(select=["a AS id", "`b c` AS part"])
    net = shaped(frame(spark, [[Change("D", 1, "x"), Change("U", 2, "y")]]), KEY, shape)
    assert sorted(map(tuple, net.collect())) == [("D", 1, "x"), ("U", 2, "y")]


@pytest.mark.parametrize(
    "select", ["100 / v AS share", "100 / coalesce(v, 0) AS share", "assert_true(v > 0) AS ok"]
)
def test_a_row_that_is_gone_is_not_computed(spark: "SparkSession", select: str) -> None:
    """Rows that `where` excludes must not fail the select; nor must a delete, which has no columns."""
    log = [Change("U", 1, "x", 0), Change("D", 2, "x"), Change("U", 3, "x", 4)]
    shape = Transform(select=["a", "`b c`", select], where="v > 0")
    net = shaped(frame(spark, [log]), KEY, shape)
    assert sorted(tuple(row)[:2] for row in net.collect()) == [("D", 1), ("D", 2), ("U", 3)]


def test_a_row_that_is_gone_is_not_asked_whether_where_takes_it(spark: "SparkSession") -> None:
    net = shaped(frame(spark, [[Change("D", 2, "x")]]), KEY, Transform(where="100 / coalesce(v, 0) > 1"))
    assert [row[0] for row in only(net)] == ["D"]


def test_snapshot_rows_are_filtered_and_then_selected(spark: "SparkSession") -> None:
    source = spark.createDataFrame([(1, 0), (2, 4), (3, None)], "id INT, v INT")
    kept = transform.rows(source, Transform(select=["id", "100 / v AS share"], where="v > 0"))
    assert [tuple(row) for row in kept.collect()] == [(2, 25.0)]
    assert transform.rows(source, Transform()).columns == ["id", "v"]
