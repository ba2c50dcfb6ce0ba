"""Existing tables that the job cannot write to: each is refused with the statement that corrects it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hint_typed import typed
from postgres import Server
from postgres_database import Database, database
from postgres_sink import all_tables, begun, read_table, sink_of
from sink_contract import a_table, rows, schema_json

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import BackfillError, BadData, UsageError
from backfill_cli.model.digest import spec_of
from backfill_cli.sinks.postgres.sink import PostgresSink

PLAIN = "CREATE TABLE orders (id bigint PRIMARY KEY, name text)"
PARTITIONED = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, name text) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (10)",
)


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        yield made


@pytest.fixture
def sink(db: Database) -> PostgresSink:
    return sink_of(db.dsn)


def refused(sink: PostgresSink, *tables: SinkTable) -> BackfillError:
    with pytest.raises(BackfillError) as told:
        sink.check("orders", tables or (a_table(),), into_existing=True)
    return told.value


def allowed_after(db: Database, sink: PostgresSink, error: BackfillError, *tables: SinkTable) -> None:
    """Running the hint's statements as they are makes the table acceptable."""
    with typed(error) as hint:
        db(*hint.statements())
        sink.check("orders", tables or (a_table(),), into_existing=True)


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (["CREATE UNLOGGED TABLE orders (id bigint PRIMARY KEY, name text)"], "public.orders is UNLOGGED"),
        (
            [*PARTITIONED, "CREATE UNLOGGED TABLE high PARTITION OF orders FOR VALUES FROM (10) TO (20)"],
            "public.high, a partition of public.orders, is UNLOGGED",
        ),
    ],
)
def test_a_table_that_a_crash_would_empty_is_refused(
    sink: PostgresSink, db: Database, made: list[str], what: str
) -> None:
    db(*made)
    error = refused(sink)
    assert isinstance(error, UsageError)
    assert what in error.message
    allowed_after(db, sink, error)


def test_markers_that_a_crash_would_empty_are_refused(sink: PostgresSink, db: Database, tmp_path: Path) -> None:
    begun(sink, tmp_path, a_table())
    db("ALTER TABLE _backfill_markers SET UNLOGGED")
    error = refused(sink)
    assert "_backfill_markers is UNLOGGED" in error.message
    allowed_after(db, sink, error)


@pytest.mark.parametrize("event", ["INSERT", "UPDATE", "DELETE"])
def test_a_table_with_a_rule_is_refused_naming_it(sink: PostgresSink, db: Database, event: str) -> None:
    db(PLAIN, f'CREATE RULE "no Way" AS ON {event} TO orders DO INSTEAD NOTHING')
    error = refused(sink)
    assert "the rule 'no Way'" in error.message
    allowed_after(db, sink, error)


def test_a_table_that_others_inherit_from_is_refused_naming_them(sink: PostgresSink, db: Database) -> None:
    db(PLAIN, "CREATE TABLE older () INHERITS (orders)")
    error = refused(sink)
    assert "public.older inherits from public.orders" in error.message
    allowed_after(db, sink, error)


def test_a_key_whose_collation_takes_texts_for_equal_is_refused(sink: PostgresSink, db: Database) -> None:
    db("CREATE COLLATION blurred (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    db('CREATE TABLE orders (id text COLLATE blurred PRIMARY KEY, name text COLLATE "blurred")')
    table = a_table(schema=schema_json(id="string", name="string"))
    error = refused(sink, table)
    assert "'id' of public.orders has the collation 'blurred'" in error.message
    allowed_after(db, sink, error, table)


@pytest.mark.parametrize(
    ("column", "what"),
    [
        ("name text GENERATED ALWAYS AS ('x') STORED", "'name' of public.orders is GENERATED ALWAYS AS … STORED"),
        (
            "name text, id bigint GENERATED ALWAYS AS IDENTITY",
            "'id' of public.orders is GENERATED ALWAYS AS IDENTITY",
        ),
    ],
)
def test_a_column_that_the_database_computes_is_refused(
    sink: PostgresSink, db: Database, column: str, what: str
) -> None:
    db(f"CREATE TABLE orders ({column}{'' if ' id ' in column else ', id bigint'})")
    error = refused(sink)
    assert what in error.message
    allowed_after(db, sink, error)


def test_a_column_that_differs_only_in_case_is_refused_not_added_beside_it(
    sink: PostgresSink, db: Database
) -> None:
    db('CREATE TABLE orders (id bigint PRIMARY KEY, "Name" text)')
    error = refused(sink)
    assert "column 'Name' of public.orders and 'name'" in error.message
    allowed_after(db, sink, error)


def test_a_table_with_rows_that_lacks_a_key_column_is_refused_an_empty_one_gets_it(
    sink: PostgresSink, db: Database
) -> None:
    db("CREATE TABLE orders (name text)")
    sink.check("orders", (a_table(),), into_existing=True)
    db("INSERT INTO orders VALUES ('a')")
    error = refused(sink)
    assert isinstance(error, BadData)
    assert "public.orders has rows, but no column 'id'" in error.message
    allowed_after(db, sink, error)


def test_row_level_security_is_refused_where_it_would_hide_rows(db: Database) -> None:
    role = f"role_{db.name}"
    db(f"CREATE ROLE {role} LOGIN", f"GRANT ALL ON SCHEMA public TO {role}", PLAIN)
    db(f"GRANT ALL ON orders TO {role}", "ALTER TABLE orders ENABLE ROW LEVEL SECURITY")
    sink = sink_of(db.dsn.replace("postgres@", f"{role}@"))
    try:
        error = refused(sink)
        assert "row-level security of public.orders" in error.message
        allowed_after(db, sink, error)
    finally:
        db(f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


def test_texts_that_a_collation_takes_for_equal_are_told_apart_by_verify(
    sink: PostgresSink, db: Database, tmp_path: Path
) -> None:
    db("CREATE COLLATION blurred (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    db("CREATE TABLE blurred (id bigint PRIMARY KEY, name text COLLATE blurred)")
    both = (a_table("blurred"), a_table("plain"))
    begun(sink, tmp_path, *both, into_existing=True)
    for table in both:
        db(f"INSERT INTO {table.target} VALUES (1, 'A'), (2, 'a'), (3, 'b'), (4, NULL)")
    spec = spec_of(both[0].schema, ("id",), frozenset({"name"}))
    assert spec is not None
    with sink.copied("orders", False, tmp_path) as copy:
        blurred, plain = (copy.digest(table, spec, None) for table in both)
    assert blurred == plain


# Foreign keys between the job's own tables

ORDERS, LINES = a_table("orders"), a_table("lines")
TWO = (PLAIN, "CREATE TABLE lines (id bigint PRIMARY KEY, name text)")


def related(db: Database, how: str, child: str = "lines", parent: str = "orders") -> None:
    db(*TWO, f'ALTER TABLE {child} ADD CONSTRAINT "Of" FOREIGN KEY (id) REFERENCES {parent} {how}')


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL", "SET DEFAULT", "RESTRICT"])
@pytest.mark.parametrize("event", ["DELETE", "UPDATE"])
def test_a_foreign_key_that_acts_on_rows_of_the_job_is_refused(
    sink: PostgresSink, db: Database, event: str, action: str
) -> None:
    related(db, f"ON {event} {action} DEFERRABLE")
    error = refused(sink, ORDERS, LINES)
    assert f"'Of' of public.lines is ON {event} {action}" in error.message
    allowed_after(db, sink, error, ORDERS, LINES)
    made = db("SELECT confdeltype::text, confupdtype::text, condeferrable FROM pg_constraint WHERE conname = 'Of'")
    assert made == [("a", "a", True)]


def test_a_foreign_key_between_the_jobs_tables_must_be_deferrable(sink: PostgresSink, db: Database) -> None:
    related(db, "")
    error = refused(sink, ORDERS, LINES)
    assert "'Of' of public.lines is not DEFERRABLE" in error.message
    allowed_after(db, sink, error, ORDERS, LINES)


def test_a_child_is_listed_after_its_parent(sink: PostgresSink, db: Database, tmp_path: Path) -> None:
    related(db, "DEFERRABLE")
    with typed(refused(sink, LINES, ORDERS)) as hint:
        hint.says("list orders before lines")
        sink.check("orders", (ORDERS, LINES), into_existing=True)
    epochs = begun(sink, tmp_path, ORDERS, LINES, into_existing=True)
    sink.commit(epochs.next())
    sink.check("orders", (LINES, ORDERS), into_existing=True)


def test_a_foreign_key_of_a_table_to_itself_waits_until_the_job_is_caught_up(
    sink: PostgresSink, db: Database, tmp_path: Path
) -> None:
    related(db, "DEFERRABLE", child="orders", parent="orders")
    error = refused(sink, ORDERS)
    with typed(error) as hint:
        db(*hint.statements())
        hint.says("add it again, DEFERRABLE, once the job is caught up")
        epochs = begun(sink, tmp_path, ORDERS, into_existing=True)
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        db("ALTER TABLE orders ADD FOREIGN KEY (id) REFERENCES orders DEFERRABLE")
        sink.prepare("orders", (ORDERS,), into_existing=True)
        sink.commit(epochs.next(upserts=rows((1, "A"), (2, "b"))))
    assert read_table(db, "orders") == rows((1, "A"), (2, "b"))


def test_a_foreign_key_of_a_partition_is_found_too(sink: PostgresSink, db: Database) -> None:
    db(*PARTITIONED, "CREATE TABLE lines (id bigint PRIMARY KEY REFERENCES low ON DELETE CASCADE, name text)")
    error = refused(sink, ORDERS, LINES)
    assert "of public.lines is ON DELETE CASCADE" in error.message
    allowed_after(db, sink, error, ORDERS, LINES)


def test_foreign_keys_of_tables_that_are_not_the_jobs_are_left_alone(sink: PostgresSink, db: Database) -> None:
    related(db, "ON DELETE CASCADE")
    sink.check("orders", (ORDERS,), into_existing=True)
    sink.check("orders", (LINES,), into_existing=True)


def test_a_check_that_refuses_leaves_nothing(sink: PostgresSink, db: Database) -> None:
    db("CREATE UNLOGGED TABLE orders (id bigint PRIMARY KEY, name text)")
    with pytest.raises(UsageError):
        sink.prepare("orders", (a_table(),), into_existing=True)
    assert all_tables(db) == {"orders"}
