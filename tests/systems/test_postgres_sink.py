"""A job into PostgreSQL by its commands: killed at its commit, resumed, verified, and a stranger's hand found."""

import json
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import kept_python
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from postgres import Server
from postgres_database import Database, database

ROWS, FILES, CHANGED = 3_000, 3, 200
SECRET = "s3cret-of-the-warehouse"
CONFIG = """
[job]
name = "orders"
[upstream]
type = "files"
snapshot = { path = "snapshot", format = "parquet" }
changes = { path = "changes", format = "change-feed" }
[[tables]]
name = "orders"
key = ["id"]
target = "mart.orders"
[[derived]]
name = "by_status"
key = ["status"]
target = "mart.by_status"
sql = "SELECT o.status, count(*) AS n, sum(o.price) AS paid FROM orders AS o WHERE o.paid GROUP BY o.status"
[sink]
type = "postgres"
dsn = "${env:WAREHOUSE_DSN}"
[throttle]
rate = 8000
[barrier]
interval = "200ms"
[spark]
master = "local[2]"
"""
COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "status": pa.string(),
    "note": pa.string(),
    "price": pa.decimal128(12, 2),
    "paid": pa.bool_(),
    "at": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "day": pa.date32(),
    "share": pa.float64(),
    "raw": pa.binary(),
    "tags": pa.list_(pa.string()),
}


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        yield made


def row(key: int, turn: int = 0) -> dict[str, Any]:
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=key, microseconds=turn)
    return {
        "id": key,
        "status": ("new", "paid", None)[key % 3],
        "note": f"{turn} of {key} 'x' \\ é",
        "price": Decimal(key * 7 + turn).scaleb(-2),
        "paid": key % 2 == 0,
        "at": at,
        "local": at.replace(tzinfo=None),
        "day": at.date(),
        "share": key / 7 + turn,
        "raw": bytes([key % 256, 0]),
        "tags": [f"t{key % 5}", None] if key % 4 else [],
    }


def upstream(folder: Path) -> dict[int, dict[str, Any]]:
    """A snapshot in three files and a change feed in two; returns what the sink must hold."""
    (folder / "snapshot").mkdir()
    (folder / "changes").mkdir()
    (folder / "job.toml").write_text(CONFIG)
    rows = {key: row(key) for key in range(ROWS)}
    schema = pa.schema(list(COLUMNS.items()))
    for part in range(FILES):
        held = [rows[key] for key in range(part, ROWS, FILES)]
        pq.write_table(pa.Table.from_pylist(held, schema), folder / "snapshot" / f"{part}.parquet")
    of_feed = [
        ("_change_type", pa.string()),
        ("_commit_version", pa.int64()),
        ("_commit_timestamp", pa.timestamp("us", "UTC")),
    ]
    for version in (1, 2):
        changes = []
        for key in range(version * 50, version * 50 + CHANGED):
            gone = key % 9 == 0
            changed = rows.pop(key, row(key)) if gone else rows.setdefault(key, {}) | row(key, version)
            if not gone:
                rows[key] = changed
            kind = "delete" if gone else "insert"
            stamp = datetime(2026, 1, 2, 0, version, tzinfo=UTC)
            changes.append(
                changed | {"_change_type": kind, "_commit_version": version, "_commit_timestamp": stamp}
            )
        table = pa.Table.from_pylist(changes, pa.schema([*COLUMNS.items(), *of_feed]))
        pq.write_table(table, folder / "changes" / f"{version:04d}.parquet")
    return rows


def backfill(folder: Path, db: Database, *words: str, failpoint: str = "") -> "subprocess.CompletedProcess[str]":
    told = {
        "BACKFILL_FAILPOINT": failpoint,
        "BACKFILL_CATALOG": "catalog.duckdb",
        "WAREHOUSE_DSN": db.dsn.replace("postgres@", f"postgres:{SECRET}@"),
    }
    done = kept_python.typed(folder, {**os.environ, **told}, *words)
    assert SECRET not in done.stdout + done.stderr
    return done


def held(db: Database) -> dict[int, dict[str, Any]]:
    rows = db(f"SELECT {', '.join(COLUMNS)} FROM mart.orders")
    found = {values[0]: dict(zip(COLUMNS, values, strict=True)) for values in rows}
    assert len(found) == len(rows)
    return found


def by_status(rows: Iterable[dict[str, Any]]) -> dict[str | None, tuple[int, Decimal]]:
    found: dict[str | None, tuple[int, Decimal]] = {}
    for one in rows:
        if one["paid"]:
            n, paid = found.get(one["status"], (0, Decimal(0)))
            found[one["status"]] = (n + 1, paid + one["price"])
    return found


def derived(db: Database) -> dict[str | None, tuple[int, Decimal]]:
    return {status: (n, paid) for status, n, paid in db("SELECT status, n, paid FROM mart.by_status")}


def test_a_job_into_postgresql_is_killed_resumed_and_verified(db: Database, tmp_path: Path) -> None:
    expected = upstream(tmp_path)
    words = ("start", "--config", "job.toml", "--until", "caught-up")
    killed = backfill(tmp_path, db, *words, failpoint="sink-before-commit:2")
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    resumed = backfill(tmp_path, db, "resume", "orders")
    assert resumed.returncode == 0, resumed.stderr
    assert held(db) == expected
    assert derived(db) == by_status(expected.values())
    status = json.loads(backfill(tmp_path, db, "status", "orders", "--json").stdout)
    assert "done" in json.dumps(status)

    db("ANALYZE mart.orders")
    db("UPDATE mart.orders SET note = 'touched' WHERE id = 700", "DELETE FROM mart.orders WHERE id = 701")
    db("DELETE FROM mart.by_status WHERE status IS NULL")
    other = backfill(tmp_path, db, "verify", "orders", "--json")
    assert other.returncode == 3, other.stderr
    assert "touched" in other.stdout
    assert '"701"' in other.stdout
    told, of_derived = json.loads(other.stdout)["tables"]
    assert (of_derived["table"], of_derived["missing"], of_derived["extra"]) == ("by_status", 1, 0)
    assert (told["missing"], told["extra"], told["changed"]) == (1, 0, 1)
    assert (told["rows_upstream"], told["rows_sink"]) == (len(expected), len(expected) - 1)

    kept = db("SELECT string_agg(definition || checkpoint, '') FROM _backfill_jobs")[0][0]
    assert SECRET not in kept
    assert SECRET.encode() not in (tmp_path / "catalog.duckdb").read_bytes()
