"""A job of files in a folder, half done and without a runner, made without Spark: catalog and sink at one epoch.

`resume` would go on with it. What a test needs broken it breaks itself.
"""

import json
import time
from dataclasses import replace
from pathlib import Path

import duckdb_shared
import pyarrow as pa
import pyarrow.parquet as pq
from sink_contract import schema_json

from backfill_cli.catalog import Catalog, lease
from backfill_cli.catalog.store import Store
from backfill_cli.config import JobConfig, load
from backfill_cli.contracts import EpochCommit, JobDefinition, SavedJob, SinkTable
from backfill_cli.engine.job.select import strategy_of
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Progress
from backfill_cli.model.codec import encode
from backfill_cli.model.job import Control, JobState, Phase
from backfill_cli.model.limit import Limit
from backfill_cli.model.plan import EpochPlan, Staged

CONFIG = """
[job]
name = "orders"
[upstream]
type = "files"
snapshot = { path = "snapshot", format = "parquet" }
[[tables]]
name = "orders"
key = ["id"]
[sink]
type = "duckdb"
path = "sink.duckdb"
[retry]
limit = "1s"
[spark]
master = "local[1]"
conf = { "spark.driver.memory" = "600m" }
"""
SINK = '[sink]\ntype = "duckdb"\npath = "sink.duckdb"\n'
EPOCH = 10
ROWS = {1: "a", 2: "b", 3: "c"}


def written(folder: Path, name: str = "orders", sink: str = SINK) -> JobConfig:
    """A snapshot of three rows and the job's config. `folder` must be the working directory."""
    (folder / "snapshot").mkdir(exist_ok=True)
    table = pa.table({"id": pa.array(list(ROWS), pa.int64()), "name": list(ROWS.values())})
    pq.write_table(table, folder / "snapshot" / "part-0.parquet")
    (folder / "job.toml").write_text(CONFIG.replace('"orders"', f'"{name}"').replace(SINK, sink))
    return load(folder / "job.toml")


def half_done(config: JobConfig, catalog: Catalog) -> JobDefinition:
    """The job is in the catalog, stopped; epoch 10, which read no row, is committed in both."""
    upstream = config.open_upstream()
    pin = upstream.pin()
    name = config.job.name
    strategy = strategy_of(config, upstream.capabilities, pin)
    tables = (SinkTable(name, name, ("id",), schema_json(id="long", name="string")),)
    fingerprint = json.dumps(config.fingerprint())
    job = JobDefinition(name, config.stored(), fingerprint, pin, "caught-up", strategy.name, tables)
    schemas = {"schemas": dict(pin.schema), "sink_schemas": {name: tables[0].schema}}
    state = strategy.freeze(strategy.start(pin, Control()))
    first = Checkpoint(0, 0, 0, "", state, Phase.SNAPSHOT, pin.position, **schemas)
    sink = config.open_sink()
    sink.prepare(name, tables, into_existing=False)
    catalog.create_job(job, Control(), first)
    with catalog.claim(name, "test", 5) as claim:
        claim.store.become(JobState.RUNNING, "")
        sink.fence(name, claim.token)
        epoch = replace(first, epoch=EPOCH, token=claim.token, attempt="a10")
        epoch = replace(epoch, plan=EpochPlan(), staged=Staged("a10"))
        claim.store.prepare(epoch, None, progress())
        sink.commit(commit_of(job, epoch, 0))
        claim.store.mark(EpochRecord(EPOCH, 0, Phase.SNAPSHOT, EPOCH), None)
        claim.store.become(JobState.STOPPING, "")
        claim.store.become(JobState.STOPPED, "asked")
    staging(config).mkdir(parents=True, exist_ok=True)
    (staging(config) / "left").touch()
    return job


def commit_of(job: JobDefinition, epoch: Checkpoint, after: int) -> EpochCommit:
    """An epoch without rows for the sink, after the epoch `after`."""
    saved = SavedJob(encode(job), replace(epoch, plan=None, staged=None))
    staged = Staged(epoch.attempt)
    return EpochCommit(
        job.name, epoch.epoch, after, epoch.token, epoch.attempt, job.tables, "/nowhere", staged, (), saved
    )


def progress() -> Progress:
    return Progress(Phase.SNAPSHOT, EPOCH, 0, 3, 0, 100, {}, 0, None, None, None, Limit("nothing"))


def staging(config: JobConfig) -> Path:
    return Path(config.job.staging) / config.job.name


def run_elsewhere(catalog: Path, job: str = "orders", token: int = 7) -> None:
    """A runner on another machine has the job; it renewed its lease just now."""
    now_ms = int(time.time() * 1000)
    with Store(catalog).writing() as db:
        lease.write(db, job, lease.Lease(token, "cron", "far-host", 4711, now_ms, now_ms))


def told(file: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table of a DuckDB file; nothing for one that is not there."""
    if not file.exists():
        return {}
    with duckdb_shared.opened(file, read_only=True) as db:
        ours = "FROM duckdb_tables() WHERE database_name = current_database() ORDER BY ALL"
        named = db.execute(f"SELECT schema_name, table_name {ours}").fetchall()
        return {
            f"{schema}.{table}": db.execute(f'FROM "{schema}"."{table}" ORDER BY ALL').fetchall()
            for schema, table in named
        }
