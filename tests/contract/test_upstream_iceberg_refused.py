"""What the Iceberg upstream refuses. Another session writes the tables."""

from typing import TYPE_CHECKING

import hint_typed
import pytest
from iceberg_world import IcebergWorld, world
from upstream_world import TABLE, row

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import BackfillError, Fatal, HistoryGone, UsageError
from backfill_cli.lake.iceberg.places import SPARK_CATALOG
from backfill_cli.model.schema import names_of
from backfill_cli.upstreams.iceberg import connector
from backfill_cli.view.console import laid_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["world"]


def test_what_cannot_be_pinned_is_named_with_what_to_do(world: IcebergWorld) -> None:
    with pytest.raises(UsageError, match="this Iceberg table does not exist") as no_table:
        world.open().pin()
    world.load([[row(1, "a")]])
    with hint_typed.typed(no_table.value) as hint:
        hint.says("correct upstream.table")
        world.open().pin()
    with pytest.raises(UsageError, match=r"no snapshot 'sunday'.*: main") as unknown:
        world.open(version="sunday").pin()
    with hint_typed.typed(unknown.value) as hint:
        hint.says('correct upstream.version, or leave it at "latest"')
        world.open(version="latest").pin()
    with pytest.raises(UsageError, match="no snapshot is as old as 2001") as old:
        world.open(version="2001-01-01T00:00:00Z").pin()
    with hint_typed.typed(old.value) as hint:
        hint.says("name a later time")
        world.open(version="2999-01-01T00:00:00Z").pin()
    told = connector.options.model_validate({"table": str(world.folder / "orders")})
    with pytest.raises(
        UsageError, match="no column 'order_id', which is in the key of table 'orders'; columns: id"
    ) as no_column:
        connector.open(told, [TableSpec(TABLE, ("order_id",))]).pin()
    with hint_typed.typed(no_column.value) as hint:
        hint.says("correct tables.key")
        connector.open(told, [TableSpec(TABLE, ("id",))]).pin()
    world.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    with pytest.raises(UsageError, match=r"write\.delete\.mode is merge-on-read") as refused:
        world.open().pin()
    with hint_typed.typed(refused.value) as hint:
        hint.says("'write.delete.mode' = 'copy-on-write'")
        for statement in typed(refused.value, world):
            world.session.sql(statement)
        world.open().pin()
    world.sql("DROP TABLE {t} PURGE")
    world.create(**{"format-version": "1"})
    with pytest.raises(UsageError, match="format version 1") as refused:
        world.open().pin()
    with hint_typed.typed(refused.value) as hint:
        hint.says("('format-version' = '2')")
        world.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '2')")  # that session knows the old one
        world.open().pin()


def typed(error: BackfillError, world: IcebergWorld) -> list[str]:
    """The statements of its hint as somebody copies them, in a session with the catalog that it describes."""
    lines = laid_out(error.hint, 80)
    assert "with a catalog lake of type hadoop whose warehouse is" in " ".join(lines)
    for name, value in (("", SPARK_CATALOG), (".type", "hadoop"), (".warehouse", str(world.folder))):
        world.session.conf.set(f"spark.sql.catalog.lake{name}", value)
    return [line for line in lines if line.startswith(("ALTER", "CALL"))]


def test_delete_files_are_refused_when_the_job_is_made_and_when_they_come(world: IcebergWorld) -> None:
    world.create(write__delete__mode="merge-on-read")
    world.frame([row(1, "a"), row(2, "b")]).coalesce(1).writeTo(f"{world.name}.orders").append()
    world.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write')")
    upstream = world.open()
    begun = upstream.pin().position
    world.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    world.sql("DELETE FROM {t} WHERE id = 1")
    with pytest.raises(Fatal, match="has delete files") as follows:
        upstream.observe(begun, False)
    world.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write')")
    with pytest.raises(UsageError, match="it has delete files") as refused:
        world.open().pin()
    with hint_typed.typed(refused.value) as hint:
        hint.says("'copy-on-write'")
        for statement in typed(refused.value, world):
            world.session.sql(statement)
        world.open().pin()
    with hint_typed.typed(follows.value) as hint:
        assert typed(follows.value, world) == typed(refused.value, world)
        hint.says("then drop the job and start over")
        again = world.open()
        assert not again.observe(again.pin().position, True).pending


def test_what_is_no_change_of_rows_is_refused_by_its_name(world: IcebergWorld) -> None:
    world.load([[row(1, "a")]])
    upstream = world.open()
    first = upstream.pin().position
    world.land([("insert", None, row(2, "b"))])
    applied = upstream.observe(first, False).latest
    number = str(first.get(TABLE)).partition(":")[2]
    world.sql(f"CALL {{c}}.system.rollback_to_snapshot('orders', {int(number)})")
    with pytest.raises(Fatal, match="was rolled back") as refused:
        upstream.observe(applied, False)
    with hint_typed.typed(refused.value) as hint:
        hint.says("go back to it")
        for statement in typed(refused.value, world):
            world.session.sql(statement)
        assert not upstream.observe(applied, False).pending
    world.sql(f"CALL {{c}}.system.rollback_to_snapshot('orders', {int(number)})")
    for turn in (3, 4):
        world.land([("insert", None, row(turn, "c"))])
    told = "table => 'orders', older_than => TIMESTAMP '2999-01-01', retain_last => 1"
    world.sql(f"CALL {{c}}.system.expire_snapshots({told})")
    with pytest.raises(HistoryGone, match="has expired"):
        upstream.observe(first, False)
    with pytest.raises(HistoryGone, match="has expired") as gone:
        upstream.observe(first, True)
    with hint_typed.typed(gone.value) as hint:
        hint.says("drop the job and start over; keep snapshots longer than the job needs")
        for statement in typed(gone.value, world):
            world.session.sql(statement)
        again = world.open()
        begun = again.pin().position
        world.land([("insert", None, row(5, "e"))])
        world.sql("CALL {c}.system.expire_snapshots('orders')")
        assert len(again.observe(begun, True).pending) == 1
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
    found = window.select("_backfill_op", "id", "more", "_backfill_ms").toArrow().to_pylist()
    assert found == [{"_backfill_op": "U", "id": 2, "more": 7, "_backfill_ms": view.pending[0].ms}]
    world.sql("ALTER TABLE {t} DROP COLUMN more")
    world.sql("ALTER TABLE {t} ADD COLUMN more INT")
    world.sql("INSERT INTO {t} VALUES (3, 'c', 8)")
    with pytest.raises(Fatal, match="a different column 'more'"):
        upstream.observe(view.latest, False)
