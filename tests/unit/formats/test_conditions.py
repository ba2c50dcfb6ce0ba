"""Rows of Parquet that a job's conditions leave out, by their values and by row groups, against plain Python."""

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from backfill_cli.formats.conditions import groups_meeting, meeting
from backfill_cli.formats.group_slices import touched
from backfill_cli.formats.row_groups import raw_batches
from backfill_cli.model.pushdown import Condition

OPS = ("=", "<>", "<", "<=", ">", ">=", "IN", "NOT IN", "IS NULL", "IS NOT NULL")
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int16(), [-32768, -1, 0, 1, 2, 3, 32767]),
    "l": (pa.int64(), [-(2**63), -5, 5, 2**63 - 1]),
    "n": (pa.decimal128(12, 2), [Decimal("-1.00"), Decimal("0.00"), Decimal("12.50"), Decimal("9999999999.99")]),
    "d": (pa.date32(), [date(1, 1, 1), date(1582, 10, 10), date(2024, 2, 29), date(9999, 12, 31)]),
    "t": (pa.timestamp("us"), [datetime(1969, 12, 31), datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 1)]),
    "z": (pa.timestamp("ms", "UTC"), [datetime(1969, 12, 31, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)]),
    "b": (pa.bool_(), [True, False]),
    "s": (pa.string(), ["", "a", "A", "a "]),
}


def met(value: Any, one: Condition) -> bool:
    """As SQL says."""
    if one.op in ("IS NULL", "IS NOT NULL"):
        return bool((value is None) == (one.op == "IS NULL"))
    if value is None:
        return False
    if isinstance(value, datetime):
        value = value.replace(tzinfo=None)
    first: Any = one.values[0]
    match one.op:
        case "IN":
            return value in one.values
        case "NOT IN":
            return value not in one.values
        case "=" | "<>":
            return bool((value == first) == (one.op == "="))
        case "<" | "<=":
            return bool(value < first or (one.op == "<=" and value == first))
    return bool(value > first or (one.op == ">=" and value == first))


def condition(chance: random.Random) -> Condition:
    name = chance.choice(list(KINDS))
    op = chance.choice([one for one in OPS if name not in "bs" or one not in ("<", "<=", ">", ">=")])
    values = [value.replace(tzinfo=None) if isinstance(value, datetime) else value for value in KINDS[name][1]]
    if name == "i":
        values += [40_000, -(2**62)]
    if name in "tz":
        values += [datetime(2024, 1, 1) + timedelta(microseconds=1)]
    many = 0 if op.endswith("NULL") else (2 if op.endswith("IN") else 1)
    return Condition(name, op, tuple(chance.choice(values) for _ in range(many)))


@pytest.mark.parametrize("seed", range(12))
def test_no_row_is_left_out_that_meets_all_conditions(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rows = [
        {"at": n}
        | {name: None if chance.random() < 0.2 else chance.choice(some) for name, (_, some) in KINDS.items()}
        for n in range(60)
    ]
    if seed % 2:  # so that row groups differ
        rows.sort(key=lambda row: (row["i"] is None, row["i"] or 0))
    schema = pa.schema([("at", pa.int64()), *((name, kind) for name, (kind, _) in KINDS.items())])
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=7, write_statistics=seed != 4)
    sizes = [pq.read_metadata(path).row_group(n).num_rows for n in range(pq.read_metadata(path).num_row_groups)]
    left_out = 0
    for _ in range(80):
        where = [condition(chance) for _ in range(chance.choice([1, 1, 2]))]
        after = chance.randrange(60)
        part = touched(sizes, after, chance.randrange(after + 1, 61))
        found, read = [], 0
        for first, batch in raw_batches(LocalFileSystem(), str(path), part, schema.names, where):
            assert batch["at"].to_pylist() == [row["at"] for row in rows[first : first + batch.num_rows]]
            read += batch.num_rows
            found += meeting(batch, where)["at"].to_pylist()
        wanted = [row["at"] for row in rows[part.after : part.up_to] if all(met(row[c.column], c) for c in where)]
        assert found == wanted, where
        left_out += part.up_to - part.after - read
    assert (left_out > 0) == (seed != 4), "row groups by their statistics, where there are some"


@pytest.mark.parametrize(
    ("kind", "days", "value"),
    [
        (pa.date32(), 3_000_000, date(2024, 1, 1)),
        (pa.date32(), -800_000, date(2024, 1, 1)),
        (pa.timestamp("us"), 300_000_000_000_000_000, datetime(2024, 1, 1)),
        (pa.timestamp("ms", "UTC"), -90_000_000_000_000, datetime(2024, 1, 1)),
        (pa.date32(), 5, datetime(2024, 1, 1)),
        (pa.timestamp("us"), 5, date(2024, 1, 1)),
    ],
)
def test_statistics_that_cannot_be_compared_leave_no_rows_out(
    tmp_path: Path, kind: pa.DataType, days: int, value: date
) -> None:
    path = tmp_path / "a.parquet"
    width = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    pq.write_table(pa.table({"at": pa.array([days], width).cast(kind)}), path)
    known, schema = pq.read_metadata(path), pq.read_schema(path)
    for op in ("=", "IN", "<", "<=", ">", ">="):
        assert groups_meeting(known, schema, [Condition("at", op, (value,))], [0]) == [0]
