"""The net change of each key, in Spark and in Python, compared with applying the changes one after the other."""

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from net_cases import KEY, MAY_LACK, Change, Net, changes, few, found, frame, in_order, many

from backfill_cli.cdc.net import UNSENT, NetChanges, last_rows, net

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
def test_in_arrow_rows_that_lack_nothing_are_the_last_ones(case: list[Change]) -> None:
    rows = [{"op": c.op, "key": c.key, "v": c.v, "big": c.big, "doc": c.doc} for c in case]
    kinds = {"op": pa.string(), "key": pa.int32(), "v": pa.int32(), "big": pa.string(), "doc": pa.string()}
    last = last_rows(pa.Table.from_pylist(rows, pa.schema(kinds)), ["key"]).to_pylist()
    net = {row["key"]: (row["v"], row["big"], row["doc"], ()) if row["op"] == "U" else None for row in last}
    assert len(net) == len(last)
    assert net == in_order([Change(c.op, c.key, c.v, c.big, c.doc) for c in case])
    assert last == [row for at, row in enumerate(rows) if row["key"] not in {r["key"] for r in rows[at + 1 :]}]


@given(st.lists(st.sampled_from((0.0, -0.0, float("nan"), -float("nan"), 1.5, None))))
def test_in_arrow_zeros_are_one_key_and_so_are_all_that_are_no_number(keys: list[float | None]) -> None:
    table = pa.table({"k": pa.array(keys, pa.float64()), "n": pa.array(range(len(keys)), pa.int64())})
    expected = {("nan" if key is not None and key != key else key): n for n, key in enumerate(keys)}
    assert last_rows(table, ["k"])["n"].to_pylist() == sorted(expected.values())


@given(st.data())
def test_in_arrow_keys_of_every_simple_type_are_compared(data: st.DataObject) -> None:
    kinds = (
        *(pa.bool_(), pa.int8(), pa.int64(), pa.float32(), pa.string(), pa.binary(), pa.date32()),
        *(pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.decimal128(9, 2), pa.decimal128(38, 10)),
    )
    chosen = [data.draw(st.sampled_from(kinds)) for _ in range(data.draw(st.integers(1, 3)))]
    drawn = data.draw(st.lists(st.tuples(*(st.sampled_from((0, 1, None)) for _ in chosen)), max_size=8))

    def column(at: int) -> pa.Array:
        kind, values = chosen[at], pa.array([row[at] for row in drawn], pa.int64())
        through = (
            pa.int32() if pa.types.is_date32(kind) else pa.string() if pa.types.is_binary(kind) else pa.int64()
        )
        if pa.types.is_decimal(kind):
            through = pa.decimal128(kind.precision - kind.scale if kind.precision > 20 else 19, 0)
        return values.cast(through).cast(kind)

    table = pa.table({**{str(at): column(at) for at in range(len(chosen))}, "n": pa.array(range(len(drawn)))})
    expected = sorted({row: n for n, row in enumerate(drawn)}.values())
    assert last_rows(table, [str(at) for at in range(len(chosen))])["n"].to_pylist() == expected


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
