"""Random SELECTs, tables and epochs in a lake: Spark keeps them, DuckDB says what they should be.

`BACKFILL_WORLDS=1000:200` runs 200 worlds from seed 1000. Each change runs a few which have all features together.
"""

import datetime
import math
import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from derived_contract import past
from derived_oracle import InMemory
from derived_world import HUGE, Table, View, World, quoted
from memory_lake import MemoryLake
from sink_contract import Epochs, schema_json

from backfill_cli.contracts import EpochCommit, SinkTable
from backfill_cli.errors import BadData, UsageError
from backfill_cli.model.derived import Derived
from backfill_cli.model.plan import Staged, StagedFile, StagedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHOSEN = {
    0: "average; emptied; group; of distinct",
    7: "distinct; group; group inside; inside from; killed; one row",
    31: "average; distinct; filter; group; inside from; killed; left join; of distinct; right join; union; using",
    60: "distinct; group; having; left join; of a derived table; of distinct; window; with",
}
"""Seeds, and features of what they make: these four have all of them, the first eight had fewer."""
IN_TURN = [
    pytest.param(seed, marks=pytest.mark.in_turn(f"worlds in a lake, {at % 2}")) for at, seed in enumerate(CHOSEN)
]
"""Two of the four, each time others."""
FIRST, COUNT = map(int, os.environ.get("BACKFILL_WORLDS", "0:0").split(":"))
VIEWS = 3
EPOCHS = 4 if COUNT else 3
FEATURES = {
    "group": r"\bGROUP BY",
    "distinct": r"SELECT DISTINCT",
    "window": r"\brank\(",
    "left join": r"\bLEFT ",
    "right join": r"\bRIGHT JOIN",
    "using": r"\bUSING \(",
    "union": r"\bUNION ALL",
    "with": r"^WITH ",
    "inside from": r"(FROM|JOIN) \(SELECT",
    "group inside": r"\(SELECT (?:(?!SELECT).)* GROUP BY (?:(?!SELECT).)*\) AS ",
    "having": r"\bHAVING",
    "filter": r"\bFILTER \(",
    "of distinct": r"\(DISTINCT ",
    "average": r"\bavg\(",
    "of a derived table": r"\bview_\d",
}
"""By what they are found in a SELECT; beside "one row", and of epochs "emptied" and "killed".

The latest per key, which few of them keep, is in `lake_derived_contract`.
"""
TYPES = {
    "INTEGER": "integer",
    "TEXT": "string",
    "DECIMAL(9,2)": "decimal(9,2)",
    "DOUBLE": "double",
    "DATE": "date",
    "BOOLEAN": "boolean",
    HUGE: "decimal(30,3)",
}
ARROW = {
    "INTEGER": pa.int32(),
    "TEXT": pa.string(),
    "DECIMAL(9,2)": pa.decimal128(9, 2),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "BOOLEAN": pa.bool_(),
    HUGE: pa.decimal128(30, 3),
}
OF_TEXT: dict[str, Callable[[str], Any]] = {
    "DOUBLE": float,
    "DATE": datetime.date.fromisoformat,
    "BOOLEAN": "true".__eq__,
}


def in_spark(sql: str) -> str:
    quoted = re.sub(r'"((?:[^"]|"")*)"', lambda m: "`" + m[1].replace('""', '"') + "`", sql)
    return quoted.replace("AS TEXT)", "AS STRING)")


def valued(kind: str, value: Any) -> Any:
    if value is None or kind == "TEXT":
        return value
    return int(value) if kind == "INTEGER" else OF_TEXT.get(kind, Decimal)(value)


def normal(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Numbers of both engines, to 9 digits: their types for averages and sums differ."""

    def of(value: Any) -> Any:
        if isinstance(value, bool | str | datetime.date) or value is None:
            return value
        number = float(value)
        return "nan" if math.isnan(number) else float(f"{number:.9g}") + 0.0

    return tuple(map(of, row))


def sink_table(table: Table) -> SinkTable:
    columns = {name: TYPES[kind] for name, kind in table.columns}
    return SinkTable(f"public.{table.name}", table.target, table.key, schema_json(**columns))


def test_the_chosen_worlds_have_every_feature() -> None:
    assert set("; ".join(CHOSEN.values()).split("; ")) == {*FEATURES, "one row", "emptied", "killed"}


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT) if COUNT else IN_TURN)
def test_in_random_worlds_each_epoch_leaves_what_duckdb_says(
    seed: int, spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, oracle = World(seed, "spark"), InMemory(sink=False)
    oracle.begin()
    tables = tuple(map(sink_table, world.tables))
    lake = MemoryLake(tmp_path / "state", spark)
    epochs = Epochs(tmp_path / "staging", job="world", tables=tables)
    lake.prepare("world", tables, into_existing=False)
    for table in world.tables:
        oracle.create(table)
    derived, views = tuple[Derived, ...](), list[View]()
    for at in range(VIEWS):
        view = world.view(f"view_{at}")
        more = (*derived, Derived(view.name, view.name, view.key, in_spark(view.sql)))
        try:
            lake.derives.check("world", more, tables, {})
            oracle.run(f"CREATE VIEW public.{quoted(view.name)} AS {view.sql}")
        except (UsageError, oracle.invalid):
            continue
        derived = more
        views.append(view)
        if view.columns:
            world.views.append(view)
    if not derived:
        pytest.skip("refused")
    lake.derives.prepare("world", derived, tables)
    features = set().union(*map(features_of, views))
    if seed % 3:
        features.add("killed")
        monkeypatch.setattr("backfill_cli.failpoint.handler", Killing(seed % 4 + 1))
    for number in range(EPOCHS):
        commit = past(epochs.next(), *derived)
        staged, changes = {}, world.epoch() if number else dict.fromkeys(one.name for one in world.tables)
        if number and None in changes.values():
            features.add("emptied")
        for table, of in zip(world.tables, tables, strict=True):
            if table.name not in changes:
                continue
            keys = changes[table.name]
            if number:
                oracle.delete(table, None if keys is None else sorted(keys))
                there = table.rows if keys is None else keys & table.rows.keys()
                oracle.insert(table, [table.rows[key] for key in there])
            staged[of.name] = stage(Path(commit.folder), lake, of, table, keys)
        commit = replace(commit, staged=Staged(commit.attempt, staged))
        bad = [view.name for view in views if impossible(oracle, view)]
        lake, failed = committed(lake, commit, tmp_path, spark)
        assert (failed in bad) if failed else not bad
        if failed:
            pytest.skip("no derived table can hold its rows")
        for view in views:
            expected = Counter(map(normal, oracle.rows(view.sql)))
            found = Counter(normal(tuple(row.values())) for row in lake.tables[view.name].versions[-1])
            assert found == expected, f"epoch {number}: {view.sql}"
    if not COUNT:
        assert features >= set(CHOSEN[seed].split("; ")), "SELECTs are made otherwise now: choose other seeds"


def features_of(view: View) -> set[str]:
    found = {name for name, sign in FEATURES.items() if re.search(sign, view.sql, re.DOTALL)}
    return found if view.key else {*found, "one row"}


def impossible(oracle: InMemory, view: View) -> bool:
    """Whether rows of it share a key, or cannot be computed."""
    key = ", ".join(map(quoted, view.key)) or "1"
    try:
        rows = oracle.rows(f"SELECT {key} FROM public.{quoted(view.name)}")
    except oracle.failed:
        return True
    return bool(view.key) and len(set(rows)) < len(rows)


def committed(
    lake: MemoryLake, commit: EpochCommit, folder: Path, spark: "SparkSession"
) -> tuple[MemoryLake, str | None]:
    """The lake with the commit, whatever kills it; and the derived table that refused its rows."""
    while True:
        try:
            lake.commit(commit)
        except Killed:
            lake = again(lake, folder, spark)
        except BadData as refused:
            return lake, refused.table
        else:
            return lake, None


class Killed(BaseException):
    pass


class Killing:
    """Kills at every n-th point of a derived table's commit."""

    def __init__(self, every: int) -> None:
        self.every, self.hits = every, 0

    def __call__(self, name: str) -> None:
        if name.startswith("derived-"):
            self.hits += 1
            if self.hits % (self.every + 1) == 0:
                raise Killed


def again(lake: MemoryLake, folder: Path, spark: "SparkSession") -> MemoryLake:
    made = MemoryLake(folder / "state", spark)
    made.tables = lake.tables
    return made


def stage(
    folder: Path, lake: MemoryLake, of: SinkTable, table: Table, keys: set[tuple[Any, ...]] | None
) -> StagedTable:
    """The changed rows of a table in a file, as an epoch has them. keys: None if it was emptied first."""
    arrow = [pa.field(name, ARROW[kind]) for name, kind in table.columns]
    every = keys if keys is not None else set(table.rows)

    def row(values: tuple[Any, ...]) -> dict[str, Any]:
        pairs = zip(table.columns, values, strict=False)
        return {name: valued(kind, value) for (name, kind), value in pairs}

    ops = {key: "U" if key in table.rows else "D" for key in sorted(every)}
    rows = [{"_backfill_op": op, **row(table.rows.get(key, key))} for key, op in ops.items()]
    path = f"{of.name.replace(' ', '')}/0.parquet"
    (folder / path).parent.mkdir(parents=True)
    schema = pa.schema([pa.field("_backfill_op", pa.string()), *arrow])
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / path)
    files = (StagedFile(path, (folder / path).stat().st_size),)
    changed = sum(one["_backfill_op"] == "U" for one in rows)
    truncated = keys is None and bool(lake.tables[of.target].versions[-1])
    if not rows:
        return StagedTable(truncated=truncated)
    return StagedTable(changes=files, changed=changed, deleted=len(rows) - changed, truncated=truncated)
