"""A table's URI with a secret in it is refused by every lake connector, and not shown."""

import pytest
from pydantic import BaseModel, ValidationError

from backfill_cli.sinks.delta.options import DeltaOptions as DeltaSinkOptions
from backfill_cli.sinks.iceberg.options import IcebergSinkOptions
from backfill_cli.upstreams.delta.options import DeltaOptions
from backfill_cli.upstreams.iceberg.options import IcebergOptions

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
