"""Columns of a lake's table that are dropped and added again while changes from before are being read."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from iceberg_world import IcebergWorld, world
from upstream_world import TABLE, row

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import Fatal
from backfill_cli.model.position import Position
from backfill_cli.upstreams.delta import connector
from backfill_cli.upstreams.iceberg.log import IcebergSourceTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["world"]


def altered(sql: Callable[[str], Any]) -> None:
    sql("ALTER TABLE {t} DROP COLUMN name")
    sql("ALTER TABLE {t} ADD COLUMN name STRING")


def test_a_column_of_an_iceberg_table_that_goes_while_its_changes_are_planned_is_told(
    world: IcebergWorld, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    world.load([[row(1, "a")]])
    upstream = world.open()
    pin = upstream.pin()
    world.land([("insert", None, row(2, "b"))])
    up_to = upstream.observe(pin.position, False).latest
    planned = upstream.changes(spark, TABLE, pin.position, up_to, pin.schema[TABLE])
    told = IcebergSourceTable._changelog

    def late(self: IcebergSourceTable, *sides: Any) -> Any:
        altered(world.sql)
        return told(self, *sides)

    monkeypatch.setattr(IcebergSourceTable, "_changelog", late)
    with pytest.raises(Fatal, match="'name' is a different column now"):
        upstream.changes(spark, TABLE, pin.position, up_to, pin.schema[TABLE])
    found = planned.select("id", "name").toArrow().to_pylist()
    assert found == [row(2, "b")], "what was planned before is read as it was"


def test_a_column_of_a_delta_table_that_goes_while_its_changes_are_planned_loses_none_of_them(
    spark: "SparkSession", tmp_path: Path
) -> None:
    def sql(text: str) -> None:
        spark.sql(text.format(t=f"delta.`{tmp_path}/orders`"))

    sql(
        "CREATE TABLE {t} (id BIGINT, name STRING) USING delta TBLPROPERTIES "
        "(delta.enableChangeDataFeed = true, delta.columnMapping.mode = 'name')"
    )
    sql("INSERT INTO {t} VALUES (1, 'a')")
    upstream = connector.open(
        connector.options.model_validate({"table": f"{tmp_path}/orders"}), [TableSpec(TABLE, ("id",))]
    )
    pin = upstream.pin()
    sql("INSERT INTO {t} VALUES (2, 'b')")
    up_to = upstream.observe(pin.position, False).latest
    assert up_to != Position()
    altered(sql)
    changes = upstream.changes(spark, TABLE, pin.position, up_to, pin.schema[TABLE])
    assert changes.select("id", "name").toArrow().to_pylist() == [row(2, "b")]
    with pytest.raises(Fatal):
        upstream.observe(up_to, False)
