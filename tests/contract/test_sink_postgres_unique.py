"""Values of unique columns outside the key that move between rows, and what triggers and constraints refuse."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hint_typed import typed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from postgres import Server
from postgres_database import Database, database
from postgres_sink import begun, read_table, sink_of, staging
from sink_contract import Epochs, a_table, rows, schema_json

from backfill_cli.errors import BadData
from backfill_cli.sinks.postgres.sink import PostgresSink

BY_NAME = "ALTER TABLE orders ADD CONSTRAINT by_name UNIQUE (name)"
WATCHED = (
    "CREATE TABLE IF NOT EXISTS seen (op text)",
    "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN INSERT INTO public.seen VALUES (TG_OP); RETURN NULL; END $$",
    "CREATE TRIGGER see AFTER INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE FUNCTION see()",
)
REFERRED = ("CREATE TABLE notes (order_id bigint REFERENCES orders ON DELETE CASCADE)",)
WIDER = ("ALTER TABLE orders ADD COLUMN mine int DEFAULT 7",)
PLAIN: tuple[str, ...] = ()


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


@pytest.mark.parametrize("more", [PLAIN, WIDER, WATCHED, REFERRED], ids=["plain", "wider", "watched", "referred"])
def test_a_value_that_moved_to_a_row_of_the_next_chunk_is_no_clash(
    sink: PostgresSink, db: Database, epochs: Epochs, more: tuple[str, ...]
) -> None:
    db(BY_NAME, *more)
    sink.commit(epochs.next(inserts=rows((5, "a"))))
    # UPDATE id=5 SET name='x'; UPDATE id=5000 SET name='a'; the chunk that has 5000 is read after both.
    sink.commit(epochs.next(inserts=rows((4000, "b"), (5000, "a")), upserts=rows((5, "x"))))
    assert db("SELECT id, name FROM orders ORDER BY id") == [(5, "x"), (4000, "b"), (5000, "a")]


@pytest.mark.parametrize("plain", [True, False])
def test_in_an_epoch_of_both_the_changes_come_over_the_snapshots_rows(
    sink: PostgresSink, db: Database, epochs: Epochs, plain: bool
) -> None:
    db(BY_NAME)
    sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))
    epochs.tables = (a_table(plain_inserts=plain),)
    sink.commit(
        epochs.next(inserts=rows((3, "c"), (4, "d"), (5, "a")), upserts=rows((3, "b"), (2, "C")), deletes=[1, 4])
    )
    assert read_table(db, "orders") == rows((2, "C"), (3, "b"), (5, "a"))


def test_in_an_epoch_of_both_unsent_columns_come_from_the_snapshots_rows_then_from_the_table(
    sink: PostgresSink, db: Database, tmp_path: Path
) -> None:
    table = a_table(schema=schema_json(id="long", name="string"))
    epochs = begun(sink, tmp_path, table)
    db(BY_NAME)
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    left = {"name": "means nothing", "_backfill_unsent": ["name"]}
    sink.commit(epochs.next(inserts=rows((2, "b")), upserts=[{"id": 1, **left}, {"id": 2, **left}]))
    assert read_table(db, "orders") == rows((1, "a"), (2, "b"))


@pytest.mark.parametrize("twice", [[(3, "c"), (3, "d")], [(1, "c")]])
def test_in_an_epoch_of_both_a_key_of_the_snapshot_that_is_there_twice_is_named(
    sink: PostgresSink, db: Database, epochs: Epochs, twice: list[tuple[int, str]]
) -> None:
    db(BY_NAME)
    sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))
    with pytest.raises(BadData, match=rf"not unique in the snapshot: \({twice[0][0]}\) 2 times"):
        sink.commit(epochs.next(inserts=rows(*twice), upserts=rows((twice[0][0], "x"))))
    assert read_table(db, "orders") == rows((1, "a"), (2, "b"))


def test_in_an_epoch_of_both_rows_that_do_share_a_value_are_named(
    sink: PostgresSink, db: Database, epochs: Epochs
) -> None:
    db(BY_NAME)
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    with pytest.raises(BadData, match=r"'by_name' \(name\) of public\.orders.*\(id\): \(2\); \(3\); \(4\)\n"):
        sink.commit(epochs.next(inserts=rows((3, "a"), (4, "z")), upserts=rows((2, "z"))))


def test_a_key_column_may_be_called_n(sink: PostgresSink, db: Database, tmp_path: Path) -> None:
    table = a_table(schema=schema_json(id="long", n="string"), key=("id", "n"))
    epochs = begun(sink, tmp_path, table)
    db("ALTER TABLE orders DROP CONSTRAINT orders_pkey", "INSERT INTO orders VALUES (1, 'a'), (1, 'a')")
    with pytest.raises(BadData, match=r"\(1, a\) 2 times"):
        sink.commit(epochs.next(unique=("orders",)))


IN_PLACE = pytest.mark.parametrize(
    "more", [WIDER, WATCHED, REFERRED, (*WIDER, *WATCHED)], ids=["wider", "watched", "referred", "both"]
)


@IN_PLACE
@pytest.mark.parametrize("index", [BY_NAME, "CREATE UNIQUE INDEX by_name ON orders (name)"])
def test_rows_that_are_updated_in_place_may_exchange_values(
    sink: PostgresSink, db: Database, epochs: Epochs, more: tuple[str, ...], index: str
) -> None:
    db(index, *more)
    sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e"))))
    if more[0] in WIDER:
        db("UPDATE orders SET mine = 42")
    sink.commit(epochs.next(upserts=rows((1, "b"), (2, "a"), (3, "d"), (4, "e"), (6, "c")), deletes=[5]))
    expected = [(1, "b"), (2, "a"), (3, "d"), (4, "e"), (6, "c")]
    assert db("SELECT id, name FROM orders ORDER BY id") == expected
    if more[0] in WIDER:
        assert db("SELECT mine FROM orders ORDER BY id") == [(42,), (42,), (42,), (42,), (7,)]


def test_required_values_are_exchanged_by_rows_that_go_and_come_back_with_what_is_not_the_jobs(
    sink: PostgresSink, db: Database, epochs: Epochs
) -> None:
    db(BY_NAME, "ALTER TABLE orders ALTER name SET NOT NULL", *WIDER)
    sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))
    db("UPDATE orders SET mine = 40 + id")
    sink.commit(epochs.next(upserts=rows((1, "b"), (2, "a"), (3, "c"))))
    assert db("SELECT id, name, mine FROM orders ORDER BY id") == [(1, "b", 41), (2, "a", 42), (3, "c", 7)]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_exchange_in_place_ends_as_the_upstream_has_it(
    db: Database, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    sink = sink_of(db.dsn)
    sink.forget("orders")
    db("DROP TABLE IF EXISTS orders, notes CASCADE", "DROP FUNCTION IF EXISTS see CASCADE")
    epochs = begun(sink, tmp_path_factory.mktemp("x"), a_table())
    db(BY_NAME, *data.draw(st.sampled_from([PLAIN, WIDER, WATCHED, REFERRED])))
    names = st.permutations([*"abcdefgh"])
    held = dict(zip(range(1, 6), data.draw(names), strict=False))
    sink.commit(epochs.next(inserts=rows(*held.items())))
    for turn in (100, 200):
        keys, values = sorted(data.draw(st.sets(st.integers(1, 8), max_size=6))), data.draw(names)
        read = [turn + n for n in range(data.draw(st.integers(0, 2)))]
        changed, fresh = dict(zip(keys, values, strict=False)), dict(zip(read, values[::-1], strict=False))
        gone = sorted(set(held) - set(keys))
        sink.commit(epochs.next(upserts=rows(*changed.items()), deletes=gone, inserts=rows(*fresh.items())))
        held = changed | fresh
        assert db("SELECT id, name FROM orders ORDER BY id") == sorted(held.items())


@pytest.mark.parametrize(
    ("index", "says"),
    [
        (BY_NAME, "defer its check to the end"),
        ("CREATE UNIQUE INDEX by_name ON orders (name)", "a constraint, which can be deferred"),
    ],
)
def test_an_exchange_that_cannot_be_done_in_place_says_how_to_defer_it(
    sink: PostgresSink, db: Database, epochs: Epochs, index: str, says: str
) -> None:
    db("ALTER TABLE orders ALTER name SET NOT NULL", index, *REFERRED)
    sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))
    swap = epochs.next(upserts=rows((1, "b"), (2, "a")))
    with pytest.raises(BadData, match=r"exchange values of 'by_name' \(name\)") as told:
        sink.commit(swap)
    assert says in str(told.value.hint)
    with typed(told.value) as hint:
        db(*hint.statements())
        sink.commit(swap)
    assert read_table(db, "orders") == rows((1, "b"), (2, "a"))


def test_a_foreign_key_to_a_partition_keeps_its_rows_in_place(
    sink: PostgresSink, db: Database, tmp_path: Path
) -> None:
    db("CREATE TABLE orders (id bigint PRIMARY KEY, name text) PARTITION BY RANGE (id)")
    db("CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (10)")
    db("CREATE TABLE notes (order_id bigint REFERENCES low ON DELETE CASCADE)")
    epochs = begun(sink, tmp_path, a_table())
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    db("INSERT INTO notes VALUES (1)")
    sink.commit(epochs.next(upserts=rows((1, "A"))))
    assert db("SELECT * FROM notes") == [(1,)]


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (BY_NAME, "the unique constraint 'by_name'"),
        ("CREATE UNIQUE INDEX by_name ON orders (name)", "the unique constraint 'by_name'"),
        ("CREATE UNIQUE INDEX lower ON orders (lower(name))", "the unique constraint 'lower'"),
        ("ALTER TABLE orders ADD EXCLUDE USING btree (name WITH =)", "'orders_name_excl' of public.orders"),
        ("ALTER TABLE orders ADD CONSTRAINT short CHECK (length(name) > 3)", "'short' of public.orders"),
        ("ALTER TABLE orders ALTER mine SET NOT NULL", "column 'mine' of public.orders is NOT NULL"),
    ],
)
def test_whatever_refuses_rows_is_named_with_the_statement_that_removes_it(
    sink: PostgresSink, db: Database, tmp_path: Path, made: str, what: str
) -> None:
    table = a_table(schema=schema_json(id="long", name="string", mine="string"))
    epochs = begun(sink, tmp_path, table)
    db(made)
    names = pa.table({"id": [1, 2], "name": ["a", "a"], "mine": pa.nulls(2, pa.string())})
    commit = staging(epochs, inserts=names)
    with pytest.raises(BadData) as told:
        sink.commit(commit)
    assert what in told.value.message
    with typed(told.value) as hint:
        db(*hint.statements())
        sink.commit(commit)


# Triggers


def swallowing(db: Database, event: str) -> None:
    db(
        "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
        f'CREATE TRIGGER "No" BEFORE {event} ON orders FOR EACH ROW EXECUTE FUNCTION swallow()',
    )


@pytest.mark.parametrize(("event", "does"), [("DELETE", "deletes"), ("UPDATE", "changes")])
def test_rows_that_a_trigger_keeps_as_they_were_are_named(
    sink: PostgresSink, db: Database, epochs: Epochs, event: str, does: str
) -> None:
    sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"), (3, "c"))))
    swallowing(db, event)
    commit = epochs.next(upserts=rows((1, "A"), (9, "new"))) if event == "UPDATE" else epochs.next(deletes=[2, 8])
    key = 1 if event == "UPDATE" else 2
    with pytest.raises(BadData, match=rf"the commit {does} rows of .*\(id\): \({key}\); a trigger") as told:
        sink.commit(commit)
    assert read_table(db, "orders") == rows((1, "a"), (2, "b"), (3, "c"))
    with typed(told.value) as hint:
        db(*hint.statements())
        sink.commit(commit)


def test_a_truncate_that_a_trigger_swallows_is_noticed(sink: PostgresSink, db: Database, epochs: Epochs) -> None:
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    swallowing(db, "DELETE")
    with pytest.raises(BadData, match=r"the commit deletes rows of public.orders, but they stayed as they were"):
        sink.commit(epochs.next(truncated=True))


def test_what_a_trigger_writes_elsewhere_is_named_by_its_own_table(
    sink: PostgresSink, db: Database, epochs: Epochs
) -> None:
    db("CREATE SCHEMA audit", "CREATE TABLE audit.seen (op text CONSTRAINT once UNIQUE)")
    db(*(one.replace("public.seen", "audit.seen") for one in WATCHED[1:]))
    commit = epochs.next(inserts=rows((1, "a"), (2, "b")))
    with pytest.raises(BadData, match=r"the constraint 'once' of audit\.seen refuses what a trigger of") as told:
        sink.commit(commit)
    with typed(told.value) as hint:
        db(*hint.statements())
        sink.commit(commit)


def test_a_partition_that_is_missing_has_no_constraints_name(
    sink: PostgresSink, db: Database, tmp_path: Path
) -> None:
    db("CREATE TABLE orders (id bigint PRIMARY KEY, name text) PARTITION BY RANGE (id)")
    epochs = begun(sink, tmp_path, a_table())
    with pytest.raises(BadData, match="no partition of relation") as told:
        sink.commit(epochs.next(inserts=rows((1, "a"))))
    assert "''" not in str(told.value)


def test_a_unique_index_of_a_partition_is_named_with_its_rows(
    sink: PostgresSink, db: Database, tmp_path: Path
) -> None:
    db("CREATE TABLE orders (id bigint PRIMARY KEY, name text) PARTITION BY RANGE (id)")
    db("CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (10)", "ALTER TABLE low ADD UNIQUE (name)")
    epochs = begun(sink, tmp_path, a_table())
    with pytest.raises(BadData, match=r"'low_name_key' \(name\).*\(id\): \(1\); \(2\)\n"):
        sink.commit(epochs.next(inserts=rows((1, "a"), (2, "a"))))
