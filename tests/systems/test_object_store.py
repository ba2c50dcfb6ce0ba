"""Lake tables on a real S3 protocol: Delta to Delta with deaths, Delta to Iceberg, read by other libraries."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kept_python
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from object_store import NoObjectStore, ObjectStore, running
from pyiceberg.table import StaticTable

FORMATS = ("delta", "iceberg", "s3")
PLAIN = {"aws_allow_http": "true"}
"""For the tables of this test itself; the product needs no such option."""
SOURCE = "s3://lake/source"
CONFIG = """
[job]
name = "{name}"
[upstream]
type = "delta"
table = "s3a://lake/source"
[[tables]]
name = "t"
key = ["id"]
[sink]
type = "{sink}"
table = "s3://lake/{sink}/{{table}}"
[barrier]
interval = "200ms"
[spark]
master = "local[1]"
[spark.conf]
"spark.databricks.delta.snapshotPartitions" = "1"
"""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """Without it the test is skipped, in CI it fails."""
    held = running()
    try:
        found = held.__enter__()
    except NoObjectStore as reason:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"no object store: {reason}")
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    found.create("lake")
    yield found
    held.__exit__(None, None, None)


def rows(*keys: int, v: int) -> pa.Table:
    return pa.table({"id": pa.array(keys, pa.int64()), "v": pa.array([v] * len(keys), pa.int64())})


def change(v: int) -> None:
    table = DeltaTable(SOURCE, storage_options=PLAIN)
    merge = table.merge(rows(v, v + 1, 1000 + v, v=v), "s.id = t.id", "s", "t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    table.delete(f"id = {v + 5}")


def held(uri: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        DeltaTable(uri, storage_options=PLAIN).to_pyarrow_table().sort_by("id").to_pylist()
    )
    return found


def iceberg(store: ObjectStore, folder: str) -> list[dict[str, Any]]:
    """The newest metadata of a table in a folder."""
    from pyarrow.fs import FileSelector, S3FileSystem

    files = S3FileSystem(endpoint_override=store.endpoint)
    named = [one.base_name for one in files.get_file_info(FileSelector(f"lake/{folder}/metadata"))]
    newest = max(int(name[1:].split(".")[0]) for name in named if name.endswith(".metadata.json"))
    uri = f"s3://lake/{folder}/metadata/v{newest}.metadata.json"
    properties = {"s3.endpoint": store.endpoint, "s3.region": "us-east-1"}
    read = StaticTable.from_metadata(uri, properties).scan().to_arrow().sort_by("id")
    found: list[dict[str, Any]] = read.to_pylist()
    return found


def backfill(folder: Path, *words: str, failpoint: str = "") -> "subprocess.CompletedProcess[str]":
    told = {**os.environ, "BACKFILL_FAILPOINT": failpoint, "BACKFILL_CATALOG": "catalog.duckdb"}
    return kept_python.typed(folder, told, *words, formats=FORMATS)


def start(folder: Path, name: str, failpoint: str = "") -> "subprocess.CompletedProcess[str]":
    return backfill(folder, "start", "--config", f"{name}.toml", "--until", "caught-up", failpoint=failpoint)


def written(folder: Path, sink: str) -> None:
    """The source has rows, and a job into `sink` a config."""
    followed = {"delta.enableChangeDataFeed": "true"}
    for at in range(0, 400, 200):
        write_deltalake(
            SOURCE, rows(*range(at, at + 200), v=0), mode="append", configuration=followed, storage_options=PLAIN
        )
    (folder / f"{sink}.toml").write_text(CONFIG.format(name=sink, sink=sink))


@pytest.mark.in_turn("an object store")
def test_a_delta_table_equals_its_source_after_a_death_and_a_lost_catalog_and_is_dropped(
    store: ObjectStore, tmp_path: Path
) -> None:
    written(tmp_path, "delta")
    died = start(tmp_path, "delta", failpoint="sink-after-table")
    assert died.returncode == -signal.SIGKILL, died.stderr
    (tmp_path / "catalog.duckdb").unlink()
    change(10)
    found = backfill(tmp_path, "resume", "delta", "--from-sink", "delta.toml", "--until", "caught-up")
    assert found.returncode == 0, found.stderr
    assert held("s3://lake/delta/t") == held(SOURCE)

    gone = backfill(tmp_path, "drop", "delta", "--with-rows", "--confirm", "delta")
    assert gone.returncode == 0, gone.stderr
    assert not DeltaTable.is_deltatable("s3://lake/delta/t", PLAIN)


@pytest.mark.in_turn("an object store")
def test_an_iceberg_table_equals_its_source_after_a_death(store: ObjectStore, tmp_path: Path) -> None:
    written(tmp_path, "iceberg")
    died = start(tmp_path, "iceberg", failpoint="sink-before-close")
    assert died.returncode == -signal.SIGKILL, died.stderr
    change(20)
    done = start(tmp_path, "iceberg")
    assert done.returncode == 0, done.stderr
    assert iceberg(store, "iceberg/t") == held(SOURCE)


def test_a_store_that_is_not_there_is_refused_before_anything_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "hunter2", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "delta.toml").write_text(CONFIG.format(name="delta", sink="delta"))
    refused = backfill(tmp_path, "plan", "--config", "delta.toml")
    assert refused.returncode == 6, refused.stderr
    assert "object store at http://127.0.0.1:9 does not answer" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "hunter2" not in refused.stdout + refused.stderr
    assert not (tmp_path / "catalog.duckdb").exists()
