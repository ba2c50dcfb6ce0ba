"""The ways to copy a table that benchmarks/postgres.py compares: Spark's JDBC source, Debezium, and ours."""

import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
from measure import ROOT
from pgbench import ORDERS, Database, PgJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PEERS = ROOT / "benchmarks" / "peers"


def jars(name: str) -> str:
    import maven_jars  # in scripts/

    return str(maven_jars.fetched(PEERS / f"{name}.xml", f"peer-{name}"))


def session() -> "SparkSession":
    """The Spark session that all variants share."""
    from backfill_cli.spark.session import open_session

    return open_session("local[*]", {"spark.jars": ",".join(str(jar) for jar in Path(jars("jdbc")).glob("*.jar"))})


def partitions(db: Database) -> int:
    """As many as the job has splits."""
    from backfill_cli.config import load

    upstream = load(PgJob(db.folder / "ours", db.folder).write().config).open_upstream()
    try:
        return len(upstream.pin().splits)
    finally:
        upstream.close()


def plain_way(spark: "SparkSession", db: Database, folder: Path, many: int) -> float:
    """Seconds for copy, then load."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    url = db.dsn.replace("postgresql://postgres@", "jdbc:postgresql://") + "?user=postgres"
    cut = {"partitionColumn": "id", "lowerBound": "1", "upperBound": str(db.rows), "numPartitions": str(many)}
    began = time.perf_counter()
    source = spark.read.format("jdbc").options(url=url, driver="org.postgresql.Driver")
    source = source.options(dbtable="orders", fetchsize="20000", **cut)
    source.load().write.parquet(str(folder / "copy"))
    with duckdb.connect(str(folder / "plain.duckdb")) as con:
        con.execute(f"CREATE TABLE orders AS SELECT * FROM read_parquet('{folder}/copy/*.parquet')")
    took = time.perf_counter() - began
    shutil.rmtree(folder)
    return took


def debezium_way(db: Database) -> float:
    """Seconds from the start of its engine to the last row."""
    told = [str(db.server.port), "bench", "public.orders", "peer", str(db.rows)]
    command = ["java", "-Xmx2g", "-cp", f"{jars('debezium')}/*", str(PEERS / "Snapshot.java"), *told]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    db("DROP PUBLICATION IF EXISTS peer")
    return float(done.stdout.split()[1])


def our_way(db: Database, tables: tuple[str, ...] = ORDERS) -> float:
    """Seconds for the whole job in this process, which makes slot and publication; the session already exists."""
    job = PgJob(db.folder / "ours", db.folder, tables=tables)
    job.forget()
    db.forget_slot()
    took = caught_up(job.write())
    if tables == ORDERS:
        with duckdb.connect(str(job.warehouse), read_only=True) as con:
            found = con.execute("SELECT count(*), count(DISTINCT id) FROM orders").fetchone()
        assert found == (db.rows, db.rows), found
    return took


def caught_up(job: PgJob) -> float:
    """Seconds until the job has caught up and ended, in this process."""
    from backfill_cli.catalog import Catalog
    from backfill_cli.config import load
    from backfill_cli.engine.loop.run import start

    began = time.perf_counter()
    start(load(job.config), Catalog(job.catalog), "caught-up", False, None)
    return time.perf_counter() - began
