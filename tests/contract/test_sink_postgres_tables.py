"""Tables that existed before the job, and their constraints."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hint_typed import typed
from postgres import Server
from postgres_database import Database, database
from postgres_sink import begun, read_table, sink_of
from sink_contract import Epochs, a_table, rows, schema_json

from backfill_cli.errors import BadData, SinkInUse, UsageError
from backfill_cli.sinks.postgres import PostgresOptions, connector, session
from backfill_cli.sinks.postgres.sink import PostgresSink


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        yield made


@pytest.fixture
def sink(db: Database) -> PostgresSink:
    return sink_of(db.dsn)


def into(sink: PostgresSink, folder: Path, *tables: object) -> Epochs:
    return begun(sink, folder, *(tables or (a_table(plain_inserts=False),)), into_existing=True)  # type: ignore[arg-type]


def test_a_table_without_an_index_is_written_by_key_and_keeps_the_rows_of_others(
    sink: PostgresSink, db: Database, tmp_path: Path
) -> None:
    db("CREATE TABLE orders (id bigint, name text)", "INSERT INTO orders VALUES (1, 'theirs'), (2, 'theirs')")
    with pytest.raises(SinkInUse, match="with rows that are not this job's"):
        sink.prepare("orders", (a_table(),), into_existing=False)
    epochs = into(sink, tmp_path)
    sink.commit(epochs.next(inserts=rows((2, "b"), (3, "c"))))
    sink.commit(epochs.next(upserts=rows((3, "C")), deletes=[2], unique=("orders",)))
    assert read_table(db, "orders") == rows((1, "theirs"), (3, "C"))
    db("INSERT INTO orders VALUES (1, 'again')")
    with pytest.raises(BadData, match=r"\(1\) 2 times"):
        sink.commit(epochs.next(upserts=rows((4, "d")), unique=("orders",)))


def test_a_key_that_stands_twice_is_named_at_once_where_the_table_is_ours(
    sink: PostgresSink, tmp_path: Path
) -> None:
    epochs = begun(sink, tmp_path, a_table())
    with pytest.raises(BadData, match=r"the key \(id\) is not unique in the snapshot: \(7\) 3 times"):
        sink.commit(epochs.next(inserts=rows((7, "a"), (8, "b"), (7, "c"), (7, "d"))))


@pytest.mark.parametrize(
    ("column", "kind"),
    [("name", "varchar(5)"), ("name", "jsonb"), ("id", "integer"), ("id", "numeric")],
)
def test_a_column_of_another_type_is_refused_naming_both(
    sink: PostgresSink, db: Database, column: str, kind: str
) -> None:
    kinds = {"id": "bigint", "name": "text", column: kind}
    db(f"CREATE TABLE orders (id {kinds['id']}, name {kinds['name']})")
    with pytest.raises(BadData, match=rf"column '{column}' of public.orders is .*, the job writes") as told:
        sink.prepare("orders", (a_table(),), into_existing=True)
    with typed(told.value) as hint:
        hint.says(f"change the table's column '{column}'")
        db(f"ALTER TABLE orders ALTER {column} TYPE {'bigint' if column == 'id' else 'text'}")
        sink.prepare("orders", (a_table(),), into_existing=True)


def test_varchar_without_a_limit_is_text_and_a_missing_column_is_added(
    sink: PostgresSink, db: Database, tmp_path: Path
) -> None:
    db("CREATE TABLE orders (id bigint PRIMARY KEY, name varchar)")
    wider = a_table(schema=schema_json(id="long", name="string", note="string"))
    begun(sink, tmp_path, wider)
    assert [kind for (kind,) in db("SELECT atttypid::regtype::text FROM pg_attribute WHERE attnum > 0 "
                                   "AND attrelid = 'orders'::regclass ORDER BY attnum")] == [
        "bigint", "character varying", "text"]  # fmt: skip


def test_a_column_that_the_job_does_not_write_keeps_its_value(
    sink: PostgresSink, db: Database, tmp_path: Path
) -> None:
    mine = "mine int DEFAULT 7, twice int GENERATED ALWAYS AS (1) STORED"
    db(f"CREATE TABLE orders (id bigint PRIMARY KEY, name text, {mine})")
    db("INSERT INTO orders VALUES (1, 'a', 42)")
    sink.commit(into(sink, tmp_path).next(inserts=rows((1, "A"), (2, "b")), deletes=[9]))
    assert db("SELECT id, name, mine FROM orders ORDER BY id") == [(1, "A", 42), (2, "b", 7)]


def test_a_required_column_that_the_job_does_not_write_is_refused_at_prepare(
    sink: PostgresSink, db: Database
) -> None:
    db("CREATE TABLE orders (id bigint PRIMARY KEY, name text, mine int NOT NULL)")
    with pytest.raises(BadData, match=r"'mine' of public\.orders is NOT NULL") as told:
        sink.check("orders", (a_table(),), into_existing=True)
    with typed(told.value) as hint:
        db(*hint.statements())
        sink.check("orders", (a_table(),), into_existing=True)


def test_rows_of_another_table_that_refer_to_a_changed_row_stay(
    sink: PostgresSink, db: Database, tmp_path: Path
) -> None:
    epochs = begun(sink, tmp_path, a_table())
    db("CREATE TABLE lines (order_id bigint REFERENCES orders ON DELETE CASCADE)")
    sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))
    db("INSERT INTO lines VALUES (1), (2)")
    sink.commit(epochs.next(upserts=rows((1, "A"), (3, "c")), deletes=[2]))
    assert read_table(db, "orders") == rows((1, "A"), (3, "c"))
    assert db("SELECT * FROM lines") == [(1,)]


def test_a_trigger_sees_an_update_where_a_row_changed(sink: PostgresSink, db: Database, tmp_path: Path) -> None:
    epochs = begun(sink, tmp_path, a_table())
    db(
        "CREATE TABLE seen (op text)",
        "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO seen VALUES (TG_OP); RETURN NULL; END $$",
        "CREATE TRIGGER see AFTER INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE FUNCTION see()",
    )
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    sink.commit(epochs.next(upserts=rows((1, "A"))))
    sink.commit(epochs.next(deletes=[1, 5]))
    assert [op for (op,) in db("SELECT op FROM seen")] == ["INSERT", "UPDATE", "DELETE"]


def test_case_13_rows_that_exchange_the_values_of_a_unique_column_do_not_clash(
    sink: PostgresSink, db: Database, tmp_path: Path
) -> None:
    epochs = begun(sink, tmp_path, a_table())
    db("ALTER TABLE orders ADD CONSTRAINT by_name UNIQUE (name)")
    sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"), (3, "c"))))
    sink.commit(epochs.next(upserts=rows((1, "b"), (2, "a"))))
    assert read_table(db, "orders") == rows((1, "b"), (2, "a"), (3, "c"))


@pytest.mark.parametrize("way", ["inserts", "upserts"])
def test_rows_that_share_a_unique_value_are_named_with_the_constraint(
    sink: PostgresSink, db: Database, tmp_path: Path, way: str
) -> None:
    epochs = begun(sink, tmp_path, a_table())
    db("CREATE UNIQUE INDEX by_name ON orders (name)")
    sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))
    clash = rows((10, "x"), (11, "a"), (12, "y"), (13, "y"))
    with pytest.raises(BadData, match=r"'by_name' \(name\).*\(id\): \(11\); \(12\); \(13\)\n"):
        sink.commit(epochs.next(**{way: clash}))  # type: ignore[arg-type]
    assert read_table(db, "orders") == rows((1, "a"), (2, "b"))


@pytest.mark.parametrize("way", ["inserts", "upserts"])
def test_rows_without_a_required_value_are_named(
    sink: PostgresSink, db: Database, tmp_path: Path, way: str
) -> None:
    epochs = begun(sink, tmp_path, a_table())
    db("ALTER TABLE orders ALTER name SET NOT NULL")
    given = [{"id": key, "name": None if key > 4 else "x"} for key in range(12)]
    with pytest.raises(
        BadData, match=r"'name' of public.orders is NOT NULL.*: \(5\); \(6\); \(7\); \(8\); \(9\)\n"
    ):
        sink.commit(epochs.next(**{way: given}, deletes=[99]))  # type: ignore[arg-type]


def test_a_check_and_a_foreign_key_that_refuse_rows_are_named(
    sink: PostgresSink, db: Database, tmp_path: Path
) -> None:
    epochs = begun(sink, tmp_path, a_table())
    db("ALTER TABLE orders ADD CONSTRAINT short CHECK (length(name) < 3)")
    with pytest.raises(BadData, match="'short'"):
        sink.commit(epochs.next(upserts=rows((1, "long"))))
    epochs = Epochs(tmp_path / "second")
    db("CREATE TABLE names (name text PRIMARY KEY)")
    db("ALTER TABLE orders ADD CONSTRAINT known FOREIGN KEY (name) REFERENCES names")
    with pytest.raises(BadData, match="'known'") as told:
        sink.commit(epochs.next(upserts=rows((1, "a"))))
    assert 'ALTER CONSTRAINT "known" DEFERRABLE' in str(told.value.hint)
    epochs = Epochs(tmp_path / "third")
    db("ALTER TABLE orders ALTER CONSTRAINT known DEFERRABLE")
    late = epochs.next(upserts=rows((1, "a")))
    with pytest.raises(BadData, match="'known'") as told:
        sink.commit(late)
    assert read_table(db, "orders") == []
    with typed(told.value) as hint:
        db(*hint.statements())
        sink.commit(late)


def test_a_deferrable_foreign_key_between_the_jobs_tables_holds_at_the_end_of_the_epoch(
    sink: PostgresSink, db: Database, tmp_path: Path
) -> None:
    lines, orders = a_table("lines"), a_table("orders")
    epochs = begun(sink, tmp_path, lines, orders)
    db("ALTER TABLE lines ADD FOREIGN KEY (id) REFERENCES orders DEFERRABLE")
    both = epochs.next(inserts=rows((1, "line")))
    more = Epochs(tmp_path / "more", tables=(orders,)).next(inserts=rows((1, "order")))
    files = more.staged.tables["orders"]
    (Path(both.folder) / "orders").symlink_to(Path(more.folder) / "orders")
    both.staged.tables["orders"] = files  # type: ignore[index]
    sink.commit(both)
    assert db("SELECT count(*) FROM lines JOIN orders USING (id)") == [(1,)]


def test_a_partitioned_table_is_a_target_and_a_view_is_none(
    sink: PostgresSink, db: Database, tmp_path: Path
) -> None:
    db("CREATE TABLE orders (id bigint, name text, PRIMARY KEY (id)) PARTITION BY RANGE (id)")
    db("CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (10)")
    db("CREATE TABLE high PARTITION OF orders FOR VALUES FROM (10) TO (20)", "CREATE VIEW seen AS SELECT 1 AS id")
    epochs = into(sink, tmp_path, a_table())
    sink.commit(epochs.next(inserts=rows((1, "a"), (11, "b"))))
    sink.commit(epochs.next(upserts=rows((2, "c"), (11, "B")), deletes=[1]))
    assert read_table(db, "orders") == rows((2, "c"), (11, "B"))
    with pytest.raises(UsageError, match="a view"):
        sink.prepare("other", (a_table("seen"),), into_existing=True)


@pytest.mark.parametrize("target", ["a.b.c", ".b", "a.", "_backfill_jobs", "x._BACKFILL_y", "x" * 64])
def test_a_target_that_cannot_be_named_is_refused(sink: PostgresSink, target: str) -> None:
    with pytest.raises(UsageError, match=r"target|cannot name") as told:
        sink.prepare("orders", (a_table(target=target),), into_existing=False)
    with typed(told.value) as hint:
        hint.says("tables.target")
        sink.prepare("orders", (a_table(target="public.orders"),), into_existing=False)


def test_two_tables_of_a_job_may_not_share_a_target(sink: PostgresSink) -> None:
    with pytest.raises(UsageError, match="the same target") as told:
        sink.prepare("orders", (a_table("a", "t"), a_table("b", "public.t")), into_existing=False)
    with typed(told.value) as hint:
        hint.says("give one of them another target: tables.target")
        sink.prepare("orders", (a_table("a", "t"), a_table("b", "public.t2")), into_existing=False)


def test_the_fingerprint_holds_no_secret() -> None:
    told = connector.fingerprint(PostgresOptions(dsn="postgresql://me:s3cret@db.example:5433/w", in_schema="mart"))
    assert told == {"schema": "mart", "host": "db.example", "port": "5433", "dbname": "w"}
    assert connector.fingerprint(PostgresOptions(dsn="${env:WAREHOUSE_DSN}")) == {"schema": "public"}


def test_a_missing_package_is_said_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real = builtins.__import__

    def without(name: str, *rest: object, **more: object) -> object:
        if name.startswith("adbc_driver_postgresql"):
            raise ImportError("No module named 'adbc_driver_postgresql'")
        return real(name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match="needs a package that is not installed") as told:
        session.client()
    monkeypatch.undo()
    with typed(told.value) as hint:
        hint.says("pip install 'backfill-cli[postgres]'")
        session.client()
