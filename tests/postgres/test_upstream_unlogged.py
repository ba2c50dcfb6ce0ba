"""Changes that the log lacks because a table left it for a while: unlogged, or out of a published schema."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hint_words
import pytest
from changing_job import with_retries
from hint_typed import typed
from plain_job import PlainJob, small
from postgres import Server
from postgres_database import Database, database

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import BadData, StateConflict, UsageError
from backfill_cli.upstreams.postgres import checks, connector

__all__ = ["small"]

pytestmark = pytest.mark.usefixtures("small")

KEYS = {"t": ("id",)}


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    """With a table `t` of 20 rows that has a TOAST table."""
    with database(postgres) as made:
        made("CREATE TABLE t (id int PRIMARY KEY, v text)")
        made("INSERT INTO t SELECT n, n FROM generate_series(1, 20) n")
        yield made


@pytest.fixture(params=["ALL TABLES", "TABLES IN SCHEMA public"])
def job(db: Database, tmp_path: Path, request: pytest.FixtureRequest) -> PlainJob:
    """Live, in a publication that does not name its table."""
    db(f"CREATE PUBLICATION every FOR {request.param}")
    made = PlainJob(db, tmp_path, KEYS, options={"publication": "every"})
    made.follow()
    return made


LOST = "UPDATE t SET v = 'lost' WHERE id = 7"
AWAY = {
    "unlogged": ["ALTER TABLE t SET UNLOGGED", LOST, "ALTER TABLE t SET LOGGED"],
    "in one transaction": [f"ALTER TABLE t SET UNLOGGED; {LOST}; ALTER TABLE t SET LOGGED"],
}


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("statements", AWAY.values(), ids=AWAY)
def test_a_table_that_was_unlogged_for_a_while_stops_the_job(
    job: PlainJob, statements: list[str], stopped: bool
) -> None:
    job.db(*statements)
    if stopped:
        job.die()
    with pytest.raises(BadData, match=r"'t': ALTER TABLE rewrote it .* SET UNLOGGED"):
        with_retries(job)


def test_a_table_that_is_logged_again_as_the_hint_says_stops_the_job_again(job: PlainJob) -> None:
    job.db("ALTER TABLE t SET UNLOGGED", LOST)
    with pytest.raises(UsageError, match="unlogged") as refused:
        with_retries(job)
    job.db(str(refused.value.hint).partition(";")[0])
    job.die()
    with pytest.raises(BadData, match="SET UNLOGGED"):
        with_retries(job)


HARMLESS = (
    "VACUUM FULL t",
    "CREATE INDEX other ON t (v); CLUSTER t USING other; ANALYZE t",
    "TRUNCATE t; INSERT INTO t VALUES (1, 'one')",
    "SET allow_in_place_tablespaces = on; CREATE TABLESPACE beside LOCATION ''; ALTER TABLE t SET TABLESPACE "
    "beside; ALTER TABLE t SET TABLESPACE pg_default; DROP TABLESPACE beside",
    "SET session_replication_role = replica; UPDATE t SET v = 'as a replica' WHERE id < 5",
    "CREATE ROLE nobody_{0}; ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON t USING (id < 3); "
    "UPDATE t SET v = 'hidden' WHERE id > 9; DROP ROLE nobody_{0}",
)


def test_what_only_moves_rows_is_followed_in_any_publication(job: PlainJob) -> None:
    for statements in HARMLESS:
        job.db(*statements.format(job.db.name).split("; "), "UPDATE t SET v = v || '?' WHERE id < 5")
        job.die()
        with_retries(job)


FIXED = "CREATE TABLE f (id int PRIMARY KEY, n int); INSERT INTO f SELECT n, n FROM generate_series(1, 9) n"


def test_a_job_of_before_is_asked_to_name_its_tables_without_toast_and_then_goes_on(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older version let it begin; so it did one whose TOAST table goes with the next VACUUM FULL."""
    db(FIXED, "ALTER TABLE t ADD n int", "ALTER TABLE t DROP v", "CREATE PUBLICATION every FOR ALL TABLES")
    with monkeypatch.context() as before:
        before.setattr(checks, "_unguarded", lambda *_: None)
        job = PlainJob(db, tmp_path, {"f": ("id",), "t": ("id",)}, options={"publication": "every"})
        job.follow()
    job.die()
    with pytest.raises(UsageError, match="does not name table 'f'") as refused:
        job.step()
    with typed(refused.value) as hint:
        db(*hint.statements())
        with_retries(job)
        db("VACUUM FULL t", "TRUNCATE f", "VACUUM FULL f", "UPDATE t SET n = 0 WHERE id < 3")
        with_retries(job)


def test_a_table_that_a_publication_names_may_be_rewritten_with_a_new_toast_table(
    db: Database, tmp_path: Path
) -> None:
    """As ADD COLUMN … GENERATED … STORED does; `plan` says how to name it, also once the job follows."""
    db("CREATE PUBLICATION every FOR ALL TABLES")
    job = PlainJob(db, tmp_path, KEYS, options={"publication": "every"})
    job.follow()
    options = connector.options.model_validate({"dsn": db.dsn, "slot": f"job_{db.name}", "publication": "every"})
    upstream: Any = connector.open(options, [TableSpec("t", ("id",))])
    upstream.pin()
    (said,) = (note for note in upstream.preview() if "GENERATED" in note)
    db(*hint_words.statements(said))
    with_retries(job)
    assert not any("GENERATED" in note for note in upstream.preview())
    upstream.close()
    db("ALTER TABLE t ADD g text GENERATED ALWAYS AS (v || '!') STORED", "UPDATE t SET v = 'x' WHERE id < 4")
    with_retries(job)


def test_a_table_without_toast_needs_a_publication_that_names_it(db: Database, tmp_path: Path) -> None:
    """VACUUM FULL and TRUNCATE then leave the same traces as SET UNLOGGED, which the server refuses."""
    db(FIXED, "CREATE PUBLICATION every FOR ALL TABLES")
    with pytest.raises(UsageError, match="does not name table 'f'") as refused:
        PlainJob(db, tmp_path, {"f": ("id",)}, options={"publication": "every"})
    db(str(refused.value.hint).partition(": ")[2])
    job = PlainJob(db, tmp_path, {"f": ("id",)}, options={"publication": "every"})
    job.follow()
    with pytest.raises(Exception, match="part of a publication"):
        db("ALTER TABLE f SET UNLOGGED")
    db("VACUUM FULL f", "UPDATE f SET n = 0 WHERE id < 3", "TRUNCATE f", "INSERT INTO f VALUES (1, 1)")
    with_retries(job)
    db(f'DROP PUBLICATION "{job.slot}_named"', "ALTER TABLE f SET UNLOGGED; ALTER TABLE f SET LOGGED")
    with pytest.raises(BadData, match="no publication has named it"):
        with_retries(job)


@pytest.mark.parametrize("named", ["p", "p1"])
def test_a_partition_that_was_unlogged_for_a_while_stops_the_job(db: Database, tmp_path: Path, named: str) -> None:
    """A publication of the root does not keep the server from it."""
    db(
        "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100)",
        "INSERT INTO p SELECT n, n FROM generate_series(1, 20) n",
    )
    job = PlainJob(db, tmp_path, {named: ("id",)}, options={"accept_partition_changes": True})
    job.follow()
    db("VACUUM FULL p1", "UPDATE p SET v = 'a' WHERE id = 3")
    with_retries(job)
    try:
        db("ALTER TABLE p1 SET UNLOGGED", "UPDATE p SET v = 'lost' WHERE id = 7", "ALTER TABLE p1 SET LOGGED")
    except Exception:
        assert named == "p1"  # the server refuses it for a table that is named
        return
    with pytest.raises(BadData, match="SET UNLOGGED"):
        with_retries(job)


OUT = {
    "table": [
        "ALTER TABLE t SET SCHEMA away", LOST.replace("t SET", "away.t SET"),
        "ALTER TABLE away.t SET SCHEMA public",
    ],
    "schema": [
        "ALTER PUBLICATION every DROP TABLES IN SCHEMA public", LOST,
        "ALTER PUBLICATION every ADD TABLES IN SCHEMA public",
    ],
}  # fmt: skip


@pytest.mark.parametrize("statements", OUT.values(), ids=OUT)
def test_a_table_that_left_a_published_schema_for_a_while_stops_the_job(
    db: Database, tmp_path: Path, statements: list[str]
) -> None:
    db("CREATE SCHEMA away", "CREATE PUBLICATION every FOR TABLES IN SCHEMA public")
    job = PlainJob(db, tmp_path, KEYS, options={"publication": "every"})
    job.follow()
    db("GRANT SELECT ON t TO public", "VACUUM FULL t", "CREATE INDEX ON t (v)", "UPDATE t SET v = 'x'")
    db("ALTER TABLE t RENAME TO u", "ALTER TABLE u RENAME TO t", "ALTER SCHEMA away RENAME TO other")
    db("ALTER SCHEMA other RENAME TO away", f"CREATE ROLE o_{db.name}", f"ALTER TABLE t OWNER TO o_{db.name}")
    with_retries(job)
    db("ALTER TABLE t OWNER TO postgres", f"DROP ROLE o_{db.name}")
    db(*statements)
    with pytest.raises(StateConflict, match="'t' left the publication, which has it with its schema only"):
        with_retries(job)


ROOT = "CREATE TABLE r.p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)"
ATTACHED = "ALTER TABLE r.p ATTACH PARTITION t FOR VALUES FROM (0) TO (100)"
SENT_AS_THE_ROOT = {
    "of all": ([ROOT], "ALL TABLES", ATTACHED),
    "of a schema": ([ROOT], "TABLE t, TABLES IN SCHEMA r", ATTACHED),
    "of a schema that is added": ([ROOT, ATTACHED], "TABLE t", "ALTER PUBLICATION every ADD TABLES IN SCHEMA r"),
}


@pytest.mark.parametrize(("made", "of", "then"), SENT_AS_THE_ROOT.values(), ids=SENT_AS_THE_ROOT)
def test_a_table_that_becomes_a_partition_of_a_published_one_stops_the_job(
    db: Database, tmp_path: Path, made: list[str], of: str, then: str
) -> None:
    """From then on its changes are sent as those of the root."""
    db("CREATE SCHEMA r", *made, f"CREATE PUBLICATION every FOR {of} WITH (publish_via_partition_root = true)")
    job = PlainJob(db, tmp_path, KEYS, options={"publication": "every"})
    job.follow()
    db(then, LOST)
    with pytest.raises(StateConflict, match="'t' left the publication, at least for a while"):
        with_retries(job)


def test_a_second_start_with_one_table_more_adds_it_to_the_publication_that_names_them(
    db: Database, tmp_path: Path
) -> None:
    db(FIXED, "CREATE TABLE g (id int PRIMARY KEY)", "CREATE PUBLICATION every FOR ALL TABLES")
    for tables in ({"f": ("id",)}, {"f": ("id",), "g": ("id",)}):
        with pytest.raises(UsageError, match="does not name table") as refused:
            PlainJob(db, tmp_path, tables, options={"publication": "every"})
        db(str(refused.value.hint).partition(": ")[2])
        job = PlainJob(db, tmp_path, tables, options={"publication": "every"})
        job.upstream.release(job.pin)
        job.upstream.close()
