"""Every option of the config's schema, changed between two runs of a job: refused by name, or used from then on.

An option in neither list fails: whoever adds one decides what a change of it means, and tries it.
"""

import json
import typing
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from command_builders import Run
from half_done import half_done, written
from pydantic import BaseModel

from backfill_cli import config as configs
from backfill_cli import registry
from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig, from_stored
from backfill_cli.config.sections import JobFile
from backfill_cli.contracts import JobDefinition
from backfill_cli.engine.job.select import require_same
from backfill_cli.engine.loop import run as running
from backfill_cli.errors import Fatal, UsageError
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.position import START
from backfill_cli.model.upstream import Pin

Tree = dict[str, Any]

FILES: Tree = {
    "job": {"name": "orders"},
    "upstream": {
        "type": "files",
        "snapshot": {"path": "/d/s", "format": "csv", "schema": "id BIGINT, note STRING"},
        "changes": {"path": "/d/c", "format": "dms", "time_column": "at", "columns": "id BIGINT, note STRING"},
    },
    "tables": [{"name": "orders", "key": ["id"]}],
    "sink": {"type": "duckdb", "path": "/d/sink.duckdb"},
}
DEBEZIUM: Tree = {"path": "/d/c", "format": "debezium"}
DERIVED: Tree = {"name": "d", "key": ["id"], "sql": "SELECT id, note FROM orders"}


def with_sides(upstream: Tree, sink: Tree | None = None, key: list[str] | None = None) -> Tree:
    table = {"name": "orders", **({} if key is None else {"key": key})}
    return {**FILES, "upstream": upstream, "tables": [table], "sink": sink or FILES["sink"]}


REGISTRY = {
    "url": "https://r:1/apis/ccompat/v7",
    "user": "u",
    "password": "p",
    "certificate": "/d/c.pem",
    "global_ids": False,
}
TOPIC = {"bootstrap_servers": "127.0.0.1:1", "topic": "orders", "registry": REGISTRY}
VALUE = {"format": "events", "schema": "id BIGINT"}
DEBEZIUM_VALUE = {"format": "debezium", "schema": "id BIGINT"}
TOPICS = {"bootstrap_servers": "127.0.0.1:1", "topics": "{table}"}
SAME = {
    "derived": "files",
    "debezium": "files",
    "debezium in kafka": "kafka",
    "topics": "kafka",
    "files and topics": "files and kafka",
}
"""Jobs whose upstream's options are those of another."""
JOBS: dict[str, Tree] = {
    "files": FILES,
    "derived": {**FILES, "derived": [DERIVED]},
    "debezium": with_sides({**FILES["upstream"], "changes": DEBEZIUM}, key=["id"]),
    "kafka": with_sides(
        {"type": "kafka", **TOPIC, "value": VALUE, "archive": {"path": "/d/a", "format": "parquet"}}
    ),
    "debezium in kafka": with_sides({"type": "kafka", **TOPIC, "value": DEBEZIUM_VALUE}, key=["id"]),
    "topics": with_sides({"type": "kafka", **TOPICS, "value": VALUE}),
    "files and topics": with_sides(
        {
            "snapshot": {**FILES["upstream"]["snapshot"], "type": "files"},
            "changes": {"type": "kafka", **TOPICS, "from": "earliest", "value": {"format": "debezium"}},
        },
        key=["id"],
    ),
    "files and kafka": with_sides(
        {
            "snapshot": {**FILES["upstream"]["snapshot"], "type": "files"},
            "changes": {"type": "kafka", **TOPIC, "from": "earliest", "value": {"format": "debezium"}},
        },
        key=["id"],
    ),
    "to kafka": with_sides(
        FILES["upstream"], {"type": "kafka", "bootstrap_servers": "b:1", "registry": REGISTRY}, ["id"]
    ),
    "delta": with_sides({"type": "delta", "table": "/d/l"}, {"type": "delta", "table": "/d/o/{table}"}, ["id"]),
    "iceberg": with_sides(
        {"type": "iceberg", "table": "/d/l"}, {"type": "iceberg", "table": "/d/o/{table}"}, ["id"]
    ),
    "postgres": with_sides(
        {"type": "postgres", "dsn": "host=a dbname=b", "slot": "s"},
        {"type": "postgres", "dsn": "host=a dbname=b"},
        ["id"],
    ),
}


@dataclass(frozen=True)
class Change:
    """Another value of an option, in one of JOBS. names: how a refusal names it, if not by its path."""

    job: str
    to: Any
    names: str = ""


CSV = {"header": True, "delimiter": ";", "quote": "'", "escape": "^", "null_value": "-", "multi_line": True}

REFUSED: dict[str, Change] = {
    "job.strategy": Change("files", "chain", "strategy"),
    "derived.name": Change("derived", "e", "other derived tables"),
    "derived.key": Change("derived", ["note"], "other derived tables"),
    "derived.sql": Change("derived", "SELECT id, note FROM orders WHERE id > 1", "other derived tables"),
    "derived.target": Change("derived", "e", "other derived tables"),
    "derived.refresh": Change("derived", "full", "other derived tables"),
    "tables.name": Change("files", "items", "tables.items.key"),  # no table of it is left
    "tables.key": Change("files", ["note"]),
    "tables.keep": Change("derived", "columns", "tables.orders.target"),
    "tables.target": Change("files", "others"),
    "tables.immutable_key": Change("files", True),
    "tables.transform": Change("files", {"where": "id > 1"}),
    "tables.transform.select": Change("files", ["id", "note"]),
    "tables.transform.where": Change("files", "id > 1"),
    "transform.select": Change("files", ["id", "note"], "transform"),
    "transform.where": Change("files", "id > 1", "transform"),
    **{f"upstream.files.snapshot.csv.{name}": Change("files", value) for name, value in CSV.items()},
    **{f"upstream.files.changes.csv.{name}": Change("files", CSV[name]) for name in ("delimiter", "null_value")},
    **{
        f"upstream.files and kafka.snapshot.csv.{name}": Change("files and kafka", value)
        for name, value in CSV.items()
    },
}
REFUSED["upstream.files.snapshot.csv.header"] = Change("files", False)
REFUSED["upstream.files and kafka.snapshot.csv.header"] = Change("files and kafka", False)
REFUSED |= {
    "upstream.files.snapshot.path": Change("files", "/e/s"),
    "upstream.files.snapshot.format": Change("files", "json"),
    "upstream.files.snapshot.schema": Change("files", "id BIGINT, note STRING, more STRING"),
    "upstream.files.snapshot.folders": Change("files", "dt DATE"),
    "upstream.files.snapshot.as_of": Change("files", "c1"),
    "upstream.files.snapshot.complete_at": Change("files", "c2"),
    "upstream.files.changes": Change("files", None),
    "upstream.files.changes.path": Change("files", "/e/c"),
    "upstream.files.changes.format": Change("debezium", "change-feed"),
    "upstream.files.changes.epoch": Change("files", "transaction"),
    "upstream.files.changes.op_column": Change("files", "Operation"),
    "upstream.files.changes.time_column": Change("files", "when"),
    "upstream.files and kafka.snapshot.path": Change("files and kafka", "/e/s"),
    "upstream.files and kafka.snapshot.format": Change("files and kafka", "json"),
    "upstream.files and kafka.snapshot.schema": Change("files and kafka", "id BIGINT"),
    "upstream.files and kafka.snapshot.folders": Change("files and kafka", "dt DATE"),
    "upstream.files and kafka.changes.topic": Change("files and kafka", "others"),
    "upstream.files and kafka.changes.value.format": Change("files and kafka", "rows"),
    "upstream.files and kafka.changes.isolation": Change("files and kafka", "read_uncommitted"),
    "upstream.files and kafka.changes.from": Change("files and kafka", "2026-01-01T00:00:00Z"),
    "upstream.files and kafka.changes.complete_at": Change("files and kafka", "2026-01-02T00:00:00Z"),
    "upstream.kafka.topic": Change("kafka", "others"),
    "upstream.kafka.topics": Change("topics", "shop.{table}"),
    "upstream.files and kafka.changes.topics": Change("files and topics", "shop.{table}"),
    "upstream.files and kafka.changes.key.format": Change("files and kafka", "bytes"),
    "upstream.kafka.key.format": Change("kafka", "bytes"),
    "upstream.kafka.value.tables": Change("debezium in kafka", ["public.orders"]),
    "upstream.kafka.value.format": Change("debezium in kafka", "rows"),
    "upstream.kafka.value.encoding": Change("kafka", "avro"),
    "upstream.files and kafka.changes.value.encoding": Change("files and kafka", "avro"),
    "upstream.kafka.value.schema": Change("kafka", "id BIGINT, note STRING"),
    "upstream.kafka.isolation": Change("kafka", "read_uncommitted"),
    "upstream.kafka.from": Change("kafka", "latest"),
    "upstream.kafka.archive": Change("kafka", None),
    "upstream.kafka.archive.path": Change("kafka", "/e/a"),
    "upstream.kafka.archive.format": Change("kafka", "json"),
    "upstream.kafka.archive.partition": Change("kafka", "p"),
    "upstream.kafka.archive.offset": Change("kafka", "o"),
    "upstream.kafka.archive.timestamp": Change("kafka", "t"),
    "upstream.kafka.archive.value": Change("kafka", "v"),
    "upstream.kafka.archive.key": Change("kafka", "k"),
    "upstream.kafka.compacted": Change("kafka", True),
    "upstream.kafka.transactional": Change("kafka", True),
    "upstream.delta.table": Change("delta", "/e/l"),
    "upstream.delta.version": Change("delta", 3),
    "upstream.iceberg.table": Change("iceberg", "/e/l"),
    "upstream.iceberg.version": Change("iceberg", 3),
    "upstream.iceberg.tag": Change("iceberg", False),
    "upstream.postgres.slot": Change("postgres", "other"),
    "upstream.postgres.publication": Change("postgres", "other"),
    "sink.duckdb.path": Change("files", "/e/sink.duckdb"),
    "sink.delta.table": Change("delta", "/e/o/{table}"),
    "sink.iceberg.table": Change("iceberg", "/e/o/{table}"),
    "sink.iceberg.branch": Change("iceberg", "main2"),
    "sink.postgres.schema": Change("postgres", "other"),
    "sink.kafka.topic": Change("to kafka", "others"),
    "sink.kafka.topics": Change("to kafka", "x.{table}"),
    "sink.kafka.encoding": Change("to kafka", "avro"),
    "sink.kafka.state_topic": Change("to kafka", "x_{job}"),
}

USED: dict[str, Change] = {
    "job.staging": Change("files", "/e/staging"),
    "tables.live": Change("files", "people"),
    "job.on_error": Change("files", "set-aside"),
    "tables.rate": Change("files", 5.0),
    "tables.on_error": Change("files", "set-aside"),
    "barrier.interval": Change("files", 7.0),
    "barrier.target": Change("files", 9.0),
    "barrier.fill_rows": Change("files", 7_000_000),
    "throttle.rate": Change("files", 5.0),
    "throttle.finish_by": Change("files", "06:00"),
    "throttle.floor": Change("files", 5.0),
    "catch_up.measure": Change("files", "barriers"),
    "retry.limit": Change("files", 3.0),
    "spool.path": Change("files", "/e/spool"),
    "spool.max_size": Change("files", 5000),
    "spool.on_full": Change("files", "wait"),
    "spark.master": Change("files", "local[1]"),
    "spark.remote": Change("files", "sc://h:1"),
    "spark.conf": Change("files", {"spark.x": "y"}),
    "hooks.on": Change("files", ["failed"]),
    "hooks.command": Change("files", ["./x"]),
    "hooks.max_lag": Change("files", 60.0),
    "hooks.min_headroom": Change("files", 60.0),
    "hooks.timeout": Change("files", 5.0),
    "guards.name": Change("files", "h"),
    "guards.kind": Change("postgres", "sessions"),
    "guards.limit": Change("files", 3.0),
    "guards.rate": Change("files", 5.0),
    "guards.lift": Change("files", 0.5),
    "guards.every": Change("files", 7.0),
    "guards.timeout": Change("files", 7.0),
    "guards.query": Change("postgres", "SELECT 2"),
    "guards.on": Change("postgres", "sink"),
    "guards.path": Change("files", "/e/disk"),
    "guards.from": Change("files", "21:00"),
    "guards.to": Change("files", "07:00"),
    "guards.job": Change("files", "other"),
    "upstream.files.on_error": Change("files", "quarantine"),
    "upstream.files.snapshot.ignore": Change("files", ["more"]),
    "upstream.files.snapshot.sparse": Change("files", ["note"]),
    "upstream.files.changes.tables": Change("debezium", ["public.orders"]),
    "upstream.files.changes.consecutive": Change("files", "names"),
    "upstream.files.changes.columns": Change("files", "id BIGINT, note STRING, more STRING"),
    "upstream.files.changes.accept_growth": Change("files", True),
    "upstream.files and kafka.snapshot.ignore": Change("files and kafka", ["more"]),
    "upstream.files and kafka.snapshot.sparse": Change("files and kafka", ["note"]),
    "upstream.files and kafka.changes.bootstrap_servers": Change("files and kafka", "127.0.0.1:2"),
    "upstream.files and kafka.changes.options": Change("files and kafka", {"client.id": "x"}),
    "upstream.files and kafka.changes.reader": Change("files and kafka", "spark"),
    "upstream.files and kafka.changes.accept_growth": Change("files and kafka", True),
    "upstream.files and kafka.changes.value.tables": Change("files and kafka", ["public.orders"]),
    "upstream.files and kafka.changes.ignore": Change("files and kafka", ["more"]),
    "upstream.files and kafka.changes.sparse": Change("files and kafka", ["note"]),
    "upstream.files and kafka.changes.accept_compaction": Change("files and kafka", True),
    "upstream.kafka.bootstrap_servers": Change("kafka", "127.0.0.1:2"),
    "upstream.kafka.options": Change("kafka", {"client.id": "x"}),
    "upstream.kafka.reader": Change("kafka", "spark"),
    "upstream.kafka.accept_growth": Change("kafka", True),
    "upstream.kafka.accept_gap": Change("kafka", True),
    "upstream.kafka.on_error": Change("kafka", "quarantine"),
    **{
        f"{at}.registry{name}": Change(job, value)
        for at, job in (
            ("upstream.kafka", "kafka"),
            ("upstream.files and kafka.changes", "files and kafka"),
            ("sink.kafka", "to kafka"),
        )
        for name, value in {
            "": None,
            ".url": "https://r:2",
            **{f".{name}": "other" for name in ("user", "password", "token", "key_password")},
            **{f".{name}": "/e/r.pem" for name in ("ca", "certificate", "key")},
            ".id_bytes": 8,
            ".global_ids": True,
        }.items()
    },
    "sink.kafka.bootstrap_servers": Change("to kafka", "b:2"),
    "sink.kafka.create": Change("to kafka", False),
    "sink.kafka.partitions": Change("to kafka", 3),
    "sink.kafka.replication": Change("to kafka", 3),
    "sink.kafka.properties": Change("to kafka", {"cleanup.policy": "delete"}),
    "sink.kafka.subjects": Change("to kafka", "record"),
    "sink.kafka.accept_growth": Change("to kafka", True),
    "sink.kafka.transaction_timeout": Change("to kafka", 60.0),
    "sink.kafka.options": Change("to kafka", {"client.id": "x"}),
    "upstream.postgres.dsn": Change("postgres", "host=c dbname=b"),
    "upstream.postgres.accept_partition_changes": Change("postgres", True),
    "upstream.postgres.max_retained": Change("postgres", 1000),
    "upstream.postgres.chunk_time": Change("postgres", 0.5),
    "sink.duckdb.memory_limit": Change("files", "1GB"),
    "sink.duckdb.threads": Change("files", 1),
    "sink.delta.properties": Change("delta", {"delta.x": "y"}),
    "sink.iceberg.properties": Change("iceberg", {"x": "y"}),
    "sink.postgres.dsn": Change("postgres", "host=a dbname=b user=u"),
}
"""Used from the next start on."""

UNTIL_READ = {
    f"upstream.{SAME.get(job, job)}.{of}{option}": Change(job, value)
    for job, of, option, value in (
        ("files", "changes.", "file_format", "parquet"),
        *(("files", "changes.csv.", name, CSV[name]) for name in ("header", "quote", "escape", "multi_line")),
        ("debezium", "changes.", "decimals", "string"),
        ("debezium", "changes.", "timestamps", "us"),
        ("files and kafka", "changes.value.", "decimals", "string"),
        ("files and kafka", "changes.value.", "timestamps", "us"),
        ("debezium in kafka", "value.", "decimals", "string"),
        ("debezium in kafka", "value.", "timestamps", "us"),
    )
}
"""How changes are written: may be corrected until one was read, then only be added."""

IDENTITY = {"job.name"}
"""Another name is another job."""


def leaves(model: type[BaseModel], at: str) -> Iterator[str]:
    """Every option of a section, sections inside it included."""
    for name, field in model.model_fields.items():
        path = f"{at}.{field.alias or name}"
        kinds = [field.annotation, *typing.get_args(field.annotation)]
        inner = [one for one in kinds if isinstance(one, type) and issubclass(one, BaseModel)]
        for one in inner:
            yield from leaves(one, path)
        if not inner or (field.default is None and len(kinds) > 1):
            yield path


def every_option() -> set[str]:
    found = {one for name, field in JobFile.model_fields.items() for one in _section(name, field.annotation)}
    for kind in registry.known(registry.UPSTREAMS):
        found |= set(leaves(registry.upstream(kind).options, f"upstream.{kind}"))
    for one, other in registry.pairs():
        found |= set(leaves(registry.two_systems(one, other).options, f"upstream.{one} and {other}"))
    for kind in registry.known(registry.SINKS):
        found |= set(leaves(registry.sink(kind).options, f"sink.{kind}"))
    return {path for path in found if not path.endswith(".type")}


def _section(name: str, kind: Any) -> Iterator[str]:
    models = [
        one for one in (kind, *typing.get_args(kind)) if isinstance(one, type) and issubclass(one, BaseModel)
    ]
    for model in models:
        yield from leaves(model, name)


def test_every_option_is_refused_when_changed_or_used_from_then_on() -> None:
    lists = [set(REFUSED), set(USED), set(UNTIL_READ), IDENTITY]
    assert sum(map(len, lists)) == len(set().union(*lists)), "an option is in two lists"
    assert set().union(*lists) == every_option()


def steps(option: str, job: str) -> list[str]:
    """Where an option is in a config: `upstream.files.snapshot.path` in upstream → snapshot → path."""
    part, _, rest = option.partition(".")
    owner = {"upstream": SAME.get(job, job), "sink": JOBS[job]["sink"]["type"]}.get(part)
    return [part, *rest.removeprefix(f"{owner}.").split(".")]


WINDOW = {"name": "g", "kind": "window", "from": "22:00", "to": "06:00"}
SQL = {"name": "g", "kind": "sql", "query": "SELECT 1", "limit": 1.0}
GUARDS: dict[str, Tree] = {
    "from": WINDOW,
    "to": WINDOW,
    "query": SQL,
    "on": SQL,
    "path": {"name": "g", "kind": "free-disk", "limit": "1B"},
    "job": {"name": "g", "kind": "lag", "job": "x", "limit": 1.0},
}
"""A guard of the kind that has the option."""


def changed(option: str, change: Change) -> Tree:
    tree = deepcopy(JOBS[change.job])
    at: Any = tree
    *folders, last = steps(option, change.job)
    if option.startswith("guards."):
        tree["guards"] = [dict(GUARDS.get(last, {"name": "g", "kind": "load", "limit": 1.0}))]
    for step in folders:
        at = at.setdefault(step, {})
        at = at[0] if isinstance(at, list) else at
    if change.to is None:
        del at[last]
    else:
        at[last] = change.to
    if option.endswith("registry.token"):  # instead of user and password
        at.update({"user": None, "password": None})
    if option.startswith("hooks."):  # each needs the others
        tree["hooks"] = {"on": ["lagging"], "max_lag": 9.0, "command": ["./y"], "timeout": 30.0} | tree["hooks"]
        if option == "hooks.min_headroom":
            tree["hooks"]["on"] = ["lagging", "low-headroom"]
        tree["hooks"] |= {"on": ["failed", "lagging"]} if option == "hooks.on" else {}
    return tree


def parsed(tree: Tree) -> JobConfig:
    return from_stored(json.dumps(tree))


@pytest.fixture(scope="module")
def catalogs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Catalog]:
    """The catalog of a job as `start` left it before its first epoch; neither upstream nor sink was asked."""

    @cache
    def of(name: str) -> Catalog:
        catalog, config = Catalog(tmp_path_factory.mktemp("c") / "catalog.duckdb"), parsed(JOBS[name])
        pin = Pin(START, None, None, (), {"orders": '{"type": "struct", "fields": []}'}, "{}")
        strategy = running.strategy_of(config, config.open_upstream().capabilities, pin)
        print_ = json.dumps(config.fingerprint())
        job = JobDefinition("orders", config.stored(), print_, pin, "forever", strategy.name, ())
        state = strategy.freeze(strategy.start(pin, Control()))
        catalog.create_job(job, Control(), Checkpoint(0, 0, 0, "", state, Phase.SNAPSHOT, START))
        return catalog

    return of


@pytest.mark.parametrize("option", sorted(REFUSED))
def test_an_option_that_would_change_the_result_is_refused_by_name_before_anything_changes(
    option: str, catalogs: Callable[[str], Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    change = REFUSED[option]
    catalog = catalogs(change.job)
    before = catalog.definition("orders"), catalog.job("orders")
    monkeypatch.setattr(running.Resources, "sink", property(lambda _: pytest.fail("the sink was opened")))
    with pytest.raises(UsageError) as refused:
        running.start(parsed(changed(option, change)), catalog, "forever", False, None)
    named = change.names or steps(option, change.job)[-1]
    assert named in f"{refused.value.message}"
    assert (catalog.definition("orders"), catalog.job("orders")) == before


@pytest.mark.parametrize("option", sorted(UNTIL_READ))
def test_once_a_change_was_read_how_it_is_written_is_refused_by_name(
    option: str, catalogs: Callable[[str], Catalog]
) -> None:
    change = UNTIL_READ[option]
    then, now = parsed(changed(option, change)), parsed(JOBS[change.job])
    job = replace(catalogs(change.job).definition("orders"), config=then.stored())
    require_same(job, now, has_read_changes=lambda: False)
    with pytest.raises(UsageError, match=steps(option, change.job)[-1]):
        require_same(job, now, has_read_changes=lambda: True)


class Opened(Exception):
    """What a run opens its sink with: the end of the try."""


@pytest.mark.parametrize("option", sorted(USED | UNTIL_READ))
def test_an_option_that_may_change_reaches_the_connector_and_the_run_at_the_next_start(
    option: str, catalogs: Callable[[str], Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    change = (USED | UNTIL_READ)[option]
    catalog = catalogs(change.job)
    given: dict[str, Any] = {}
    upstream_of, sink_of = configs.upstream_of, configs.sink_of

    def upstream(tree: Tree) -> Any:
        connector = upstream_of(tree)

        def opened(options: BaseModel, tables: Any) -> Any:
            given["upstream"] = options.model_dump(mode="json", by_alias=True)
            return connector.open(options, tables)

        return replace(connector, open=opened)

    def sink(tree: Tree) -> Any:
        def opened(options: BaseModel) -> Any:
            given["sink"] = options.model_dump(mode="json", by_alias=True)
            raise Opened

        return replace(sink_of(tree), open=opened)

    monkeypatch.setattr(configs, "upstream_of", upstream)
    monkeypatch.setattr(configs, "sink_of", sink)
    # A Java that a refused start of an earlier test began in a thread can end now.
    monkeypatch.setattr("backfill_cli.spark.driver.ended", lambda wait_s=0.0: None)
    config = parsed(changed(option, change))
    with pytest.raises(Opened):
        running.start(config, catalog, "forever", False, None)
    part, *inside = steps(option, change.job)
    at: Any = given.get(part)
    if at is None:
        told = getattr(config, part)
        at = (told[0] if part in ("tables", "guards") else told).model_dump(mode="json", by_alias=True)
    for step in inside:
        at = at[step]
    expected = ["failed", "lagging"] if option == "hooks.on" else change.to
    assert (list(at) if isinstance(at, tuple) else at) == expected


def test_what_the_loop_runs_with_is_as_the_config_is_now(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog(folder / ".backfill/catalog.duckdb")
    half_done(written(folder), catalog)
    seen: list[Any] = []

    def loop(*given: Any) -> None:
        seen.extend(given)
        raise Fatal("far enough", "stop here")

    monkeypatch.setattr(running, "Orchestrator", loop)
    file = folder / "job.toml"
    more = '[barrier]\ninterval = "7s"\ntarget = "9s"\nfill_rows = 7\n[throttle]\nrate = 5\n'
    more += '[hooks]\non = ["failed"]\ncommand = ["true"]\n'
    staging = 'name = "orders"\nstaging = "elsewhere"'
    changed = file.read_text().replace('limit = "1s"', 'limit = "3s"').replace('name = "orders"', staging, 1)
    file.write_text(changed + more)
    assert "far enough" in run("start", "--config", "job.toml").stderr
    _, ports, _, settings, *_ = seen
    assert (settings.interval_ms, settings.target_ms, settings.retry_limit_ms) == (7_000, 9_000, 3_000)
    assert settings.fill_rows == 7
    assert ports.stager.folder(1, "a").startswith(str(folder / "elsewhere"))
    assert [(one.verb, one.rate) for one in catalog.job("orders").waiting] == [("throttle", 5.0)]
    assert configs.stored_hooks(catalog.definition("orders").config).command == ["true"]
