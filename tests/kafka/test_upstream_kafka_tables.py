"""Several tables in one job: a topic for each, or one topic for all."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from hint_typed import typed
from kafka_topics import EVENTS, new_topic
from toy_registry import running
from unit.decode.registered_avro import Topic as Registered
from unit.decode.registered_avro import table_change, table_envelope

from backfill_cli.catalog import Catalog
from backfill_cli.config import load
from backfill_cli.contracts import Source, TableSpec, own
from backfill_cli.engine.job.change import adding, removing, setting
from backfill_cli.engine.job.checks import plan
from backfill_cli.engine.loop.run import resume, start
from backfill_cli.engine.verify.job import verify
from backfill_cli.errors import BadData, ConfigError, Fatal, StateConflict, UsageError
from backfill_cli.model.job import Verb
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Position
from backfill_cli.model.refill import RefillState
from backfill_cli.model.reports import PlanReport
from backfill_cli.model.schema import columns_of
from backfill_cli.upstreams.kafka import connector

if TYPE_CHECKING:
    from broker import Broker
    from pyspark.sql import SparkSession

JSON = {"format": "events", "schema": "id BIGINT, name STRING"}

CONFIG = """
[job]
name = "shop"
staging = "{folder}/staging"
[upstream]
type = "kafka"
bootstrap_servers = "{bootstrap}"
{upstream}
{tables}
[sink]
type = "duckdb"
path = "{folder}/sink.duckdb"
[barrier]
interval = "100ms"
"""


class Job:
    """One job over several topics, in this process."""

    def __init__(self, folder: Path, broker: "Broker", upstream: str, tables: Mapping[str, str]) -> None:
        self.folder, self.catalog, self.config = folder, Catalog(folder / "catalog.duckdb"), folder / "job.toml"
        listed = "\n".join(f'[[tables]]\nname = "{name}"\n{more}' for name, more in tables.items())
        told = {"folder": folder, "bootstrap": broker.bootstrap, "upstream": upstream, "tables": listed}
        self.config.write_text(CONFIG.format(**told))

    def catch_up(self) -> None:
        start(load(self.config), self.catalog, "caught-up", False, None)

    def go_on(self) -> None:
        """As the catalog has the job: what redefines it acts, and then it is caught up."""
        resume("shop", self.catalog, None, "caught-up", None)

    def planned(self) -> PlanReport:
        return plan(load(self.config), self.catalog)

    def rows(self, sql: str) -> list[Any]:
        with duckdb.connect(str(self.folder / "sink.duckdb"), read_only=True) as db:
            return db.execute(sql).fetchall()

    @property
    def skipped(self) -> Mapping[str, int]:
        with duckdb.connect(str(self.folder / "catalog.duckdb"), read_only=True) as db:
            told = db.execute("SELECT body FROM checkpoints WHERE kind = 'committed'").fetchone()
        assert told is not None
        return dict(json.loads(told[0])["skipped"])

    @property
    def position(self) -> Mapping[str, int]:
        with duckdb.connect(str(self.folder / "catalog.duckdb"), read_only=True) as db:
            told = db.execute("SELECT position FROM checkpoints WHERE kind = 'committed'").fetchone()
        assert told is not None
        return dict(json.loads(told[0])["cursors"])


def opened(broker: "Broker", tables: Sequence[str], key: Sequence[str] = EVENTS, **options: Any) -> Source:
    told = {"bootstrap_servers": broker.bootstrap, "value": JSON, **options}
    return connector.open(connector.options.model_validate(told), [TableSpec(name, tuple(key)) for name in tables])


def test_each_table_has_its_topic_and_all_commit_together(
    spark: "SparkSession", broker: "Broker", tmp_path: Path
) -> None:
    people, orders = new_topic(broker, 1), new_topic(broker, 2)
    people.write([b'{"id":1,"name":"a"}', b'{"id":2,"name":"b"}'], keys=[b'{"id":1}', b'{"id":2}'])
    orders.write_json([{"id": n, "name": "x"} for n in range(5)], 1)
    upstream = f"""
    topics = {{ people = "{people.name}", orders = "{orders.name}" }}
    value = {{ format = "rows", schema = {{ people = "id BIGINT, name STRING", orders = "id BIGINT" }} }}
    accept_growth = true
    compacted = true
    """
    job = Job(tmp_path, broker, upstream, {"people": 'key = ["id"]', "orders": 'key = ["id"]'})
    job.catch_up()
    assert job.rows("SELECT id, name FROM people ORDER BY id") == [(1, "a"), (2, "b")]
    assert job.rows("SELECT kafka_partition, id FROM orders ORDER BY id") == [(1, n) for n in range(5)]
    assert job.position == {"orders/0": 0, "orders/1": 5, "people/0": 2}
    people.write(
        [None, b'{"id":3,"name":"c"}', b'{"id":1,"name":"d"}'], keys=[b'{"id":2}', b'{"id":3}', b'{"id":1}']
    )
    orders.write_json([{"id": 7}], 0)
    orders.grow(3)
    orders.write_json([{"id": 8}], 2)
    job.catch_up()
    assert job.rows("SELECT id, name FROM people ORDER BY id") == [(1, "d"), (3, "c")]
    assert job.rows("SELECT kafka_partition, id FROM orders ORDER BY ALL") == [
        (0, 7),
        *((1, n) for n in range(5)),
        (2, 8),
    ]
    assert job.position == {"orders/0": 1, "orders/1": 5, "orders/2": 1, "people/0": 5}
    assert verify("shop", job.catalog).equal

    more = new_topic(broker, 2)
    more.write([b'{"id":%d,"name":"old"}' % n for n in range(4)], 1, [b'{"id":%d}' % n for n in range(4)])
    upstream = upstream.replace("topics = {", f'topics = {{ more = "{more.name}",')
    upstream = upstream.replace("schema = {", 'schema = { more = "id BIGINT, name STRING",')
    tables = dict.fromkeys(("people", "orders", "more"), 'key = ["id"]\non_error = "set-aside"')
    job = Job(tmp_path, broker, upstream, tables)
    found = adding("shop", "more", load(job.config), job.catalog, into_existing=False)
    job.catalog.post("shop", Verb.ADD, None, "ann", 5, payload=found.change.stored)
    orders.write_json([{"id": 9}], 2)
    job.go_on()
    more.write([None, b'{"id":1,"name":"new"}'], 1, [b'{"id":0}', b'{"id":1}'])
    job.go_on()
    assert job.rows("SELECT id, name FROM more ORDER BY id") == [(1, "new"), (2, "old"), (3, "old")]
    assert job.position == {"more/0": 0, "more/1": 6, "orders/0": 1, "orders/1": 5, "orders/2": 2, "people/0": 5}

    more.write([b'{"id":2,"name":"lost"}', b"no json"], 1, [b'{"id":2}', b'{"id":5}'])
    orders.write_json([{"id": 11}], 1)
    job.go_on()
    assert job.rows("SELECT max(id) FROM orders") == [(11,)]
    assert job.rows("SELECT id, name FROM more ORDER BY id") == [(1, "new"), (2, "old"), (3, "old")]
    (aside,) = job.catalog.definition("shop").aside
    assert (aside.table, aside.position) == ("more", {"more/0": 0, "more/1": 6})
    more.write([b'{"id":3,"name":"newer"}', None], 1, [b'{"id":3}', b'{"id":1}'])
    job = Job(tmp_path, broker, f'{upstream}\non_error = "quarantine"', tables)
    changed = setting("shop", load(job.config), job.catalog)
    job.catalog.post("shop", Verb.SET, None, "ann", 7, payload=changed.stored)
    job.go_on()
    refill, _ = job.catalog.put_back("shop", "more", "ann", 8)
    job.go_on()
    assert job.catalog.definition("shop").aside == ()
    assert job.rows("SELECT id, name FROM more ORDER BY id") == [(2, "lost"), (3, "newer")]
    assert job.rows("SELECT kafka_partition, kafka_offset FROM _backfill_quarantine_more") == [(1, 7)]
    told = job.catalog.refills.of("shop", refill)
    assert told is not None
    assert (told.state, told.why.text[:36]) == (RefillState.DONE, "not compared: its topic is compacted")
    assert verify("shop", job.catalog).equal
    removing_it = removing("shop", "people", job.catalog, with_rows=False)
    job.catalog.post("shop", Verb.REMOVE, None, "ann", 6, payload=removing_it.stored)
    people.write([b'{"id":4,"name":"e"}'], keys=[b'{"id":4}'])
    orders.write_json([{"id": 10}], 2)
    job.go_on()
    assert job.rows("SELECT count(*) FROM orders WHERE id = 10") == [(1,)]
    assert job.rows("SELECT max(id) FROM people") == [(3,)], "nothing fills it any more"
    assert job.position == {"more/0": 0, "more/1": 10, "orders/0": 1, "orders/1": 6, "orders/2": 3}


def test_events_of_several_topics_are_kept_each_by_its_place(
    spark: "SparkSession", broker: "Broker", tmp_path: Path
) -> None:
    first, second = new_topic(broker, 2), new_topic(broker)
    first.write_json([{"id": n} for n in range(3)], 1)
    first.write([b"no json"], 1)
    upstream = f"""
    topics = {{ a = "{first.name}", b = "{second.name}" }}
    value = {{ format = "events", schema = "id BIGINT" }}
    on_error = "quarantine"
    """
    job = Job(tmp_path, broker, upstream, {"a": "", "b": ""})
    job.catch_up()
    second.write_json([{"id": 1}, {"id": 1}])
    first.write_json([{"id": 3}], 0)
    job.catch_up()
    assert job.rows("SELECT kafka_partition, kafka_offset, id FROM a ORDER BY ALL") == [
        (0, 0, 3),
        (1, 0, 0),
        (1, 1, 1),
        (1, 2, 2),
    ]
    assert job.rows("SELECT kafka_offset, id FROM b ORDER BY ALL") == [(0, 1), (1, 1)]
    assert job.rows("SELECT kafka_partition, kafka_offset FROM _backfill_quarantine_a") == [(1, 3)]
    assert verify("shop", job.catalog).equal


def envelope(table: str, op: str, before: Any, after: Any, db: str = "shop") -> bytes:
    source = {"connector": "postgresql", "db": db, "schema": "public", "table": table, "ts_ms": 1_700_000_000_000}
    return json.dumps({"before": before, "after": after, "source": source, "op": op, "ts_ms": 1}).encode()


def test_tables_that_share_a_topic_each_have_their_records_and_others_are_skipped(
    spark: "SparkSession", broker: "Broker", tmp_path: Path
) -> None:
    topic = new_topic(broker, 2)
    topic.write([envelope("people", "c", None, {"id": n, "name": f"p{n}"}) for n in range(3)], 0)
    topic.write([envelope("orders", "c", None, {"id": n, "sum": n * 2}) for n in range(4)], 1)
    topic.write([envelope("events", "c", None, {"id": 1})], 1)
    upstream = f"""
    topic = "{topic.name}"
    value.format = "debezium"
    value.schema = {{ people = "id INT, name STRING", orders = "id INT, sum BIGINT", lines = "id INT" }}
    """
    job = Job(tmp_path, broker, upstream, dict.fromkeys(("people", "orders", "lines"), 'key = ["id"]'))
    warnings = job.planned().warnings
    said = "has records of tables that the job does not have, which are skipped: shop.public.events (in a sample)"
    assert f"topic '{topic.name}' {said}" in warnings
    assert any(f"'{topic.name}' has no record of table 'lines' (in a sample)" in one for one in warnings)
    job.catch_up()
    assert job.rows("SELECT id, name FROM people ORDER BY id") == [(n, f"p{n}") for n in range(3)]
    assert job.rows("SELECT id, sum FROM orders ORDER BY id") == [(n, n * 2) for n in range(4)]
    topic.write([envelope("people", "u", {"id": 1, "name": "p1"}, {"id": 9, "name": "x"})], 0)
    topic.write([envelope("orders", "d", {"id": 3, "sum": 6}, None)], 1)
    topic.write([envelope("people", "c", None, {"id": 1, "name": "another database"}, db="other")], 1)
    topic.write([envelope("lines", "c", None, {"id": 5}), b'{"ts_ms":1}', None], 0)
    job.catch_up()
    assert job.rows("SELECT id FROM lines") == [(5,)]
    assert job.rows("SELECT id, name FROM people ORDER BY id") == [(0, "p0"), (2, "p2"), (9, "x")]
    assert job.rows("SELECT id FROM orders ORDER BY id") == [(0,), (1,), (2,)]
    assert job.position == {f"{table}/{p}": (7, 7)[p] for table in ("lines", "orders", "people") for p in (0, 1)}
    assert verify("shop", job.catalog).equal
    assert job.skipped == {"heartbeats": 1, "records_of_other_tables": 2, "tombstones": 1}
    topic.write([envelope("lines", "c", None, {"id": 6}, db="other")], 0)
    with pytest.raises(BadData, match=r"a record of another table than 'shop.public.lines': other.public.lines"):
        job.catch_up()


def test_a_record_that_names_no_table_is_put_into_none_that_shares_its_topic(
    spark: "SparkSession", broker: "Broker"
) -> None:
    topic = new_topic(broker)
    topic.write([envelope("people", "c", None, {"id": 1}), b'{"op":"c","after":{"id":2}}'])
    value = {"format": "debezium", "schema": "id INT"}
    upstream = opened(broker, ["people", "orders"], ["id"], topic=topic.name, value=value)
    pin = upstream.pin()
    for table in ("people", "orders"):
        frame = upstream.changes(spark, table, pin.position, Position.of({f"{table}/0": 2}), pin.schema[table])
        found = frame.select("id", own.ERROR).toArrow().to_pylist()
        faulty = {"id": None, own.ERROR: "its source names no table, in a topic of several tables"}
        assert found == [{"id": 1, own.ERROR: None}, faulty][table == "orders" :]


def test_a_column_that_is_added_among_records_of_other_tables_is_found(broker: "Broker") -> None:
    """Neither end of what is read, nor of the topic, has a record of the table: one has a schema with it."""
    topic = new_topic(broker)
    with running() as registry:
        values = Registered(registry, f"{topic.name}-value")
        id, more = ({"name": name, "type": "long"} for name in ("id", "more"))
        people, wider, orders = (
            table_envelope(*told) for told in (("people", id), ("people", id, more), ("orders", id))
        )
        others = [values.record(orders, table_change("orders", {"id": n})) for n in range(30)]
        topic.write([values.record(people, table_change("people", {"id": 1})), others[0]])
        value, at = {"format": "debezium", "encoding": "avro"}, {"url": registry.url}
        upstream = opened(broker, ["people", "orders"], ["id"], topic=topic.name, value=value, registry=at)
        pin = upstream.pin()
        topic.write([*others, values.record(wider, table_change("people", {"id": 2, "more": 3})), *others])
        upstream.observe(pin.position, False)
        reads = [SnapshotRead(name, f"{name}/0", 2, 63) for name in ("people", "orders")]
        wide = upstream.widened(pin.schema, reads, SnapshotRead("people", "people/0", 32, 33))
        assert wide is not None
        assert [*columns_of(wide["people"])][-2:] == ["id", "more"]
        assert wide["orders"] == pin.schema["orders"]


def test_two_source_tables_of_one_name_are_told_apart_by_more_of_their_names(broker: "Broker") -> None:
    topic = new_topic(broker)
    topic.write([envelope("people", "c", None, {"id": 1, "name": "a"}, db) for db in ("shop", "other")])
    value = {"format": "debezium", "schema": "id INT, name STRING"}
    with pytest.raises(ConfigError, match="'people' is the end of several names") as refused:
        opened(broker, ["people", "orders"], ["id"], topic=topic.name, value=value).pin()
    with typed(refused.value) as hint:
        hint.says('name = "other.public.people", target = "people"')
        with pytest.raises(ConfigError, match="nothing shows the full name of 'orders'") as nameless:
            opened(broker, ["other.public.people", "orders"], ["id"], topic=topic.name, value=value).pin()
    with typed(nameless.value) as hint:
        hint.says('name = "other.public.orders", target = "orders"')
        named = ["other.public.people", "other.public.orders"]
        pin = opened(broker, named, ["id"], topic=topic.name, value=value).pin()
        assert {split.id for split in pin.splits} == {f"{name}/0" for name in named}


def test_a_source_table_fills_one_table_of_a_job(broker: "Broker") -> None:
    topic = new_topic(broker)
    topic.write([envelope("people", "c", None, {"id": 1})])
    value = {"format": "debezium", "schema": "id INT"}
    with pytest.raises(
        ConfigError, match=r"'people' and 'public.people' are both 'shop.public.people'"
    ) as refused:
        opened(broker, ["people", "public.people"], ["id"], topic=topic.name, value=value).pin()
    with typed(refused.value) as hint:
        hint.says("leave one of them out of [[tables]]")
        assert opened(broker, ["people", "orders"], ["id"], topic=topic.name, value=value).pin().splits


def test_a_topic_whose_records_name_no_table_fills_one(broker: "Broker") -> None:
    topic = new_topic(broker)
    with pytest.raises(ConfigError, match="events values do not name the table of a record") as refused:
        opened(broker, ["a", "b"], topic=topic.name)
    with typed(refused.value) as hint:
        topics = hint.settings()["upstream.topics"]
        assert opened(broker, ["a", "b"], topics=topics).capabilities.partitions is not None


def test_a_topic_that_is_missing_is_named_before_anything_is_made(broker: "Broker") -> None:
    topic = new_topic(broker)
    with pytest.raises(UsageError, match=f"topic '{topic.name}x' does not exist") as refused:
        opened(broker, ["a", "b"], topics={"a": topic.name, "b": topic.name + "x"}).pin()
    with typed(refused.value) as hint:
        hint.says(topic.name)
        assert opened(broker, ["a"], topics={"a": topic.name}).pin().position == Position.of({"a/0": 0})


def test_every_table_has_its_topic_and_its_columns(broker: "Broker") -> None:
    topic = new_topic(broker)
    for told, said in (
        ({"topics": {"a": topic.name}}, "no topic for table 'b'"),
        ({"topics": {"a": "t", "b": "t2", "c": "t3"}}, r"there is no table 'c' in \[\[tables\]\]"),
        ({"topics": "{table}", "value": {"schema": {"a": "id INT"}}}, "no columns of table 'b'"),
        ({"topics": "{table}", "value": {"schema": {"a": "i INT", "b": "i INT", "c": "i INT"}}}, "no table 'c'"),
    ):
        with pytest.raises(ConfigError, match=said) as refused:
            opened(broker, ["a", "b"], **told)
        with typed(refused.value) as hint:
            hint.says("a, b")
            both = {"topics": {"a": topic.name, "b": topic.name + "2"}}
            schema = {"a": "id INT", "b": "id INT"}
            assert opened(broker, ["a", "b"], **both, value={"schema": schema}).capabilities.partitions
    with pytest.raises(ConfigError, match="is no name of a topic") as refused:
        opened(broker, ["a", "b c"], topics="{table}")
    with typed(refused.value) as hint:
        hint.says("write upstream.topics as a table, with each table's topic")
        assert opened(broker, ["a", "b c"], topics={"a": "a", "b c": "bc"}).capabilities.partitions
    debezium = {"format": "debezium", "schema": "id INT", "tables": ["x"]}
    with pytest.raises(ConfigError, match="is for a job of one table") as refused:
        opened(broker, ["a", "b"], ["id"], topics="{table}", value=debezium)
    with typed(refused.value) as hint:
        hint.says("leave it out")
        without = {name: told for name, told in debezium.items() if name != "tables"}
        assert opened(broker, ["a", "b"], ["id"], topics="{table}", value=without).capabilities.partitions


def test_growth_and_recreation_are_told_of_the_topic_that_they_are_of(broker: "Broker") -> None:
    first, second = new_topic(broker), new_topic(broker)
    topics = {"a": first.name, "b": second.name}
    rows = {**JSON, "format": "rows"}
    pin = opened(broker, ["a", "b"], ["id"], topics=topics, value=rows).pin()
    second.grow(2)
    later = opened(broker, ["a", "b"], ["id"], topics=topics, value=rows)
    later.restore(pin)
    with pytest.raises(Fatal, match=f"topic '{second.name}' has a new partition 1: it had 1, now it has 2"):
        later.observe(pin.position, False)
    accepted = opened(broker, ["a", "b"], ["id"], topics=topics, value=rows, accept_growth=True)
    accepted.restore(pin)
    view = accepted.observe(pin.position, False)
    assert (dict(view.latest), view.added) == ({"a/0": 0, "b/0": 0, "b/1": 0}, 1)
    first.recreate()
    with pytest.raises(StateConflict, match=f"topic '{first.name}' was recreated"):
        accepted.observe(pin.position, False)


def test_debeziums_keys_are_those_of_tables_whose_config_names_none(broker: "Broker", tmp_path: Path) -> None:
    """With the schema block of Kafka Connect or without; of a shared topic, those of each table's own records."""
    topic = new_topic(broker)
    block = {"type": "struct", "fields": [{"type": "int32", "field": "id"}]}
    keys = [{"schema": block, "payload": {"id": 1}}, {"order": 1, "line": 2}]
    values = [envelope("people", "c", None, {"id": 1}), envelope("lines", "c", None, {"order": 1, "line": 2})]
    topic.write([*values, None], keys=[json.dumps(key).encode() for key in (*keys, keys[0])])
    schema = '{ people = "id INT", lines = "order INT, line INT" }'
    upstream = f'topic = "{topic.name}"\nvalue = {{ format = "debezium", schema = {schema} }}'
    job = Job(tmp_path, broker, upstream, {"people": "", "lines": ""})
    assert [table.key for table in load(job.config).tables] == [["id"], ["order", "line"]]
    other = Job(tmp_path, broker, upstream.replace("people", "lines_"), {"lines_": "", "lines": ""})
    with pytest.raises(ConfigError, match="key: missing"):
        load(other.config)


def test_an_archive_is_of_one_table(broker: "Broker", tmp_path: Path) -> None:
    told = {"topic": "t", "archive": {"path": str(tmp_path)}}
    with pytest.raises(ConfigError, match=r"an archive fills one table, not 2 \(a, b\)") as refused:
        opened(broker, ["a", "b"], **told)
    with typed(refused.value) as hint:
        hint.says("remove the other tables")
        assert opened(broker, ["a"], **told).capabilities.partitions is not None
