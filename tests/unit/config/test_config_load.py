"""Reading a config file: what it becomes, and which of its options change results."""

import json
import re
from pathlib import Path
from typing import Annotated, Any

import pytest
from config_builders import GOOD, Load, config_text
from pydantic import BaseModel

from backfill_cli import registry
from backfill_cli.config import JobConfig, from_stored, load
from backfill_cli.config.effective import differences, moved
from backfill_cli.config.faults import models_in
from backfill_cli.config.sections import JobFile
from backfill_cli.contracts import SinkConnector
from backfill_cli.contracts.options import FilePath


def test_what_is_left_out_has_its_default(load_text: Load) -> None:
    config = load_text(GOOD)
    types = tuple(config.tree[part]["type"] for part in ("upstream", "sink"))
    assert (config.job.name, config.job.strategy, *types) == ("orders", "auto", "files", "duckdb")
    assert (config.barrier.interval_s, config.barrier.target_s, config.retry.limit_s) == (1.0, 5.0, 600.0)
    assert (config.throttle.rate, config.catch_up.measure, config.spark.conf) == (None, "time", {})


def test_durations_carry_units(load_text: Load) -> None:
    config = load_text(GOOD + '[barrier]\ninterval = "500ms"\ntarget = 8\n[retry]\nlimit = "1h30m"\n')
    assert (config.barrier.interval_s, config.barrier.target_s, config.retry.limit_s) == (0.5, 8.0, 5400.0)


def test_the_template_of_init_has_no_fault_with_its_other_sections_either(load_text: Load) -> None:
    text = config_text(full=True)
    sections = "select|where|interval|rate|on|max_size|name|kind|limit"
    text = text.replace("./notify.sh", "sh").replace('# strategy = "auto"', 'strategy = "chain"')
    uncommented = re.sub(rf"^# (?=\[|(?:{sections}|command|timeout) = )", "", text, flags=re.MULTILINE)
    loaded = load_text(uncommented)
    assert loaded.throttle.rate == 20000
    assert loaded.hooks.command == ["sh"]
    assert loaded.spool.max_size == 50 * 2**30


def test_relative_paths_are_those_of_the_configs_folder(
    load_text: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_text(GOOD)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = from_stored(config.stored())
    assert again == config == load(tmp_path / "job.toml") == load(Path("../job.toml"))
    assert again.sink.model_dump()["path"] == str(tmp_path / "warehouse.duckdb")
    assert again.job.staging == str(tmp_path / ".backfill/staging")
    assert again.tree["upstream"]["snapshot"]["path"] == str(tmp_path / "data/snapshot")


@pytest.mark.parametrize("path", ["s3://bucket/x", "file:/x", "/abs/x", "hdfs:/x", "${env:ROOT}/x"])
def test_urls_absolute_paths_and_references_stay_as_they_are(load_text: Load, path: str) -> None:
    config = load_text(GOOD.replace("data/snapshot", path))
    assert config.tree["upstream"]["snapshot"]["path"] == path


KAFKA = """
[job]
name = "orders"
[upstream]
type = "kafka"
bootstrap_servers = "h:9092"
topic = "orders"
value = { format = "events", schema = "id BIGINT" }
archive = { path = "archive" }
options = { "ssl.ca.location" = "ca.pem", "ssl.key.location" = "~/key.pem", "client.id" = "a/b" }
[[tables]]
name = "orders"
[sink]
type = "delta"
table = "lake/orders"
"""


def test_every_option_that_is_a_path_says_so_by_its_type(
    load_text: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    tree = load_text(KAFKA).tree
    assert tree["upstream"]["archive"]["path"] == f"{tmp_path}/archive"
    assert tree["upstream"]["options"] == {
        "ssl.ca.location": f"{tmp_path}/ca.pem",
        "ssl.key.location": "/home/me/key.pem",
        "client.id": "a/b",
    }
    assert tree["sink"]["table"] == f"{tmp_path}/lake/orders"
    named = load_text(
        KAFKA.replace("lake/orders", "spark_catalog.shop.orders").replace('"ca.pem"', '"probe"')
    ).tree
    assert named["sink"]["table"] == "spark_catalog.shop.orders"
    assert named["upstream"]["options"]["ssl.ca.location"] == "probe"


def test_a_plug_ins_option_is_a_path_by_its_mark_and_not_by_its_name(
    load_text: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Options(BaseModel):
        folder: Annotated[str, FilePath()]
        path: str

    connector = SinkConnector(Options, lambda options: options, lambda _: {})
    monkeypatch.setattr(registry, "sink", lambda _: connector)
    told = load_text(GOOD.replace('type = "duckdb"', 'type = "toy"\nfolder = "a/b"').replace("warehouse", "/x"))
    assert told.tree["sink"] == {"type": "toy", "folder": f"{tmp_path}/a/b", "path": "/x.duckdb"}
    told = load_text(GOOD.replace('type = "duckdb"', 'type = "toy"\nfolder = "${env:HOME}/b"'))
    assert told.tree["sink"] == {"type": "toy", "folder": "${env:HOME}/b", "path": "warehouse.duckdb"}


def test_no_option_called_a_path_or_described_as_a_file_lacks_the_mark() -> None:
    """A plug-in's author finds the mark in CONTRIBUTING; of ours, a generator asks every option."""
    connectors = [registry.upstream(kind) for kind in registry.known(registry.UPSTREAMS)]
    models: list[type[BaseModel]] = [one.options for one in connectors]
    models += [registry.sink(kind).options for kind in registry.known(registry.SINKS)]
    models += [side.options for one in connectors for side in (one.snapshot, one.changes) if side is not None]
    unmarked = {
        f"{model.__name__}.{name}"
        for model in (*_with_inner(models), *_with_inner([JobFile]))
        for name, field in model.model_fields.items()
        if re.match(
            r"(the )?(table's own |table's |DuckDB )?(folder|file|path)\b", field.description or "", re.IGNORECASE
        )
        or name in ("path", "file", "folder")
        if not any(isinstance(mark, FilePath) for mark in field.metadata)
    }
    assert unmarked == set()


def _with_inner(models: list[type[BaseModel]]) -> list[type[BaseModel]]:
    fields = [field for model in models for field in model.model_fields.values()]
    inner = [one for field in fields for one in models_in(field.annotation)]
    return models + (_with_inner(inner) if inner else [])


def fingerprint(config: JobConfig) -> dict[str, object]:
    return config.fingerprint()


@pytest.mark.parametrize(
    "harmless",
    [
        '[barrier]\ninterval = "9s"\n',
        "[throttle]\nrate = 5\n",
        '[catch_up]\nmeasure = "barriers"\n',
        '[spark]\nconf = { "spark.x" = 1 }\n',
        '[retry]\nlimit = "1s"\n',
        '[hooks]\non = ["failed"]\ncommand = ["true"]\n',
    ],
)
def test_rates_sizes_and_spark_do_not_change_the_fingerprint(load_text: Load, harmless: str) -> None:
    assert fingerprint(load_text(GOOD + harmless)) == fingerprint(load_text(GOOD))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('key = ["id"]', 'key = ["id", "day"]', 'tables.orders.key: ["id"] → ["id", "day"]'),
        ('key = ["id"]', 'key = ["id"]\ntarget = "t"', 'tables.orders.target: "orders" → "t"'),
        ('path = "data/snapshot"', 'path = "/new"', "upstream.snapshot.path: "),
        ('"debezium"', '"dms"', 'upstream.changes.format: "debezium" → "dms"'),
        ("warehouse.duckdb", "other.duckdb", "sink.path: "),
        (
            'key = ["id"]',
            'key = ["id"]\n[tables.transform]\nwhere = "id > 1"',
            'tables.orders.transform.where: nothing → "id > 1"',
        ),
    ],
)
def test_what_changes_results_changes_the_fingerprint(load_text: Load, old: str, new: str, told: str) -> None:
    before, after = fingerprint(load_text(GOOD)), fingerprint(load_text(GOOD.replace(old, new)))
    assert [one for one in differences(before, after) if str(one).startswith(told)]
    assert differences(before, before) == []


def test_the_default_transform_is_in_the_fingerprint_of_each_table(load_text: Load) -> None:
    before, after = load_text(GOOD), load_text(GOOD + '[transform]\nwhere = "amount > 0"\n')
    assert [str(one) for one in differences(before.fingerprint(), after.fingerprint())] == [
        'tables.orders.transform.where: nothing → "amount > 0"'
    ]


@pytest.mark.parametrize("url", ["file:///tmp/st%20aged", "file:/tmp/st%20aged", "file://localhost/tmp/st%20aged"])
def test_staging_as_a_file_url_is_that_folder(load_text: Load, url: str) -> None:
    """As a path it would be a folder `file:` here, and Spark would write elsewhere: an epoch without rows."""
    job = load_text(GOOD.replace("[upstream]", f'staging = "{url}"\n[upstream]', 1))
    assert job.job.staging == "/tmp/st aged"
    assert from_stored(job.stored()).job.staging == "/tmp/st aged"


@pytest.mark.parametrize("name", ["Bestellungen 2024", "表", "a.b", "o'clock", "_x-1"])
def test_other_names_of_tables_are_taken(load_text: Load, name: str) -> None:
    config = load_text(GOOD.replace('name = "orders"\nkey', f"name = {json.dumps(name)}\nkey"))
    assert [table.name for table in config.tables] == [name]


def test_a_name_in_quotes_is_the_sinks_without_them(load_text: Load) -> None:
    config = load_text(GOOD.replace('name = "orders"\nkey', 'name = \'"My Schema"."O""rders"\'\nkey'))
    assert [table.sink_name for table in config.tables] == ['My Schema.O"rders']


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"a": "/x/old/in", "b": {"c": "/x/old/w.db"}}, {"a": "/x/new/in", "b": {"c": "/x/new/w.db"}}, True),
        ({"a": "/x/old/in", "key": "id"}, {"a": "/x/new/in", "key": "no"}, False),
        ({"a": "/x/old/in", "b": "/x/old/w.db"}, {"a": "/x/new/in", "b": "/x/other/w.db"}, False),
        ({"a": "/x/old/in"}, {"a": None}, False),
        ({"a": "old"}, {"a": "new"}, False),
    ],
)
def test_a_folder_was_moved_if_that_explains_every_difference(before: Any, after: Any, told: bool) -> None:
    assert moved(before, after) == (("/x/old", "/x/new") if told else None)
