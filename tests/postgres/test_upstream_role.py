"""What the job's role may see, and what its settings are: neither decides which rows are read, or how."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from changing_job import with_retries
from hint_typed import typed
from plain_job import PlainJob, small
from postgres import Server
from postgres_database import Database, database
from test_upstream_moving import once

from backfill_cli.errors import UsageError
from backfill_cli.postgres_holders import of_tables, spelled
from backfill_cli.upstreams.postgres.client import connected

__all__ = ["small"]
pytestmark = pytest.mark.usefixtures("small")

ODD = {
    "DateStyle": "German, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Asia/Kathmandu",
    "extra_float_digits": "-3",
    "bytea_output": "escape",
    "statement_timeout": "10s",
    "lock_timeout": "1",
    "idle_in_transaction_session_timeout": "10s",
    "idle_session_timeout": "10s",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "default_transaction_read_only": "on",
    "standard_conforming_strings": "off",
    "row_security": "on",
    "enable_seqscan": "off",
    "work_mem": "64kB",
}


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        made(
            "CREATE TABLE t (id text PRIMARY KEY, d date, i interval, f float8, b bytea, at timestamptz)",
            r"""INSERT INTO t SELECT n || '\''', '2026-02-01'::date + n, n * interval '1 month 3 days 04:05:06.7',
                n / 7.0, int8send(n), '2026-03-29 01:30:00+00'::timestamptz + n * interval '1 hour'
                FROM generate_series(1, 40) n""",
            f"CREATE ROLE {made.name} LOGIN REPLICATION",
            f"GRANT SELECT ON t TO {made.name}",
            f"CREATE PUBLICATION {made.name} FOR TABLE t",
        )
        yield made


def started(db: Database, folder: Path) -> PlainJob:
    """A job by the role, judged as superuser."""
    options = {"dsn": db.dsn.replace("postgres@", f"{db.name}@", 1), "publication": db.name}
    return PlainJob(db, folder, {"t": ("id",)}, options=options)


def test_settings_of_the_role_change_nothing(db: Database, tmp_path: Path) -> None:
    for name, value in ODD.items():
        db(f"ALTER ROLE {db.name} SET {name} = '{value}'")
    job = started(db, tmp_path)
    with connected(db.dsn.replace("postgres@", f"{db.name}@", 1)) as connection:
        for name in ODD:
            if name.endswith("timeout"):
                assert connection.execute(f"SHOW {name}".encode()).fetchall() == [("0",)], name
    job.step()
    db("UPDATE t SET f = 1e-300, d = d + 1, i = -i WHERE f > 2", r"INSERT INTO t (id) VALUES ('\'), ('''')")
    job.follow()
    db(r"UPDATE t SET id = id || '\n' WHERE f IS NULL", "DELETE FROM t WHERE f < 1")
    job.follow()


def test_rows_that_a_policy_hides_are_not_left_out(db: Database, tmp_path: Path) -> None:
    db("ALTER TABLE t ENABLE ROW LEVEL SECURITY", f"CREATE POLICY part ON t TO {db.name} USING (f > 2)")
    with pytest.raises(UsageError, match="row security policy hides rows of table 't'") as refused:
        started(db, tmp_path)
    with typed(refused.value) as hint:
        db(*hint.statements())
        started(db, tmp_path).follow()


def test_a_role_that_may_not_replicate_is_refused_until_it_may(db: Database, tmp_path: Path) -> None:
    db(f"ALTER ROLE {db.name} NOREPLICATION")
    with pytest.raises(UsageError, match=f"role '{db.name}' is not allowed to replicate") as refused:
        started(db, tmp_path)
    with typed(refused.value) as hint:
        own, _of_amazon = hint.statements()
        db(own)
        started(db, tmp_path).follow()


def test_a_policy_made_while_the_job_runs_stops_it(db: Database, tmp_path: Path) -> None:
    job = started(db, tmp_path)
    job.step()
    db("ALTER TABLE t ENABLE ROW LEVEL SECURITY", f"CREATE POLICY part ON t TO {db.name} USING (f > 2)")
    with pytest.raises(UsageError, match="row-level security policy for table"):
        job.follow()


def test_a_right_that_is_taken_from_the_role_while_the_job_runs_is_named_and_given_back(
    db: Database, tmp_path: Path
) -> None:
    job = started(db, tmp_path)
    once(job, "rows", f"REVOKE SELECT ON t FROM {db.name}")
    with pytest.raises(UsageError, match=r"permission denied for table t \(SQLSTATE 42501\)") as refused:
        with_retries(job)
    with typed(refused.value) as hint:
        hint.says("as the owner, grant the role what it lacks: to read tables")
        db(f"GRANT SELECT ON t TO {db.name}")
        with_retries(job)


def test_a_table_that_others_inherit_from_is_refused_until_none_does(db: Database, tmp_path: Path) -> None:
    """Its copy would lack rows that a query of it shows; none of them is read meanwhile."""
    made = ("CREATE TABLE child () INHERITS (t)", "INSERT INTO child (id) VALUES ('of the child')")
    db(*made)
    with pytest.raises(UsageError, match="other tables inherit from table 't'") as refused:
        started(db, tmp_path)
    with typed(refused.value) as hint:
        db(*hint.statements(), "DROP TABLE child")
        job = started(db, tmp_path)
    once(job, "rows", *made)
    with pytest.raises(UsageError, match="other tables inherit from table 't'") as later:
        with_retries(job)
    job.die()
    with typed(later.value) as hint:
        db(*hint.statements(), "UPDATE t SET d = d + 1")
        with_retries(job)


def test_a_session_whose_program_the_role_may_not_see_is_named_without_it(db: Database) -> None:
    with psycopg.connect(db.dsn) as holder, connected(db.dsn.replace("postgres@", f"{db.name}@", 1)) as role:
        holder.execute("LOCK TABLE t")
        row = role.execute(of_tables(["t"]).encode()).fetchone()
        assert row is not None
        assert f"process {holder.info.backend_pid} (unknown, role" in spelled(row)[0]
