"""The Iceberg upstream against the suite for upstreams, and what it refuses. Another session writes the tables."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from upstream_contract import UpstreamContract
from upstream_world import TABLE, Row, World, row, rows_of

from backfill_cli.contracts import HeldUpstream, TableSpec
from backfill_cli.errors import Fatal, HistoryGone, UsageError
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import START
from backfill_cli.model.schema import names_of
from backfill_cli.upstreams.iceberg import connector
from backfill_cli.upstreams.iceberg.upstream import IcebergUpstream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Change = tuple[str, Row | None, Row | None]


@dataclass
class IcebergWorld:
    """One writer with its own session and catalog, so that it uses nothing of the code under test."""

    session: "SparkSession"
    folder: Path
    rows: dict[int, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.session = self.session.newSession()
        self.name = f"w{abs(hash(str(self.folder))):x}"
        told = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": str(self.folder)}
        for key, value in {**told, ".cache-enabled": "false"}.items():
            self.session.conf.set(f"spark.sql.catalog.{self.name}{key}", value)

    def sql(self, text: str) -> None:
        self.session.sql(text.format(t=f"{self.name}.orders", c=self.name))

    def create(self, columns: str = "id BIGINT, name STRING", **properties: str) -> None:
        told = ", ".join(f"'{key.replace('__', '.')}' = '{value}'" for key, value in properties.items())
        self.sql(f"CREATE TABLE {{t}} ({columns}) USING iceberg" + (f" TBLPROPERTIES ({told})" if told else ""))

    def load(self, splits: Sequence[Sequence[Row]]) -> None:
        self.create()
        for part in splits:
            self.frame(part).coalesce(1).writeTo(f"{self.name}.orders").append()
            self.rows |= {one["id"]: one for one in part}

    def land(self, changes: Sequence[Change]) -> None:
        touched: dict[int, Row] = {}
        for _, before, after in changes:
            if before is not None:
                self.rows.pop(before["id"], None)
                touched[before["id"]] = {**before, "gone": True}
            if after is not None:
                self.rows[after["id"]] = after
                touched[after["id"]] = {**after, "gone": False}
        self.frame(list(touched.values()), "id BIGINT, name STRING, gone BOOLEAN").createOrReplaceTempView("s")
        self.sql(
            "MERGE INTO {t} t USING s ON t.id = s.id WHEN MATCHED AND s.gone THEN DELETE WHEN MATCHED THEN "
            "UPDATE SET t.name = s.name WHEN NOT MATCHED AND NOT s.gone THEN INSERT (id, name) "
            "VALUES (s.id, s.name)"
        )

    def frame(self, rows: Sequence[Row], shape: str = "id BIGINT, name STRING") -> Any:
        return self.session.createDataFrame(list(rows), shape)

    def open(self, **options: Any) -> IcebergUpstream:
        return opened(self.session, self.folder / "orders", **options)


def opened(spark: "SparkSession", path: Path, **options: Any) -> IcebergUpstream:
    told = connector.options.model_validate({"table": str(path), **options})
    upstream = connector.open(told, [TableSpec(TABLE, ("id",))])
    assert isinstance(upstream, IcebergUpstream)
    upstream.use(lambda: spark)
    return upstream


@pytest.fixture
def world(spark: "SparkSession", tmp_path: Path) -> IcebergWorld:
    return IcebergWorld(spark, tmp_path)


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
    assert isinstance(upstream, HeldUpstream)
    upstream.pin()
    assert len(upstream.would_hold()) == 1
    world.land([("insert", None, row(3, "c"))])
    upstream.hold("first")
    pin = upstream.pin()
    assert pin.position != world.open().pin().position, "what was seen before the tag is what is held"
    told = "table => 'orders', older_than => TIMESTAMP '2999-01-01', retain_last => 1"
    world.sql(f"CALL {{c}}.system.expire_snapshots({told})")
    later = world.open()
    later.restore(pin)
    later.keep_within(pin.position, snapshot_open=False)
    moved = later.observe(pin.position, True).latest
    later.keep_within(moved, snapshot_open=True)  # a chain job took the changes into its spool
    assert len(tags(world)) == 1
    scan = later.scan(spark, TABLE, [SnapshotRead(s.table, s.id) for s in pin.splits])
    assert rows_of(scan) == [row(1, "a"), row(2, "b")]
    assert rows_of(later.changes(spark, TABLE, pin.position, moved, pin.schema[TABLE])) == [row(3, "c")]
    assert rows_of(later.rows_at(spark, TABLE, moved)) == [row(1, "a"), row(2, "b"), row(3, "c")]
    (tag,) = tags(world)
    later.keep_within(moved, snapshot_open=False)
    later.keep_within(moved, snapshot_open=False)
    assert tags(world) == []
    other = world.open()
    other.pin()
    other.hold("second")
    other.hold("second")  # its answer was lost
    held = other.pin()
    (another,) = tags(world)
    assert [another in said for said in world.open().left("second")] == [True]
    world.open().sweep("third", held)
    assert tags(world) == [another]
    assert another != tag
    world.open().release(held)
    world.open().release(held)
    again = world.open()
    again.pin()
    again.hold("fourth")
    world.open().sweep("fourth", held)
    assert tags(world) == []
    without = world.open(tag=False)
    without.pin()
    assert without.would_hold() == []
    without.hold("third")
    without.release(without.pin())
    assert tags(world) == []


def tags(world: IcebergWorld) -> list[str]:
    from pyiceberg.table import StaticTable

    refs = StaticTable.from_metadata(str(world.folder / "orders")).metadata.refs
    return [name for name in refs if name.startswith("backfill_")]


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


# What is refused


def test_what_cannot_be_pinned_is_named_with_what_to_do(world: IcebergWorld) -> None:
    with pytest.raises(UsageError, match="no Iceberg table"):
        world.open().pin()
    world.load([[row(1, "a")]])
    with pytest.raises(UsageError, match=r"no snapshot 'sunday'.*: main"):
        world.open(version="sunday").pin()
    with pytest.raises(UsageError, match="no snapshot is as old as 2001"):
        world.open(version="2001-01-01T00:00:00Z").pin()
    told = connector.options.model_validate({"table": str(world.folder / "orders")})
    with pytest.raises(
        UsageError, match="no column 'order_id', which is in the key of table 'orders'; columns: id"
    ):
        connector.open(told, [TableSpec(TABLE, ("order_id",))]).pin()
    world.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    with pytest.raises(UsageError, match=r"write\.delete\.mode is merge-on-read") as refused:
        world.open().pin()
    assert "'write.delete.mode' = 'copy-on-write'" in refused.value.hint
    world.sql("DROP TABLE {t} PURGE")
    world.create(**{"format-version": "1"})
    with pytest.raises(UsageError, match="format version 1") as refused:
        world.open().pin()
    assert "('format-version' = '2')" in refused.value.hint


def test_delete_files_are_refused_when_the_job_is_made_and_when_they_come(world: IcebergWorld) -> None:
    world.create(write__delete__mode="merge-on-read")
    world.frame([row(1, "a"), row(2, "b")]).coalesce(1).writeTo(f"{world.name}.orders").append()
    world.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write')")
    upstream = world.open()
    begun = upstream.pin().position
    world.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    world.sql("DELETE FROM {t} WHERE id = 1")
    with pytest.raises(Fatal, match="has delete files"):
        upstream.observe(begun, False)
    world.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write')")
    with pytest.raises(UsageError, match="it has delete files") as refused:
        world.open().pin()
    assert "rewrite_data_files" in refused.value.hint


def test_what_is_no_change_of_rows_is_refused_by_its_name(world: IcebergWorld) -> None:
    world.load([[row(1, "a")]])
    upstream = world.open()
    first = upstream.pin().position
    world.land([("insert", None, row(2, "b"))])
    applied = upstream.observe(first, False).latest
    number = str(first.get(TABLE)).partition(":")[2]
    world.sql(f"CALL {{c}}.system.rollback_to_snapshot('orders', {int(number)})")
    with pytest.raises(Fatal, match="was rolled back"):
        upstream.observe(applied, False)
    for turn in (3, 4):
        world.land([("insert", None, row(turn, "c"))])
    told = "table => 'orders', older_than => TIMESTAMP '2999-01-01', retain_last => 1"
    world.sql(f"CALL {{c}}.system.expire_snapshots({told})")
    with pytest.raises(HistoryGone, match="has expired"):
        upstream.observe(first, False)
    with pytest.raises(HistoryGone, match="has expired"):
        upstream.observe(first, True)
    world.sql("DROP TABLE {t} PURGE")
    world.create()
    with pytest.raises(Fatal, match="the table was replaced"):
        upstream.observe(first, False)


def test_case_26_an_added_column_is_told_and_one_dropped_and_added_again_is_refused(
    world: IcebergWorld, spark: "SparkSession"
) -> None:
    world.load([[row(1, "a")]])
    upstream = world.open()
    pin = upstream.pin()
    world.sql("ALTER TABLE {t} ADD COLUMN more INT")
    assert upstream.observe(pin.position, False).pending == (), "nothing was written with it yet"
    world.sql("INSERT INTO {t} VALUES (2, 'b', 7)")
    world.sql("CALL {c}.system.rewrite_data_files(table => 'orders', options => map('rewrite-all', 'true'))")
    view = upstream.observe(pin.position, False)
    ((table, schema),) = view.pending[0].schema
    assert (table, names_of(schema)) == (TABLE, ["id", "name", "more"])
    assert [epoch.rows for epoch in view.pending] == [1, 0], "what compaction writes is no change"
    window = upstream.changes(spark, TABLE, pin.position, view.latest, schema)
    found = window.select("_op", "id", "more", "_ms").toArrow().to_pylist()
    assert found == [{"_op": "U", "id": 2, "more": 7, "_ms": view.pending[0].ms}]
    world.sql("ALTER TABLE {t} DROP COLUMN more")
    world.sql("ALTER TABLE {t} ADD COLUMN more INT")
    world.sql("INSERT INTO {t} VALUES (3, 'c', 8)")
    with pytest.raises(Fatal, match="a different column 'more'"):
        upstream.observe(view.latest, False)


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
    window = upstream.changes(spark, TABLE, pin.position, at, pin.schema[TABLE]).orderBy("_seq")
    table = {one["id"]: one for one in held.drop("_read").toArrow().to_pylist()}
    for change in window.drop("_seq", "_ms").toArrow().to_pylist():
        table.pop(change["id"], None)
        if change.pop("_op") == "U":
            table[change["id"]] = change
    now = upstream.rows_at(spark, TABLE, at).toArrow().to_pylist()
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
