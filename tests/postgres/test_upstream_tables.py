"""Tables, their keys and their identity: those that a job can follow, and those that are refused by name."""

from pathlib import Path

import psycopg
import pytest
from changing_job import db, job, with_retries
from hint_typed import typed
from plain_job import PlainJob, small
from postgres_database import Database
from test_upstream_moving import once

from backfill_cli.errors import BackfillError, BadData, StateConflict, Transient, UsageError
from backfill_cli.upstreams.postgres import ddl, publications, tables
from backfill_cli.upstreams.postgres.tables import primary_keys

__all__ = ["db", "job", "small"]

pytestmark = pytest.mark.usefixtures("small")


@pytest.mark.parametrize("when", ["snapshot", "live", "dead"])
def test_a_table_made_again_stops_the_job(job: PlainJob, when: str) -> None:
    if when != "snapshot":
        job.follow()
    job.db(
        "ALTER TABLE t RENAME TO old", "CREATE TABLE t (LIKE old INCLUDING ALL)", "INSERT INTO t VALUES (7, 'x')"
    )
    if when == "dead":
        job.die()
    with pytest.raises(StateConflict, match=r"'t' is another table now: the job's table .* was renamed to old"):
        with_retries(job)


def test_a_table_whose_name_another_has_is_followed_again_once_it_is_renamed_back(job: PlainJob) -> None:
    job.follow()
    job.db("ALTER TABLE t RENAME TO old", "CREATE TABLE t (LIKE old INCLUDING ALL)")
    with pytest.raises(StateConflict, match="rename them back"):
        with_retries(job)
    job.db("UPDATE old SET v = 'renamed' WHERE id = 7", "INSERT INTO t VALUES (7, 'of another table')")
    job.db("ALTER TABLE t RENAME TO other", "ALTER TABLE old RENAME TO t")
    job.die()
    with_retries(job)
    job.follow()
    assert job.sink["t"][7,]["v"] == "renamed"


@pytest.mark.parametrize("when", ["snapshot", "live"])
def test_a_table_that_is_dropped_stops_the_job(job: PlainJob, when: str) -> None:
    if when != "snapshot":
        job.follow()
    job.db("DROP TABLE t")
    with pytest.raises(BackfillError, match="'t'") as caught:
        with_retries(job)
    assert not isinstance(caught.value, Transient)


@pytest.mark.parametrize("identity", ["NOTHING", "USING INDEX other"])
def test_an_identity_that_lacks_the_key_is_refused_before_and_during(job: PlainJob, identity: str) -> None:
    job.follow()
    job.db("ALTER TABLE t ADD COLUMN u int", "UPDATE t SET u = id")
    with_retries(job)
    job.db("ALTER TABLE t ALTER u SET NOT NULL", "CREATE UNIQUE INDEX other ON t (u)")
    job.db(f"ALTER TABLE t REPLICA IDENTITY {identity}")
    if identity == "NOTHING":
        job.db("INSERT INTO t VALUES (1000, 'x', 1000)")
    else:
        job.db("UPDATE t SET id = 1000, u = 1000 WHERE id = 7", "DELETE FROM t WHERE id = 8")
    with pytest.raises(UsageError, match="its replica identity is") as caught:
        with_retries(job)
    assert "REPLICA IDENTITY FULL" in str(caught.value.hint)


def test_case_11_a_key_that_is_not_the_primary_key_is_followed_with_full_identity(
    db: Database, tmp_path: Path
) -> None:
    db(
        "CREATE TABLE u (id int PRIMARY KEY, code text NOT NULL UNIQUE, v text)",
        "ALTER TABLE u ALTER v SET STORAGE external",
        "INSERT INTO u SELECT n, 'c' || n, repeat('x', 9000) FROM generate_series(1, 40) n",
    )
    with pytest.raises(UsageError, match="its replica identity is its primary key") as refused:
        PlainJob(db, tmp_path, {"u": ("code",)})
    with typed(refused.value) as hint:
        db(*hint.statements())
        job = PlainJob(db, tmp_path, {"u": ("code",)})
    job.step()
    for moment in ("observe", "closed", "rows", "take"):
        once(
            job,
            moment,
            "UPDATE u SET code = 'c' || 1000 - substr(code, 2)::int WHERE id % 4 = 1",
            "UPDATE u SET id = -id",
        )
        job.step()
    job.follow()


def test_a_table_without_a_primary_key_and_identity_full_by_two_columns(db: Database, tmp_path: Path) -> None:
    db("CREATE TABLE h (a int NOT NULL, b text NOT NULL, v int)", "ALTER TABLE h REPLICA IDENTITY FULL")
    db("INSERT INTO h SELECT n % 7, 'b' || n, n FROM generate_series(1, 50) n")
    with pytest.raises(UsageError, match="table 'h' has no unique index on its key") as refused:
        PlainJob(db, tmp_path, {"h": ("a", "b")})
    with typed(refused.value) as hint:
        db(*hint.statements())
        job = PlainJob(db, tmp_path, {"h": ("a", "b")})
    for moment in ("observe", "closed", "rows", "take"):
        once(
            job,
            moment,
            "UPDATE h SET a = 7 - a WHERE v % 5 = 0",
            "UPDATE h SET v = v + 1",
            "DELETE FROM h WHERE v = 50",
        )
        job.step()
    job.follow()


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("id int PRIMARY KEY DEFERRABLE", "its primary key is DEFERRABLE or invalid"),
        ("id int NOT NULL", "without a primary key, the log does not name the key"),
    ],
)
def test_a_key_with_an_index_of_its_own_needs_an_identity_that_has_it(
    db: Database, tmp_path: Path, columns: str, said: str
) -> None:
    db(f"CREATE TABLE late ({columns})", "CREATE UNIQUE INDEX at_once ON late (id)")
    with pytest.raises(UsageError, match=said) as refused:
        PlainJob(db, tmp_path, {"late": ("id",)})
    with typed(refused.value) as hint:
        db(*hint.statements())
        PlainJob(db, tmp_path, {"late": ("id",)}).upstream.close()


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_columns_that_a_primary_key_only_includes_are_not_of_the_key(
    db: Database, tmp_path: Path, identity: str
) -> None:
    db("CREATE TABLE i (x int, v text, id int, PRIMARY KEY (id) INCLUDE (x))")
    db(f"ALTER TABLE i REPLICA IDENTITY {identity}", "INSERT INTO i SELECT n, n, n FROM generate_series(1, 40) n")
    with psycopg.connect(db.dsn) as connection:
        assert primary_keys(connection, ["i"]) == {"i": ("id",)}
    job = PlainJob(db, tmp_path, {"i": ("id",)})
    job.step()
    db("UPDATE i SET x = -x", "UPDATE i SET id = id + 40 WHERE id % 3 = 0", "DELETE FROM i WHERE id = 8")
    job.follow()


@pytest.mark.parametrize("more", ["", ", more"])
def test_a_key_that_is_itself_the_replica_identity_by_its_index_is_followed(
    db: Database, tmp_path: Path, more: str
) -> None:
    db("CREATE TABLE u (id int PRIMARY KEY, code text NOT NULL UNIQUE, more int NOT NULL, v text)")
    db("INSERT INTO u SELECT n, 'c' || n, n, n FROM generate_series(1, 40) n")
    db(f"CREATE UNIQUE INDEX by_code ON u (code{more})", "ALTER TABLE u REPLICA IDENTITY USING INDEX by_code")
    job = PlainJob(db, tmp_path, {"u": ("code",)})
    job.step()
    db(
        "UPDATE u SET code = code || '!' WHERE id % 3 = 0",
        "UPDATE u SET v = v || '?', id = -id",
        "UPDATE u SET more = 0",
    )
    db("DELETE FROM u WHERE code = 'c8'")
    job.follow()
    db("DROP INDEX by_code", "INSERT INTO u VALUES (1, 'x', 1, 'x')")
    with pytest.raises(UsageError, match="its replica identity is the columns of an index"):
        with_retries(job)


def test_partitions_may_be_identified_by_indexes_on_the_key(db: Database, tmp_path: Path) -> None:
    db(*PARTED, "CREATE UNIQUE INDEX by_id ON p (id)", "CREATE UNIQUE INDEX by_both ON p1 (id)")
    for table, index in (("p", "by_id"), ("p1", "by_both"), ("p2", "p2_id_idx")):
        db(f"ALTER TABLE {table} REPLICA IDENTITY USING INDEX {index}")
    job = PlainJob(db, tmp_path, {"p": ("id",)}, options={"accept_partition_changes": True})
    job.step()
    db("UPDATE p SET id = id + 50 WHERE id < 5", "UPDATE p SET v = v || '!' WHERE id > 30")
    job.follow()
    db("ALTER TABLE p1 ALTER v SET NOT NULL", "CREATE UNIQUE INDEX by_v ON p1 (v)")
    db("ALTER TABLE p1 REPLICA IDENTITY USING INDEX by_v", "UPDATE p SET v = -id WHERE id = 7")
    with pytest.raises(UsageError, match="which lacks the key") as refused:
        with_retries(job)
    db(*str(refused.value.hint).split("; "))
    assert db("SELECT DISTINCT relreplident::text FROM pg_class WHERE relname IN ('p', 'p1', 'p2')") == [("f",)]


def test_an_unlogged_table_is_refused(db: Database, tmp_path: Path) -> None:
    db("CREATE UNLOGGED TABLE u (id int PRIMARY KEY)")
    with pytest.raises(UsageError, match="unlogged") as refused:
        PlainJob(db, tmp_path, {"u": ("id",)})
    with typed(refused.value) as hint:
        db(*hint.statements())
        PlainJob(db, tmp_path, {"u": ("id",)}).upstream.close()


PARTED = (
    "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (20)",
    "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (20) TO (100)",
    "INSERT INTO p SELECT n, n FROM generate_series(1, 40) n",
)


def test_partitions_need_the_identity_that_their_table_has(db: Database, tmp_path: Path) -> None:
    db(*PARTED, "ALTER TABLE p REPLICA IDENTITY FULL")
    options = {"accept_partition_changes": True}
    with pytest.raises(UsageError, match="another REPLICA IDENTITY") as refused:
        PlainJob(db, tmp_path, {"p": ("id",)}, options=dict(options))
    with typed(refused.value) as hint:
        db(*hint.statements())
        job = PlainJob(db, tmp_path, {"p": ("id",)}, options=dict(options))
    job.step()
    db("UPDATE p SET id = id + 50 WHERE id < 5", "UPDATE p SET v = v || '!' WHERE id > 30")
    job.follow()
    db("CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (100) TO (200)")
    with pytest.raises(UsageError, match="another REPLICA IDENTITY"):
        job.step()


def test_a_name_that_sql_does_not_take_is_named(db: Database, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a valid name in SQL") as refused:
        PlainJob(db, tmp_path, {"My Schema.t": ("id",)})
    with typed(refused.value) as hint:
        name = str(hint.settings()["name"])
        db('CREATE SCHEMA "My Schema"', f"CREATE TABLE {name} (id int PRIMARY KEY)")
        PlainJob(db, tmp_path, {name: ("id",)}).upstream.close()


AT = r"^table 'far', key id = 2: column 'at'"


def test_a_value_that_cannot_be_kept_in_a_key_is_named_too(db: Database, tmp_path: Path) -> None:
    db(
        "CREATE TABLE far (id int, until date, PRIMARY KEY (id, until))",
        "INSERT INTO far VALUES (7, '2026-01-01'), (7, 'infinity')",
    )
    with pytest.raises(BadData, match=r"^table 'far', key id = 7, until = .* column 'until' .* infinity is not a"):
        PlainJob(db, tmp_path, {"far": ("id", "until")}).step(judged=False)


def test_a_value_that_cannot_be_kept_names_its_table(db: Database, tmp_path: Path) -> None:
    db("CREATE TABLE far (id int PRIMARY KEY, at timestamp)", "INSERT INTO far VALUES (1, now()), (2, 'infinity')")
    first = PlainJob(db, tmp_path, {"far": ("id",)})
    with pytest.raises(BadData, match=AT) as refused:
        first.step(judged=False)
    with typed(refused.value) as hint:
        hint.says("correct the row upstream")
        db("DELETE FROM far")
        first.follow()
    job = PlainJob(db, tmp_path, {"far": ("id",)}, options={"slot": f"far_{db.name}"})
    job.follow()
    db("INSERT INTO far VALUES (1, now()), (3, NULL), (2, '-infinity'), (4, 'infinity')")
    with pytest.raises(BadData, match=AT):
        job.step(judged=False)


def test_a_table_that_does_not_exist_is_told_with_the_one_meant(db: Database, tmp_path: Path) -> None:
    db(
        "CREATE TABLE orders (id int PRIMARY KEY)",
        'CREATE TABLE "Orders" (id int PRIMARY KEY)',
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.order_lines (id int PRIMARY KEY)",
        "CREATE VIEW ordered AS SELECT 1 id",
    )
    with pytest.raises(UsageError) as caught:
        PlainJob(db, tmp_path, {"ordrs": ("id",)})
    assert caught.value.message == "table 'ordrs' does not exist; did you mean orders or \"Orders\"?"
    with typed(caught.value) as hint:
        assert hint.settings() == {"name": "orders"}
        PlainJob(db, tmp_path, {"orders": ("id",)}).upstream.close()
    with pytest.raises(UsageError, match="is a view") as caught:
        PlainJob(db, tmp_path, {"ordered": ("id",)}, options={"slot": f"v_{db.name}"})
    with typed(caught.value) as hint:
        hint.says("name the tables it is built from")
        PlainJob(db, tmp_path, {"orders": ("id",)}, options={"slot": f"v_{db.name}"}).upstream.close()
    with pytest.raises(UsageError) as caught:
        PlainJob(db, tmp_path, {"Orders": ("id",), '"Order"': ("id",)})
    assert str(caught.value.hint).endswith(r'''[[tables]] name = "\"Orders\""''')


def test_a_name_with_either_quote_is_told_as_a_string_of_toml(db: Database, tmp_path: Path) -> None:
    """In single quotes it ended at the name's own."""
    db("""CREATE SCHEMA "Sch"; CREATE TABLE "Sch"."Or'd" (id int PRIMARY KEY)""")
    with pytest.raises(UsageError) as caught:
        PlainJob(db, tmp_path, {"Sch.Or'd": ("id",)})
    with typed(caught.value) as hint:
        (name,) = hint.settings().values()
        assert name == """"Sch"."Or'd\""""
        PlainJob(db, tmp_path, {str(name): ("id",)}).upstream.close()


SCHEMAS = "SELECT oid, pnnspid FROM pg_publication_namespace WHERE pnpubid = p.oid"
NAMES = ["t", "other"]
QUERIES: list[tuple[str, tuple[object, ...]]] = [
    (tables._SIGNATURE, (NAMES,)),
    (tables._FOUND, ("t",)),
    (ddl._SEEN, ("none", NAMES)),
    (publications._PUBLISHED.format(schemas=SCHEMAS), ("none", [1, 2])),
]


@pytest.mark.parametrize(("query", "given"), QUERIES)
def test_no_query_about_the_tables_reads_the_whole_catalog_for_each_of_them(
    job: PlainJob, query: str, given: tuple[object, ...]
) -> None:
    """At 1,000 tables the signature, which every barrier asks for, then takes several times as long."""
    with psycopg.connect(job.db.dsn) as connection:
        connection.execute("SET enable_seqscan = off")  # what is left has no index that it could use
        plan = connection.execute(f"EXPLAIN {query}".encode(), given).fetchall()
    read = [line.split(" on ")[1].split(" ")[0] for (line,) in plan if "Seq Scan on " in line]
    assert not {"pg_class", "pg_index", "pg_attribute", "pg_inherits", "pg_depend"} & set(read)
