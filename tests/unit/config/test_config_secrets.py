"""Secrets are references alone: one planted in any option of any connector is refused, or the option holds none.

The options come from the models, so that a new one is covered by itself.
"""

import json
import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from config_builders import Load
from pydantic import BaseModel

from backfill_cli import registry
from backfill_cli.config import JobConfig
from backfill_cli.config.sections import Spark
from backfill_cli.errors import ConfigError
from backfill_cli.kafka.client_properties import CLIENT_PROPERTIES

Path = tuple[str, ...]

BASE: dict[str, Any] = {
    "job": {"name": "orders"},
    "tables": [{"name": "orders", "key": ["id"]}],
    "upstream": {"type": "files", "snapshot": {"path": "data", "format": "parquet"}},
    "sink": {"type": "duckdb", "path": "w.duckdb"},
}
UPSTREAMS: dict[str, Any] = {
    "files": BASE["upstream"],
    "kafka": {"type": "kafka", "bootstrap_servers": "b:1", "topic": "t", "value": {"schema": "id BIGINT"}},
    "postgres": {"type": "postgres", "dsn": "${env:DSN}", "slot": "s"},
    "delta": {"type": "delta", "table": "lake/orders"},
    "iceberg": {"type": "iceberg", "table": "lake/orders"},
}
SINKS: dict[str, Any] = {
    "duckdb": BASE["sink"],
    "postgres": {"type": "postgres", "dsn": "${env:DSN}"},
    "delta": {"type": "delta", "table": "lake/{table}"},
    "iceberg": {"type": "iceberg", "table": "lake/{table}"},
    "kafka": {"type": "kafka", "bootstrap_servers": "h:9092"},
}

BESIDE: dict[Path, dict[str, str]] = {
    ("registry",): {"url": "https://registry"},
    ("registry", "password"): {"user": "app"},
    ("registry", "key"): {"certificate": "client.pem"},
    ("registry", "key_password"): {"certificate": "client.pem"},
}
"""What a table, or an option in it, does not stand without."""

DIGITS = "830145"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----"
CANARIES = (DIGITS, "correct horse battery", "cana1-5f1e7c", "15m", PEM)
SAYS_SECRET = ("secret", "passw", "token", "credential", "key.pem", "passphrase", "apikey", "api_key")
PUBLIC = {
    # An address, and certificates: they are shown to everybody.
    "sasl.oauthbearer.token.endpoint.url",
}
SPARK_KEYS = (
    "spark.ssl.keyPassword",
    "spark.authenticate.secret",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.hadoop.fs.s3a.session.token",
    "spark.hadoop.fs.azure.account.key.acc.dfs.core.windows.net",
    "spark.hadoop.fs.azure.sas.box.acc.blob.core.windows.net",
    "spark.hadoop.javax.jdo.option.ConnectionPassword",
    "kafka.sasl.password",
)


def leaves(model: type[BaseModel], at: Path = ()) -> Iterator[Path]:
    """Every place of a model where a value stands; of tables with free keys those that a secret may stand at."""
    for name, field in model.model_fields.items():
        path = (*at, field.alias or name)
        inner = list(models_in(field.annotation))
        if inner:
            for below in inner:
                yield from leaves(below, path)
        if takes_table(field.annotation):
            keys = (
                sorted(CLIENT_PROPERTIES)
                if path[-1] == "options"
                else SPARK_KEYS
                if path == ("conf",)
                else ["orders"]
            )
            yield from ((*path, key) for key in keys)
        if not inner:
            yield path


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models_in(inner)


def takes_table(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, types.UnionType, Annotated):
        return any(takes_table(inner) for inner in get_args(annotation))
    return get_origin(annotation) is dict


def places() -> Iterator[Path]:
    for part, group, bases in (("upstream", registry.UPSTREAMS, UPSTREAMS), ("sink", registry.SINKS, SINKS)):
        assert set(registry.known(group)) == set(bases), "a connector is new: give its smallest options"
        for kind in bases:
            options = (registry.upstream if part == "upstream" else registry.sink)(kind).options
            yield from ((part, kind, *path) for path in leaves(options) if path != ("type",))
    yield from (("spark", "", *path) for path in leaves(Spark))


def planted(place: Path, value: Any) -> dict[str, Any]:
    part, kind, *path = place
    tree: dict[str, Any] = json.loads(json.dumps({"spark": {}} | BASE))
    if kind:
        tree[part] = json.loads(json.dumps((UPSTREAMS if part == "upstream" else SINKS)[kind]))
    at = tree[part]
    for step in path[:-1]:
        if not isinstance(at.get(step), dict):
            at[step] = {}
        at = at[step]
        at |= BESIDE.get((step,), {}) | BESIDE.get((step, path[-1]), {})
    at[path[-1]] = value
    return tree


def toml(tree: dict[str, Any]) -> str:
    """The tree as TOML: JSON's strings and numbers are TOML's."""

    def spelled(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{json.dumps(key)} = {spelled(item)}" for key, item in value.items()) + "}"
        return json.dumps(value)

    tables = "".join(f"[[tables]]\n{rows_of(table, spelled)}" for table in tree["tables"])
    return (
        "".join(f"[{name}]\n{rows_of(item, spelled)}" for name, item in tree.items() if name != "tables") + tables
    )


def rows_of(table: dict[str, Any], spelled: Any) -> str:
    return "".join(f"{json.dumps(key)} = {spelled(value)}\n" for key, value in table.items())


def outcome(load_text: Load, place: Path, value: Any) -> JobConfig | ConfigError:
    try:
        return load_text(toml(planted(place, value)))
    except ConfigError as error:
        return error


def says_secret(name: str) -> bool:
    return any(word in name.lower() for word in SAYS_SECRET) and name not in PUBLIC


@pytest.mark.parametrize("place", sorted(set(places())), ids=".".join)
def test_a_secret_in_any_option_is_refused_unseen_or_the_option_holds_none(load_text: Load, place: Path) -> None:
    for canary in CANARIES:
        found = outcome(load_text, place, canary)
        if isinstance(found, ConfigError):
            assert canary not in str(found)
            assert json.dumps(canary)[1:-1] not in str(found)
        else:
            assert canary != PEM
            assert not says_secret(place[-1])


@pytest.mark.parametrize("place", [p for p in sorted(set(places())) if says_secret(p[-1])], ids=".".join)
def test_an_option_that_says_secret_takes_a_reference_and_nothing_beside_it(load_text: Load, place: Path) -> None:
    good = outcome(load_text, place, "${env:PW}")
    if place[-1] not in ("kafka.sasl.password",):
        assert isinstance(good, JobConfig), good
    for beside in ("x${env:PW}", "${env:PW} ", "1${env:PW}", 830145, 8.5):
        assert isinstance(outcome(load_text, place, beside), ConfigError), beside


@pytest.mark.parametrize(
    "value",
    [
        "sc://host:15002/;token=830145",
        "sc://host:15002/;token=830145;user_id=me",
        'org.apache.kafka.common.security.plain.PlainLoginModule required username=me password="830145";',
        "module required password='830145' serviceName=kafka;",
        "-Djavax.net.ssl.trustStorePassword=830145",
        "-Djavax.net.ssl.trustStorePassword=830145 -Duser.timezone=UTC",
        "host=h password=830145 dbname=shop",
        "password = 830145\nuser=me",
        "https://me:830145@host/db",
        "http://me:830145@one:8081,http://me:830145@two:8081",
        "https://h/a?sig=830145&sv=1",
        "jdbc:postgresql://me:830145@host/db",
        '{"user": "me", "password": "830145"}',
    ],
)
@pytest.mark.parametrize("place", [("spark", "", "remote"), ("spark", "", "conf", "spark.x.sasl.jaas.config")])
def test_a_secret_inside_a_value_is_refused(load_text: Load, place: Path, value: str) -> None:
    found = outcome(load_text, place, value)
    assert isinstance(found, ConfigError)
    assert DIGITS not in str(found)
    good = outcome(load_text, place, value.replace(DIGITS, "${env:PW}"))
    assert isinstance(good, JobConfig), good


@pytest.mark.parametrize("before", ["a ", "a/", "5432 "])
@pytest.mark.parametrize("place", [("upstream", "postgres", "dsn"), ("sink", "postgres", "dsn")])
def test_a_password_is_one_with_what_ought_to_be_escaped_in_it(load_text: Load, place: Path, before: str) -> None:
    found = outcome(load_text, place, f"postgresql://me:{before}{DIGITS}@host/db")
    assert isinstance(found, ConfigError)
    assert DIGITS not in str(found)
    good = outcome(load_text, place, "postgresql://me@host:5432/db?options=a@b")
    assert isinstance(good, JobConfig), good


@pytest.mark.parametrize(
    "place",
    [("upstream", "files", "snapshot", "schema", "tokens"), ("upstream", "files", "snapshot", "schema")],
)
def test_a_schema_is_no_secret_whatever_its_tables_and_columns_are_called(load_text: Load, place: Path) -> None:
    tree = planted(place, "id BIGINT, password STRING, t STRUCT<token: STRING>")
    tree["upstream"]["snapshot"]["format"] = "json"
    tree["tables"][0]["name"] = "tokens"
    tree["upstream"]["snapshot"]["path"] = "data/{table}"
    assert load_text(toml(tree)).tree["upstream"]["type"] == "files"
