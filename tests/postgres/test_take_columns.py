"""Windows of a real slot's log: columns that are added or dropped before, within and after a window."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from log_world import World
from postgres import Server
from postgres_database import database

from backfill_cli.cdc import window
from backfill_cli.errors import BadData
from backfill_cli.model.pushdown import Wanted


@pytest.fixture
def fresh(postgres: Server, tmp_path: Path) -> Iterator[World]:
    """A table `t (id, v)` of its own."""
    with database(postgres) as db:
        db("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE u (id int PRIMARY KEY)")
        yield World(db, tmp_path, {"t": ["id"], "u": ["id"]})


def test_a_column_added_before_the_windows_first_transaction_is_told_and_taken(fresh: World) -> None:
    fresh.db("INSERT INTO t VALUES (1, 'a')")
    fresh.follow()
    fresh.db(
        "ALTER TABLE t ADD COLUMN w numeric(5,2)", "INSERT INTO t VALUES (2, 'b', 1.5)", "INSERT INTO u VALUES (1)"
    )
    taken = fresh.follow()
    assert taken.changed == {"t": fresh.table("t").columns}
    assert {key: row.get("w") for key, row in fresh.sink["t"].items()} == {("1",): None, ("2",): "1.50"}


def test_a_column_added_within_the_windows_first_transaction_is_told_and_taken(fresh: World) -> None:
    with psycopg.connect(fresh.db.dsn) as connection:
        connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        connection.execute("ALTER TABLE t ADD COLUMN w uuid[]")
        connection.execute("UPDATE t SET w = '{}' WHERE id = 2")
    taken = fresh.follow()
    assert taken.changed == {"t": fresh.table("t").columns}
    assert fresh.sink["t"][("1",)] == {"id": "1", "v": "a", "w": None}
    assert fresh.sink["t"][("2",)] == {"id": "2", "v": "b", "w": "[]"}


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE t ADD COLUMN w int",
        "ALTER TABLE t DROP COLUMN v, ADD COLUMN v varchar(9)",
        "ALTER TABLE t ALTER COLUMN v TYPE varchar(9)",
        "ALTER TABLE t RENAME COLUMN v TO w",
    ],
)
@pytest.mark.parametrize("within", [True, False])
def test_a_later_transaction_that_changes_columns_is_not_of_the_window(
    fresh: World, change: str, within: bool
) -> None:
    fresh.db("INSERT INTO t VALUES (1, 'a')", "INSERT INTO u VALUES (1)")
    before = fresh.now()
    with psycopg.connect(fresh.db.dsn) as connection:
        if within:
            connection.execute("INSERT INTO u VALUES (2)")
            connection.execute("INSERT INTO t VALUES (2, 'a')")
        connection.execute(change.encode())
        connection.execute("INSERT INTO t VALUES (3)")
    taken = fresh.follow()
    assert (taken.changed, taken.transactions, taken.up_to <= before) == ({}, 2, True)
    assert fresh.sink == {"t": {("1",): {"id": "1", "v": "a"}}, "u": {("1",): {"id": "1"}}}
    after = fresh.take()
    assert [c.name for c in after.changed["t"]] == [c.name for c in fresh.table("t").columns]
    assert after.transactions == (1 if "ADD COLUMN w" in change else 0)


def _moved_without_its_value(fresh: World) -> None:
    fresh.db("ALTER TABLE t ALTER v SET STORAGE EXTERNAL", "INSERT INTO t VALUES (1, repeat('x', 3000))")
    fresh.follow()
    fresh.db("UPDATE t SET id = 2 WHERE id = 1", "INSERT INTO t VALUES (3, 'c')")


@pytest.mark.parametrize("limit", [None, 1, 1000])
@pytest.mark.parametrize("held", [1, window.HELD_BYTES])
def test_a_value_written_again_is_found_past_a_column_that_was_added(
    fresh: World, monkeypatch: pytest.MonkeyPatch, limit: int | None, held: int
) -> None:
    monkeypatch.setattr(window, "HELD_BYTES", held)
    _moved_without_its_value(fresh)
    fresh.db("ALTER TABLE t ADD COLUMN added int", "UPDATE t SET v = v || '', added = 5 WHERE id = 2")
    fresh.db("UPDATE t SET added = 6 WHERE id = 3", "ALTER TABLE t ADD COLUMN last int")
    taken = fresh.follow(limit=limit)
    assert [column.name for column in taken.changed["t"]][2:4] == ["added"]
    while fresh.position < fresh.now() and taken.transactions:
        taken = fresh.follow(limit=limit)
    sink, state = fresh.sink["t"], fresh.state()["t"]
    assert {key: {name: row[name] for name in row if name != "last"} for key, row in state.items()} == sink


def test_a_value_that_a_dropped_column_keeps_from_being_found_is_said_so(fresh: World) -> None:
    _moved_without_its_value(fresh)
    fresh.db("ALTER TABLE t ADD COLUMN added int", "INSERT INTO t VALUES (4, 'd', 4)")
    fresh.db("ALTER TABLE t DROP COLUMN added", "UPDATE t SET v = v || '' WHERE id = 2")
    with pytest.raises(BadData, match="the later log cannot supply the value") as refused:
        fresh.take()
    assert str(refused.value.hint).startswith("drop the job and start over")


def test_where_rows_are_read_beside_it_no_window_goes_past_a_column_that_was_added(fresh: World) -> None:
    _moved_without_its_value(fresh)
    fresh.db("ALTER TABLE t ADD COLUMN added int", "UPDATE t SET v = v || '' WHERE id = 2")
    with pytest.raises(BadData, match="stored out of line"):
        fresh.take(widens=False)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE t DROP COLUMN v",
        "ALTER TABLE t ALTER COLUMN v TYPE varchar(9)",
        "ALTER TABLE t RENAME COLUMN v TO w",
        "ALTER TABLE t DROP COLUMN v, ADD COLUMN w text, ADD COLUMN v text",
    ],
)
def test_a_first_transaction_with_other_columns_is_told_and_not_taken(fresh: World, change: str) -> None:
    with psycopg.connect(fresh.db.dsn) as connection:
        connection.execute("INSERT INTO t VALUES (1, 'a')")
        connection.execute(change.encode())
        connection.execute("INSERT INTO t VALUES (2)")
    taken = fresh.take()
    assert [column.name for column in taken.changed["t"]] == [column.name for column in fresh.table("t").columns]
    assert (taken.up_to, taken.transactions, taken.tables) == (fresh.position, 0, {})
    assert list(fresh.folder.iterdir()) == []


def test_a_value_that_the_job_does_not_need_is_not_missed_where_a_key_changed(
    fresh: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "HELD_BYTES", 1)
    fresh.tables = tuple(replace(table, wanted=Wanted(frozenset({"id"}), others=False)) for table in fresh.tables)
    _moved_without_its_value(fresh)
    taken = fresh.follow()
    assert taken.tables["t"].partial == ()
    assert fresh.sink["t"] == {(key,): {"id": key, "v": None} for key in ("2", "3")}
