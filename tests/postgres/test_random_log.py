"""PostgreSQL's log at random against the server's own SELECT: up to 50 statements a transaction, DDL between.

A job reads four tables, one of them partitioned, in chunks while they change, and follows them. It is judged at
each commit; so is what the DuckDB sink and the PostgreSQL sink made of the same files. Another job's windows are
wider.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plain_job import Between, PlainJob, Rows, plain, selected, small
from postgres import Server
from postgres_database import Database, database
from postgres_sink import sink_of
from psycopg import sql
from random_log import TYPES, Transactions

from backfill_cli.contracts import EpochCommit, SavedJob, Sink, SinkTable
from backfill_cli.errors import Transient
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import EpochPlan, Staged, StagedFile, StagedTable
from backfill_cli.model.position import Position
from backfill_cli.sinks.duckdb import DuckDBOptions
from backfill_cli.sinks.duckdb import connector as duckdb_sink
from backfill_cli.upstreams.postgres.types import arrow_type

__all__ = ["small"]

KEYS = {"a": ("id",), "b": ("n", "k"), "c": ("code",), "d": ("region", "id")}
ACCEPTED = {"accept_partition_changes": True}
ENUMS = {"b": {"n": "mood"}}


class Job(PlainJob):
    """Its judge has one connection."""

    connection: psycopg.Connection[Any] | None = None

    def asking(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        self.connection = self.connection or psycopg.connect(self.db.dsn, autocommit=True)
        return nullcontext(self.connection)


class Sunk(Job):
    """A job whose epochs go to real sinks too. sinks: with how each one's tables are read."""

    sinks: Sequence[tuple[Sink, Callable[[], Mapping[str, list[dict[str, Any]]]]]] = ()
    prepared: Mapping[str, str] | None = None

    def _commit(self, read: Mapping[str, list[dict[str, Any]]], taken: Any) -> None:
        super()._commit(read, taken)
        tables = tuple(SinkTable(name, name, tuple(key), self.schemas[name]) for name, key in self.tables.items())
        staged = {name: self._staged(name, read.get(name, []), taken.tables.get(name)) for name in self.tables}
        position, attempt, number = Position.of({"wal": self.epochs}), f"a{self.epochs}", self.epochs * 10
        checkpoint = Checkpoint(
            number, number - 10, 1, attempt, "{}", Phase.SNAPSHOT, position, {}, EpochPlan(), Staged(attempt)
        )
        commit = EpochCommit(
            "job", number, number - 10, 1, attempt, tables, str(self.folder), Staged(attempt, staged), (),
            SavedJob("{}", checkpoint),
        )  # fmt: skip
        for sink, _ in self.sinks:
            if self.prepared != self.schemas:
                sink.prepare("job", tables, into_existing=False)
            sink.commit(commit)
        self.prepared = dict(self.schemas)

    def _staged(self, name: str, rows: list[dict[str, Any]], table: Any) -> StagedTable:
        """As the engine stages what it read, if no truncate came after; the changes are the upstream's files."""
        changes = StagedTable()
        if table is not None:
            assert table.netted
            changes = StagedTable((), table.files, 0, table.changed, table.deleted, table.truncated, table.partial)
        if not rows or changes.truncated:
            return changes
        shape = pa.schema([(c.name, arrow_type(c)) for c in self.upstream._catalog.in_force[name]])
        path = f"rows-{name}-{self.epochs}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, shape), self.folder / path)
        file = StagedFile(path, (self.folder / path).stat().st_size)
        return replace(changes, inserts=(file,), rows=len(rows))

    def judge(self, right: Mapping[str, Rows]) -> None:
        super().judge(right)
        for _, rows in self.sinks:
            sunk = rows()
            for name, held in self.sink.items():
                found = [plain(row) for row in sunk.get(name, ())]
                assert {self._key(name, row): row for row in found} == held
                assert len(found) == len(held)


def of_duckdb(path: Path) -> Callable[[], dict[str, list[dict[str, Any]]]]:
    def rows() -> dict[str, list[dict[str, Any]]]:
        if not path.exists():
            return {}
        with duckdb.connect(str(path), read_only=True) as con:
            return {name: con.sql(f"FROM {name}").to_arrow_table().to_pylist() for name in KEYS}

    return rows


def of_postgres(db: Database) -> Callable[[], dict[str, list[dict[str, Any]]]]:
    shape = """SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute
               WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"""

    def rows() -> dict[str, list[dict[str, Any]]]:
        found = {}
        with psycopg.connect(db.dsn, autocommit=True) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            for name in KEYS:
                columns = connection.execute(shape, (name,)).fetchall()
                listed = sql.SQL(", ").join(map(selected, columns))
                query = sql.SQL("SELECT {} FROM {}").format(listed, sql.Identifier(name))
                read = connection.execute(query).fetchall() if columns else []
                found[name] = [dict(zip((column for column, _ in columns), row, strict=True)) for row in read]
        return found

    return rows


class Writers:
    """One writes transactions one by one; another has one open meanwhile, at times, over other keys."""

    def __init__(self, db: Database, draw: random.Random, truncates: bool) -> None:
        self.draw, self.made = draw, Transactions(draw, truncates)
        self.connection, self.other = (
            psycopg.connect(db.dsn, autocommit=True, options="-c lock_timeout=10s") for _ in range(2)
        )
        self.open, self.count, self.late = False, 0, 10**6

    def write(self) -> None:
        for _ in range(self.draw.choice([0, 4, 12, 24])):
            self.count += 1
            self.run(self.connection, self.made.transaction(alone=not self.open))
        if self.draw.random() < 0.1:
            self.turn()
        self.run(self.connection, "SELECT pg_logical_emit_message(true, 'all', 'is on disk')")

    def turn(self) -> None:
        """The other transaction is begun, or ends: in the log it is where it ends."""
        if self.open:
            self.run(self.other, self.draw.choice(["COMMIT", "COMMIT", "ROLLBACK"]))
        else:
            self.late += 10
            rows = ", ".join(f"({self.late + n}, {n}, repeat('y', 2400))" for n in range(5))
            insert = f"INSERT INTO a (id, v, big) VALUES {rows}"
            self.run(self.other, f"BEGIN; {insert}; DELETE FROM a WHERE id = {self.late}")
            self.count += 1
        self.open = not self.open

    def copied(self) -> None:
        self.count += 1
        self.late += 10
        with self.connection.cursor().copy("COPY a (id, v) FROM STDIN") as copy:
            for n in range(5):
                copy.write_row((self.late + n, n))

    def run(self, connection: Any, text: str) -> None:
        done = connection.pgconn.exec_(text.encode())
        assert done.status in (psycopg.pq.ExecStatus.COMMAND_OK, psycopg.pq.ExecStatus.TUPLES_OK), (
            done.error_message.decode(),
            text,
        )

    def end(self) -> None:
        if self.open:
            self.turn()

    def close(self) -> None:
        self.end()
        for one in (self.connection, self.other):
            one.close()


def with_retries(job: PlainJob, **more: bool) -> None:
    """What fails in passing is tried again, as the engine does."""
    with suppress(Transient):
        job.step(**more)


@pytest.mark.seconds
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("truncates", [False, True], ids=["columns", "truncates"])
def test_transactions_at_random_end_in_what_the_server_selects(
    postgres: Server, tmp_path: Path, judged: Callable[[int], None], truncates: bool
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    with database(postgres) as db, database(postgres) as target:
        try:
            judged(judge(db, target, tmp_path, random.Random(seed), truncates, transactions=400))
        except Exception as exc:
            raise AssertionError(f"seed {seed}") from exc


def judge(
    db: Database, target: Database, folder: Path, draw: random.Random, truncates: bool, transactions: int
) -> int:
    """Returns how many transactions were judged, those of each way counted."""
    writers = Writers(db, draw, truncates)
    db(*TYPES, *(statement for table in writers.made.tables for statement in table.create))
    for _ in range(20):
        writers.run(writers.connection, writers.made.transaction())
    db("ANALYZE")
    (folder / "wide").mkdir()
    path = folder / "sink.duckdb"
    job = Sunk(db, folder, KEYS, rows=draw.choice([15, 30, 60]), enums=ENUMS, options=dict(ACCEPTED))
    job.sinks = [
        (duckdb_sink.open(DuckDBOptions(path=str(path))), of_duckdb(path)),
        (sink_of(target.dsn), of_postgres(target)),
    ]
    options = {"slot": f"wide_{db.name}", **ACCEPTED}
    wide = Job(db, folder / "wide", KEYS, rows=draw.choice([20, 60]), options=options, enums=ENUMS)
    job.between, wide.between = Between(*[writers.write] * 4), Between(*[writers.write] * 4)
    while writers.count < transactions or not (job.following and wide.following):
        if draw.random() < 0.1:
            writers.end()  # a new process waits for what was open before it
            job.die()
        if draw.random() < 0.2:
            with_retries(job, commit=False)
        with_retries(job)
        if draw.random() < 0.1:
            writers.copied()
        if not wide.following or draw.random() < 0.3:
            with_retries(wide)
    writers.close()
    job.between = wide.between = Between()
    for one in (job, wide):
        one.follow()
        one.upstream.close()
    return writers.count * 4
