"""Tables as writers leave them, read as splits and as a feed: what must come out is kept in plain Python."""

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from backfill_cli.contracts import Source, TableSpec
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.upstreams.delta import connector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED = {"delta.enableChangeDataFeed": "true"}


def opened(path: Path) -> Source:
    return connector.open(connector.options.model_validate({"table": str(path)}), [TableSpec("t", ("k",))])


def slices_of(upstream: Source, limit: int) -> list[SnapshotRead]:
    """The pinned table in slices of about so many rows."""
    reads = [SnapshotRead("t", split.id, limit_rows=limit) for split in upstream.pin().splits]
    slices: list[SnapshotRead] = []
    while reads:
        closed = upstream.closed("t", reads)
        slices += closed
        reads = [replace(r, after=r.up_to, up_to=None, limit_rows=limit) for r in closed if r.up_to is not None]
    return slices


UTC = dt.UTC
KEYS: dict[str, tuple[pa.DataType, Callable[[int], Any], bool]] = {
    "byte": (pa.int8(), lambda n: n - 100, True),
    "integer": (pa.int32(), lambda n: n * 10_000_000 - 2**31, True),
    "long": (pa.int64(), lambda n: n * 10**17 - 2**63, True),
    "decimal": (pa.decimal128(38, 10), lambda n: Decimal(n * 7 - 500).scaleb(-3), True),
    "date": (pa.date32(), lambda n: dt.date(1900, 1, 1) + dt.timedelta(days=n * 300), True),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        lambda n: dt.datetime(1960, 1, 1, tzinfo=UTC) + dt.timedelta(days=n * 99, microseconds=n),
        True,
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        lambda n: dt.datetime(1960, 1, 1) + dt.timedelta(days=n * 99, microseconds=n),
        True,
    ),
    "string": (pa.string(), lambda n: ["", "a'b\\", "é", "\U0001f600", "z" * 50][n % 5] + f"{n:03d}", False),
    "double": (pa.float64(), lambda n: [float("nan"), -0.0, float("inf"), 1e-300][n] if n < 4 else n / 7, False),
    "binary": (pa.binary(), lambda n: bytes([n, 0, 255]), False),
    "boolean": (pa.bool_(), lambda n: n == 1, False),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_type_are_read_once_in_slices(spark: "SparkSession", tmp_path: Path, kind: str) -> None:
    arrow, value, sliced = KEYS[kind]
    count = 2 if kind == "boolean" else 180
    rows = [{"k": value(n), "n": n} for n in range(count)] + [{"k": None, "n": -1}]
    schema = pa.schema([("k", arrow), ("n", pa.int64())])
    for part in range(3):
        table = pa.Table.from_pylist(rows[part::3], schema)
        write_deltalake(str(tmp_path / "t"), table, mode="append", configuration=FEED)
    upstream = opened(tmp_path / "t")
    slices = slices_of(upstream, 20)
    assert (len(slices) > 5) == sliced
    found = upstream.scan(spark, "t", slices).toArrow().to_pylist()
    assert sorted(row["n"] for row in found) == sorted(row["n"] for row in rows)
    assert {row["n"]: exact(row["k"]) for row in found} == {row["n"]: exact(row["k"]) for row in rows}
    alone = [upstream.scan(spark, "t", [one]).toArrow()["n"].to_pylist() for one in (slices[0], slices[-1])]
    assert sorted(alone[0]) == sorted(row["n"] for row in found if row["_backfill_read"] == 0)
    if len(slices) > 1:
        assert sorted(alone[1]) == sorted(row["n"] for row in found if row["_backfill_read"] == len(slices) - 1)


def test_a_slice_reads_the_files_that_reach_into_it_alone(spark: "SparkSession", tmp_path: Path) -> None:
    for part in range(8):
        table = pa.table({"k": pa.array(range(part * 100, part * 100 + 100), pa.int64())})
        write_deltalake(str(tmp_path / "t"), table, mode="append", configuration=FEED)
    upstream = opened(tmp_path / "t")
    first, *_, last = slices_of(upstream, 100)
    assert [len(upstream.scan(spark, "t", [one]).inputFiles()) for one in (first, last)] == [1, 1]


TYPES = (
    "k BIGINT, d DECIMAL(10,2), f DOUBLE, at TIMESTAMP, n TIMESTAMP_NTZ, b BINARY, s STRING, "
    "nest STRUCT<a: ARRAY<INT>, m: MAP<STRING, INT>>, p STRING"
)
LITERALS = {
    "plain": "CAST(1.5 AS DECIMAL(10,2)), 2.5D, TIMESTAMP'2020-01-01 00:00:00Z', "
    "TIMESTAMP_NTZ'2020-01-01 00:00:00', X'00ff', 'text', "
    "named_struct('a', array(1, NULL), 'm', map('x', 1)), 'p1'",
    "odd": "CAST(-0.01 AS DECIMAL(10,2)), double('NaN'), TIMESTAMP'1969-12-31 23:59:59.999999Z', "
    "TIMESTAMP_NTZ'0001-01-01 00:00:00', X'', '', named_struct('a', array(), 'm', map()), ''",
    "null": "NULL, -0.0D, NULL, NULL, NULL, NULL, NULL, NULL",
}


def test_deletion_vectors_column_mapping_partitions_and_all_that_writers_do(
    spark: "SparkSession", tmp_path: Path
) -> None:
    path = f"delta.`{tmp_path}/t`"
    spark.sql(
        f"CREATE TABLE {path} ({TYPES}) USING delta PARTITIONED BY (p) TBLPROPERTIES ("
        "delta.enableChangeDataFeed = true, delta.enableDeletionVectors = true, "
        "'delta.columnMapping.mode' = 'name')"
    )
    rows: dict[int, str] = {n: ["plain", "odd", "null"][n % 3] for n in range(30)}
    spark.sql(
        f"INSERT INTO {path} " + " UNION ALL ".join(f"SELECT {n}, {LITERALS[kind]}" for n, kind in rows.items())
    )
    spark.sql(f"DELETE FROM {path} WHERE k IN (3, 4, 5)")
    for gone in (3, 4, 5):
        del rows[gone]
    upstream = opened(tmp_path / "t")
    pin = upstream.pin()
    assert sum(split.rows or 0 for split in pin.splits) == 27
    snapshot = upstream.scan(spark, "t", slices_of(upstream, 5)).drop("_backfill_read")
    assert {row["k"]: told(row) for row in snapshot.toArrow().to_pylist()} == {k: TOLD[v] for k, v in rows.items()}

    spark.sql(f"UPDATE {path} SET k = k + 1000 WHERE k IN (6, 7)")
    spark.sql(f"UPDATE {path} SET s = s WHERE k = 8")  # nothing differs
    spark.sql(f"OPTIMIZE {path}")
    spark.sql(f"ALTER TABLE {path} ADD COLUMN more INT")
    spark.sql(f"INSERT INTO {path} SELECT 4, {LITERALS['odd']}, 7")
    for old in (6, 7):
        rows[old + 1000] = rows.pop(old)
    rows[4] = "odd"
    view = upstream.observe(pin.position, False)
    (schema,) = [text for epoch in view.pending for _, text in epoch.schema]
    feed = upstream.changes(spark, "t", pin.position, view.latest, schema).toArrow().to_pylist()
    state = {row["k"]: row for row in snapshot.toArrow().to_pylist()}
    for change in sorted(feed, key=lambda one: (one["_backfill_seq"]["version"], one["_backfill_seq"]["puts"])):
        state.pop(change["k"], None)
        if change["_backfill_op"] == "U":
            state[change["k"]] = change
    assert {k: told(row) for k, row in state.items()} == {k: TOLD[v] for k, v in rows.items()}
    assert [row["more"] for row in state.values() if row.get("more") is not None] == [7]


def exact(value: Any) -> Any:
    """What two values that are the same have in common: NaN is itself, and 0.0 is not -0.0."""
    return repr(value) if isinstance(value, float) else value


def told(row: dict[str, Any]) -> str:
    return repr([row[name] for name in ("d", "f", "at", "n", "b", "s", "nest", "p")]).replace(
        "zoneinfo.ZoneInfo(key='UTC')", "UTC"
    )


def _at(*when: int) -> str:
    return f"{dt.datetime(*when, tzinfo=UTC)!r}".replace("datetime.timezone.utc", "UTC")  # type: ignore[misc, arg-type]


TOLD = {
    "plain": f"[Decimal('1.50'), 2.5, {_at(2020, 1, 1)}, {dt.datetime(2020, 1, 1)!r}, b'\\x00\\xff', 'text', "
    "{'a': [1, None], 'm': [('x', 1)]}, 'p1']",
    "odd": f"[Decimal('-0.01'), nan, {_at(1969, 12, 31, 23, 59, 59, 999999)}, {dt.datetime(1, 1, 1)!r}, b'', '', "
    "{'a': [], 'm': []}, None]",  # an empty partition value is NULL to Delta
    "null": "[None, -0.0, None, None, None, None, None, None]",
}
