"""Columns with the names of our own code in the sinks that SQL fills: as values, and each once in a key."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import psycopg
import pyarrow as pa
import pytest
from code_names import Row, Table, names, tables
from postgres import Server
from postgres_database import Database, database
from postgres_sink import sink_of, staging
from psycopg.rows import dict_row
from sink_contract import Epochs, schema_json

from backfill_cli.contracts import EpochCommit, Sink, SinkTable
from backfill_cli.errors import BadData
from backfill_cli.model.digest import KeyRanges, spec_of
from backfill_cli.model.plan import Staged
from backfill_cli.sinks.duckdb import DuckDBOptions
from backfill_cli.sinks.duckdb import connector as duckdb_sink
from backfill_cli.sinks.postgres.dialect import OF_THE_SYSTEM

KEYS = 32
"""As many columns as a key can have in PostgreSQL."""
OF_TABLES = ("t", "s", "c", "n", "rows", "key")
"""Tables have such names too: `SELECT t FROM t` is a row in PostgreSQL and in DuckDB."""
Reads = Callable[[str], list[Row]]


@pytest.fixture(scope="module")
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        yield made


@pytest.fixture(params=["duckdb", "postgres"])
def sink(request: pytest.FixtureRequest, tmp_path: Path, db: Database) -> Iterator[tuple[Sink, Reads]]:
    path = tmp_path / "w.duckdb"

    def of_duckdb(target: str) -> list[Row]:
        with duckdb.connect(str(path), read_only=True) as con:
            return con.sql(f'FROM "{target}"').to_arrow_table().to_pylist()

    def of_postgres(target: str) -> list[Row]:
        with psycopg.connect(db.dsn, row_factory=dict_row) as con:
            return con.execute(f'SELECT * FROM "{target}"'.encode()).fetchall()

    if request.param == "duckdb":
        yield duckdb_sink.open(DuckDBOptions(path=str(path))), of_duckdb
    else:
        yield sink_of(db.dsn), of_postgres


def begun(sink: Sink, folder: Path, table: Table, name: str) -> Epochs:
    """An empty table of a job of its own."""
    shape = SinkTable(name, name, table.key, schema_json(**dict.fromkeys(table.columns, "integer")))
    epochs = Epochs(folder / name, job=f"of-{name}", tables=(shape,))
    sink.prepare(epochs.job, epochs.tables, into_existing=False)
    sink.fence(epochs.job, epochs.token)
    return epochs


def arrow(table: Table, rows: list[Row], **more: tuple[pa.DataType, list[object]]) -> pa.Table:
    shape = pa.schema([(name, pa.int32()) for name in table.columns])
    found = pa.Table.from_pylist(rows, shape)
    for name, (kind, values) in more.items():
        found = found.append_column(name, pa.array(values, kind))
    return found


def changes_of(table: Table, changes: list[tuple[str, Row]]) -> pa.Table:
    ops: list[object] = [op for op, _ in changes]
    return arrow(table, [row for _, row in changes], _backfill_op=(pa.string(), ops))


def test_no_name_of_our_code_is_taken_for_ours(sink: tuple[Sink, Reads], tmp_path: Path) -> None:
    """Snapshot, changes, changes that leave columns as they are; the check for duplicates finds none."""
    into, read = sink
    there = [name for name in names("lake") if name not in OF_THE_SYSTEM]
    for number, table in enumerate(tables(there, KEYS, KEYS)):
        name = OF_TABLES[number] if number < len(OF_TABLES) else f"table_{number}"
        epochs = begun(into, tmp_path, table, name)
        into.commit(replace(staging(epochs, inserts=arrow(table, table.snapshot())), unique=(name,)))
        assert table.ordered(read(name)) == table.ordered(table.snapshot())
        made = staging(epochs, changes=changes_of(table, table.changes()))
        into.commit(replace(made, unique=(name,)))
        assert table.ordered(read(name)) == table.after()
        into.commit(partly(epochs, table))
        left = table.values[::2]
        right = [{**row, **{v: 5 for v in table.values if v not in left}} for row in table.after()]
        assert table.ordered(read(name)) == right


def partly(epochs: Epochs, table: Table) -> EpochCommit:
    """Every row gets new values in every second column, and leaves the others as they are."""
    left = list(table.values[::2])
    rows = [{**row, **dict.fromkeys(table.values, 5), **dict.fromkeys(left)} for row in table.after()]
    data = arrow(
        table,
        rows,
        _backfill_op=(pa.string(), ["U"] * len(rows)),
        _backfill_unsent=(pa.list_(pa.string()), [left] * len(rows)),
    )
    made, name = staging(epochs, changes=data), epochs.tables[0].name
    staged = replace(made.staged.tables[name], partial=tuple(left))
    return replace(made, staged=Staged(made.attempt, {name: staged}))


@pytest.mark.parametrize("key", [("a", "n"), ("n", "a"), ("N",), ("count",), ("_backfilled", "k")])
def test_a_duplicate_key_is_found_whatever_its_name(
    sink: tuple[Sink, Reads], tmp_path: Path, key: tuple[str, ...]
) -> None:
    """`count(*) AS n … HAVING n > 1` was about a column n, if the table had one."""
    into, _ = sink
    table = Table(key, ("v",))
    name = "twice_" + "_".join(key).lower()
    epochs = begun(into, tmp_path, table, name)
    rows = [
        {**dict.fromkeys(key, 1), "v": 1},
        {**dict.fromkeys(key, 1), "v": 2},
        {**dict.fromkeys(key, 5), "v": 3},
    ]
    with pytest.raises(BadData, match=r"snapshot: \(1(, 1)*\) 2 times\n"):
        into.commit(replace(staging(epochs, inserts=arrow(table, rows)), unique=(name,)))


def test_what_verify_reads_of_a_table_does_not_depend_on_its_names(
    sink: tuple[Sink, Reads], tmp_path: Path
) -> None:
    """Digests and bounds are those of the same rows under plain names."""
    into, _ = sink
    assert into.extras.copied is not None
    there = [name for name in names("lake") if name not in OF_THE_SYSTEM]
    told = []
    for of, name in ((there, "all_names"), ([f"plain_{at}" for at in range(len(there))], "plain_names")):
        table = tables(of, KEYS, len(of))[0]
        epochs = begun(into, tmp_path, table, name)
        into.commit(staging(epochs, inserts=arrow(table, table.snapshot())))
        (shape,) = epochs.tables
        spec = spec_of(shape.schema, shape.key, frozenset())
        assert spec is not None
        folder = tmp_path / f"copy of {name}"
        folder.mkdir()
        with into.extras.copied(epochs.job, False, folder) as copy:
            survey = copy.survey(shape)
            assert survey.low is not None
            assert survey.high is not None
            ranges = KeyRanges.between(survey.low, survey.high)
            some = replace(spec, columns=spec.columns[: KEYS + 64])
            told.append(
                (survey.low, survey.high, copy.digest(shape, spec, None), copy.digest(shape, some, ranges))
            )
    assert told[0] == told[1]
