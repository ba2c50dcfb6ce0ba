"""The PostgreSQL sink under the contract; crashes, lost answers and full disks during commits."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from derived_contract import BY_NAME, NAMES, Query, SqlDerivedContract, past
from filling_contract import FillingContract
from hint_typed import typed
from postgres import Server
from postgres_database import Database, database
from postgres_sink import all_tables, begun, commit_in_a_child, losing_the_answer, read_table, sink_of
from postgres_trouble import at, end_sessions, files_of_at_most, held_up, own_server, until
from refreshed_contract import RefreshedContract
from sink_contract import Epochs, Read, SinkContract, a_table, rows
from sink_epochs import stage

from backfill_cli.contracts import ComparedDerived
from backfill_cli.errors import Fatal, Held, SinkInUse, StateConflict, Transient, UsageError
from backfill_cli.model.checkpoint import Marker
from backfill_cli.model.derived import Derived
from backfill_cli.sinks.postgres import session
from backfill_cli.sinks.postgres import sink as sink_module
from backfill_cli.sinks.postgres.derived import PostgresDerives
from backfill_cli.sinks.postgres.sink import PostgresSink
from backfill_cli.sinks.postgres.state import State

SIDE_TABLES = {f"_backfill_{name}" for name in ("markers", "owners", "jobs", "splits")}


class TestPostgresSink(SinkContract, SqlDerivedContract, FillingContract, RefreshedContract):
    volatile = "pg_notification_queue_usage()"
    place = "ctid"

    @pytest.fixture
    def db(self, postgres: Server) -> Iterator[Database]:
        with database(postgres) as made:
            yield made

    @pytest.fixture
    def sink(self, db: Database) -> PostgresSink:
        return sink_of(db.dsn)

    @pytest.fixture
    def read(self, db: Database) -> Read:
        return lambda target: read_table(db, target)

    @pytest.fixture
    def query(self, db: Database) -> Iterator[Query]:
        with psycopg.connect(db.dsn, autocommit=True) as con:

            def ask(sql: str) -> list[tuple[Any, ...]]:
                done = con.execute(sql)
                return [] if done.description is None else done.fetchall()

            yield ask

    def test_functions_of_a_select_are_judged_as_the_database_resolves_them(
        self, sink: PostgresSink, epochs: Epochs, query: Query
    ) -> None:
        derives = sink.extras.derives
        assert derives is not None
        body = "(i bigint) RETURNS bigint LANGUAGE sql"
        query("CREATE SCHEMA s1")
        for name, kind in (
            ('"MyRand"', "VOLATILE"),
            ("s1.rnd", "VOLATILE"),
            ("seen", "STABLE"),
            ("twice", "IMMUTABLE"),
        ):
            query(f"CREATE FUNCTION {name}{body} {kind} AS 'SELECT 2 * i'")
        query("CREATE AGGREGATE myagg(bigint) (sfunc = int8pl, stype = bigint, initcond = 0)")

        def check(expression: str, rest: str = "orders", key: str = "id") -> None:
            sql = f"SELECT {expression} AS v, {key} FROM {rest}"
            derives.check("new", [Derived("d", "d", (key,), sql)], epochs.tables, {})

        for expression in (
            "twice(id) + 1",
            "to_char(DATE '2020-01-01', 'YYYY') || id",
            "date_trunc('month', TIMESTAMPTZ '2020-01-01') AT TIME ZONE 'UTC'",
            "extract(year FROM DATE '2020-01-01')",
            "to_date(name, 'YYYY-MM-DD') < TIMESTAMPTZ '2020-01-01'",
            "CAST('2020-01-01' AS date)",
            "coalesce(nullif(name, 'a'), concat(name, id)) LIKE 'a%'",
            "round(id / 3.0, 2) IN (1, 2)",
            "jsonb_build_object('a', id) ->> 'a'",
        ):
            check(expression)
        for name, expression in (
            ("MyRand", '"MyRand"(id)'),
            ("rnd", "s1.rnd(id)"),
            ("seen", "seen(id)"),
            ("query_to_xml", "CAST(query_to_xml('SELECT 1', true, true, '') AS text)"),
            ("pg_relation_size", "pg_relation_size(id::oid)"),
            ("generate_series", "generate_series(1, id)"),
            ("regclass", "CAST(name AS regclass)"),
        ):
            with pytest.raises(UsageError, match=f"derived table 'd': .*{name}"):
                check(expression)
        for expression in ("CAST(name AS date)", "name::timestamptz", "coalesce(CAST(name AS time), '10:00')"):
            with pytest.raises(UsageError, match=r"_in: a text is read as a date or time.*\('today'\)") as refused:
                check(expression)
            with typed(refused.value) as hint:
                hint.says("say its format: to_date(status, 'YYYY-MM-DD')")
                check("to_date(name, 'YYYY-MM-DD')")
        for rest, key in (("orders GROUP BY name", "name"), ("(SELECT id, myagg(id) AS a FROM orders) x", "id")):
            with pytest.raises(
                UsageError, match=r"derived table 'd': .*(an aggregate that is not taken|GROUP BY)"
            ):
                check("myagg(id)" if key == "name" else "a", rest, key)

    def test_plan_of_a_job_that_exists_tells_what_its_upkeep_lacks(
        self, sink: PostgresSink, epochs: Epochs, query: Query
    ) -> None:
        derives = sink.extras.derives
        assert derives is not None
        sql = "SELECT o.name, count(p.id) AS n FROM orders o LEFT JOIN orders p ON p.name = o.name GROUP BY 1"
        pairs = Derived("d", "d", ("name",), sql)

        def notes() -> set[str]:
            assert derives is not None
            return set(derives.check(epochs.job, [pairs], epochs.tables, {})[0].notes)

        before = notes()
        (statement,) = [note.rpartition(": ")[2] for note in before if "no index begins with name" in note]
        assert statement == 'CREATE INDEX ON "public"."orders" ("name")'
        sink.commit(epochs.next(inserts=rows((1, "a"), (2, "a"), (3, "b"))))
        query(statement)
        query("ANALYZE orders")
        sizes = "(groups of name: 1.5 rows; the largest has 2), by PostgreSQL's statistics"
        assert notes() == {note for note in before if "no index" not in note} | {
            f"1,000 changes of orders compute about 3 of its rows again {sizes}",
            f"1,000 changes of orders reach about 3 rows of orders {sizes}",
        }

    def test_sizes_of_groups_are_those_counted(self, sink: PostgresSink, epochs: Epochs, query: Query) -> None:
        derives = sink.extras.derives
        assert isinstance(derives, PostgresDerives)
        target = derives.dialect.target_of(epochs.tables[0], "public")
        with derives.known("test") as state:
            assert state is not None
            assert derives.groups(state, target, ["name"]) is None
        names = [*["large"] * 4000, *(f"m{n % 200}" for n in range(6000)), *[None] * 5000]
        sink.commit(epochs.next(inserts=rows(*enumerate(names))))
        query("ANALYZE orders")
        with derives.known("test") as state:
            assert state is not None
            every, joined = (derives.groups(state, target, ["name"], nulls=one) for one in (True, False))
            (unique, both) = (derives.groups(state, target, of) for of in (["id"], ["id", "name"]))
        counted = dict(query("SELECT name, count(*) FROM orders GROUP BY 1"))
        assert every is not None
        assert joined is not None
        assert unique is not None
        assert both is None
        assert (every.rows, every.groups) == (pytest.approx(len(names)), pytest.approx(len(counted)))
        assert max(rows for rows, _ in every.sizes) == pytest.approx(counted[None])
        del counted[None]
        assert (joined.rows, joined.groups) == (pytest.approx(10_000), pytest.approx(len(counted)))
        assert max(rows for rows, _ in joined.sizes) == pytest.approx(max(counted.values()))
        assert list(unique.sizes) == [(pytest.approx(1), pytest.approx(len(names)))]

    @pytest.mark.parametrize("target", ["pg_temp.d", "pg_catalog.d", "information_schema.d", "mood"])
    def test_a_target_that_no_table_can_have_is_refused_of_the_derived_table(
        self, sink: PostgresSink, epochs: Epochs, query: Query, target: str
    ) -> None:
        query("CREATE TYPE mood AS ENUM ('ok')")
        derives = sink.extras.derives
        assert derives is not None
        with pytest.raises(
            UsageError, match=f"derived table 'by_name': its target cannot be .*{target}"
        ) as refused:
            derives.check("new", [replace(BY_NAME, target=target)], epochs.tables, {})
        with typed(refused.value) as hint:
            hint.says("name another target: derived.target")
            derives.check("new", [replace(BY_NAME, target="revenue_2")], epochs.tables, {})

    def test_names_that_the_database_would_cut_are_refused_of_the_derived_table(
        self, sink: PostgresSink, epochs: Epochs
    ) -> None:
        derives, long = sink.extras.derives, "y" * 64
        assert derives is not None
        column = Derived("d", "d", (long,), f"SELECT name AS {long}, count(*) AS n FROM orders GROUP BY 1")
        target = replace(BY_NAME, target=long)
        for each, way_on in ((column, "give the column another name"), (target, "name another target")):
            with pytest.raises(UsageError, match=f"derived table '{each.name}': 'y+' cannot name") as refused:
                derives.check("new", [each], epochs.tables, {})
            with typed(refused.value) as hint:
                hint.says(way_on)
                derives.check("new", [BY_NAME], epochs.tables, {})

    @pytest.mark.parametrize(
        ("make", "more"),
        [
            ("CREATE UNLOGGED TABLE by_name (COLUMNS)", "UNLOGGED"),
            ("CREATE TABLE by_name (COLUMNS) PARTITION BY LIST (name)", "PARTITION BY"),
            ("CREATE TABLE by_name (COLUMNS); CREATE TABLE child () INHERITS (by_name)", "inheritance"),
            (
                "CREATE COLLATION nd (provider = icu, locale = 'und-u-ks-level2', deterministic = false); "
                "CREATE TABLE by_name (name text COLLATE nd, n bigint, ids numeric)",
                "column name COLLATE nd",
            ),
        ],
    )
    def test_an_empty_table_of_another_kind_is_refused(
        self, sink: PostgresSink, epochs: Epochs, query: Query, make: str, more: str
    ) -> None:
        derives = sink.extras.derives
        assert derives is not None
        query(make.replace("COLUMNS", "name text, n bigint, ids numeric"))
        with pytest.raises(SinkInUse, match=f"by_name exists, with more than the columns.*{more}"):
            derives.prepare(epochs.job, [BY_NAME], epochs.tables)
        query("DROP TABLE by_name CASCADE")
        derives.prepare(epochs.job, [BY_NAME], epochs.tables)

    def test_values_of_types_without_equality_and_arrays_without_elements_are_compared(
        self, sink: PostgresSink, epochs: Epochs, query: Query, tmp_path: Path
    ) -> None:
        sql = (
            "SELECT CASE WHEN id = 1 THEN ARRAY[]::int[] WHEN id = 2 THEN ARRAY[NULL]::int[] END AS a, "
            "CAST('[1, 2]' AS json) AS j, CAST('(1,2)' AS point) AS p, min(id) AS id FROM orders GROUP BY 1"
        )
        kept = (Derived("d", "d", ("a",), sql),)
        derives, copied = sink.extras.derives, sink.extras.copied
        assert derives is not None
        assert copied is not None
        derives.prepare(epochs.job, kept, epochs.tables)
        sink.commit(past(epochs.next(inserts=rows((1, "a"), (2, "b"), (3, "c"))), *kept))
        with copied(epochs.job, False, tmp_path) as copy:
            assert copy.compare(kept[0], kept, epochs.tables, 9) == ComparedDerived(3, 3)
        query("UPDATE d SET j = '[1, 3]' WHERE id = 1")
        query("UPDATE d SET p = '(1,3)' WHERE id = 3")
        with copied(epochs.job, False, tmp_path) as copy:
            found = copy.compare(kept[0], kept, epochs.tables, 9)
        assert (found.missing, found.extra, found.changed) == (0, 0, 2)
        assert {one.column for one in found.different} == {"j", "p"}

    @pytest.mark.parametrize(
        "make",
        [
            "CREATE FUNCTION up() RETURNS trigger LANGUAGE plpgsql "
            "AS 'BEGIN NEW.name = upper(NEW.name); RETURN NEW; END'; "
            "CREATE TRIGGER up BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION up()",
            "ALTER TABLE orders ADD COLUMN seen int DEFAULT 7",
            "ALTER TABLE orders ADD COLUMN twice bigint GENERATED ALWAYS AS (2 * id) STORED",
            "CREATE TABLE items (id int REFERENCES orders); INSERT INTO items VALUES (1)",
            "ALTER TABLE orders ADD COLUMN up bigint REFERENCES orders ON DELETE CASCADE",
            "ALTER TABLE orders ALTER COLUMN name TYPE varchar(3)",
        ],
    )
    def test_rows_that_the_database_writes_otherwise_are_those_that_a_derived_table_is_made_of(
        self, sink: PostgresSink, epochs: Epochs, query: Query, make: str, kept: tuple[Derived, ...]
    ) -> None:
        sink.commit(past(epochs.next(inserts=rows((1, "a"), (2, "b"), (3, "b"))), *kept))
        query(make)
        for upserts, deletes in ((rows((1, "c"), (4, "c")), ()), (rows((4, "b")), (2, 3)), (rows((1, "c")), (4,))):
            sink.commit(past(epochs.next(upserts=upserts, deletes=deletes), *kept))
            held = query("SELECT name, n, ids FROM by_name ORDER BY 1")
            assert held == query("SELECT name, count(*), sum(id) FROM orders GROUP BY 1 ORDER BY 1")
            assert query("SELECT names, n FROM names") == [(len(held), sum(n for _, n, _ in held))]

    def test_a_row_that_goes_with_a_row_of_another_table_is_taken_away(
        self, sink: PostgresSink, epochs: Epochs, query: Query
    ) -> None:
        epochs.tables = (a_table(), a_table("items"))
        sink.prepare(epochs.job, epochs.tables, into_existing=True)
        derives = sink.extras.derives
        assert derives is not None
        counted = (BY_NAME, Derived("counted", "counted", (), "SELECT count(*) AS n FROM items"))
        derives.prepare(epochs.job, counted, epochs.tables)
        sink.commit(past(epochs.next(inserts=rows((1, "a"), (2, "b"))), *counted))
        sink.commit(past(epochs.next(upserts=rows((1, "x"), (2, "x")), of="items"), *counted))
        query("ALTER TABLE items ADD FOREIGN KEY (id) REFERENCES orders ON DELETE CASCADE")
        commit = past(epochs.next(deletes=[1]), *counted)
        items = stage(Path(commit.folder), "items", (), (), [1])
        staged = replace(commit.staged, tables={**commit.staged.tables, "items": items})
        sink.commit(replace(commit, staged=staged))
        assert query("SELECT n FROM counted") == query("SELECT count(*) FROM items") == [(1,)]

    def test_a_derived_table_with_other_columns_keeps_its_rights_and_index_and_what_depends_on_it(
        self, sink: PostgresSink, epochs: Epochs, query: Query, kept: tuple[Derived, ...]
    ) -> None:
        derives, role = sink.extras.derives, f"reads_{epochs.job}"
        assert derives is not None
        sink.commit(past(epochs.next(inserts=rows((1, "a"), (2, "b"))), *kept))
        query(f"DO $$ BEGIN CREATE ROLE {role}; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
        query(f"GRANT SELECT ON by_name TO {role} WITH GRANT OPTION")
        query("GRANT SELECT ON by_name TO PUBLIC")
        query("CREATE VIEW reads_it AS SELECT n FROM by_name")
        changed = (NAMES, replace(BY_NAME, sql=BY_NAME.sql.replace("sum(id)", "max(id)")))
        with pytest.raises(UsageError, match=r"depends on the job's tables: view reads_it") as refused:
            derives.rehearse(epochs.job, changed, epochs.tables, ["by_name"])
        same = replace(BY_NAME, sql=BY_NAME.sql.replace("sum(id)", "sum(2 * id)"))
        derives.rehearse(epochs.job, (NAMES, same), epochs.tables, ["by_name"])
        derives.renew(epochs.job, (same,))
        sink.commit(past(epochs.next(), NAMES, same))
        assert query("SELECT ids FROM by_name ORDER BY 1") == [(2,), (4,)]
        with typed(refused.value) as hint:
            hint.says("drop what depends on it first")
            query("DROP VIEW reads_it")
            derives.rehearse(epochs.job, changed, epochs.tables, ["by_name"])
        derives.renew(epochs.job, changed[1:])
        sink.commit(past(epochs.next(), *changed))
        assert query("SELECT ids FROM by_name ORDER BY 1") == [(1,), (2,)]
        assert query(
            "SELECT grantee, privilege_type, is_grantable FROM information_schema.role_table_grants "
            "WHERE table_name = 'by_name' AND grantee <> grantor ORDER BY 1"
        ) == [("PUBLIC", "SELECT", "NO"), (role, "SELECT", "YES")]
        ((index,),) = query("SELECT indexdef FROM pg_indexes WHERE tablename = 'by_name'")
        assert index.endswith("ON public.by_name USING btree (name)")

    @pytest.mark.parametrize(("point", "epoch"), [("sink-before-commit", 10), ("sink-before-close", 20)])
    def test_an_epoch_is_there_whole_or_not_at_all_after_a_kill_of_its_runner(
        self, sink: PostgresSink, db: Database, epochs: Epochs, tmp_path: Path, point: str, epoch: int
    ) -> None:
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        second = epochs.next(inserts=rows((3, "c")), upserts=rows((1, "A"), (2, "b")))
        assert commit_in_a_child(db.dsn, tmp_path, second, BACKFILL_FAILPOINT=point) == -signal.SIGKILL
        whole = rows((1, "A"), (2, "b"), (3, "c"))
        assert sink.committed("orders")["orders"].epoch == epoch
        assert read_table(db, "orders") == (rows((1, "a")) if epoch == 10 else whole)
        sink.commit(second)
        assert read_table(db, "orders") == whole
        assert all_tables(db) == {"orders", *SIDE_TABLES}

    def test_the_last_job_takes_the_side_tables_with_it(
        self, sink: PostgresSink, db: Database, epochs: Epochs
    ) -> None:
        sink.prepare("other", (a_table("items"),), into_existing=False)
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        sink.forget("orders")
        assert all_tables(db) == {"orders", "items", *SIDE_TABLES}
        assert set(sink.committed("other")) == {"items"}
        sink.forget("other")
        assert all_tables(db) == {"orders", "items"}
        sink.forget("other")
        sink.prepare("new", (a_table("fresh"),), into_existing=False)
        assert set(sink.committed("new")) == {"fresh"}

    def test_side_tables_that_somebody_uses_or_needs_stay(
        self, sink: PostgresSink, db: Database, epochs: Epochs
    ) -> None:
        with psycopg.connect(db.dsn) as reader:
            reader.execute("SELECT FROM _backfill_markers")
            sink.forget("orders")
            assert all_tables(db) == {"orders", *SIDE_TABLES}
        with psycopg.connect(db.dsn, autocommit=True) as con:
            con.execute("CREATE VIEW progress AS SELECT * FROM _backfill_markers")
            sink.forget("orders")
            assert all_tables(db) >= SIDE_TABLES

    def test_a_connection_that_is_lost_before_the_commit_is_transient_and_nothing_is_kept(
        self, sink: PostgresSink, db: Database, epochs: Epochs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commit = epochs.next(inserts=rows((1, "a")), upserts=rows((2, "b")))
        with at("sink-before-commit", monkeypatch, lambda: end_sessions(db)), pytest.raises(Transient) as told:
            sink.commit(commit)
        assert read_table(db, "orders") == []
        with typed(told.value) as hint:
            hint.says("start the database, or correct sink.dsn")
            sink.commit(commit)
        assert read_table(db, "orders") == rows((1, "a"), (2, "b"))

    def test_a_commit_whose_answer_was_lost_is_transient_and_its_repeat_is_ignored(
        self,
        sink: PostgresSink,
        db: Database,
        postgres: Server,
        epochs: Epochs,
    ) -> None:
        commit = epochs.next(inserts=rows((1, "a")))
        with losing_the_answer(postgres.port, to=b"SET CONSTRAINTS ALL IMMEDIATE") as port:
            with pytest.raises(Transient):
                sink_of(db.dsn.replace(str(postgres.port), str(port))).commit(commit)
            assert read_table(db, "orders") == []
        with losing_the_answer(postgres.port, to=b"COMMIT\0") as port, pytest.raises(Transient):
            sink_of(db.dsn.replace(str(postgres.port), str(port))).commit(commit)
        until(lambda: read_table(db, "orders") == rows((1, "a")))
        sink.commit(commit)
        assert read_table(db, "orders") == rows((1, "a"))

    def test_case_40_a_fence_waits_for_the_commit_in_flight_and_then_refuses_its_runner(
        self, sink: PostgresSink, db: Database, epochs: Epochs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = epochs.next(inserts=rows((1, "a"))), epochs.next(inserts=rows((2, "b")))
        fenced: list[float] = []

        def fence() -> None:
            sink_of(db.dsn).fence("orders", 2)
            fenced.append(time.monotonic())

        with held_up(sink_module, "apply", monkeypatch, lambda: sink.commit(first)) as go:
            fencing = threading.Thread(target=fence)
            fencing.start()
            fencing.join(0.5)
            assert fenced == []
            go()
            fencing.join(30)
        assert fenced
        assert sink.committed("orders")["orders"] == Marker(10, 2, "a10")
        assert read_table(db, "orders") == rows((1, "a"))
        with pytest.raises(Held, match="job 'orders' was taken over by another runner"):
            sink.commit(second)
        sink.commit(replace(second, token=2))
        assert read_table(db, "orders") == rows((1, "a"), (2, "b"))

    def test_a_fence_that_waits_too_long_is_transient_and_names_who_holds_the_lock(
        self, sink: PostgresSink, db: Database, epochs: Epochs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(session.SETTINGS, "lock_timeout", "100ms")
        with closing(psycopg.connect(db.dsn)) as other:
            other.execute("SELECT * FROM _backfill_markers FOR UPDATE")
            pid = other.info.backend_pid
            with pytest.raises(Transient, match=rf"waiting for the transaction of process {pid} ") as told:
                sink.fence("orders", 2)
            with typed(told.value) as hint:
                assert db(*hint.statements()) == [(True,)]
                until(lambda: db(f"SELECT FROM pg_stat_activity WHERE pid = {pid}") == [])
                sink.fence("orders", 2)

    def test_two_runners_that_commit_the_same_epoch_at_once_apply_it_once(
        self, sink: PostgresSink, db: Database, epochs: Epochs
    ) -> None:
        commit = epochs.next(inserts=rows(*((n, "x") for n in range(2000))))
        both = [threading.Thread(target=sink_of(db.dsn).commit, args=(commit,)) for _ in range(2)]
        for one in both:
            one.start()
        for one in both:
            one.join(60)
        assert len(read_table(db, "orders")) == 2000

    def test_case_80_two_jobs_that_prepare_at_once_both_get_their_tables(
        self, db: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failed: list[BaseException] = []

        def prepare(job: str) -> None:
            try:
                sink_of(db.dsn).prepare(job, (a_table(job),), into_existing=False)
            except BaseException as exc:
                failed.append(exc)

        with held_up(State, "claim", monkeypatch, lambda: prepare("left")) as go:
            other = threading.Thread(target=prepare, args=("right",))
            other.start()
            other.join(0.5)
            go()
            other.join(30)
        assert failed == []
        assert all_tables(db) == {"left", "right", *SIDE_TABLES}

    def test_a_check_raises_what_prepare_would_and_writes_nothing(self, sink: PostgresSink, db: Database) -> None:
        sink.check("orders", (a_table(),), into_existing=False)
        assert all_tables(db) == set()
        db("CREATE VIEW orders AS SELECT 1 AS id")
        with pytest.raises(UsageError, match="a view") as told:
            sink.check("orders", (a_table(),), into_existing=False)
        with typed(told.value) as hint:
            hint.says("name another target")
            sink.check("orders", (a_table(target="orders_v2"),), into_existing=False)

    def test_case_47_a_table_dropped_by_a_stranger_stops_the_job(
        self, sink: PostgresSink, db: Database, epochs: Epochs
    ) -> None:
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        db("DROP TABLE orders")
        with pytest.raises(StateConflict, match="gone") as told:
            sink.prepare("orders", epochs.tables, into_existing=True)
        with typed(told.value) as hint:
            hint.says("restore it, or drop the job and start over")
            sink.drop(epochs.tables)
            sink.forget("orders")
            sink.prepare("orders", epochs.tables, into_existing=False)

    def test_side_tables_of_a_newer_backfill_are_left_alone(
        self, sink: PostgresSink, db: Database, epochs: Epochs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink.commit(epochs.next())
        db("UPDATE _backfill_jobs SET layout = 99")
        commit = epochs.next()
        with pytest.raises(Fatal, match="a newer backfill") as told:
            sink.commit(commit)
        with typed(told.value) as hint:
            hint.says("pip install --upgrade backfill-cli")
            with monkeypatch.context() as newer:
                newer.setattr(State, "layout", 99)
                sink.commit(commit)

    def test_side_tables_are_commented(self, sink: PostgresSink, db: Database, epochs: Epochs) -> None:
        bare = db(
            "SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
            "WHERE c.relname LIKE '\\_backfill\\_%' AND c.relkind = 'r' AND attnum > 0 "
            "AND col_description(attrelid, attnum) IS NULL"
        )
        assert bare == []

    def test_a_table_that_joins_a_fenced_job_is_fenced_too(self, sink: PostgresSink, epochs: Epochs) -> None:
        sink.fence("orders", 4)
        sink.prepare("orders", (*epochs.tables, a_table("items")), into_existing=False)
        assert sink.committed("orders")["items"] == Marker(0, 4, "")

    def test_a_schema_of_its_own_holds_targets_and_side_tables(self, db: Database, tmp_path: Path) -> None:
        sink = sink_of(db.dsn, 'Mart "1"')
        epochs = begun(sink, tmp_path, a_table(), a_table("b", "Other.B c"))
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        sink.commit(epochs.next(inserts=rows((1, "b")), upserts=rows((1, "B")), of="b"))
        assert read_table(db, '"Mart ""1""".orders') == rows((1, "a"))
        assert read_table(db, '"Other"."B c"') == rows((1, "B"))
        assert sink_of(db.dsn).committed("orders") == {}

    def test_a_large_epoch_keeps_the_process_small(self, sink: PostgresSink, db: Database, epochs: Epochs) -> None:
        one = {"name": "x" * 1000}
        sink.commit(epochs.next(inserts=[{"id": n, **one} for n in range(1000)]))
        big = epochs.next(upserts=[{"id": n, **one} for n in range(200_000)])
        before = psutil.Process().memory_info().rss
        peak = [before]
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.02):
                peak.append(psutil.Process().memory_info().rss)

        watching = threading.Thread(target=watch)
        watching.start()
        sink.commit(big)
        done.set()
        watching.join()
        assert db("SELECT count(*) FROM orders") == [(200_000,)]
        assert max(peak) - before < 120 << 20


def test_the_crash_of_a_server_leaves_no_half_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with own_server() as server:
        db = Database(server, "postgres")
        sink = sink_of(db.dsn)
        epochs = begun(sink, tmp_path, a_table())
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        second = epochs.next(inserts=rows(*((n, "x") for n in range(2, 5000))), upserts=rows((1, "A")))

        def crash() -> None:
            server.stop(signal.SIGQUIT)

        with at("sink-before-commit", monkeypatch, crash), pytest.raises(Transient):
            sink.commit(second)
        with pytest.raises(Transient, match="start the database") as told:
            sink.committed("orders")
        with typed(told.value) as hint:
            hint.says("start the database")
            server.start()
            sink.committed("orders")
        assert read_table(db, "orders") == rows((1, "a"))
        assert sink.committed("orders")["orders"].epoch == 10
        sink.commit(second)
        assert db("SELECT count(*) FROM orders") == [(4999,)]
        assert all_tables(db) == {"orders", *SIDE_TABLES}


def test_case_43_a_full_disk_is_transient_and_the_epoch_commits_once_there_is_room(tmp_path: Path) -> None:
    with own_server() as server:
        db = Database(server, "postgres")
        sink = sink_of(db.dsn)
        epochs = begun(sink, tmp_path, a_table())
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        second = epochs.next(inserts=rows(*((n, "x" * 1000) for n in range(2, 40_000))))
        server.stop()
        with files_of_at_most((24 << 20) + 4096):  # more than a segment of the log, not a multiple of a block
            server.start()
        with pytest.raises(Transient, match="could not extend") as told:
            sink.commit(second)
        assert read_table(db, "orders") == rows((1, "a"))
        server.stop()
        server.start()
        with typed(told.value) as hint:
            hint.says("free disk space")
            sink.commit(second)
        assert db("SELECT count(*) FROM orders") == [(39_999,)]
