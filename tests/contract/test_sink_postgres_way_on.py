"""Refusals of a server, a driver and a disk, each with what its hint asks for done: the job then goes on."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pyarrow.parquet as pq
import pytest
from hint_typed import typed
from postgres import Server
from postgres_database import Database, database
from postgres_sink import begun, read_table, sink_of
from sink_contract import Epochs, a_table, rows, schema_json

from backfill_cli.contracts import Swap
from backfill_cli.errors import BadData, Fatal, Transient, UsageError
from backfill_cli.model.cutover import Found
from backfill_cli.postgres_errors import IN_DATABASE
from backfill_cli.sinks.postgres import session
from backfill_cli.sinks.postgres.session import client
from backfill_cli.sinks.postgres.sink import PostgresSink


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        yield made


@pytest.fixture
def sink(db: Database) -> PostgresSink:
    return sink_of(db.dsn)


@pytest.fixture
def epochs(sink: PostgresSink, tmp_path: Path) -> Epochs:
    return begun(sink, tmp_path, a_table())


def test_what_a_trigger_raises_is_corrected_in_the_database(
    sink: PostgresSink, db: Database, epochs: Epochs
) -> None:
    db(
        "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no, not yet'; END $$",
        "CREATE TRIGGER fails BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION fails()",
    )
    commit = epochs.next(inserts=rows((1, "a")))
    with pytest.raises(Fatal, match="no, not yet") as told:
        sink.commit(commit)
    with typed(told.value) as hint:
        hint.says(IN_DATABASE)
        db("DROP TRIGGER fails ON orders")
        sink.commit(commit)
    assert read_table(db, "orders") == rows((1, "a"))


def test_what_an_old_driver_cannot_do_is_done_by_the_next(
    sink: PostgresSink, db: Database, epochs: Epochs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def old(*_: object) -> None:
        raise client().NotSupportedError("NOT_IMPLEMENTED: [libpq] Field #2 ('v') has unsupported type")

    commit = epochs.next(inserts=rows((1, "a")))
    with monkeypatch.context() as before:
        before.setattr(session.Connection, "cursor", old)
        with pytest.raises(Fatal, match="unsupported type") as told:
            sink.commit(commit)
    with typed(told.value) as hint:
        hint.says("pip install --upgrade adbc-driver-postgresql")
        sink.commit(commit)
    assert read_table(db, "orders") == rows((1, "a"))


def test_a_server_that_is_too_old_is_upgraded_or_another_one_named(
    sink: PostgresSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as demanding:
        demanding.setattr(session, "OLDEST", 10**6)
        with pytest.raises(UsageError, match="this one is") as told:
            sink.prepare("orders", (a_table(),), into_existing=False)
    with typed(told.value) as hint:
        hint.says("upgrade the server")
        sink.prepare("orders", (a_table(),), into_existing=False)


def test_a_name_that_is_neither_table_nor_view_is_no_live_name(
    sink: PostgresSink, db: Database, epochs: Epochs
) -> None:
    db("CREATE SEQUENCE seq")
    with pytest.raises(UsageError, match=r"public\.seq is neither a table nor a view") as told:
        sink.live("orders", (Swap(a_table(), "seq"),))
    with typed(told.value) as hint:
        hint.says("tables.live")
        swaps = (Swap(a_table(), "orders_now"),)
        sink.cut_over("orders", swaps, 20, 1, 2)
        assert sink.live("orders", swaps)["orders"].found is Found.OURS


def test_a_folder_that_verify_cannot_write_and_a_value_that_no_job_wrote(
    sink: PostgresSink, db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(schema=schema_json(id="long", name="decimal(9,2)"))
    begun(sink, tmp_path, table)
    db("INSERT INTO orders VALUES (1, 10.5), (2, 'NaN')")
    copies = itertools.count()

    def exported() -> int:
        folder = tmp_path / f"copy-{next(copies)}"
        folder.mkdir()
        with sink.copied("orders", False, folder) as copy:
            spark = Mock()
            copy.frame(spark, table, ["id", "name"], None)
            (written,) = spark.read.schema.return_value.parquet.call_args[0]
        return int(pq.read_table(written).num_rows)

    with pytest.raises(BadData, match="holds a value that a job with this schema cannot have written") as told:
        exported()
    with typed(told.value) as hint:
        hint.says("correct it")
        db("UPDATE orders SET name = 1 WHERE id = 2")
        assert exported() == 2
    with monkeypatch.context() as full:
        full.setattr(pq, "ParquetWriter", Mock(side_effect=OSError(28, "No space left on device")))
        with pytest.raises(Transient, match="No space left") as waits:
            exported()
    with typed(waits.value) as hint:
        hint.run_in_shell("df")
        assert exported() == 2
