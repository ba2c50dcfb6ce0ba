"""A URL that is a secret by itself is refused unseen wherever a config has it, and hidden by Spark."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from config_builders import Load
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_config_secrets import SPARK_KEYS, Path, outcome, places

from backfill_cli import registry
from backfill_cli.config import JobConfig
from backfill_cli.config.paths import is_path
from backfill_cli.config.secrets import resolve
from backfill_cli.errors import ConfigError
from backfill_cli.model.secret_forms import holds_secret
from backfill_cli.spark.session import SETTINGS

FORMS = (
    "https://acc.blob.core.windows.net/box/a.csv?sv=2022-11-02&se=2026-12-01&sr=c&sp=rl&sig={}",
    "https://acc.blob.core.windows.net/box/a.csv?sig={}&sv=2022-11-02",
    "https://b.s3.amazonaws.com/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=60&X-Amz-Signature={}",
    "https://b.s3.amazonaws.com/k?X-Amz-Credential={}/20261126/eu/s3/aws4_request",
    "https://b.s3.amazonaws.com/k?X-Amz-Security-Token={}&X-Amz-Date=20261126T000000Z",
    "https://b.s3.amazonaws.com/k?AWSAccessKeyId=AKIA&Expires=1&Signature={}",
    "https://storage.googleapis.com/b/o?X-Goog-Signature={}",
    "https://storage.googleapis.com/b/o?x-goog-credential={}",
    "https://d111.cloudfront.net/a?Policy=p&Signature={}&Key-Pair-Id=K",
    "https://{}@host/x",
    "s3://AKIA:{}@bucket/x",
    "abfs://:{}@acc/box",
    "sftp://me:{}@host/x",
)
HIDDEN = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", min_size=12, max_size=40)
URLS = st.tuples(st.sampled_from(FORMS), HIDDEN.map("s3cr".__add__))
PLACES = sorted(set(places()))
PUBLIC = [  # names of folders are no parameters, and the user of a database or a container is none
    "data/sig=1/x",
    "s3://bucket/signature=2/*.parquet",
    "abfss://box@acc.dfs.core.windows.net/x",
    "postgresql://app@h/db",
    "hdfs://me@host/x",
    "https://host/a?sig=${env:SIG}",
    "https://${env:TOKEN}@host/a",
    "https://${env:USER}:${env:PW}@host/a",
    "http://:${env:PW}@host",
    "sig=${env:SIG}&sv=2022-11-02",
    "https://h/a@b?signed=1",
]  # fmt: skip


def paths() -> Iterator[Path]:
    for place in PLACES:
        if place[0] in ("upstream", "sink"):
            connector = (registry.upstream if place[0] == "upstream" else registry.sink)(place[1])
            if is_path(connector.options, place[2:], "a/b"):
                yield place


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from(PLACES), told=URLS, again=st.booleans())
def test_it_is_refused_unseen_in_any_option(load_text: Load, place: Path, told: Any, again: bool) -> None:
    form, hidden = told
    url = form.format(hidden)
    found = outcome(load_text, place, f"https://h/?to={quote(url, safe='')}" if again else url)
    assert isinstance(found, ConfigError) or {"schema", "columns", "folders"} & {*place}, found
    assert hidden not in str(found) if isinstance(found, ConfigError) else True


@pytest.mark.parametrize("place", list(paths()), ids=".".join)
def test_nor_may_a_reference_bring_it_into_a_path(
    load_text: Load, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    """A path is shown, and stored beside what was read there."""
    config = outcome(load_text, place, "${env:URL}/x")
    if not isinstance(config, JobConfig):
        assert config.faults == ("upstream.changes.format: missing",)
        return
    for form in FORMS:
        monkeypatch.setenv("URL", form.format("s3cr3t-canary"))
        with pytest.raises(ConfigError, match=r"holds a secret|a URI with a secret") as refused:
            resolve(getattr(config, place[0]), place[0])
        assert "canary" not in str(refused.value)
    monkeypatch.setenv("URL", "s3://bucket/x")
    resolve(getattr(config, place[0]), place[0])


@pytest.mark.parametrize("text", PUBLIC)
def test_what_holds_none_is_taken(text: str) -> None:
    assert not holds_secret(text)


@given(URLS)
def test_spark_hides_it(told: Any) -> None:
    form, hidden = told
    said = f"cannot read {form.format(hidden)}: no such file"
    assert hidden not in re.sub(SETTINGS["spark.redaction.string.regex"], "*", said)


@pytest.mark.parametrize("name", SPARK_KEYS)
def test_spark_hides_the_values_of_settings_that_hold_one(name: str) -> None:
    assert re.search(SETTINGS["spark.redaction.regex"], name)
