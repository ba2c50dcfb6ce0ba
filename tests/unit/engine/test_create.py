"""What of a config may change in a job's life, and that it is told by its keys."""

from pathlib import Path

from backfill_cli.config import JobConfig, load
from backfill_cli.engine.job.create import changed_keys

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
"""


def config(folder: Path, more: str = "") -> JobConfig:
    file = folder / "job.toml"
    file.write_text(CONFIG + more)
    return load(file)


def test_the_keys_that_differ_from_the_stored_config_are_named_and_no_other(tmp_path: Path) -> None:
    stored = config(tmp_path, '[barrier]\ninterval = "1s"\n[throttle]\nrate = 500\n').stored()
    now = config(tmp_path, '[barrier]\ninterval = "2s"\n[retry]\nlimit = "1h"\n')
    assert sorted(changed_keys(stored, now)) == ["barrier.interval", "retry.limit", "throttle.rate"]
    assert changed_keys(now.stored(), now) == []
