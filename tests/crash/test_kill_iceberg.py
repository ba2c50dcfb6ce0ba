"""`kill -9` of a job from one Iceberg table into another, as users type it; then the sink is the upstream.

What is expected comes from pyiceberg, which reads both tables and has written neither.
"""

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kept_python
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = """
[job]
name = "crash"
[upstream]
type = "iceberg"
table = "lake/{table}"
[[tables]]
name = "orders"
key = ["id"]
[transform]
select = ["id", "name", "v * 2 AS twice"]
where = "id % 10 <> 3"
[sink]
type = "iceberg"
table = "derived/{table}"
[barrier]
interval = "200ms"
[spark]
master = "local[2]"
conf = { "spark.driver.memory" = "600m" }
"""


DERIVED = """
[[derived]]
name = "by_name"
key = ["name"]
sql = "SELECT name, count(*) AS n, max(twice) AS most FROM orders GROUP BY name"
"""


def backfill(folder: Path, *words: str, failpoint: str = "") -> "subprocess.CompletedProcess[str]":
    told = {**os.environ, "BACKFILL_FAILPOINT": failpoint, "BACKFILL_CATALOG": "catalog.duckdb"}
    return kept_python.typed(folder, told, *words, formats=("iceberg",))


def rows(path: Path) -> list[dict[str, Any]]:
    from pyiceberg.table import StaticTable

    found: list[dict[str, Any]] = StaticTable.from_metadata(str(path)).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def refs(path: Path) -> set[str]:
    from pyiceberg.table import StaticTable

    return set(StaticTable.from_metadata(str(path)).metadata.refs)


def expected(folder: Path) -> list[dict[str, Any]]:
    held = (row for row in rows(folder / "lake" / "orders") if row["id"] % 10 != 3)
    return [{"id": row["id"], "name": row["name"], "twice": row["v"] * 2} for row in held]


def by_name(held: list[dict[str, Any]]) -> set[tuple[Any, int, int]]:
    """What the derived table must hold beside these rows, by plain Python."""
    groups = {
        name: [row["twice"] for row in held if row["name"] == name] for name in {row["name"] for row in held}
    }
    return {(name, len(found), max(found)) for name, found in groups.items()}


def derived(folder: Path) -> list[tuple[Any, int, int]]:
    from pyiceberg.table import StaticTable

    found = StaticTable.from_metadata(str(folder / "derived" / "by_name")).scan().to_arrow().to_pylist()
    return [(row["name"], row["n"], row["most"]) for row in found]


@pytest.fixture
def writer(spark: "SparkSession", tmp_path: Path) -> "SparkSession":
    """Another program, with a catalog of its own; `w.orders` has three files of 500 rows."""
    session = spark.newSession()
    told = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": f"{tmp_path}/lake"}
    for key, value in {**told, ".cache-enabled": "false"}.items():
        session.conf.set(f"spark.sql.catalog.w{key}", value)
    session.sql("CREATE TABLE w.orders (id BIGINT, name STRING, v BIGINT) USING iceberg")
    for low in (0, 500, 1000):
        part = session.range(low, low + 500, 1, 1).selectExpr("id", "concat('n', id % 7) AS name", "id * 3 AS v")
        part.writeTo("w.orders").append()
    return session


@pytest.mark.in_turn("a lake's tables under kills")
def test_a_job_killed_at_four_points_and_forgotten_by_its_catalog_ends_with_the_upstreams_rows(
    writer: "SparkSession", tmp_path: Path
) -> None:
    (tmp_path / "job.toml").write_text(CONFIG + DERIVED)
    start = ("start", "--config", "job.toml", "--until", "caught-up")
    died = backfill(tmp_path, *start, failpoint="sink-before-commit")
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert rows(tmp_path / "derived" / "orders") == [], "its rows are on a branch"
    assert any(name.startswith("backfill_pin_") for name in refs(tmp_path / "lake" / "orders"))

    writer.sql("UPDATE w.orders SET v = v + 1 WHERE id BETWEEN 490 AND 510")
    writer.sql("DELETE FROM w.orders WHERE id % 100 = 4")
    writer.sql("INSERT INTO w.orders VALUES (5000, NULL, -1), (-1, '', 7)")
    writer.sql("UPDATE w.orders SET id = id + 10000 WHERE id IN (3, 17)")
    writer.sql("CALL w.system.rewrite_data_files(table => 'orders', options => map('rewrite-all', 'true'))")
    again = backfill(tmp_path, "resume", "crash", failpoint="sink-before-close:2")
    assert again.returncode == -signal.SIGKILL, again.stderr
    assert rows(tmp_path / "derived" / "orders") == expected(tmp_path), "visible, and not yet known to be"

    for point in ("derived-after-commit", "derived-before-commit"):
        died = backfill(tmp_path, "resume", "crash", "--until", "caught-up", failpoint=point)
        assert died.returncode == -signal.SIGKILL, died.stderr
        writer.sql("UPDATE w.orders SET name = 'other' WHERE id < 20")
    orders = rows(tmp_path / "derived" / "orders")
    assert sorted(derived(tmp_path), key=str) != sorted(by_name(orders), key=str), "orders is a commit ahead"

    (tmp_path / "catalog.duckdb").unlink()
    writer.sql("DELETE FROM w.orders WHERE id = 5000")
    writer.sql("UPDATE w.orders SET name = NULL WHERE id BETWEEN 700 AND 720")
    writer.sql("DELETE FROM w.orders WHERE name = ''")
    over = backfill(tmp_path, "resume", "crash", "--from-sink", "job.toml", "--until", "caught-up")
    assert over.returncode == 0, over.stderr
    assert rows(tmp_path / "derived" / "orders") == expected(tmp_path)
    assert sorted(derived(tmp_path), key=str) == sorted(by_name(expected(tmp_path)), key=str)
    assert not any(name.startswith("backfill_pin_") for name in refs(tmp_path / "lake" / "orders"))
    same = backfill(tmp_path, "verify", "crash")
    assert same.returncode == 0, same.stderr + same.stdout
    dropped = backfill(tmp_path, "drop", "crash", "--confirm", "crash")
    assert dropped.returncode == 0, dropped.stderr
    assert refs(tmp_path / "derived" / "orders") == {"main"}
    assert not (tmp_path / "derived" / "_backfill_state").exists()


@pytest.mark.long
def test_a_job_killed_before_its_branch_is_cut_over_is_taken_up_follows_and_is_put_back(
    writer: "SparkSession", tmp_path: Path
) -> None:
    (tmp_path / "job.toml").write_text(CONFIG.replace('derived/{table}"', 'derived/{table}"\nbranch = "beside"'))
    writer.conf.set("spark.sql.catalog.d", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in {"type": "hadoop", "warehouse": f"{tmp_path}/derived", "cache-enabled": "false"}.items():
        writer.conf.set(f"spark.sql.catalog.d.{key}", value)
    writer.sql("CREATE TABLE d.orders (id BIGINT, name STRING, twice BIGINT) USING iceberg")
    writer.sql("INSERT INTO d.orders VALUES (7, 'people query this', 0)")
    people = rows(tmp_path / "derived" / "orders")

    def ran(*words: str) -> str:
        done = backfill(tmp_path, *words)
        assert done.returncode == 0, (words, done.stderr, done.stdout)
        return done.stdout

    died = backfill(
        tmp_path, "start", "--config", "job.toml", "--until", "caught-up", failpoint="sink-before-close"
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    writer.sql("DELETE FROM w.orders WHERE id % 100 = 4")
    ran("resume", "crash", "--until", "caught-up")
    ran("verify", "crash")
    assert rows(tmp_path / "derived" / "orders") == people
    assert "cut over; can be reversed" in ran("cutover", "crash")
    assert rows(tmp_path / "derived" / "orders") == expected(tmp_path)
    before = expected(tmp_path)
    writer.sql("UPDATE w.orders SET v = v + 1 WHERE id BETWEEN 490 AND 510")
    ran("resume", "crash", "--until", "caught-up")
    assert rows(tmp_path / "derived" / "orders") == expected(tmp_path) != before, "it follows where people query"
    assert "the cutover is reversed" in ran("cutover", "crash", "--reverse")
    assert rows(tmp_path / "derived" / "orders") == people
    ran("verify", "crash")
    assert "cut over; can be reversed" in ran("cutover", "crash")
    assert rows(tmp_path / "derived" / "orders") == expected(tmp_path)


@pytest.mark.long
def test_a_chain_job_reads_its_snapshot_to_the_end_while_what_it_took_of_the_log_expires(
    writer: "SparkSession", tmp_path: Path
) -> None:
    chain = CONFIG.replace('name = "crash"', 'name = "crash"\nstrategy = "chain"\n[throttle]\nrate = 100')
    (tmp_path / "job.toml").write_text(chain)
    start = ("start", "--config", "job.toml", "--until", "caught-up")
    told = "table => 'orders', older_than => TIMESTAMP '2999-01-01', retain_last => 1"
    expire = f"CALL w.system.expire_snapshots({told})"
    for point in ("after-prepare:2", "spool-known", "spool-sealed"):
        died = backfill(tmp_path, *start, failpoint=point)
        assert died.returncode == -signal.SIGKILL, died.stderr
        if point != "after-prepare:2":  # what happened so far is in the spool
            writer.sql(expire)
        writer.sql("UPDATE w.orders SET v = v + 1 WHERE id BETWEEN 490 AND 510")
        writer.sql("DELETE FROM w.orders WHERE id % 100 = 4")
        writer.sql("INSERT INTO w.orders VALUES (104, NULL, -1), (-1, '', 7)")
        writer.sql("UPDATE w.orders SET id = id + 10000 WHERE id IN (3, 17)")
        writer.sql("DELETE FROM w.orders WHERE id = -1")
    assert backfill(tmp_path, "throttle", "--rate", "none").returncode == 0
    over = backfill(tmp_path, *start)
    assert over.returncode == 0, over.stderr
    assert rows(tmp_path / "derived" / "orders") == expected(tmp_path)
    assert not any(name.startswith("backfill_pin_") for name in refs(tmp_path / "lake" / "orders"))
    same = backfill(tmp_path, "verify", "crash")
    assert same.returncode == 0, same.stderr + same.stdout
