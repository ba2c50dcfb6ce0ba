"""Connections through poolers, failovers, locks, hostile schemas, and which grants hints name for a role."""

import ast
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from hint_typed import typed
from postgres import Server
from postgres_database import Database, database, no_standby, waiting_for_standby
from postgres_sink import begun, pooled, read_table, sink_of
from sink_contract import Epochs, a_table, rows, schema_json

from backfill_cli.errors import BackfillError, Held, SinkInUse, Transient, UsageError
from backfill_cli.model.checkpoint import Owner
from backfill_cli.sinks import postgres, sql
from backfill_cli.sinks.postgres import session
from backfill_cli.sinks.postgres.session import Place, opened
from backfill_cli.sinks.postgres.sink import PostgresSink


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        yield made


@pytest.fixture
def sink(db: Database) -> PostgresSink:
    return sink_of(db.dsn)


@pytest.fixture
def role(db: Database) -> Iterator[str]:
    """A role that may create tables and whose name needs quotes."""
    name = f"Role of {db.name}"
    db(f'CREATE ROLE "{name}" LOGIN', f'GRANT ALL ON SCHEMA public TO "{name}"')
    yield name
    db(f'DROP OWNED BY "{name}" CASCADE', f'DROP ROLE "{name}"')


def as_role(db: Database, role: str) -> PostgresSink:
    return sink_of(db.dsn.replace("postgres@", f"{role.replace(' ', '%20')}@"))


# Poolers


def test_behind_a_pooler_that_gives_each_transaction_another_session_an_epoch_is_committed(
    db: Database, tmp_path: Path
) -> None:
    with pooled(db.server.port) as port:
        sink = sink_of(db.dsn.replace(f":{db.server.port}", f":{port}"))
        epochs = begun(sink, tmp_path, a_table())
        sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))
        sink.commit(epochs.next(inserts=rows((3, "c")), upserts=rows((1, "A")), deletes=[2]))
    assert read_table(db, "orders") == rows((1, "A"), (3, "c"))


def test_our_settings_hold_in_each_transaction_and_in_none_of_others(db: Database) -> None:
    with pooled(db.server.port) as port:
        place = Place.of(db.dsn.replace(f":{db.server.port}", f":{port}"))
        with opened(place, "asking") as con:
            for _ in range(3):
                assert con.rows("SELECT current_setting('lock_timeout'), current_setting('row_security')") == [
                    ("1min", "off")
                ]
                con.commit()
                assert db("SELECT 1 FROM pg_stat_activity WHERE application_name = 'backfill'") == []


def test_a_number_as_text_is_that_number_whatever_the_database_begins_with(db: Database) -> None:
    """By it refresh = "full" finds rows that differ."""
    db(f'ALTER DATABASE "{db.name}" SET extra_float_digits = -10')
    with opened(Place.of(db.dsn), "asking") as con:
        assert con.rows("SELECT CAST(float8 '1.0000000000000002' AS text)") == [("1.0000000000000002",)]


def test_a_setting_is_given_to_servers_that_know_it(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ">= 170000 THEN pg_catalog.set_config('transaction_timeout', '0', true)" in session.settings()
    monkeypatch.setitem(session.NEWER, "idle_session_timeout", (140_000, "7s"))
    monkeypatch.setitem(session.NEWER, "what_comes_next", (990_000, "1"))
    with opened(Place.of(db.dsn), "asking") as con:
        assert con.rows("SELECT current_setting('idle_session_timeout')") == [("7s",)]


def test_a_fence_sees_what_it_waited_for_whatever_the_database_begins_with(
    sink: PostgresSink, db: Database, tmp_path: Path
) -> None:
    epochs = begun(sink, tmp_path, a_table())
    db(f"ALTER DATABASE {db.name} SET default_transaction_isolation = 'serializable'")
    with psycopg.connect(db.dsn) as other:
        other.execute("UPDATE _backfill_markers SET token = 3")
        fencing = threading.Thread(target=lambda: sink.fence("orders", 5))
        fencing.start()
        time.sleep(0.5)
    fencing.join(30)
    assert sink.committed("orders")["orders"].token == 5
    assert epochs.epoch == 0


# Read-only servers


def test_a_new_job_is_refused_where_nothing_may_be_written_and_one_that_has_begun_waits(
    sink: PostgresSink, db: Database, tmp_path: Path
) -> None:
    epochs = begun(sink, tmp_path, a_table())
    db(f"ALTER DATABASE {db.name} SET default_transaction_read_only = on")
    commit, refusals = epochs.next(inserts=rows((1, "a"))), []
    for act in (
        lambda: sink.prepare("orders", epochs.tables, into_existing=True),
        lambda: sink.fence("orders", 2),
        lambda: sink.commit(commit),
    ):
        with pytest.raises(Transient, match=r"sink\.dsn") as waits:
            act()
        refusals.append(waits.value)
    with pytest.raises(UsageError, match="are read-only") as told:
        sink.prepare("another", (a_table("another"),), into_existing=False)
    with psycopg.connect(db.dsn, autocommit=True) as admin:
        admin.execute("SET default_transaction_read_only = off")
        try:
            with typed(told.value) as hint:
                for statement in hint.statements():
                    admin.execute(statement.encode())
                sink.prepare("another", (a_table("another"),), into_existing=False)
            for refusal in refusals:
                with typed(refusal) as hint:
                    hint.says("promote this one")
                    sink.commit(commit)
        finally:
            admin.execute("ALTER ROLE postgres RESET default_transaction_read_only")
    assert read_table(db, "orders") == rows((1, "a"))


# Locks


def test_a_column_is_added_soon_or_not_so_that_readers_do_not_wait(
    sink: PostgresSink, db: Database, tmp_path: Path
) -> None:
    begun(sink, tmp_path, a_table())
    wider = a_table(schema=schema_json(id="long", name="string", note="string"))
    with psycopg.connect(db.dsn) as other:
        other.execute("SELECT * FROM orders")
        began = time.monotonic()
        with pytest.raises(Transient, match="lock timeout"):
            sink.prepare("orders", (wider,), into_existing=True)
        assert time.monotonic() - began < 45
    sink.prepare("orders", (wider,), into_existing=True)


@pytest.mark.parametrize("again", ["commit", "fence"])
def test_what_was_committed_before_an_answer_was_lost_is_waited_for_once_more(
    sink: PostgresSink, db: Database, tmp_path: Path, again: str
) -> None:
    """The upstream forgets what the sink has: a synchronous standby must have it too, and not only the primary."""
    epochs = begun(sink, tmp_path, a_table())
    commit = epochs.next(inserts=rows((1, "a")))
    with ThreadPoolExecutor() as pool:
        with no_standby(db):
            first = pool.submit(sink.commit, commit)
            (pid,) = waited_for(db, first)
            db(f"SELECT pg_terminate_backend({pid})")
            with pytest.raises(Transient):
                first.result(20)
            assert read_table(db, "orders") == rows((1, "a"))
            repeated = pool.submit(
                *((sink.commit, commit) if again == "commit" else (sink.fence, epochs.job, epochs.token))
            )
            assert waited_for(db, repeated)
            assert not repeated.done()
        repeated.result(20)
    assert sink.committed(epochs.job)["orders"].epoch == commit.epoch


def waited_for(db: Database, call: "Future[None]") -> list[int]:
    """The server processes whose COMMIT waits for a standby, as soon as there is one; none if the call ends."""
    until = time.monotonic() + 20
    while not (found := waiting_for_standby(db)) and not call.done():
        assert time.monotonic() < until
        time.sleep(0.01)
    return found


# A user's functions that shadow PostgreSQL's own (CVE-2018-1058)


def texts(node: ast.AST) -> Iterator[str]:
    """The literals of a module; an f-string with a dot for each expression, which can be a schema."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "." for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node) if not isinstance(node, ast.JoinedStr) else ():
        yield from texts(child)


def test_every_function_that_is_called_is_postgresqls_own() -> None:
    """In the package's SQL every function name is qualified with its schema."""
    functions = (
        "cardinality|unnest|string_to_array|json_\\w+|to_jsonb|isfinite|count|max|min|now|bool_and|bool_or|"
    )
    functions += "format_type|has_\\w+_privilege|current_setting|set_config|current_database|pg_\\w+"
    called = re.compile(rf"(?<![\w.])({functions})\(")
    found = []
    for path in sorted(path for room in (postgres, sql) for path in Path(room.__file__).parent.glob("*.py")):
        for text in texts(ast.parse(path.read_text("utf-8"))):
            found += [(path.name, name) for name in called.findall(text)]
    assert found == []


def test_a_function_of_a_users_is_not_called_in_place_of_postgresqls(
    sink: PostgresSink, db: Database, tmp_path: Path
) -> None:
    epochs = begun(sink, tmp_path, a_table())
    for given, result in (("cardinality(text[])", "int"), ("unnest(smallint[])", "SETOF smallint")):
        db(f"CREATE FUNCTION public.{given} RETURNS {result} LANGUAGE plpgsql AS $$ BEGIN RAISE 'hostile'; END $$")
    db("ALTER TABLE orders ADD UNIQUE (name)")
    sink.commit(epochs.next(inserts=rows((1, "a")), unique=("orders",)))
    left = {"name": "means nothing", "_backfill_unsent": ["name"]}
    sink.commit(epochs.next(inserts=rows((2, "b")), upserts=[{"id": 1, **left}]))
    with pytest.raises(BackfillError, match=r"\(2\) 2 times"):
        sink.commit(epochs.next(inserts=rows((2, "c"))))
    assert read_table(db, "orders") == rows((1, "a"), (2, "b"))


# Rights


def test_a_right_that_is_lost_later_is_granted_on_the_quoted_name_in_its_schema(
    db: Database, role: str, tmp_path: Path
) -> None:
    sink = as_role(db, role)
    db(f'CREATE SCHEMA "My Mart" AUTHORIZATION "{role}"')
    epochs = begun(sink, tmp_path, a_table(target="My Mart.Big Orders"))
    db(
        f'REVOKE INSERT ON "My Mart"."Big Orders" FROM "{role}"',
        'ALTER TABLE "My Mart"."Big Orders" OWNER TO postgres',
    )
    commit = epochs.next(inserts=rows((1, "a")))
    with pytest.raises(UsageError, match="42501") as told:
        sink.commit(commit)
    assert f'ON "My Mart"."Big Orders" TO "{role}"' in str(told.value.hint)
    with typed(told.value) as hint:
        db(*hint.statements())
        sink.commit(commit)


def test_row_level_security_that_is_set_later_is_said_with_what_ends_it(
    db: Database, role: str, tmp_path: Path
) -> None:
    sink = as_role(db, role)
    epochs = begun(sink, tmp_path, a_table())
    db("ALTER TABLE orders OWNER TO postgres", "ALTER TABLE orders ENABLE ROW LEVEL SECURITY")
    db(f'GRANT ALL ON orders TO "{role}"')
    commit = epochs.next(upserts=rows((1, "a")))
    with pytest.raises(UsageError, match="row-level security") as told:
        sink.commit(commit)
    with typed(told.value) as hint:
        db(*hint.statements())
        sink.commit(commit)


# Several jobs in one database


def test_a_table_of_a_job_whose_markers_are_in_another_schema_is_refused(
    sink: PostgresSink, db: Database, tmp_path: Path
) -> None:
    begun(sink, tmp_path, a_table(target="public.orders"))
    sink.own("orders", Owner("id", "elsewhere", "/lost/catalog.duckdb"), None)
    other = sink_of(db.dsn, "mart")
    for job in ("second", "orders"):
        with pytest.raises(Held, match=r"public\.orders belongs to job 'orders'.*sink\.schema = 'public'") as told:
            other.prepare(job, (a_table(target="public.orders"),), into_existing=True)
        assert "--sink job.toml" in str(told.value.hint)
    assert db("SELECT 1 FROM pg_namespace WHERE nspname = 'mart'") == []
    sink.forget("orders")
    other.prepare("second", (a_table(target="public.orders"),), into_existing=True)


def test_a_start_into_rows_of_others_that_never_made_its_job_leaves_them_protected(
    sink: PostgresSink, db: Database
) -> None:
    db("CREATE TABLE orders (id bigint PRIMARY KEY, name text)", "INSERT INTO orders VALUES (1, 'theirs')")
    sink.prepare("orders", (a_table(plain_inserts=False),), into_existing=True)
    with pytest.raises(SinkInUse, match="--into-existing"):
        sink.prepare("orders", (a_table(),), into_existing=False)
    sink.prepare("orders", (a_table(plain_inserts=False),), into_existing=True)


def test_a_job_that_has_committed_finds_its_own_rows(sink: PostgresSink, tmp_path: Path) -> None:
    epochs: Epochs = begun(sink, tmp_path, a_table())
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    sink.prepare("orders", epochs.tables, into_existing=False)
