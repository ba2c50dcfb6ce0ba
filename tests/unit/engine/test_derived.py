"""A job's derived tables: which sinks keep them, and what a job with them refuses."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hint_typed import typed
from sink_contract import a_table

from backfill_cli.config import JobConfig, load
from backfill_cli.contracts import JobDefinition
from backfill_cli.engine.job.derived import planned_derived, require_unread
from backfill_cli.engine.job.select import require_same
from backfill_cli.errors import UsageError
from backfill_cli.model.position import START
from backfill_cli.model.upstream import Pin

SECTIONS = """
[job]
name = "orders"
[upstream]
type = "files"
snapshot = { path = "snapshot/{table}", format = "parquet" }
[[tables]]
name = "orders"
key = ["id"]
[[tables]]
name = "items"
key = ["id"]
"""
BY_NAME = """
[[derived]]
name = "by_name"
key = ["name"]
sql = "SELECT name, count(*) AS n FROM orders GROUP BY 1"
"""
DUCKDB = '[sink]\ntype = "duckdb"\npath = "w.duckdb"\n'
TABLES = (a_table("orders"), a_table("items"))


def config_of(folder: Path, derived: str = BY_NAME, sink: str = DUCKDB) -> JobConfig:
    for table in ("orders", "items"):
        (folder / "snapshot" / table).mkdir(parents=True, exist_ok=True)
        rows = pa.table({"id": pa.array([1], pa.int64()), "name": ["a"]})
        pq.write_table(rows, folder / "snapshot" / table / "0.parquet")
    (folder / "job.toml").write_text(SECTIONS + derived + sink)
    return load(folder / "job.toml")


def job_of(config: JobConfig) -> JobDefinition:
    pin = Pin(START, None, None, ())
    return JobDefinition("orders", config.stored(), json.dumps(config.fingerprint()), pin, "", "snapshot", TABLES)


def test_a_sink_without_sql_refuses_a_derived_table_by_name(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    (tmp_path / "other.toml").write_text(f'{SECTIONS}{BY_NAME}[sink]\ntype = "kafka"\nbootstrap_servers = "h:1"')
    other = load(tmp_path / "other.toml")
    with pytest.raises(UsageError, match="derived table 'by_name': the sink kafka cannot keep it") as refused:
        planned_derived(other, other.open_sink(), TABLES)
    with typed(refused.value) as hint:
        hint.says('use sink.type "duckdb", "postgres", "delta" or "iceberg", or leave [[derived]] out')
        assert [one.name for one in planned_derived(config, config.open_sink(), TABLES)] == ["by_name"]


def test_a_table_that_a_derived_table_reads_cannot_leave(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    job = job_of(config)
    require_unread(job, config, "items")
    with pytest.raises(UsageError, match=r"'orders' cannot leave .*derived table 'by_name' reads it") as refused:
        require_unread(job, config, "orders")
    with typed(refused.value) as hint:
        assert hint.commands() == [["remove", "orders", "--derived", "by_name"]]
        require_unread(job_of(config_of(tmp_path, "")), config, "orders")


def test_a_config_with_other_tables_and_derived_tables_names_the_commands_in_their_order(tmp_path: Path) -> None:
    more = BY_NAME.replace("by_name", "more")
    reads_more = '[[derived]]\nname = "all"\nsql = "SELECT sum(n) AS n FROM more"\n'
    job = job_of(config_of(tmp_path))
    require_same(job, config_of(tmp_path))
    file = str(tmp_path / "job.toml")
    adds, removes = ["add", "orders", "--derived"], ["remove", "orders", "--derived"]
    reads_by_name = '[[derived]]\nname = "all"\nsql = "SELECT sum(n) AS n FROM by_name"\n'
    for derived, said, wanted in (
        (
            BY_NAME.replace("AS n ", "AS m "),
            "would be another",
            [[*adds, "by_name", "--config", file, "--replace"]],
        ),
        ("", "by_name would leave it", [[*removes, "by_name"]]),
        (BY_NAME + 'target = "x"\n', "another one", [[*removes, "by_name"], [*adds, "by_name", "--config", file]]),
        (
            reads_more + more,
            "more, all would join it, and by_name would leave it",
            [[*removes, "by_name"], [*adds, "more", "--derived", "all", "--config", file]],
        ),
        (
            reads_by_name + BY_NAME.replace("AS n ", "AS m "),
            "all would join it, and by_name would be another one",
            [[*adds, "by_name", "--derived", "all", "--config", file, "--replace"]],
        ),
    ):
        with pytest.raises(UsageError, match=f"has other derived tables: .*{said}") as refused:
            require_same(job, config_of(tmp_path, derived))
        with typed(refused.value) as hint:
            assert hint.commands() == wanted
    items = '[[tables]]\nname = "items"\nkey = ["id"]\n'
    without = config_of(tmp_path, reads_more + more)
    (tmp_path / "job.toml").write_text((tmp_path / "job.toml").read_text().replace(items, ""))
    with pytest.raises(
        UsageError, match="other tables: more, all would join it, and by_name, items would leave"
    ) as refused:
        require_same(job, load(tmp_path / "job.toml"))
    with typed(refused.value) as hint:
        assert [one[-1] for one in hint.commands()][::4] == ["by_name"]
        assert hint.commands()[-1] == ["remove", "orders", "--table", "items"]
    with pytest.raises(UsageError) as refused:
        require_same(job, without, known=False)
    with typed(refused.value) as hint:
        hint.says("undo these changes")
        require_same(job, config_of(tmp_path), known=False)


def test_jobs_without_derived_tables_have_the_fingerprint_that_they_had(tmp_path: Path) -> None:
    assert "derived" not in config_of(tmp_path, "").fingerprint()
    assert job_of(config_of(tmp_path, "")).derived == ()
