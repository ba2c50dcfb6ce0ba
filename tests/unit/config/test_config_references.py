"""Secrets by reference: kept as references everywhere, values only where something connects."""

import json
import traceback
from pathlib import Path

import pytest
from config_builders import GOOD, Load
from pydantic import BaseModel, ConfigDict, field_validator

from backfill_cli import registry
from backfill_cli.config import JobConfig, from_stored, resolve
from backfill_cli.contracts import SinkConnector
from backfill_cli.errors import ConfigError

CANARY = "canary-5f1e7c"


class Login(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user: str
    password: str
    port: int = 1


class FakeOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: str = ""
    login: Login | None = None
    url: str = ""


@pytest.fixture
def fake_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    connector = SinkConnector(FakeOptions, lambda options: options, lambda options: {"path": options.path})
    monkeypatch.setattr(registry, "sink", lambda kind: connector)


def with_sink(line: str) -> str:
    return GOOD.replace('path = "warehouse.duckdb"', line)


def options_of(config: JobConfig) -> FakeOptions:
    assert isinstance(config.sink, FakeOptions)
    return resolve(config.sink, "sink")


@pytest.mark.usefixtures("fake_sink")
def test_values_are_there_only_when_resolved(
    load_text: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PW", CANARY)
    (tmp_path / "user.txt").write_text("me\n")
    config = load_text(with_sink('login = { user = "${file:user.txt}", password = "${env:PW}" }'))
    assert CANARY not in repr(config) + config.stored() + json.dumps(config.fingerprint())
    login = options_of(from_stored(config.stored())).login
    assert login == Login(user="me", password=CANARY)


@pytest.mark.usefixtures("fake_sink")
def test_a_reference_that_leads_nowhere_is_named_with_its_path(load_text: Load) -> None:
    config = load_text(with_sink('login = { user = "${file:none.txt}", password = "${env:NO_SUCH}" }'))
    with pytest.raises(ConfigError) as caught:
        options_of(config)
    user, password = caught.value.faults
    assert user.startswith("sink.login.user: ${file:")
    assert user.endswith("none.txt}: does not exist")
    assert password == "sink.login.password: ${env:NO_SUCH}: not set in the environment"


@pytest.mark.usefixtures("fake_sink")
@pytest.mark.parametrize(
    "line",
    [
        f'login = {{ user = "me", password = "{CANARY}" }}',
        f'login = {{ user = "me", password = ["{CANARY}"] }}',
        f'url = "pg://me:{CANARY}@host/db"',
        f'login = {{ user = "me", password = "x${{env:A}}{CANARY}" }}',
    ],
)
def test_a_secret_written_out_is_refused_and_never_printed(load_text: Load, line: str) -> None:
    with pytest.raises(ConfigError, match="write a secret as a reference") as caught:
        load_text(with_sink(line))
    assert CANARY not in str(caught.value)


class Telling(BaseModel):
    token: str

    @field_validator("token")
    @classmethod
    def _refuse(cls, token: str) -> str:
        if "$" not in token:
            raise ValueError(f"the value {token} is not ours")
        return token


def test_a_connectors_fault_that_tells_the_value_is_scrubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", CANARY)
    with pytest.raises(ConfigError) as caught:
        resolve(Telling(token="${env:PW}"), "sink")
    assert caught.value.faults == ("sink.token: the value ${env:PW} is not ours",)
    assert CANARY not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "org.apache.Chain"),
        ("spark.ssl.keyPasswordFile", "/run/secrets/key"),
        ("spark.hadoop.yarn.delegation.token.renew-interval", "86400000"),
        ("spark.security.credentials.hive.enabled", "false"),
        ("spark.token.renewal", "15m"),
    ],
)
def test_settings_about_secrets_are_no_secrets(load_text: Load, name: str, value: str) -> None:
    assert load_text(GOOD + f'[spark]\nconf = {{ "{name}" = "{value}" }}\n').spark.conf == {name: value}


def test_secrets_of_spark_are_references_too(load_text: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    name = '"spark.hadoop.fs.s3a.secret.key"'
    with pytest.raises(ConfigError) as caught:
        load_text(GOOD + f'[spark]\nconf = {{ {name} = "{CANARY}", "spark.ssl.enabledTokens" = true }}\n')
    assert len(caught.value.faults) == 1
    assert CANARY not in str(caught.value)
    monkeypatch.setenv("PW", CANARY)
    config = load_text(GOOD + f'[spark]\nconf = {{ {name} = "${{env:PW}}" }}\n')
    assert CANARY not in config.stored()
    assert config.spark_conf() == {"spark.hadoop.fs.s3a.secret.key": CANARY}


@pytest.mark.parametrize("text", ["${vault:x}", "${env:}", "${x}"])
def test_an_unknown_kind_of_reference_is_a_fault(load_text: Load, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(GOOD.replace("data/snapshot", text))
    assert caught.value.faults == ("upstream.snapshot.path: a reference must be ${env:NAME} or ${file:PATH}",)


def test_references_elsewhere_are_faults(load_text: Load) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(GOOD.replace('key = ["id"]', 'key = ["id"]\ntarget = "${env:X}"'))
    assert caught.value.faults == ("tables[0].target: references are allowed only in upstream, sink and spark",)


@pytest.mark.parametrize(
    ("sink", "conf", "needed"),
    [
        ("/data/lake/{table}", {}, ("delta",)),
        ("s3://bucket/lake/{table}", {}, ("delta", "s3")),
        ("${env:LAKE}/{table}", {}, ("delta", "s3")),
        ("/data/lake/{table}", {"spark.sql.catalog.c.warehouse": "s3a://bucket/wh"}, ("delta", "s3")),
    ],
)
def test_the_jars_of_an_object_store_are_needed_where_a_path_or_a_catalog_is_there(
    load_text: Load, monkeypatch: pytest.MonkeyPatch, sink: str, conf: dict[str, str], needed: tuple[str, ...]
) -> None:
    monkeypatch.setenv("LAKE", "s3a://bucket/lake")
    told = GOOD.replace('type = "duckdb"\npath = "warehouse.duckdb"', f'type = "delta"\ntable = "{sink}"')
    settings = "".join(f'"{name}" = "{value}"\n' for name, value in conf.items())
    assert load_text(f"{told}[spark.conf]\n{settings}").table_formats() == needed
