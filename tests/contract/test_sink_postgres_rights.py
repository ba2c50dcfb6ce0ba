"""A missing privilege is reported with the grant for it; a database that does not exist or does not answer."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from hint_typed import typed
from postgres import Server
from postgres_database import Database, database
from postgres_sink import all_tables, begun, read_table, sink_of
from sink_contract import Epochs, a_table, rows

from backfill_cli.errors import Transient, UsageError
from backfill_cli.postgres_errors import IN_DATABASE
from backfill_cli.sinks.postgres.session import Place, failure
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
    """A role without any privilege on the database or its schema."""
    name = f"role_{db.name}"
    db(
        f"CREATE ROLE {name} LOGIN",
        f"REVOKE ALL ON DATABASE {db.name} FROM PUBLIC",
        f"GRANT CONNECT ON DATABASE {db.name} TO {name}",
        "REVOKE ALL ON SCHEMA public FROM PUBLIC",
    )
    yield name
    db(f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


def test_each_right_that_a_role_lacks_is_said_by_plan_with_its_grant(
    db: Database, role: str, tmp_path: Path
) -> None:
    sink = sink_of(db.dsn.replace("postgres@", f"{role}@"))
    db("CREATE SCHEMA mart", "CREATE TABLE mart.theirs (id bigint PRIMARY KEY, name text)")
    tables = (a_table(), a_table("theirs", "mart.theirs"))
    granted = []
    for _ in range(9):
        try:
            sink.check("orders", tables, into_existing=True)
        except UsageError as error:
            granted.append(str(error.hint))
            with typed(error) as hint:
                db(*hint.statements())
        else:
            break
    assert [hint.split()[0] for hint in granted] == ["GRANT"] * 4
    epochs = Epochs(tmp_path / "staging", tables=tables)
    sink.prepare("orders", tables, into_existing=True)
    sink.commit(epochs.next(inserts=rows((1, "a")), of="theirs"))
    sink.commit(epochs.next(upserts=rows((1, "b")), of="theirs"))
    assert read_table(db, "mart.theirs") == rows((1, "b"))


def test_a_right_that_is_lost_later_is_said_with_its_grant(db: Database, role: str, tmp_path: Path) -> None:
    sink = sink_of(db.dsn.replace("postgres@", f"{role}@"))
    db(f"GRANT TEMPORARY ON DATABASE {db.name} TO {role}", f"GRANT ALL ON SCHEMA public TO {role}")
    epochs = begun(sink, tmp_path, a_table())
    db(f"REVOKE INSERT ON orders FROM {role}", "ALTER TABLE orders OWNER TO postgres")
    commit = epochs.next(inserts=rows((1, "a")))
    with pytest.raises(UsageError, match="42501") as told:
        sink.commit(commit)
    with typed(told.value) as hint:
        db(*hint.statements())
        sink.commit(commit)
    assert read_table(db, "orders") == rows((1, "a"))


def test_a_check_by_a_role_that_may_not_write_leaves_nothing(db: Database, role: str) -> None:
    with pytest.raises(UsageError, match="temporary tables"):
        sink_of(db.dsn.replace("postgres@", f"{role}@")).prepare("orders", (a_table(),), into_existing=False)
    assert all_tables(db) == set()


def test_a_role_that_could_not_make_the_side_tables_again_keeps_them(
    db: Database, role: str, tmp_path: Path
) -> None:
    sink = sink_of(db.dsn.replace("postgres@", f"{role}@"))
    db(f"GRANT TEMPORARY ON DATABASE {db.name} TO {role}", f"GRANT ALL ON SCHEMA public TO {role}")
    epochs = begun(sink, tmp_path, a_table())
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    db(f"REVOKE CREATE ON SCHEMA public FROM {role}")
    sink.forget("orders")
    assert all_tables(db) >= {"_backfill_markers", "_backfill_jobs"}
    sink.prepare("orders", (a_table(),), into_existing=True)
    db(f"GRANT CREATE ON SCHEMA public TO {role}")
    sink.forget("orders")
    assert all_tables(db) == {"orders"}


@pytest.mark.parametrize(("table", "passes"), [("_backfill_jobs", True), ("theirs", False)])
def test_a_side_table_that_another_drop_took_meanwhile_is_transient(
    db: Database, table: str, passes: bool
) -> None:
    con = psycopg.connect(db.dsn, autocommit=True)
    with pytest.raises(psycopg.errors.UndefinedTable) as gone:
        con.execute(f"SELECT FROM public.{table}")
    told = failure(Place.of(db.dsn), "checking", gone.value)
    assert isinstance(told, Transient) == passes
    with typed(told) as hint:
        hint.says("try again" if passes else IN_DATABASE)
        if not passes:
            db("CREATE TABLE theirs (id bigint)")
            con.execute(f"SELECT FROM public.{table}")
        sink_of(db.dsn).prepare("orders", (a_table(),), into_existing=False)


def test_a_database_that_is_not_there_is_a_usage_error_and_one_that_does_not_answer_is_transient(
    db: Database,
) -> None:
    password = "s3cret"
    dsn = db.dsn.replace("postgres@", f"postgres:{password}@")
    with pytest.raises(UsageError, match="does not exist") as nowhere:
        sink_of(dsn + "_not").committed("orders")
    with pytest.raises(UsageError, match="does not exist"):
        sink_of(dsn.replace("postgres:", "nobody_here:")).committed("orders")
    port = str(db.server.port)
    with pytest.raises(Transient) as silent:
        sink_of(dsn.replace(port, "1")).committed("orders")
    with pytest.raises(UsageError, match="not a valid libpq connection string") as wrong:
        sink_of(f"postgresql://u:{password}@h:{password}/x?what=1")
    for error, way_on in (
        (nowhere, "correct the user, password or database in sink.dsn"),
        (silent, "start the database, or correct sink.dsn"),
        (wrong, "put postgresql://user:password@host:5432/database"),
    ):
        with typed(error.value) as hint:
            hint.says(way_on)
            assert sink_of(dsn).committed("orders") == {}
    for told in (nowhere, silent, wrong):
        shown = str(told.value) + repr(told.value.__cause__) + repr(told.value.__context__)
        assert password not in str(told.value), shown
    assert password not in repr(Place.of(dsn))


@pytest.mark.parametrize("given", [set(), {"PGUSER"}, {"PGUSER", "PGDATABASE"}])
def test_what_the_dsn_omits_is_named_as_libpq_fills_it_in(
    db: Database, role: str, monkeypatch: pytest.MonkeyPatch, given: set[str]
) -> None:
    """Compared with what a connection of libpq itself says."""
    for name in ("PGUSER", "PGDATABASE"):
        monkeypatch.delenv(name, raising=False)
        if name in given:
            monkeypatch.setenv(name, role if name == "PGUSER" else db.name)
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    monkeypatch.setenv("PGPORT", str(db.server.port))
    dsn = "" if "PGUSER" in given else f"user={role}"
    raw = psycopg.pq.PGconn.connect_start(dsn.encode())
    told = (raw.host, raw.port, raw.db, raw.user)
    raw.finish()
    place = Place.of(dsn or "postgresql://")
    assert (place.host, place.port, place.database, place.user) == tuple(part.decode() for part in told)


def test_the_grant_names_the_database_that_a_dsn_without_one_leads_to(
    db: Database, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGDATABASE", raising=False)
    monkeypatch.setenv("PGUSER", role)
    place = Place.of(f"host=127.0.0.1 port={db.server.port}")
    refused = psycopg.errors.InsufficientPrivilege('permission denied to create temporary tables in database "x"')
    assert str(failure(place, "committing", refused).hint).endswith(
        f'GRANT TEMPORARY ON DATABASE "{role}" TO "{role}"'
    )
