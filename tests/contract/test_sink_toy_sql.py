"""What a further SQL sink costs over sinks/sql: SQLite here, in one file, judged by the contract of all sinks.

Of what only some sinks can do (`SinkExtras`) it has nothing.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sink_contract import Read, SinkContract

from backfill_cli.contracts import EpochCommit, SinkCapabilities, SinkExtras, SinkTable, own
from backfill_cli.contracts.refusals import DEPENDENT, other_type, rows_of_others
from backfill_cli.errors import CORRECT, RETRIED, BadData, Transient, UsageError, in_config
from backfill_cli.model.plan import StagedFile
from backfill_cli.model.position import cursor_text
from backfill_cli.model.schema import shown
from backfill_cli.model.split import SplitKey, SplitProgress
from backfill_cli.sinks.sql.dialect import Column, SqlDialect, Target, paths_of
from backfill_cli.sinks.sql.sink import SqlSink
from backfill_cli.sinks.sql.state import SqlState, side_tables
from backfill_cli.sinks.sql.tables import SqlTables, Wanted
from backfill_cli.sinks.sql.transition import TransitionTable

# Names and types


def _nested(table: str, column: str, spark: Any, within: str) -> str:
    raise SQLITE.refused(table, column, shown(spark), within)


SQLITE = SqlDialect(
    system="SQLite",
    schema="main",
    simple={"long": "bigint", "double": "double", "string": "text", "binary": "blob"},
    logical={},
    decimal="text",  # its own numbers are floating
    nested=_nested,
    rename=in_config("name another target: tables.target"),
    ignores_case=True,
    comments=False,
    lock="",  # a transaction that writes has the whole file
)


# Connection and errors


class Connection:
    def __init__(self, raw: sqlite3.Connection) -> None:
        self.raw = raw

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.raw.execute(sql, {str(at): one for at, one in enumerate(parameters, 1)}).fetchall()

    def run(self, sql: str, *parameters: Any) -> None:
        self.rows(sql, *parameters)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            self.run("ROLLBACK")
            raise

    ddl = transaction


@contextmanager
def opened(path: Path) -> Iterator[Connection]:
    raw = sqlite3.connect(path, isolation_level=None)
    try:
        raw.create_function("now", 0, lambda: None)
        yield Connection(raw)
    except sqlite3.OperationalError as exc:
        raise Transient(f"SQLite failed on {path}: {exc}", RETRIED) from exc
    except sqlite3.IntegrityError as exc:
        raise BadData(f"{path} cannot store these rows: {exc}", CORRECT) from exc
    finally:
        raw.close()


# Side tables


class State(SqlState):
    con: Connection
    dialect = SQLITE
    layout = 1
    tables = side_tables("file", layout, "table that the job writes, lower case")
    required = frozenset(side.name for side in tables)

    def there(self) -> list[str]:
        return [side.name for side in self.tables if kind_of(self.con, self.target(side.name)) == "table"]

    def create_owners(self) -> None:
        for statement in self.required_ddl():
            self.con.run(statement)

    def drop_unused(self) -> None:
        there = [self.sql(name) for name in self.there()]
        if not any(self.con.rows(f"SELECT 1 FROM {table} LIMIT 1") for table in there):
            for table in there:
                self.con.run(f"DROP TABLE {table}")

    def schema_ddl(self, schema: str) -> list[str]:
        return []

    def save_splits(self, job: str, splits: Mapping[SplitKey, SplitProgress]) -> None:
        for key, one in splits.items():
            values = (one.status.value, cursor_text(one.cursor), one.rows, one.epoch, one.target)
            self.con.run(
                f"INSERT OR REPLACE INTO {self.sql('splits')} VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
                *(job, *key, *values),
            )


# Tables


def kind_of(con: Connection, name: Target) -> str | None:
    found = con.rows("SELECT type FROM sqlite_master WHERE lower(name) = lower($1)", name.table)
    return found[0][0] if found else None


class Tables(SqlTables[State]):
    def columns(self, table: SinkTable) -> tuple[Column, ...]:
        return SQLITE.columns(table.name, table.schema)

    def exists(self, target: Target) -> bool:
        kind = kind_of(self.state.con, target)
        if kind not in (None, "table"):
            raise UsageError(f"{target} is a {kind}, not a table", "name another target")
        return kind is not None

    def creation(self, want: Wanted) -> list[str]:
        columns = ", ".join(f"{SQLITE.quoted(one.name)} {one.type}" for one in want.columns)
        return [f"CREATE TABLE {want.target.sql} ({columns})"]

    def addition(self, job: str, want: Wanted, ours: bool) -> list[str]:
        if not ours and self.con.rows(f"SELECT 1 FROM {want.target.sql} LIMIT 1"):
            raise rows_of_others(str(want.target))
        there = dict(
            self.con.rows("SELECT lower(name), lower(type) FROM pragma_table_info($1)", want.target.table)
        )
        for one in want.columns:
            if there.get(one.name.lower(), one.type) != one.type:
                raise other_type(one.name, str(want.target), there[one.name.lower()], one.type)
        return [
            f"ALTER TABLE {want.target.sql} ADD COLUMN {SQLITE.quoted(one.name)} {one.type}"
            for one in want.columns
            if one.name.lower() not in there
        ]

    def drop(self, targets: Sequence[Target]) -> None:
        for target in targets:
            try:
                self.con.run(f"DROP TABLE IF EXISTS {target.sql}")
            except sqlite3.OperationalError as exc:
                raise UsageError(f"table {target} cannot be dropped: {exc}", DEPENDENT) from exc


# Rows


def write(con: sqlite3.Connection, commit: EpochCommit, table: SinkTable) -> None:
    staged = commit.staged.tables.get(table.name)
    if staged is None:
        return
    target = SQLITE.target_of(table).sql
    names = [one.name for one in SQLITE.columns(table.name, table.schema)]
    where = " AND ".join(f"{SQLITE.quoted(name)} = ?" for name in table.key)

    def delete(rows: Sequence[Mapping[str, Any]]) -> None:
        keys = [[row[name] for name in table.key] for row in rows]
        con.execute(f"CREATE INDEX IF NOT EXISTS temp_key ON {target[7:]} ({SQLITE.listed(table.key)})")
        con.executemany(f"DELETE FROM {target} WHERE {where}", keys)
        con.execute("DROP INDEX temp_key")

    def insert(rows: Sequence[Mapping[str, Any]]) -> None:
        values = [[_stored(row[name]) for name in names] for row in rows]
        con.executemany(f"INSERT INTO {target} VALUES ({', '.join('?' for _ in names)})", values)

    inserts, changes = read(commit, staged.inserts), read(commit, staged.changes)
    if not table.plain_inserts:
        delete(inserts)
    insert(inserts)
    delete(changes)
    insert([row for row in changes if row[own.OP] == "U"])


def read(commit: EpochCommit, files: Sequence[StagedFile]) -> list[dict[str, Any]]:
    """A toy: rows pass through Python."""
    return [row for path in paths_of(commit.folder, files) for row in pq.ParquetFile(path).read().to_pylist()]


def _stored(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value


class SqliteSink(SqlSink[State]):
    capabilities = SinkCapabilities(transactional=True, partial=False)
    extras = SinkExtras()
    holder = "file"
    tables = Tables

    def __init__(self, path: Path) -> None:
        self.path = path

    def is_there(self) -> bool:
        return self.path.exists()

    @contextmanager
    def opened(self, doing: str, *_: Any, **__: Any) -> Iterator[State]:
        with opened(self.path) as con:
            yield State(con, SQLITE.schema)

    def write(
        self, state: State, commit: EpochCommit, due: Sequence[SinkTable], taken: Mapping[str, TransitionTable]
    ) -> None:
        for table in due:
            write(state.con.raw, commit, table)
            if table.name in commit.unique:
                state.refuse_twice(table)


class TestSqliteSink(SinkContract):
    @pytest.fixture
    def sink(self, tmp_path: Path) -> SqliteSink:
        return SqliteSink(tmp_path / "w.sqlite")

    @pytest.fixture
    def read(self, sink: SqliteSink) -> Read:
        def rows(target: str) -> list[dict[str, Any]]:
            with sqlite3.connect(sink.path) as con:
                con.row_factory = sqlite3.Row
                return [dict(row) for row in con.execute(f"SELECT * FROM {target} ORDER BY id")]

        return rows
