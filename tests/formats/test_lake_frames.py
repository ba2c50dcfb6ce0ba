"""Staged rows as one frame of changes, and the keys that are refused, against the same in plain Python."""

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_cli.cdc.net import over
from backfill_cli.contracts import EpochCommit, SavedJob, SinkTable
from backfill_cli.errors import BadData
from backfill_cli.lake.merge import changes, inserts, key_bounds, refuse_duplicates, refuse_lost
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import Staged, StagedFile, StagedTable
from backfill_cli.model.position import START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("k.1", "part `x`", "v", "w")
SCHEMA = (
    '{"type":"struct","fields":['
    '{"name":"k.1","type":"integer","nullable":true,"metadata":{}},'
    '{"name":"part `x`","type":"string","nullable":true,"metadata":{}},'
    '{"name":"v","type":"string","nullable":true,"metadata":{}},'
    '{"name":"w","type":{"type":"array","elementType":"long","containsNull":true},"nullable":true,"metadata":{}}]}'
)
TABLE = SinkTable("t", "t", NAMES[:2], SCHEMA)
ROW = pa.schema(zip(NAMES, (pa.int32(), pa.string(), pa.string(), pa.list_(pa.int64())), strict=True))
CHANGE = pa.schema([("_backfill_op", pa.string()), ("_backfill_unsent", pa.list_(pa.string())), *ROW])

Row = dict[str, Any]


def staged(folder: Path, kept: list[Row], changed: list[Row], schema: pa.Schema = CHANGE) -> EpochCommit:
    files = {}
    for name, rows, columns in (("i", kept, ROW), ("c", changed, schema)):
        path = folder / "day=1" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, columns), path)
        files[name] = (StagedFile(f"day=1/{name}.parquet", path.stat().st_size),)
    table = StagedTable(files["i"], files["c"], len(kept), len(changed), partial=("v", "w"))
    if "_backfill_unsent" not in schema.names:
        table = StagedTable(files["i"], files["c"], len(kept), len(changed))
    saved = SavedJob("{}", Checkpoint(1, 0, 1, "a", "{}", Phase.SNAPSHOT, START))
    return EpochCommit("j", 1, 0, 1, "a", (TABLE,), str(folder), Staged("a", {"t": table}), (), saved)


def generated(seed: int) -> tuple[list[Row], list[Row]]:
    rng = random.Random(seed)

    def row(key: tuple[int, str]) -> Row:
        values = (*key, rng.choice([None, "", "x"]), rng.choice([None, [], [1, None]]))
        return dict(zip(NAMES, values, strict=True))

    keys = [(n, text) for n in range(-3, 4) for text in ("", "a", "é'\\")]
    kept = [row(key) for key in rng.sample(keys, 12)]
    changed = []
    for key in rng.sample(keys, 12):
        op = rng.choice("UUUD")
        left = rng.choice([None, [], ["v"], ["v", "w"]]) if op == "U" else None
        given = row(key) if op == "U" else {**dict.fromkeys(NAMES), **dict(zip(NAMES, key, strict=False))}
        changed.append({"_backfill_op": op, "_backfill_unsent": left, **given})
    return kept, changed


def expected(kept: list[Row], changed: list[Row]) -> list[Row]:
    """What is left to do for each key, one row after the other."""
    held = {(row[NAMES[0]], row[NAMES[1]]): {"_backfill_op": "U", "_backfill_unsent": None, **row} for row in kept}
    for change in changed:
        key = (change[NAMES[0]], change[NAMES[1]])
        before = held.get(key)
        if before is not None and change["_backfill_unsent"]:
            change = {
                **change,
                **{name: before[name] for name in change["_backfill_unsent"]},
                "_backfill_unsent": None,
            }
        else:
            change = {**change, "_backfill_unsent": None if before else change["_backfill_unsent"] or None}
        held[key] = change
    return list(held.values())


def ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row[NAMES[0]], row[NAMES[1]]))


@pytest.mark.parametrize("seed", range(3))
def test_snapshot_rows_and_the_changes_after_them_become_one_change_a_key(
    spark: "SparkSession", tmp_path: Path, seed: int
) -> None:
    kept, changed = generated(seed)
    commit = staged(tmp_path, kept, changed)
    left, right = inserts(spark, commit, TABLE), changes(spark, commit, TABLE)
    assert left is not None
    assert right is not None
    found = over(left, right, TABLE.key, ("v", "w")).toArrow().to_pylist()
    assert ordered(found) == ordered(expected(kept, changed))


def test_changes_that_leave_nothing_out_have_no_such_column(spark: "SparkSession", tmp_path: Path) -> None:
    whole = pa.schema([field for field in CHANGE if field.name != "_backfill_unsent"])
    kept = [dict(zip(NAMES, (1, "a", "old", None), strict=True)), dict(zip(NAMES, (2, "b", "x", []), strict=True))]
    changed = [{"_backfill_op": "D", **dict(zip(NAMES, (1, "a", None, None), strict=True))}]
    commit = staged(tmp_path, kept, changed, whole)
    left, right = inserts(spark, commit, TABLE), changes(spark, commit, TABLE)
    assert left is not None
    assert right is not None
    found = over(left, right, TABLE.key, ()).toArrow().to_pylist()
    assert ordered(found) == [*changed, {"_backfill_op": "U", **kept[1]}]


def test_an_epoch_without_files_has_no_frames(spark: "SparkSession", tmp_path: Path) -> None:
    commit = staged(tmp_path, [], [])
    assert inserts(spark, commit, TABLE) is None
    assert changes(spark, commit, TABLE) is None


def test_bounds_of_the_first_key_column_come_from_the_footers(tmp_path: Path) -> None:
    kept, changed = generated(1)
    commit = staged(tmp_path, kept, changed)
    low, high = min(row["k.1"] for row in changed), max(row["k.1"] for row in changed)
    files = commit.staged.tables["t"].changes
    assert key_bounds(commit, TABLE, files) == (low, high)
    by_text = SinkTable("t", "t", NAMES[1:2], SCHEMA)
    assert key_bounds(commit, by_text, files) is None


NUMBERS = {
    "byte": (pa.int8(), -(2**7), 2**7 - 1),
    "short": (pa.int16(), -(2**15), 2**15 - 1),
    "integer": (pa.int32(), -(2**31), 2**31 - 1),
    "long": (pa.int64(), -(2**63), 2**63 - 1),
    "date": (pa.date32(), -719_162, 2_932_896),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_keys_that_stand_twice_are_found_among_neighbours(spark: "SparkSession", kind: str) -> None:
    column, low, high = NUMBERS[kind]
    schema = SCHEMA.replace('"integer"', f'"{kind}"')
    table = SinkTable("t", "t", NAMES[1::-1], schema)
    rng = random.Random(kind)
    edges = [low, low + 1, -65, -64, -63, -1, 0, 1, 62, 63, 64, 65, high - 1, high]
    once = [(text, n) for n in edges for text in ("", "a")] + [("b", n) for n in range(-100, 100) if low <= n]
    twice = [*once, *rng.sample(once, 2)]
    for keys in (once, twice):
        numbers = pa.array([n for _, n in keys], pa.int32() if kind == "date" else column).cast(column)
        shown = dict(zip(keys, numbers.cast(pa.string()).to_pylist(), strict=False))
        rows = spark.createDataFrame(pa.table({NAMES[0]: numbers, NAMES[1]: [text for text, _ in keys]}))
        if keys is once:
            refuse_duplicates(table, rows)
            continue
        with pytest.raises(BadData) as refused:
            refuse_duplicates(table, rows)
        named = sorted(f"({text}, {shown[text, n]}) 2 times" for text, n in twice[-2:])
        assert all(one in str(refused.value) for one in named)
        assert str(refused.value).count(" 2 times") == 2


def test_keys_that_stand_twice_and_rows_that_are_not_there_are_named(
    spark: "SparkSession", tmp_path: Path
) -> None:
    row = dict(zip(NAMES, (1, "a", None, None), strict=True))
    lost = [{"_backfill_op": "U", "_backfill_unsent": ["v"], **row, "k.1": key} for key in (1, 7, 8)]
    commit = staged(tmp_path, [row, row, {**row, "k.1": 2}], lost)
    left, right = inserts(spark, commit, TABLE), changes(spark, commit, TABLE)
    assert left is not None
    assert right is not None
    with pytest.raises(BadData, match=r"not unique in the snapshot: \(1, a\) 2 times"):
        refuse_duplicates(TABLE, left)
    with pytest.raises(BadData, match=r"that it applies to: \(7, a\), without v; \(8, a\), without v"):
        refuse_lost(TABLE, right, left)
    refuse_lost(TABLE, right, left, right)
