"""Tables that are partitions, of a published root or of none, all the while or for a while."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from changing_job import with_retries
from plain_job import PlainJob, small
from postgres import Server
from postgres_database import Database, database

from backfill_cli.errors import BadData, StateConflict

__all__ = ["small"]

pytestmark = pytest.mark.usefixtures("small")

ROWS = "INSERT INTO t SELECT n, n, n FROM generate_series(1, 20) n"
T = "CREATE TABLE t (id int PRIMARY KEY, n int, v text)"
P = "CREATE TABLE r.p (id int PRIMARY KEY, n int, v text) PARTITION BY RANGE (id)"
BETWEEN = "CREATE TABLE r.q (id int PRIMARY KEY, n int, v text) PARTITION BY RANGE (id)"
PART = "CREATE TABLE t PARTITION OF {} FOR VALUES FROM (0) TO (100)"
ATTACH, DETACH = (
    "ALTER TABLE r.p ATTACH PARTITION {} FOR VALUES FROM (0) TO (100)",
    "ALTER TABLE r.p DETACH PARTITION {}",
)
LOST = "UPDATE t SET v = 'lost' WHERE id = 7"
VIA_ROOT = " WITH (publish_via_partition_root = true)"


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        made("CREATE SCHEMA r")
        yield made


AS_ANOTHER = {
    "attached": ([T, P], f"ALL TABLES{VIA_ROOT}", [ATTACH.format("t"), LOST, DETACH.format("t")]),
    "attached by name": ([T, P], f"TABLE t, r.p{VIA_ROOT}", [ATTACH.format("t"), LOST, DETACH.format("t")]),
    "the table above it": (
        [BETWEEN, PART.format("r.q"), P], f"TABLE t, r.p{VIA_ROOT}",
        [ATTACH.format("r.q"), LOST, DETACH.format("r.q")],
    ),
    "from one to another": (
        [BETWEEN, PART.format("r.q"), P], f"TABLE t, r.p{VIA_ROOT}",
        ["ALTER TABLE r.q DETACH PARTITION t", ATTACH.format("t"), LOST, DETACH.format("t"),
         "ALTER TABLE r.q ATTACH PARTITION t FOR VALUES FROM (0) TO (100)"],
    ),
    "its root is published": (
        [P, PART.format("r.p")], f"TABLE t{VIA_ROOT}",
        ["ALTER PUBLICATION pub ADD TABLE r.p", LOST, "ALTER PUBLICATION pub DROP TABLE r.p"],
    ),
    "the schema of its root": (
        [P, PART.format("r.p")], f"TABLE t{VIA_ROOT}",
        ["ALTER PUBLICATION pub ADD TABLES IN SCHEMA r", LOST, "ALTER PUBLICATION pub DROP TABLES IN SCHEMA r"],
    ),
    "truncated": (
        [P, PART.format("r.p")], f"TABLE t{VIA_ROOT}",
        ["ALTER PUBLICATION pub ADD TABLE r.p", "TRUNCATE r.p", "ALTER PUBLICATION pub DROP TABLE r.p"],
    ),
}  # fmt: skip
UNPUBLISHED = {
    "detached": ([P, PART.format("r.p")], "TABLE r.p", [DETACH.format("t"), LOST, ATTACH.format("t")]),
    "its root is not published": (
        [P, PART.format("r.p")], "TABLE r.p",
        ["ALTER PUBLICATION pub DROP TABLE r.p", LOST, "ALTER PUBLICATION pub ADD TABLE r.p"],
    ),
    "the table above it is detached": (
        [P, BETWEEN, PART.format("r.q"), ATTACH.format("r.q")], "TABLES IN SCHEMA r",
        ["CREATE SCHEMA o", "ALTER TABLE r.q SET SCHEMA o", DETACH.format("o.q"), LOST, ATTACH.format("o.q"),
         "ALTER TABLE o.q SET SCHEMA r"],
    ),
    "its root moves": (
        [P, PART.format("r.p")], "TABLES IN SCHEMA r",
        ["CREATE SCHEMA o", "ALTER TABLE r.p SET SCHEMA o", LOST, "ALTER TABLE o.p SET SCHEMA r"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("made", "of", "meanwhile"), AS_ANOTHER.values(), ids=AS_ANOTHER)
def test_changes_that_were_published_as_another_tables_for_a_while_stop_the_job(
    db: Database, tmp_path: Path, made: list[str], of: str, meanwhile: list[str]
) -> None:
    db(*made, ROWS, f"CREATE PUBLICATION pub FOR {of}")
    job = PlainJob(db, tmp_path, {"t": ("id",)}, options={"publication": "pub"})
    job.follow()
    db("ALTER TABLE t ALTER n SET STATISTICS 9, ALTER v SET NOT NULL", "GRANT SELECT (id, n, v) ON t TO public")
    with_retries(job)
    db(*meanwhile)
    with pytest.raises(BadData, match=r"'t': .* partition of"):
        with_retries(job)


@pytest.mark.parametrize(("made", "of", "meanwhile"), UNPUBLISHED.values(), ids=UNPUBLISHED)
def test_a_partition_that_was_not_published_with_its_root_for_a_while_stops_the_job(
    db: Database, tmp_path: Path, made: list[str], of: str, meanwhile: list[str]
) -> None:
    db(*made, ROWS, f"CREATE PUBLICATION pub FOR {of}")
    job = PlainJob(db, tmp_path, {"t": ("id",)}, options={"publication": "pub"})
    job.follow()
    db("ALTER TABLE r.p RENAME TO o", "ALTER TABLE r.o RENAME TO p", "GRANT SELECT (id, n, v) ON t TO public")
    with_retries(job)
    db(*meanwhile)
    with pytest.raises(StateConflict, match="'t' left the publication, which has it with a table that"):
        with_retries(job)


def test_a_table_that_is_a_partition_for_a_while_under_its_own_name_is_followed(
    db: Database, tmp_path: Path
) -> None:
    db(T, P, ROWS)
    job = PlainJob(db, tmp_path, {"t": ("id",)})
    for statement in (ATTACH, DETACH, ATTACH):
        job.step()
        db(statement.format("t"), "UPDATE t SET v = 'a' WHERE id = 7", "UPDATE t SET v = v || 'b' WHERE id < 3")
    job.follow()
