"""A database whose tables' changes are taken from a slot, and a sink in plain Python that they are applied to."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
from postgres_database import Database

from backfill_cli.cdc.files import LogTable
from backfill_cli.cdc.window import TakenWindow, WindowRequest
from backfill_cli.upstreams.postgres.client import lsn_of
from backfill_cli.upstreams.postgres.take import TakeRequest, take
from backfill_cli.upstreams.postgres.types import COLUMNS, Column, by_table

PUBLICATION = "Changes, all"

Taken = TakenWindow[Column]

Rows = dict[tuple[str | None, ...], dict[str, str | None]]


class World:
    """tables: name -> its key's columns; they exist. position: up to where the log was applied."""

    def __init__(self, db: Database, folder: Path, tables: Mapping[str, Sequence[str]]) -> None:
        self.db, self.folder, self.keys = db, folder, {name: tuple(key) for name, key in tables.items()}
        self.slot = f"taken_{db.name}"
        listed = ", ".join(tables)
        db(
            f'CREATE PUBLICATION "{PUBLICATION}" FOR TABLE {listed} WITH (publish_via_partition_root = true)',
            f"SELECT pg_create_logical_replication_slot('{self.slot}', 'pgoutput')",
        )
        self.tables = tuple(map(self.table, tables))
        self.sink: dict[str, Rows] = {name: {} for name in tables}
        self.attempts = 0
        self.position = self.now()

    def table(self, name: str) -> LogTable[Column]:
        """As the catalog has it now."""
        with psycopg.connect(self.db.dsn) as connection:
            found = connection.execute("SELECT %s::regclass::oid", (name,)).fetchone()
            assert found is not None
            columns = by_table(connection.execute(COLUMNS.encode(), ([found[0]],)).fetchall())[found[0]]
        return LogTable(name, found[0], columns, self.keys[name])

    def now(self) -> int:
        """All that is committed is before it, and flushed."""
        ((end,),) = self.db("SELECT pg_current_wal_flush_lsn()::text")
        return lsn_of(end)

    def clear(self) -> None:
        """Tables, sink and log are empty."""
        self.db(
            f"TRUNCATE {', '.join(self.keys)}",
            f"SELECT pg_replication_slot_advance('{self.slot}', pg_current_wal_insert_lsn())",
        )
        self.sink = {name: {} for name in self.keys}
        self.position = self.now()

    def request(self, up_to: int | None = None, **more: Any) -> TakeRequest:
        self.attempts += 1
        window = WindowRequest(
            after=self.position,
            up_to=self.now() if up_to is None else up_to,
            tables=self.tables,
            folder=str(self.folder),
            attempt=str(self.attempts),
        )
        return TakeRequest(replace(window, **more), self.db.dsn, self.slot, PUBLICATION)

    def take(self, up_to: int | None = None, **more: Any) -> Taken:
        """The changes from the position on, which stays where it is; no files but theirs are left."""
        taken = take(self.request(up_to, **more))
        left = {path.name for path in self.folder.glob(f"log-{self.attempts}-*")}
        assert left == {one.path for table in taken.tables.values() for one in table.files}
        return taken

    def follow(self, up_to: int | None = None, **more: Any) -> Taken:
        """The same applied to the sink; the position moves."""
        taken = self.take(up_to, **more)
        for name, rows in self.sink.items():
            apply(self.folder, taken, name, self.keys[name], rows)
        self.position = taken.up_to
        return taken

    def state(self) -> dict[str, Rows]:
        """The tables as they are, in the server's text."""
        found: dict[str, Rows] = {}
        with psycopg.connect(self.db.dsn) as connection:
            for name, key in self.keys.items():
                done = connection.pgconn.exec_(f"SELECT * FROM {name}".encode())
                columns = [(done.fname(at) or b"").decode() for at in range(done.nfields)]
                rows = [
                    {
                        column: None if (value := done.get_value(row, at)) is None else value.decode()
                        for at, column in enumerate(columns)
                    }
                    for row in range(done.ntuples)
                ]
                found[name] = {tuple(row[column] for column in key): row for row in rows}
        return found


def changes(folder: Path, taken: Taken, name: str) -> list[dict[str, Any]]:
    """The rows of a table's files, in the order of the log."""
    if name not in taken.tables:
        return []
    rows: list[dict[str, Any]] = []
    for one in taken.tables[name].files:
        table = pq.ParquetFile(folder / one.path).read()
        assert table.num_rows > 0
        assert (folder / one.path).stat().st_size == one.size_bytes
        assert ("_backfill_unsent" in table.column_names) == bool(taken.tables[name].partial)
        rows += table.to_pylist()
    ops = [row["_backfill_op"] for row in rows]
    assert (ops.count("U"), ops.count("D")) == (taken.tables[name].changed, taken.tables[name].deleted)
    return sorted(rows, key=lambda row: row["_backfill_seq"])


def apply(folder: Path, taken: Taken, name: str, key: Sequence[str], rows: Rows) -> None:
    """As a sink would: a truncated table loses its rows first; then the changes are applied, in order."""
    if name not in taken.tables:
        return
    table = taken.tables[name]
    if table.truncated:
        rows.clear()
    found = changes(folder, taken, name)
    keys = [tuple(_text(row[column]) for column in key) for row in found]
    assert not table.netted or len(set(keys)) == len(keys)
    assert len({row["_backfill_seq"] for row in found}) == len(found)
    for which, row in zip(keys, found, strict=True):
        if row["_backfill_op"] == "D":
            assert all(value is None for column, value in row.items() if column not in key and column[0] != "_")
            rows.pop(which, None)
            continue
        assert row["_backfill_op"] == "U"
        unsent = row.get("_backfill_unsent") or ()
        assert set(unsent) <= set(table.partial)
        new = {column: _text(value) for column, value in row.items() if column[0] != "_"}
        rows[which] = {**new, **{column: rows[which][column] for column in unsent}}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
