"""Whole jobs between a database and lake tables: what deltalake and pyiceberg read of them is what it says."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from postgres import Server
from postgres_database import Database, database
from pyiceberg.table import StaticTable

from backfill_cli.catalog import Catalog
from backfill_cli.config import load
from backfill_cli.engine.loop.run import start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = """
[job]
name = "{name}"
staging = "{folder}/staging/{name}"
[upstream]
{upstream}
[[tables]]
name = "{table}"
key = ["id"]
{target}
[sink]
{sink}
[barrier]
interval = "100ms"
"""
POSTGRES = 'type = "postgres"\ndsn = "${{env:SHOP_DSN}}"\nslot = "{slot}"'
LAKE = 'type = "{form}"\ntable = "{folder}/{form}/{{table}}"'
MADE = """CREATE TABLE orders (id int PRIMARY KEY, kind text, price numeric(12,3), at timestamptz, tags text[],
              raw bytea, large text)"""
FILLED = """INSERT INTO orders SELECT n, 'k' || n % 3, n / 7.0, timestamptz '2026-01-01Z' + n * interval '1 s',
                array['t' || n, NULL, ''], decode(lpad(to_hex(n), 4, '0'), 'hex'), repeat(md5(n::text), 200)
            FROM generate_series(1, 300) n"""
CHANGES = (
    "DELETE FROM orders WHERE id % 10 = 3",
    "UPDATE orders SET price = -price, kind = NULL WHERE id % 10 = 4",  # and leaves out what is large
    "UPDATE orders SET id = id + 1000, large = large || 'x' WHERE id % 10 = 5",
    "BEGIN; DELETE FROM orders WHERE id = 1; INSERT INTO orders (id, kind) VALUES (1, 'new'), (2000, ''); COMMIT",
    "UPDATE orders SET large = NULL, tags = '{}' WHERE id % 10 = 6",
)
ROWS = "SELECT id, kind, price, at, tags, raw, large FROM {} ORDER BY id"


@pytest.fixture
def db(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    with database(postgres) as made:
        monkeypatch.setenv("SHOP_DSN", made.dsn)
        made(MADE, "ALTER TABLE orders ALTER large SET STORAGE external", FILLED)
        yield made


class Job:
    def __init__(
        self, folder: Path, name: str, upstream: str, sink: str, table: str = "orders", target: str = ""
    ) -> None:
        self.name, self.file = name, folder / f"{name}.toml"
        self.catalog = Catalog(folder / f"{name}.duckdb")
        told = CONFIG.format(folder=folder, name=name, upstream=upstream, sink=sink, table=table, target=target)
        self.file.write_text(told)

    def catch_up(self) -> None:
        start(load(self.file), self.catalog, "caught-up", False, None)


def in_lake(folder: Path, form: str, table: str = "orders") -> list[dict[str, Any]]:
    at = str(folder / form / table)
    held = (
        DeltaTable(at).to_pyarrow_table() if form == "delta" else StaticTable.from_metadata(at).scan().to_arrow()
    )
    return sorted(held.to_pylist(), key=lambda row: row["id"])


def in_database(db: Database, table: str) -> list[dict[str, Any]]:
    names = ("id", "kind", "price", "at", "tags", "raw", "large")
    return [dict(zip(names, row, strict=True)) for row in db(ROWS.format(table))]


def test_a_database_fills_lake_tables_and_one_of_them_a_database(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    """PostgreSQL into Delta and Iceberg; then the Delta table's own change feed into PostgreSQL."""
    lake: Mapping[str, str] = {form: LAKE.format(form=form, folder=tmp_path) for form in ("delta", "iceberg")}
    there = {form: Job(tmp_path, form, POSTGRES.format(slot=form), lake[form]) for form in lake}
    for form, job in there.items():
        job.catch_up()
        assert in_lake(tmp_path, form) == in_database(db, "orders")
    feed = {"delta.enableChangeDataFeed": "true"}
    DeltaTable(str(tmp_path / "delta" / "orders")).alter.set_table_properties(feed)
    back = Job(
        tmp_path,
        "back",
        lake["delta"],
        'type = "postgres"\ndsn = "${env:SHOP_DSN}"',
        target='target = "mirror.orders"',
    )
    back.catch_up()
    db(*CHANGES)
    for form, job in there.items():
        job.catch_up()
        assert in_lake(tmp_path, form) == in_database(db, "orders")
    back.catch_up()
    assert in_database(db, "mirror.orders") == in_database(db, "orders")
    assert len(in_database(db, "orders")) == 300 - 30 + 1
