"""`kill -9` of a job from Delta tables into Delta tables: the sink equals the source, row by row.

The source's tables are written by the test itself, and the sink's are read by another library than the one that
wrote them.
"""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import kept_python
import pyarrow as pa
import pytest
from delta_world import HandWritten
from deltalake import DeltaTable, write_deltalake

KEYS = 900
COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("note", pa.string())])

CONFIG = """
[job]
name = "two"
[upstream]
type = "delta"
table = "source/{table}"
[[tables]]
name = "a"
key = ["id"]
[[tables]]
name = "b"
key = ["id"]
[[derived]]
name = "by_note"
key = ["note"]
sql = '''SELECT g.note, g.n, g.total FROM (
  SELECT a.note, count(*) AS n, sum(b.v) AS total FROM a LEFT JOIN b ON b.id = a.id GROUP BY a.note) AS g'''
[sink]
type = "delta"
table = "sink/{table}"
[barrier]
interval = "200ms"
[throttle]
rate = 1000
[spark]
master = "local[2]"
"""

POINTS = ("sink-after-table", "after-prepare:2", "derived-before-commit", "derived-after-commit")
"""Both, of each of two derived tables: lake_derived_contract.py."""


class Source:
    """Two tables and what they hold."""

    def __init__(self, folder: Path) -> None:
        self.draw, self.changes = random.Random(7), 0
        self.tables = {name: HandWritten(folder / name, COLUMNS, at_ms=_now()) for name in "ab"}
        for table in self.tables.values():
            rows = [{"id": key, "v": key, "note": None} for key in range(KEYS)]
            table.create([rows[at : at + 500] for at in range(0, KEYS, 500)])

    def change(self, count: int) -> None:
        """Some versions of each table: no key twice in one, but for one that goes and comes again."""
        for table in self.tables.values():
            for _ in range(3):
                rows = {row["id"]: row for row in table.rows}
                keys = self.draw.sample(range(KEYS + 300), count)
                table.change([change for key in keys for change in self._changed(rows, key)])
            table.compact()

    def _changed(self, rows: dict[int, dict[str, Any]], key: int) -> list[Any]:
        self.changes += 1
        before = rows.get(key)
        after = {"id": key, "v": self.changes, "note": self.draw.choice([None, "", "ü"])}
        if before is None:
            return [("insert", None, after)]
        match self.draw.choice(["update", "delete", "again", "move"]):
            case "delete":
                return [("delete", before, None)]
            case "again":
                return [("delete", before, None), ("insert", None, after)]
            case "move":
                return [("update", before, {**after, "id": 10_000 + self.changes})]
        return [("update", before, after)]


def _now() -> int:
    return int(time.time() * 1000) - 600_000


def backfill(folder: Path, *words: str, failpoint: str = "") -> "subprocess.CompletedProcess[str]":
    told = {**os.environ, "BACKFILL_FAILPOINT": failpoint, "BACKFILL_CATALOG": "catalog.duckdb"}
    return kept_python.typed(folder, told, *words, formats=("delta",))


def held(folder: Path, table: str) -> list[dict[str, Any]]:
    found = DeltaTable(str(folder / "sink" / table)).to_pyarrow_table().sort_by("id")
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def by_note(folder: Path) -> dict[str | None, tuple[int, int | None]]:
    """What the derived table must hold, by plain Python."""
    others = {row["id"]: row["v"] for row in held(folder, "b")}
    found: dict[str | None, tuple[int, int | None]] = {}
    for row in held(folder, "a"):
        count, total = found.get(row["note"], (0, None))
        joined = others.get(row["id"])
        found[row["note"]] = count + 1, total if joined is None else (total or 0) + joined
    return found


@pytest.mark.in_turn("a lake's tables under kills")
def test_four_deaths_and_tables_that_change_all_the_while(tmp_path: Path) -> None:
    source = Source(tmp_path / "source")
    source.change(50)
    (tmp_path / "job.toml").write_text(CONFIG)
    for point in POINTS:
        died = backfill(tmp_path, "start", "--config", "job.toml", "--until", "caught-up", failpoint=point)
        assert died.returncode == -signal.SIGKILL, f"{point}: {died.stderr}"
        source.change(50)
    write_deltalake(  # somebody else's row between two commits of ours
        str(tmp_path / "sink" / "a"),
        pa.Table.from_pylist([{"id": -1, "v": 0, "note": "theirs"}], COLUMNS),
        mode="append",
    )
    assert backfill(tmp_path, "throttle", "--rate", "none").returncode == 0
    ended = backfill(tmp_path, "start", "--config", "job.toml", "--until", "caught-up")
    assert ended.returncode == 0, ended.stderr
    theirs = {"a": [{"id": -1, "v": 0, "note": "theirs"}], "b": []}
    for name, table in source.tables.items():
        assert held(tmp_path, name) == [*theirs[name], *sorted(table.rows, key=lambda row: row["id"])]
    derived = DeltaTable(str(tmp_path / "sink" / "by_note")).to_pyarrow_table().to_pylist()
    assert len(derived) == len(by_note(tmp_path))
    assert {row["note"]: (row["n"], row["total"]) for row in derived} == by_note(tmp_path)
    verified = backfill(tmp_path, "verify", "two", "--json")
    found = json.loads(verified.stdout)
    assert verified.returncode == 3, "the row of somebody else is found, and no other"
    assert str(found).count("theirs") + str(found).count("-1") > 0
