"""A table's URI with a secret in it is refused by every lake connector, and not shown."""

import json
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from backfill_cli.config import from_stored, load
from backfill_cli.errors import ConfigError
from backfill_cli.sinks.delta import DeltaOptions as DeltaSinkOptions
from backfill_cli.sinks.iceberg import IcebergSinkOptions
from backfill_cli.upstreams.delta import DeltaOptions
from backfill_cli.upstreams.iceberg import IcebergOptions

EVERY = (DeltaSinkOptions, IcebergSinkOptions, DeltaOptions, IcebergOptions)


@pytest.mark.parametrize("model", EVERY, ids=lambda one: one.__module__)
@pytest.mark.parametrize(
    "uri",
    [
        "s3://AKIA:hunter2@bucket/lake/{table}",
        "s3a://:hunter2@bucket/lake",
        "https://account.blob.core.windows.net/lake/x?sv=1&sig=hunter2",
        "s3://bucket/lake?session_token=hunter2",
        "s3://bucket/lake?secret_key=hunter2&region=eu",
    ],
)
def test_a_secret_is_refused_and_not_told(model: type[BaseModel], uri: str) -> None:
    with pytest.raises(ValidationError, match="secret") as caught:
        model(table=uri)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("model", EVERY, ids=lambda one: one.__module__)
@pytest.mark.parametrize(
    "uri",
    [
        "abfss://container@account.dfs.core.windows.net/lake",
        "s3://bucket/lake?endpoint_override=localhost:9000&scheme=http",
        "/data/key@x:y/orders",
    ],
)
def test_what_is_no_secret_passes(model: type[BaseModel], uri: str) -> None:
    assert model(table=uri).table == uri  # type: ignore[attr-defined]


def lake(folder: Path, table: str) -> Path:
    (folder / "up").mkdir(exist_ok=True)
    file = folder / "job.toml"
    file.write_text(f"""
[job]
name = "orders"
[upstream]
type = "files"
snapshot = {{ path = "up", format = "parquet" }}
[[tables]]
name = "orders"
key = ["id"]
[sink]
type = "delta"
table = "{table}"
""")
    return file


def test_a_job_that_has_such_a_uri_from_before_can_go_on_and_be_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its config is in the catalog, the secret a reference; where it is typed anew it is refused."""
    monkeypatch.setenv("PW", "hunter2")
    table = "s3://AKIA:${env:PW}@bucket/lake/{table}"
    with pytest.raises(ConfigError, match=r"sink\.table: a URI with a secret"):
        load(lake(tmp_path, table))
    stored = json.loads(load(lake(tmp_path, "s3://bucket/lake/{table}")).stored())
    stored["sink"]["table"] = table
    from_stored(json.dumps(stored)).open_sink()


def test_a_reference_to_such_a_uri_is_refused_before_there_is_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("URI", "s3://AKIA:hunter2@bucket")
    config = load(lake(tmp_path, "${env:URI}/lake/{table}"))
    with pytest.raises(ConfigError, match="holds a secret, which would be shown") as refused:
        config.open_sink()
    assert "hunter2" not in str(refused.value)
