"""`keep = "columns"` by the real command, with kills: derived tables over tables of which only columns are stored.

What they must hold is computed over plain lists of rows.
"""

import json
import os
import random
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import kept_python
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hint_typed import typed

CONFIG = """
[job]
name = "shop"
[upstream]
type = "files"
snapshot = { path = "snapshot/{table}", format = "parquet" }
changes = { path = "changes/{table}", format = "change-feed" }
[[tables]]
name = "customers"
key = ["id"]
keep = "columns"
[[tables]]
name = "orders"
key = ["id"]
keep = "columns"
[sink]
type = "duckdb"
path = "sink.duckdb"
[barrier]
interval = "200ms"
[throttle]
rate = 400
[spark]
master = "local[2]"
"""
REVENUE = '''
[[derived]]
name = "revenue"
key = ["country"]
sql = """
SELECT c.country, count(*) AS n, sum(o.amount) AS total
FROM orders o JOIN customers c ON c.id = o.customer GROUP BY 1
"""
'''
BY_STATUS = """
[[derived]]
name = "by_status"
key = ["status"]
sql = "SELECT status, max(amount) AS largest FROM orders WHERE hidden IS NULL GROUP BY status"
"""
NOTES = """
[[derived]]
name = "notes"
key = ["note"]
sql = "SELECT note, count(*) AS n FROM orders GROUP BY note"
"""
TYPES = {
    "customers": {"id": pa.int64(), "country": pa.string(), "mail": pa.string()},
    "orders": {
        "id": pa.int64(),
        "customer": pa.int64(),
        "amount": pa.int64(),
        "status": pa.string(),
        "hidden": pa.string(),
        "note": pa.string(),
    },
}
Row = dict[str, Any]


def backfill(folder: Path, *words: str, failpoint: str = "") -> "subprocess.CompletedProcess[str]":
    told = {**os.environ, "BACKFILL_FAILPOINT": failpoint, "BACKFILL_CATALOG": "catalog.duckdb"}
    return kept_python.typed(folder, told, *words)


@dataclass
class Shop:
    """The upstream: its rows by table and id, and the folder in which they are."""

    folder: Path
    draw: random.Random = field(default_factory=lambda: random.Random(11))
    rows: dict[str, dict[int, Row]] = field(default_factory=lambda: {"customers": {}, "orders": {}})
    version: int = 0
    gained: dict[str, pa.DataType] = field(default_factory=dict)

    def row(self, table: str, key: int) -> Row:
        pick = self.draw.choice
        if table == "customers":
            return {"id": key, "country": pick(["DE", "FR", None]), "mail": f"{key}@example.org"}
        money = {"customer": self.draw.randrange(40), "amount": pick([None, *range(50)])}
        told = {"status": pick(["new", "paid"]), "hidden": pick([None, None, "x"]), "note": pick(["a", "b", "c"])}
        return {"id": key, **money, **told}

    def snapshot(self) -> None:
        for table, count in (("customers", 40), ("orders", 600)):
            self.rows[table] = {key: self.row(table, key) for key in range(count)}
            self.write(Path("snapshot") / table / "part-0.parquet", table, list(self.rows[table].values()), {})

    def change(self) -> None:
        """One commit of each table: some rows are inserted, updated and deleted."""
        self.version += 1
        for table, count in (("customers", 4), ("orders", 60)):
            held, rows, kinds = self.rows[table], [], []
            for key in self.draw.sample(range(2 * len(held)), count):
                gone = key in held and self.draw.random() < 0.3
                row = held.pop(key) if gone else self.row(table, key)
                if not gone:
                    held[key] = row
                rows.append({**dict.fromkeys(self.gained), **row})
                kinds.append("delete" if gone else "insert")
            at = {"_change_type": (kinds, pa.string()), "_commit_version": ([self.version] * count, pa.int64())}
            at["_commit_timestamp"] = ([1_700_000_000_000_000 + self.version] * count, pa.timestamp("us", "UTC"))
            name = Path("changes") / table / f"{self.version:04d}.parquet"
            self.write(name, table, rows, at)

    def write(self, path: Path, table: str, rows: list[Row], at: Mapping[str, Any]) -> None:
        types = {**TYPES[table], **self.gained}
        columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()}
        columns |= {name: pa.array(values, kind) for name, (values, kind) in at.items()}
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), self.folder / path)

    # -- what the sink must hold

    def expected(self) -> dict[str, list[tuple[Any, ...]]]:
        orders, customers = self.rows["orders"].values(), self.rows["customers"]
        revenue: dict[Any, list[Any]] = {}
        largest: dict[Any, list[Any]] = {}
        notes: dict[Any, int] = {}
        for row in orders:
            notes[row["note"]] = notes.get(row["note"], 0) + 1
            if row["customer"] in customers:
                revenue.setdefault(customers[row["customer"]]["country"], []).append(row["amount"])
            if row["hidden"] is None:
                largest.setdefault(row["status"], []).append(row["amount"])

        def there(values: list[Any]) -> list[Any]:
            return [value for value in values if value is not None]

        def total(values: list[Any]) -> int | None:
            return sum(there(values)) if there(values) else None

        return {
            "revenue": [(of, len(values), total(values)) for of, values in revenue.items()],
            "by_status": [(of, max(there(all_), default=None)) for of, all_ in largest.items()],
            "notes": list(notes.items()),
        }

    def equal(self, *derived: str) -> None:
        told = self.expected()
        for name in derived:
            assert sorted(self.read(name), key=repr) == sorted(told[name], key=repr), name

    def kept(self, table: str, *columns: str) -> None:
        """The sink has these columns of a table, and no other; each row as it is upstream."""
        assert [name for name, *_ in self.read(f"(DESCRIBE _backfill_columns_{table})")] == list(columns)
        wanted = [tuple(row[name] for name in columns) for row in self.rows[table].values()]
        assert sorted(self.read(f"_backfill_columns_{table}"), key=repr) == sorted(wanted, key=repr)

    def read(self, table: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(str(self.folder / "sink.duckdb"), read_only=True) as db:
            found = db.execute(f"SELECT * FROM {table}").fetchall()
        return [tuple(int(v) if isinstance(v, float) else v for v in row) for row in found]

    # -- commands

    def says(self, *derived: str) -> None:
        (self.folder / "job.toml").write_text(CONFIG + "".join(derived))

    def run(self, *words: str) -> str:
        done = backfill(self.folder, *words)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def killed(self, failpoint: str, *words: str) -> None:
        died = backfill(self.folder, *words, failpoint=failpoint)
        assert died.returncode == -signal.SIGKILL, f"{failpoint}: {died.stderr}"


@pytest.mark.long
def test_derived_tables_over_kept_columns_are_exact_through_kills_and_get_further_columns(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.snapshot()
    shop.change()
    shop.says(REVENUE, BY_STATUS.replace("hidden IS", "hiden IS"))
    refused = backfill(tmp_path, "plan", "--config", "job.toml")
    assert "table 'orders' has no column 'hiden', which a derived table uses" in refused.stderr.replace("\n", " ")
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        hint.says("correct derived.sql")
        shop.says(REVENUE, BY_STATUS)
        planned = json.loads(shop.run("plan", "--config", "job.toml", "--json"))
    assert [one["left_out"] for one in planned["tables"]] == [1, 1]
    shop.killed("sink-before-commit:2", "start", "--config", "job.toml", "--until", "caught-up")
    shop.killed("sink-made-derived", "resume", "shop")
    shop.run("resume", "shop")
    shop.equal("revenue", "by_status")
    shop.kept("customers", "id", "country")
    shop.kept("orders", "id", "amount", "customer", "status", "hidden")

    shop.gained = {"channel": pa.string()}  # a column that nobody reads
    shop.change()
    shop.change()
    shop.killed("sink-before-close", "resume", "shop")
    shop.run("resume", "shop")
    shop.equal("revenue", "by_status")
    shop.kept("orders", "id", "amount", "customer", "status", "hidden")
    verified = json.loads(shop.run("verify", "shop", "--json"))
    assert [one["target"] for one in verified["tables"]][:2] == [
        "_backfill_columns_customers",
        "_backfill_columns_orders",
    ]

    # a SELECT that goes leaves its columns, and the file without it is the job's
    shop.run("remove", "shop", "--derived", "by_status", "--with-rows", "--confirm", "shop")
    shop.run("resume", "shop")
    shop.says(REVENUE)
    shop.run("start", "--config", "job.toml", "--until", "caught-up")
    shop.kept("orders", "id", "amount", "customer", "status", "hidden")

    # a SELECT that needs a further column
    shop.says(REVENUE, NOTES)
    for words in (("start", "--config", "job.toml"), ("add", "shop", "--derived", "notes")):
        refused = backfill(tmp_path, *words)
        assert refused.returncode == 2, refused.stderr
        assert "does not keep note of table 'orders'" in refused.stderr.replace("\n", " ")
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        commands = hint.commands()
        assert [one[0] for one in commands] == ["remove", "remove", "add", "add"]
        shop.change()
        for words in commands:  # each waits for those before it, and one run takes all
            shop.run(*words)
        shop.run("resume", "shop")
    shop.equal("revenue", "notes")
    shop.kept("orders", "id", "amount", "customer", "note")
    shop.run("drop", "shop", "--with-rows", "--confirm", "shop")
    left = {name for (name,) in shop.read("(SELECT table_name FROM duckdb_tables())")}
    assert not left & {"_backfill_columns_customers", "_backfill_columns_orders", "revenue", "notes"}
