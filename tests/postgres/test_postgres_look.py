"""`init --from postgresql://…`: which tables there are, and what a config says of one; nothing is changed."""

import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hint_typed import typed
from postgres import Server
from postgres_database import Database, database

from backfill_cli.contracts import Looked, Named
from backfill_cli.errors import UsageError
from backfill_cli.sinks.postgres import connector as sink
from backfill_cli.upstreams.postgres import connector


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        yield made


def look(dsn: str, *tables: str, key: tuple[str, ...] = ()) -> Looked:
    assert connector.look is not None
    return connector.look(Named(dsn, "${env:SHOP_DSN}", tables=tables, key=key))


def told(looked: Looked) -> dict[str, object]:
    return {name: one.value for name, one in looked.options.items()}


def test_the_only_table_needs_no_name(db: Database) -> None:
    db("CREATE TABLE orders (id bigint PRIMARY KEY, note text)", "INSERT INTO orders VALUES (1), (2)", "ANALYZE")
    looked = look(db.dsn)
    (table,) = looked.tables
    assert (table.name, table.key.value) == ("orders", ())
    assert table.key.why == "the table's primary key: id"
    assert told(looked) == {"dsn": "${env:SHOP_DSN}", "slot": "backfill_orders"}
    what, makes, ready = looked.said
    assert what.startswith(f"{db.name} on ")
    assert "table orders, " in what
    assert " rows" not in what, "the plan below tells them"
    assert what.endswith("2 columns, key id")
    assert makes == "start creates slot backfill_orders and publication backfill_orders"
    assert ready == "the server is ready: wal_level, the role's rights, replica identity"


def test_tables_are_listed_largest_first_and_the_hint_names_one_with_a_key(db: Database) -> None:
    db(
        "CREATE SCHEMA sales",
        "CREATE TABLE sales.log (line text)",
        "INSERT INTO sales.log SELECT n::text FROM generate_series(1, 300) n",
        "CREATE TABLE orders (a int, b int, PRIMARY KEY (b, a))",
        "INSERT INTO orders SELECT n, n FROM generate_series(1, 20) n",
        "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (100)",
        "INSERT INTO parted SELECT n FROM generate_series(1, 90) n",
        "CREATE VIEW shown AS SELECT * FROM orders",
        "CREATE TABLE _backfill_jobs (id int PRIMARY KEY)",
        "ANALYZE",
    )
    with pytest.raises(UsageError, match=r"3 tables; which one\?") as listed:
        look(db.dsn)
    lines = listed.value.message.splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["sales.log", "parted", "orders"]
    assert [line.split("rows")[0].split()[-1] for line in lines] == ["300", "90", "20"]
    assert lines[0].endswith("no primary key")
    assert lines[2].endswith("key b, a")
    with typed(listed.value) as hint:
        ((init, _from, dsn, _table, name),) = hint.commands()
        assert (init, dsn) == ("init", "${env:SHOP_DSN}")
        assert look(db.dsn, name).tables[0].key.value == ()


@pytest.mark.parametrize("name", ['My "Schema.a.b', "Orders", '"Orders"', 'public."Orders"', "public.Orders"])
def test_a_name_may_be_typed_without_the_quotes_of_sql(db: Database, name: str) -> None:
    db(
        'CREATE SCHEMA "My ""Schema"', 'CREATE TABLE "My ""Schema"."a.b" (id int PRIMARY KEY)',
        'CREATE TABLE "Orders" (id int PRIMARY KEY)',
    )  # fmt: skip
    (table,) = look(db.dsn, name).tables
    assert table.name == ('"My ""Schema"."a.b"' if "Schema" in name else '"Orders"')


def test_of_several_tables_of_one_name_the_user_says_which(db: Database) -> None:
    db("CREATE SCHEMA a", "CREATE SCHEMA b")
    db('CREATE TABLE a."T" (id int PRIMARY KEY)', 'CREATE TABLE b."T" (id int PRIMARY KEY)')
    with pytest.raises(UsageError, match=r'there are a\."T" and b\."T"') as several:
        look(db.dsn, "T")
    with typed(several.value) as hint:
        ((*_, name),) = hint.commands()
        assert look(db.dsn, name).tables[0].name == 'a."T"'


def test_a_table_that_does_not_exist_has_its_neighbours_named(db: Database) -> None:
    db("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE TABLE persons (id int PRIMARY KEY)")
    with pytest.raises(UsageError, match=r"table 'order' does not exist in .*; did you mean orders\?") as missing:
        look(db.dsn, "order")
    with typed(missing.value) as hint:
        ((*_, name),) = hint.commands()
        assert look(db.dsn, name).tables[0].name == "orders"


def test_a_view_is_no_table(db: Database) -> None:
    db("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE VIEW shown AS SELECT * FROM orders")
    with pytest.raises(UsageError, match="table 'shown' is a view: it has no change log") as refused:
        look(db.dsn, "shown")
    with typed(refused.value) as hint:
        hint.says("name the tables it is built from")
        look(db.dsn, "orders")


def test_without_a_primary_key_a_unique_index_is_the_key(db: Database) -> None:
    db(
        "CREATE TABLE t (a int NOT NULL, b int NOT NULL, c int UNIQUE, d int NOT NULL)",
        "CREATE UNIQUE INDEX ON t (d) WHERE a > 0",
        "CREATE UNIQUE INDEX ON t (b, a)",
    )
    looked = look(db.dsn, "t")
    assert looked.tables[0].key.value == ["b", "a"]
    assert "start refuses this yet; plan shows what to do: table 't': without a primary key" in looked.said[2]
    db("ALTER TABLE t REPLICA IDENTITY FULL")
    assert look(db.dsn, "t").said[2].startswith("the server is ready")


def test_without_any_key_the_key_is_asked_for(db: Database) -> None:
    db("CREATE TABLE t (a int, b int NOT NULL)")
    (table,) = look(db.dsn, "t").tables
    assert table.key.value is None
    assert table.key.why.endswith("columns: a, b")
    assert look(db.dsn, "t", key=("b",)).tables[0].key.value == ["b"]
    with pytest.raises(UsageError, match="has no column 'x', which its key names"):
        look(db.dsn, "t", key=("x",))


def test_a_partitioned_table_asks_for_the_promise_it_needs(db: Database) -> None:
    db(
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE p PARTITION OF t FOR VALUES FROM (0) TO (9)",
    )
    looked = look(db.dsn)
    promise = looked.options["accept_partition_changes"]
    assert promise.value is None
    assert "ATTACH, DETACH" in promise.why
    assert "partitioned table t" in looked.said[0]
    assert looked.said[2].startswith("the server is ready")


def test_several_tables_become_one_job(db: Database) -> None:
    db("CREATE TABLE b (id int PRIMARY KEY)", "CREATE TABLE a (id int PRIMARY KEY)")
    looked = look(db.dsn, "b", "a")
    assert [table.name for table in looked.tables] == ["b", "a"]
    assert told(looked)["slot"] == f"backfill_{db.name}"
    assert f"{db.name} on " in looked.said[0]


def test_a_role_without_rights_is_told_what_it_lacks_and_uses_the_publication_that_exists(db: Database) -> None:
    db(
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "CREATE TABLE hidden (id int PRIMARY KEY)",
        f"CREATE ROLE {db.name} LOGIN",
        f"GRANT SELECT ON orders TO {db.name}",
        "CREATE PUBLICATION half FOR TABLE orders WITH (publish = 'insert')",
        "CREATE PUBLICATION ours FOR TABLE orders",
    )
    try:
        dsn = db.dsn.replace("postgres@", f"{db.name}@", 1)
        looked = look(dsn)  # the only one that it may read
        assert looked.tables[0].name == "orders"
        assert looked.options["publication"].value == "ours"
        assert looked.said[1] == "start creates slot backfill_orders; publication ours"
        assert looked.said[2].endswith(f"role '{db.name}' is not allowed to replicate")
        assert f"role '{db.name}' is not allowed to read table 'hidden'" in look(dsn, "hidden").said[2]
    finally:
        db(f"DROP OWNED BY {db.name}", f"DROP ROLE {db.name}")


def test_a_database_without_tables_says_so(db: Database) -> None:
    with pytest.raises(UsageError, match=f"{db.name} on .* has no tables") as refused:
        look(db.dsn)
    with typed(refused.value) as hint:
        hint.says("name a database that has some")
        db("CREATE TABLE orders (id int PRIMARY KEY)")
        look(db.dsn)


def test_a_slot_that_another_job_has_is_not_named(db: Database) -> None:
    db("CREATE TABLE orders (id int PRIMARY KEY)")
    db("SELECT pg_create_logical_replication_slot('backfill_orders', 'pgoutput')")
    assert told(look(db.dsn))["slot"] == "backfill_orders_2"


def test_nothing_is_changed_by_looking(db: Database) -> None:
    db("CREATE TABLE orders (id int PRIMARY KEY)")
    look(db.dsn)
    assert db("SELECT count(*) FROM pg_publication") == [(0,)]
    assert db("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(0,)]


def test_a_server_that_does_not_answer_is_given_up_after_two_seconds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        with pytest.raises(UsageError, match="connecting") as refused:
            look(f"postgresql://app:secret@127.0.0.1:{silent.getsockname()[1]}/shop")
        assert time.monotonic() - begun < 30
    assert "secret" not in str(refused.value)
    with typed(refused.value) as hint:
        hint.says("--from postgresql://user@host:5432/database")


def test_a_database_or_password_that_is_wrong_is_named_and_the_password_is_not(db: Database) -> None:
    wrong = replace(Named(db.dsn.replace(db.name, "nowhere"), "x"))
    assert connector.look is not None
    with pytest.raises(UsageError, match='database "nowhere" does not exist') as refused:
        connector.look(wrong)
    with typed(refused.value) as hint:
        hint.says("correct user, host, port or database")
        db("CREATE TABLE orders (id int PRIMARY KEY)")
        look(db.dsn)


def test_a_sink_says_whether_its_schema_exists_and_what_its_role_lacks(db: Database) -> None:
    assert sink.look is not None
    db("CREATE SCHEMA marts", "CREATE TABLE marts.t (id int)", f"CREATE ROLE {db.name} LOGIN")
    place = db.dsn.partition("@")[2]
    try:
        whole = sink.options.model_validate({"dsn": db.dsn, "schema": "marts"})
        assert sink.look(whole) == [f"PostgreSQL {place}: schema marts exists, with 1 table"]
        db(f"REVOKE TEMPORARY ON DATABASE {db.name} FROM public")
        for schema, first in (("marts", "exists, with 1 table"), ("new", "does not exist; start creates it")):
            dsn = db.dsn.replace("postgres@", f"{db.name}@", 1)
            options = sink.options.model_validate({"dsn": dsn, "schema": schema})
            said, lacks = sink.look(options)
            assert said.endswith(f"schema {schema} {first}")
            db(*lacks.partition(": ")[2].split("; "))
            assert len(sink.look(options)) == 1
    finally:
        db(f"DROP OWNED BY {db.name}", f"DROP ROLE {db.name}")


def test_a_sink_that_does_not_answer_is_given_up_after_two_seconds() -> None:
    assert sink.look is not None
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dsn = f"postgresql://app:secret@127.0.0.1:{silent.getsockname()[1]}/shop"
        begun = time.monotonic()
        with pytest.raises(UsageError, match="looking at its schema") as refused:
            sink.look(sink.options.model_validate({"dsn": dsn}))
        assert time.monotonic() - begun < 30
    assert "secret" not in str(refused.value)
    with typed(refused.value) as hint:
        hint.says("--to postgresql://user@host:5432/database")
