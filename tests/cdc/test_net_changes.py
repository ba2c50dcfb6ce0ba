"""The net change of each key, in Spark and in Python, compared with applying the changes one after the other."""

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from net_cases import KEY, MAY_LACK, Change, Net, changes, few, found, frame, in_order, many

from backfill_cli.cdc.net import UNSENT, NetChanges, net

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("v", "big", "a doc")


def in_python(log: NetChanges, changes: Sequence[Change]) -> dict[int, Net]:
    for i, c in enumerate(changes):
        if c.op == "D":
            log.delete([c.key, None, None, None], i, 0)
        elif c.lacks:
            row = [
                c.key,
                c.v,
                *(UNSENT if n in c.lacks else v for n, v in zip(MAY_LACK, (c.big, c.doc), strict=True)),
            ]
            log.update(row, True, None, False, i, 0)
        else:
            log.insert([c.key, c.v, c.big, c.doc], i, 0)
    return {key: row and as_net(row) for key, (_, _, row) in log.entries.items()}


def as_net(row: list[Any]) -> Net:
    lacks = tuple(name for name, value in sorted(zip(MAY_LACK, row[2:], strict=True)) if value is UNSENT)
    v, big, doc = (None if value is UNSENT else value for value in row[1:])
    return v, big, doc, lacks


@few
@given(many)
def test_in_spark_the_last_change_of_a_key_counts_with_what_it_lacks_from_those_before(
    spark: "SparkSession", cases: list[list[Change]]
) -> None:
    last = net(frame(spark, cases), KEY, MAY_LACK)
    assert last.columns == ["_backfill_op", "_backfill_unsent", "n", "a key", "v", "big", "a doc"]
    rows = last.collect()
    assert found(rows, NAMES) == [in_order(case) for case in cases]
    assert all(row["_backfill_unsent"] is None or row["_backfill_op"] == "U" for row in rows)


@few
@given(many)
def test_in_spark_rows_that_lack_nothing_are_the_last_ones(
    spark: "SparkSession", cases: list[list[Change]]
) -> None:
    whole = [[Change(c.op, c.key, c.v, c.big, c.doc) for c in case] for case in cases]
    last = net(frame(spark, whole), KEY)
    assert last.columns == ["_backfill_op", "n", "a key", "v", "big", "a doc"]
    assert found(last.withColumn("_backfill_unsent", none()).collect(), NAMES) == [in_order(c) for c in whole]


def none() -> Any:
    from pyspark.sql import functions as F

    return F.lit(None)


@given(changes)
def test_in_python_the_last_change_of_a_key_counts_with_what_it_lacks_from_those_before(
    case: list[Change],
) -> None:
    log = NetChanges([0], itemgetter(0))
    assert in_python(log, case) == in_order(case)
    places, lost = log.lacking()
    lacking = {name for row in in_order(case).values() if row for name in row[3]}
    assert {MAY_LACK[at - 2] for at in places} == lacking
    assert not lost


@given(changes, changes)
def test_what_precedes_a_truncate_does_not_count(before: list[Change], case: list[Change]) -> None:
    log = NetChanges([0], itemgetter(0))
    in_python(log, before)
    log.truncate()
    assert log.truncated
    assert in_python(log, case) == in_order(case)


@given(changes, st.integers(1, 2))
def test_columns_that_were_added_are_null_in_the_rows_so_far(case: list[Change], count: int) -> None:
    log = NetChanges([0], itemgetter(0))
    net = in_python(log, case)
    log.add_columns(count)
    rows = {key: row for key, (_, _, row) in log.entries.items()}
    assert {key: row and as_net(row[:4]) for key, row in rows.items()} == net
    assert all(row[4:] == [None] * count for row in rows.values() if row is not None)
