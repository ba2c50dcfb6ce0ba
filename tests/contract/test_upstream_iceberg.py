"""The Iceberg upstream against the suite for upstreams, its tag, and its rows against plain Python."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from iceberg_world import IcebergWorld, world
from upstream_contract import UpstreamContract
from upstream_world import TABLE, World, row, rows_of

from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["world"]


@pytest.mark.in_turn
class TestIceberg(UpstreamContract):
    keeps_order_in_an_epoch = False

    @pytest.fixture
    def world(self, spark: "SparkSession", tmp_path: Path) -> IcebergWorld:
        return IcebergWorld(spark, tmp_path)

    def test_the_start_is_before_everything(self, loaded: World) -> None:
        assert loaded.open().pin().position >= START


# The tag that holds the snapshot


def test_case_34_a_tag_keeps_the_snapshot_until_its_changes_are_applied_or_the_job_is_dropped(
    world: IcebergWorld, spark: "SparkSession"
) -> None:
    world.load([[row(1, "a")], [row(2, "b")]])
    upstream = world.open()
    upstream.pin()
    assert len(upstream.preview()) == 1
    world.land([("insert", None, row(3, "c"))])
    upstream.create("first")
    pin = upstream.pin()
    assert pin.position != world.open().pin().position, "what was seen before the tag is what is held"
    told = "table => 'orders', older_than => TIMESTAMP '2999-01-01', retain_last => 1"
    world.sql(f"CALL {{c}}.system.expire_snapshots({told})")
    later = world.open()
    later.restore(pin)
    later.enforce_limit(pin.position, snapshot_open=False)
    moved = later.observe(pin.position, True).latest
    later.enforce_limit(moved, snapshot_open=True)  # a chain job took the changes into its spool
    assert len(tags(world)) == 1
    scan = later.scan(spark, TABLE, [SnapshotRead(s.table, s.id) for s in pin.splits])
    assert rows_of(scan) == [row(1, "a"), row(2, "b")]
    assert rows_of(later.changes(spark, TABLE, pin.position, moved, pin.schema[TABLE])) == [row(3, "c")]
    assert rows_of(later._rows_at(spark, TABLE, moved)) == [row(1, "a"), row(2, "b"), row(3, "c")]
    (tag,) = tags(world)
    later.enforce_limit(moved, snapshot_open=False)
    later.enforce_limit(moved, snapshot_open=False)
    assert tags(world) == []
    other = world.open()
    other.pin()
    other.create("second")
    other.create("second")  # its answer was lost
    held = other.pin()
    (another,) = tags(world)
    assert [another in said for said in world.open().leftovers("second")] == [True]
    world.open().clean_up("third", held)
    assert tags(world) == [another]
    assert another != tag
    world.open().release(held)
    world.open().release(held)
    again = world.open()
    again.pin()
    again.create("fourth")
    world.open().clean_up("fourth", held)
    assert tags(world) == []
    without = world.open(tag=False)
    without.pin()
    assert without.preview() == []
    without.create("third")
    without.release(without.pin())
    assert tags(world) == []


def tags(world: IcebergWorld) -> list[str]:
    from pyiceberg.table import StaticTable

    refs = StaticTable.from_metadata(str(world.folder / "orders")).metadata.refs
    return [name for name in refs if name.startswith("backfill_")]


def test_a_table_that_joins_is_kept_by_the_newest_of_its_tags_until_it_leaves(
    world: IcebergWorld, spark: "SparkSession"
) -> None:
    world.load([[row(1, "a")]])
    killed = world.open()
    killed.pin()
    killed.join("m")
    world.land([("insert", None, row(2, "b"))])
    upstream = world.open()
    upstream.pin()
    upstream.join("m")
    pin = upstream.pin()
    held = upstream.tables[TABLE].now().refs["backfill_pin_m"]
    assert held == json.loads(pin.identity)["iceberg"][TABLE]["snapshot"]
    world.open().give_up(TABLE, "other")
    assert len(tags(world)) == 1
    world.open().leave(TABLE, pin)
    assert tags(world) == []
    world.sql("DROP TABLE {t}")
    world.open().leave(TABLE, pin)


@pytest.mark.parametrize("by", ["id", "tag", "time"])
def test_a_version_is_named_by_its_id_a_tag_or_a_time(world: IcebergWorld, spark: "SparkSession", by: str) -> None:
    world.load([[row(1, "a")]])
    world.sql("ALTER TABLE {t} CREATE TAG monday")
    first = world.open().pin()
    assert first.position_ms is not None
    number = int(str(first.position.get(TABLE)).partition(":")[2])
    at = datetime.fromtimestamp((first.position_ms + 1) / 1000, UTC).isoformat()
    world.land([("insert", None, row(2, "b"))])
    named = world.open(version={"id": number, "tag": "monday", "time": at}[by])
    assert named.pin() == first
    assert len(named.observe(first.position, True).pending) == 1


# Against plain Python


def test_changes_of_rows_with_maps_and_odd_values_leave_what_the_table_has(
    world: IcebergWorld, spark: "SparkSession"
) -> None:
    world.create("id BIGINT, name STRING, m MAP<STRING, DOUBLE>, d DOUBLE")
    world.sql("INSERT INTO {t} VALUES (1, '', map('a', double('NaN')), -0.0), (2, NULL, NULL, double('NaN'))")
    upstream = world.open()
    pin = upstream.pin()
    held = upstream.scan(spark, TABLE, [SnapshotRead(s.table, s.id) for s in pin.splits])
    world.sql("UPDATE {t} SET d = 0.0 WHERE id = 1")
    world.sql("UPDATE {t} SET id = 9 WHERE id = 2")
    world.sql("UPDATE {t} SET name = name WHERE id = 9")
    at = upstream.observe(pin.position, False).latest
    window = upstream.changes(spark, TABLE, pin.position, at, pin.schema[TABLE]).orderBy("_backfill_seq")
    table = {one["id"]: one for one in held.drop("_backfill_read").toArrow().to_pylist()}
    for change in window.drop("_backfill_seq", "_backfill_ms").toArrow().to_pylist():
        table.pop(change["id"], None)
        if change.pop("_backfill_op") == "U":
            table[change["id"]] = change
    now = upstream._rows_at(spark, TABLE, at).toArrow().to_pylist()
    assert sorted(map(str, table.values())) == sorted(map(str, now))
    assert set(table) == {1, 9}


KEYS: dict[str, list[Any]] = {
    "BIGINT": [-(2**63), -1, 0, 2**63 - 1, None],
    "STRING": ["", "a" * 40, "a" * 40 + "b", "\U0001f600", "é", None],
    "DATE": [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31), None],
    "TIMESTAMP_NTZ": [datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), None],
    "DECIMAL(38,5)": [Decimal("-1.00001"), Decimal(0), Decimal("99999999999999999999.99999"), None],
    "DOUBLE": [float("-inf"), -0.0, 1.5, float("nan"), None],
    "BINARY": [b"", b"\x00", b"\xff", None],
    "BOOLEAN": [True, False, None],
}


@pytest.mark.parametrize("kind", KEYS)
def test_ranges_of_any_key_give_every_row_once_those_without_a_key_too(
    world: IcebergWorld, spark: "SparkSession", kind: str
) -> None:
    values = KEYS[kind]
    world.create(f"id {kind}, name STRING")
    shape = f"id {kind}, name STRING"
    for at, value in enumerate(values):
        frame = world.frame([{"id": value, "name": str(at)}], shape)
        frame.coalesce(1).writeTo(f"{world.name}.orders").append()
    upstream = world.open()
    pin = upstream.pin()
    reads = [SnapshotRead(s.table, s.id) for s in pin.splits]
    found = upstream.scan(spark, TABLE, reads).select("name").toArrow().column("name").to_pylist()
    assert sorted(found) == [str(at) for at in range(len(values))]
