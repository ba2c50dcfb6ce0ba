"""A snapshot of files and changes in a Kafka topic as one upstream: the suite, and where the log goes on."""

import datetime as dt
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from broker import Broker
from kafka_topics import Topic, new_topic
from pydantic import ValidationError
from pyspark.errors import PySparkException
from upstream_contract import TABLE, Row, UpstreamContract, replayed, row, rows_of, whole

from backfill_cli import registry
from backfill_cli.contracts import TableSpec, Upstream
from backfill_cli.errors import BackfillError, BadData, ConfigError, Fatal, HistoryGone, StateConflict
from backfill_cli.model.position import Position
from backfill_cli.upstreams.kafka.log.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Change = tuple[str, Row | None, Row | None]
COLUMNS = {"id": "int64", "name": "string"}


def record(op: str, before: Row | None, after: Row | None, block: bool = False) -> bytes:
    """An envelope as Debezium writes it."""
    source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": TABLE, "ts_ms": 5}
    told = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 6}
    if not block:
        return json.dumps(told).encode()
    fields = [{"field": name, "type": kind, "optional": name != "id"} for name, kind in COLUMNS.items()]
    parts = [{"type": "struct", "fields": fields, "field": side} for side in ("before", "after")]
    return json.dumps({"schema": {"type": "struct", "fields": parts}, "payload": told}).encode()


@dataclass
class TwoSystems:
    """Parquet files below `root`, and a topic of two partitions, a key always in one."""

    root: Path
    topic: Topic
    form: str = "debezium"
    block: bool = False
    opened: list[Any] = field(default_factory=list)

    def load(self, splits: Sequence[Sequence[Row]], schema: pa.Schema | None = None) -> None:
        folder = self.root / "snapshot"
        folder.mkdir()
        schema = schema or pa.schema([("id", pa.int64()), ("name", pa.string())])
        for index, rows in enumerate(splits):
            pq.write_table(pa.Table.from_pylist(list(rows), schema), folder / f"{index}.parquet", row_group_size=7)

    def land(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._write(*change)
        for upstream in self.opened:
            upstream.observe(upstream.begun, False)

    def _write(self, op: str, before: Row | None, after: Row | None) -> None:
        moved = before is not None and after is not None and before["id"] != after["id"]
        keys = [row["id"] for row in ((before, after) if moved else (after or before,)) if row is not None]
        for key in keys:
            if self.form == "debezium":  # of a key change: a delete, its tombstone, a create
                gone = op == "delete" or (moved and key == keys[0])
                op_now = "d" if gone else "c" if moved or op == "insert" else "u"
                values: list[bytes | None] = [
                    record(op_now, before if gone else None, None if gone else after, self.block)
                ]
                values += [None] if gone else []
            else:
                values = [None if after is None or key != after["id"] else json.dumps(after).encode()]
            self.topic.write(values, abs(key) % 2, [json.dumps({"id": key}).encode()] * len(values))

    def open(self, **changes: Any) -> Upstream:
        connector = registry.two_systems("files", "kafka")
        value = {"format": self.form, **changes.pop("value", {})}
        told = {
            "snapshot": {"type": "files", "path": str(self.root / "snapshot"), "format": "parquet"},
            "changes": {
                "type": "kafka",
                "bootstrap_servers": self.topic.broker.bootstrap,
                "topic": self.topic.name,
                "from": "earliest",
                "value": value,
                **changes,
            },
        }
        return connector.open(connector.options.model_validate(told), [TableSpec(TABLE, ("id",))])


class Opened:
    """An upstream that looks at its log each time that something lands: an observation is an epoch."""

    def __init__(self, world: TwoSystems, upstream: Upstream) -> None:
        self._world, self._upstream = world, upstream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._upstream, name)

    def pin(self) -> Any:
        pin = self._upstream.pin()
        self.begun = pin.position
        self._world.opened.append(self)
        return pin


@dataclass
class Watched(TwoSystems):
    def open(self, **changes: Any) -> Any:
        return Opened(self, super().open(**changes))


class TestDebezium(UpstreamContract):
    @pytest.fixture
    def world(self, broker: Broker, tmp_path: Path) -> TwoSystems:
        return Watched(tmp_path, new_topic(broker, 2))


class TestDebeziumWithItsBlock(UpstreamContract):
    @pytest.fixture
    def world(self, broker: Broker, tmp_path: Path) -> TwoSystems:
        return Watched(tmp_path, new_topic(broker, 2), block=True)


class TestUpserts(UpstreamContract):
    @pytest.fixture
    def world(self, broker: Broker, tmp_path: Path) -> TwoSystems:
        return Watched(tmp_path, new_topic(broker, 2), "json")


# Where the log goes on


@pytest.fixture
def world(broker: Broker, tmp_path: Path) -> TwoSystems:
    made = TwoSystems(tmp_path, new_topic(broker, 2))
    made.load([[row(1, "one"), row(2, "two")]])
    return made


def after_snapshot(upstream: Upstream, spark: "SparkSession") -> list[Row]:
    """The snapshot and all that follows it, replayed."""
    pin = upstream.pin()
    held = rows_of(upstream.scan(spark, TABLE, whole(upstream, pin)))
    latest = upstream.observe(pin.position, True).latest
    return replayed(upstream.changes(spark, TABLE, pin.position, latest, pin.schema[TABLE]), held)


def test_from_offsets_the_snapshot_is_exactly_that_state(world: TwoSystems, spark: "SparkSession") -> None:
    world.land([("insert", None, row(1, "one")), ("insert", None, row(2, "two"))])
    at = {"0": 1, "1": 1}
    world.land([("update", row(1, "one"), row(1, "uno"))])
    upstream = world.open(**{"from": at})
    pin = upstream.pin()
    assert (dict(pin.position), pin.complete_at, pin.position_ms) == (at, None, None)
    assert after_snapshot(upstream, spark) == [row(1, "uno"), row(2, "two")]


def test_from_earliest_all_is_replayed_and_the_sink_converges_to_the_topics_end(world: TwoSystems) -> None:
    world.land([("insert", None, row(1, "one")), ("insert", None, row(3, "three"))])
    pin = world.open().pin()
    assert dict(pin.position) == {"0": 0, "1": 0}
    assert pin.complete_at == Position.of({"0": 0, "1": 2})
    assert world.open(complete_at={"0": 0, "1": 1}).pin().complete_at == Position.of({"0": 0, "1": 1})


def test_from_a_time_the_log_goes_on_at_the_first_record_of_it(world: TwoSystems) -> None:
    world.land([("insert", None, row(2, "old"))])
    time.sleep(0.05)
    began = dt.datetime.now(dt.UTC)
    time.sleep(0.05)
    world.land([("insert", None, row(2, "two"))])
    pin = world.open(**{"from": began.isoformat()}).pin()
    assert (dict(pin.position), pin.position_ms) == ({"0": 1, "1": 0}, int(began.timestamp() * 1000))
    assert pin.complete_at == Position.of({"0": 2, "1": 0})


def test_a_time_that_the_log_no_longer_reaches_back_to_is_refused(world: TwoSystems) -> None:
    world.land([("insert", None, row(2, f"{n}")) for n in range(4)])
    world.topic.delete_before(2)
    with pytest.raises(HistoryGone, match=r"partition 0: its log begins at offset 2, with no record from before"):
        world.open(**{"from": "2026-01-01T00:00:00Z"}).pin()
    assert dict(world.open(**{"from": "earliest"}).pin().position) == {"0": 2, "1": 0}


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        ({"0": 0}, "partition 1 of topic .* is not named"),
        ({"0": 0, "1": 0, "2": 0}, "has no partition 2"),
        ({"0": 5, "1": 0}, "partition 0 ends at offset 0, before 5"),
        ("2999-01-01T00:00:00Z", "from: .* is in the future"),
    ],
)
def test_a_place_that_the_topic_does_not_have_is_refused(world: TwoSystems, told: Any, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        world.open(**{"from": told}).pin()


def test_a_snapshot_that_is_finished_in_the_future_is_refused_and_offsets_to_come_are_waited_for(
    world: TwoSystems,
) -> None:
    with pytest.raises(ConfigError, match=r"complete_at: .* is in the future"):
        world.open(complete_at="2999-01-01T00:00:00Z").pin()
    assert world.open(complete_at={"0": 7, "1": 0}).pin().complete_at == Position.of({"0": 7, "1": 0})


@pytest.mark.parametrize(
    "told", [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), {"0": True}, {"0": -1}, {"x": 1}, {}, 5, "yesterday"]
)
def test_what_is_no_place_is_one_fault_that_says_what_is(world: TwoSystems, told: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        world.open(**{"from": told})
    (fault,) = caught.value.errors()
    assert "is earliest, a time like" in fault["msg"]


def test_retention_that_moves_while_the_job_starts_is_seen(
    world: TwoSystems, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.land([("insert", None, row(2, f"{n}")) for n in range(6)])
    asked = Cluster.at_time

    def later(cluster: Cluster, ends: Any, ms: int) -> Any:
        world.topic.delete_before(3)
        return asked(cluster, ends, ms)

    monkeypatch.setattr(Cluster, "at_time", later)
    with pytest.raises(HistoryGone, match="partition 0: its log begins at offset 3"):
        world.open(**{"from": "2026-01-01T00:00:00Z"}).pin()


def test_a_compacted_topic_is_refused_unless_that_is_accepted(broker: Broker, tmp_path: Path) -> None:
    world = TwoSystems(tmp_path, new_topic(broker, 2, cleanup_policy="compact"))
    world.load([[row(1, "one")]])
    with pytest.raises(ConfigError, match="is compacted: a delete that compaction takes"):
        world.open().pin()
    accepted = world.open(accept_compaction=True)
    accepted.pin()
    assert any("is compacted" in said for said in accepted.advice())


def test_changes_that_are_deleted_before_they_are_read_end_the_job(world: TwoSystems) -> None:
    world.land([("insert", None, row(2, f"{n}")) for n in range(4)])
    upstream = world.open()
    pin = upstream.pin()
    world.topic.delete_before(3)
    with pytest.raises(HistoryGone, match=r"partition 0: offsets 0 to 2 are needed and gone"):
        upstream.observe(pin.position, True)
    with pytest.raises(HistoryGone, match="partition 0: offsets 1 to 2 are needed"):
        world.open(**{"from": {"0": 1, "1": 0}}).pin()


def test_a_topic_that_was_recreated_or_got_a_partition_ends_the_job(world: TwoSystems) -> None:
    upstream = world.open()
    pin = upstream.pin()
    world.topic.grow(3)
    with pytest.raises(Fatal, match=r"has a new partition 2: .*") as caught:
        upstream.observe(pin.position, True)
    assert "upstream.changes.accept_growth" in (caught.value.hint or "")
    growing = world.open(accept_growth=True)
    growing.restore(pin)
    assert dict(growing.observe(pin.position, True).latest) == {"0": 0, "1": 0, "2": 0}
    world.topic.recreate(2)
    with pytest.raises(StateConflict, match="was recreated"):
        growing.observe(pin.position, True)


def test_a_log_that_grew_unseen_is_many_epochs_none_larger_than_its_share(world: TwoSystems) -> None:
    for _ in range(2):
        world.topic.write([None] * 65_000, 0, [b"{}"] * 65_000)
    world.topic.write([None] * 5_000, 1, [b"{}"] * 5_000)
    upstream = world.open()
    pin = upstream.pin()
    pending = upstream.observe(pin.position, True).pending
    assert [epoch.rows for epoch in pending] == [44_999, 45_000, 45_001]
    assert dict(pending[-1].cursors) == {"0": 130_000, "1": 5_000}
    assert pending[0].ms < pending[1].ms < pending[2].ms
    assert upstream.observe(Position(pending[0].cursors), True).pending == pending[1:]
    later = world.open()
    later.restore(pin)
    assert [e.rows for e in later.observe(Position(pending[1].cursors), True).pending] == [45_001]


# What the records hold


def failed(world: TwoSystems, spark: "SparkSession", **options: Any) -> BackfillError:
    upstream = world.open(**options)
    with pytest.raises(PySparkException) as caught:
        after_snapshot(upstream, spark)
    found = upstream.failure(caught.value)
    assert found is not None
    return found


def test_a_record_that_cannot_be_read_is_named(world: TwoSystems, spark: "SparkSession") -> None:
    world.land([("insert", None, row(2, "two"))])
    world.topic.write([record("c", None, {"id": 4, "name": "four"}), b"no json"], 0)
    found = failed(world, spark)
    assert isinstance(found, BadData)
    assert "the record at partition 0, offset 2 cannot be read: not one whole JSON object" in found.message


@pytest.mark.parametrize("block", [False, True])
def test_a_column_that_the_snapshot_lacks_is_no_change_that_may_be_left_out(
    world: TwoSystems, spark: "SparkSession", block: bool
) -> None:
    more = {"id": 2, "name": "two", "note": "new"}
    world.land([("insert", None, row(2, "two"))])
    upstream = world.open()
    upstream.pin()
    world.topic.write([record("u", None, more)], 0)
    with pytest.raises(ConfigError, match=r"have a column 'note', and the snapshot has none"):
        world.open().pin()
    assert after_snapshot(world.open(ignore=["note"]), spark) == [row(1, "one"), row(2, "two")]


def test_a_column_that_comes_later_is_named_until_it_is_ignored(world: TwoSystems, spark: "SparkSession") -> None:
    world.land([("insert", None, row(2, "two"))] * 30)
    pin = world.open().pin()
    world.topic.write([record("u", None, {"id": 2, "name": "more", "note": "new"})], 0)
    world.land([("insert", None, row(4, "four"))] * 30)  # past what a start looks at
    later = world.open()
    later.restore(pin)
    latest = later.observe(pin.position, False).latest
    with pytest.raises(PySparkException, match=r"column 'note' is new in its row"):
        later.changes(spark, TABLE, pin.position, latest, pin.schema[TABLE]).toArrow()
    ignoring = world.open(ignore=["note"])
    ignoring.restore(pin)
    rows = replayed(ignoring.changes(spark, TABLE, pin.position, latest, pin.schema[TABLE]))
    assert rows == [row(2, "more"), row(4, "four")]


@pytest.mark.parametrize("form", ["debezium", "json"])
def test_a_row_without_a_column_of_the_snapshot_is_named_unless_that_column_is_sparse(
    world: TwoSystems, spark: "SparkSession", form: str
) -> None:
    world.form = form
    world.land([("insert", None, row(2, "two"))] * 30)
    pin = world.open().pin()
    less = {"id": 2}
    value = record("u", None, less) if form == "debezium" else json.dumps(less).encode()
    world.topic.write([value], 0, [b'{"id": 2}'])
    world.land([("insert", None, row(4, "four"))] * 30)
    for sparse, told in (((), "column 'name' is not in its row"), (("name",), None)):
        later = world.open(sparse=sparse)
        later.restore(pin)
        latest = later.observe(pin.position, False).latest
        frame = later.changes(spark, TABLE, pin.position, latest, pin.schema[TABLE])
        if told is None:
            assert replayed(frame) == [row(2, None), row(4, "four")]
        else:
            with pytest.raises(PySparkException, match=told) as caught:
                frame.toArrow()
            error = later.failure(caught.value)
            assert error is not None
            assert "upstream.changes.sparse" in (error.hint or "")


def test_rows_in_json_with_other_names_are_no_rows_of_the_snapshot(
    world: TwoSystems, spark: "SparkSession"
) -> None:
    world.topic.write([b'{"id": 2, "name": "x", "label": 1}'], 0, [b'{"id": 2}'])
    world.form = "json"
    found = failed(world, spark)
    assert "column 'label' is new in its row" in found.message
    assert "upstream.changes.ignore" in (found.hint or "")


def test_a_recreated_topic_is_told_by_verify_too(world: TwoSystems, spark: "SparkSession") -> None:
    world.land([("insert", None, row(2, "two"))])
    pin = world.open().pin()
    world.topic.recreate(2)
    later = world.open()
    later.restore(pin)
    with pytest.raises(StateConflict, match="was recreated"):
        later.changes(spark, TABLE, pin.position, Position.of({"0": 1, "1": 0}), pin.schema[TABLE])


def test_a_column_of_the_snapshot_that_no_record_has_is_refused(broker: Broker, tmp_path: Path) -> None:
    world = TwoSystems(tmp_path, new_topic(broker, 2))
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("note", pa.string())])
    world.load([[{"id": 1, "name": "one", "note": "x"}]], schema)
    world.land([("insert", None, row(2, "two"))])
    with pytest.raises(ConfigError, match=r"no record of topic .* has the snapshot's column 'note'"):
        world.open().pin()


def test_values_that_could_not_be_read_exactly_are_refused_before_the_job_begins(
    broker: Broker, tmp_path: Path
) -> None:
    world = TwoSystems(tmp_path, new_topic(broker, 2))
    schema = pa.schema([("id", pa.int64()), ("name", pa.decimal128(10, 2))])
    world.load([[{"id": 1, "name": Decimal("1.10")}]], schema)
    with pytest.raises(ConfigError, match=r"upstream\.changes\.value: column 'name'"):
        world.open().pin()
    world.open(value={"decimals": "string"}).pin()
