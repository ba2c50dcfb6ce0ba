"""A snapshot of files and changes in a Kafka topic as one upstream: the suite, and where the log goes on."""

import datetime as dt
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from broker import Broker
from hint_typed import typed
from kafka_topics import new_topic
from pydantic import ValidationError
from two_systems_world import TwoSystems, Watched, after_snapshot, record
from upstream_contract import UpstreamContract
from upstream_world import TABLE, replayed, row, rows_of

from backfill_cli import registry
from backfill_cli.contracts import TableSpec
from backfill_cli.errors import ConfigError, Fatal, HistoryGone, StateConflict
from backfill_cli.kafka.cluster import Cluster
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        return Watched(tmp_path, new_topic(broker, 2), "rows")


# Where the log goes on


@pytest.fixture
def world(broker: Broker, tmp_path: Path) -> TwoSystems:
    made = TwoSystems(tmp_path, new_topic(broker, 2))
    made.load([[row(1, "one"), row(2, "two")]])
    return made


def test_from_offsets_the_snapshot_is_exactly_that_state(world: TwoSystems, spark: "SparkSession") -> None:
    world.land([("insert", None, row(1, "one")), ("insert", None, row(2, "two"))])
    at = {"0": 1, "1": 1}
    world.land([("update", row(1, "one"), row(1, "uno"))])
    upstream = world.open(**{"from": at})
    pin = upstream.pin()
    assert (dict(pin.position), pin.complete_at, pin.position_ms) == (at, None, None)
    assert after_snapshot(upstream, spark) == [row(1, "uno"), row(2, "two")]


def test_tables_that_share_a_topic_follow_each_its_own_snapshot(
    broker: Broker, tmp_path: Path, spark: "SparkSession"
) -> None:
    """Equal keys in both, the tombstone of a delete, and a table that the job does not have."""
    topic = new_topic(broker)
    held = {TABLE: [row(1, "one"), row(2, "two")], "people": [row(1, "a"), row(2, "b")]}
    for name, rows in held.items():
        (tmp_path / name).mkdir()
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / name / "0.parquet")
    deleted = record("d", row(1, "a"), None).replace(b'"orders"', b'"people"')
    created = record("c", None, row(3, "c"))
    others = [created.replace(b'"orders"', b'"people"'), created.replace(b'"orders"', b'"nobody"')]
    topic.write([record("u", None, row(1, "uno")), deleted, None, *others], keys=[b'{"id":1}'] * 5)
    changes = {"type": "kafka", "bootstrap_servers": broker.bootstrap, "topic": topic.name}
    told = {
        "snapshot": {"type": "files", "path": f"{tmp_path}/{{table}}", "format": "parquet"},
        "changes": {**changes, "from": {f"{name}/0": 0 for name in held}},
    }
    connector = registry.two_systems("files", "kafka")
    upstream = connector.open(connector.options.model_validate(told), [TableSpec(name, ("id",)) for name in held])
    pin = upstream.pin()
    assert dict(pin.position) == {"orders/0": 0, "people/0": 0}
    latest = upstream.observe(pin.position, True).latest
    expected = {TABLE: [row(1, "uno"), row(2, "two")], "people": [row(2, "b"), row(3, "c")]}
    for name, rows in held.items():
        reads = [SnapshotRead(split.table, split.id) for split in pin.splits if split.table == name]
        assert rows_of(upstream.scan(spark, name, reads)) == rows
        changed = upstream.changes(spark, name, pin.position, latest, pin.schema[name])
        assert replayed(changed, rows) == expected[name]


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
    with pytest.raises(
        HistoryGone, match=r"partition 0 of topic .*: its log begins at offset 2, with no record from before"
    ) as refused:
        world.open(**{"from": "2026-01-01T00:00:00Z"}).pin()
    with typed(refused.value) as hint:
        told = {path.rpartition(".")[2]: value for path, value in hint.settings().items()}
        assert dict(world.open(**told).pin().position) == {"0": 2, "1": 0}


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        ({"0": 0}, "partition 1 of topic .* is not named"),
        ({"0": 0, "1": 0, "2": 0}, "there is no partition 2 of topic"),
        ({"0": 5, "1": 0}, "partition 0 of topic .* ends at offset 0, before 5"),
        ("2999-01-01T00:00:00Z", "from: .* is in the future"),
    ],
)
def test_a_place_that_the_topic_does_not_have_is_refused(world: TwoSystems, told: Any, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as refused:
        world.open(**{"from": told}).pin()
    with typed(refused.value) as hint:
        if isinstance(told, str):
            hint.says("give the time at which the snapshot was begun")
            world.open(**{"from": dt.datetime.now(dt.UTC).isoformat()}).pin()
        else:
            hint.says("name the next offset of every partition")
            world.open(**{"from": {"0": 0, "1": 0}}).pin()


def test_a_snapshot_that_is_finished_in_the_future_is_refused_and_offsets_to_come_are_waited_for(
    world: TwoSystems,
) -> None:
    with pytest.raises(ConfigError, match=r"complete_at: .* is in the future") as refused:
        world.open(complete_at="2999-01-01T00:00:00Z").pin()
    with typed(refused.value) as hint:
        hint.says("start once the snapshot is finished, and give that time")
        world.open(complete_at=dt.datetime.now(dt.UTC).isoformat()).pin()
    assert world.open(complete_at={"0": 7, "1": 0}).pin().complete_at == Position.of({"0": 7, "1": 0})


@pytest.mark.parametrize(
    "told", [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), {"0": True}, {"0": -1}, {"x": 1}, {}, 5, "yesterday"]
)
def test_what_is_no_place_is_one_fault_that_says_what_is(world: TwoSystems, told: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        world.open(**{"from": told})
    (fault,) = caught.value.errors()
    assert "must be earliest, a time like" in fault["msg"]


def test_retention_that_moves_while_the_job_starts_is_seen(
    world: TwoSystems, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.land([("insert", None, row(2, f"{n}")) for n in range(6)])
    asked = Cluster.at_time

    def later(cluster: Cluster, topic: str, ends: Any, ms: int) -> Any:
        world.topic.delete_before(3)
        return asked(cluster, topic, ends, ms)

    monkeypatch.setattr(Cluster, "at_time", later)
    with pytest.raises(HistoryGone, match=r"partition 0 of topic .*: its log begins at offset 3"):
        world.open(**{"from": "2026-01-01T00:00:00Z"}).pin()


def test_a_compacted_topic_is_refused_unless_that_is_accepted(broker: Broker, tmp_path: Path) -> None:
    world = TwoSystems(tmp_path, new_topic(broker, 2, cleanup_policy="compact"))
    world.load([[row(1, "one")]])
    with pytest.raises(ConfigError, match="is compacted: a delete that compaction removes") as refused:
        world.open().pin()
    with typed(refused.value) as hint:
        assert hint.settings() == {"upstream.changes.accept_compaction": True}
        accepted = world.open(accept_compaction=True)
        accepted.pin()
        assert any("is compacted" in said for said in accepted.extras.warnings())


def test_changes_that_are_deleted_before_they_are_read_end_the_job(world: TwoSystems) -> None:
    world.land([("insert", None, row(2, f"{n}")) for n in range(4)])
    upstream = world.open()
    pin = upstream.pin()
    world.topic.delete_before(3)
    with pytest.raises(HistoryGone, match=r"partition 0: offsets 0 to 2 are needed but gone") as gone:
        upstream.observe(pin.position, True)
    with pytest.raises(HistoryGone, match="partition 0: offsets 1 to 2 are needed") as refused:
        world.open(**{"from": {"0": 1, "1": 0}}).pin()
    began = dt.datetime.now(dt.UTC).isoformat()
    for error, says in ((gone.value, "start over, with a newer snapshot"), (refused.value, "a newer snapshot")):
        with typed(error) as hint:
            hint.says(says)
            hint.says("from its time")
            world.load([[row(2, "3")]])
            over = world.open(**{"from": began})
            assert dict(over.observe(over.pin().position, True).latest) == {"0": 4, "1": 0}


def test_a_topic_that_was_recreated_or_got_a_partition_ends_the_job(world: TwoSystems) -> None:
    upstream = world.open()
    pin = upstream.pin()
    world.topic.grow(3)
    with pytest.raises(Fatal, match=r"has a new partition 2: .*") as caught:
        upstream.observe(pin.position, True)
    with typed(caught.value) as hint:
        assert hint.settings() == {"upstream.changes.accept_growth": True}
        growing = world.open(accept_growth=True)
        growing.restore(pin)
        view = growing.observe(pin.position, True)
        assert (dict(view.latest), view.added) == ({"0": 0, "1": 0, "2": 0}, 1)
        assert growing.observe(view.latest, True).added == 1, "however far the job is"
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
