"""Names of lake tables that name none: refused with the name that is meant, which is then accepted."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hint_typed import typed

from backfill_cli.errors import UsageError
from backfill_cli.lake.delta.edge import Where, schema_folder
from backfill_cli.lake.iceberg.places import SPARK_CATALOG, Place


def test_a_name_of_an_iceberg_table_says_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="names no table") as refused:
        Place.of("/")
    with typed(refused.value) as hint:
        hint.says("name the table's own folder")
        assert Place.of(f"{tmp_path}/orders").names == ("orders",)
    with pytest.raises(UsageError, match="neither a path") as refused:
        Place.of("orders")
    with typed(refused.value) as hint:
        hint.says("write ./orders for a table in this folder")
        assert Place.of("./orders").folder == str(Path.cwd())


class Conf(dict[str, str]):
    """A session's settings."""

    def set(self, name: str, value: str) -> None:
        self[name] = value

    @property
    def getAll(self) -> dict[str, str]:
        return self


def test_a_catalog_is_defined_by_the_settings_that_are_named() -> None:
    spark: Any = SimpleNamespace(conf=Conf())
    with pytest.raises(UsageError, match="defines no catalog 'lake'") as refused:
        Place.of("lake.shop.orders").register(spark)
    with typed(refused.value) as hint:
        hint.says(f"define it in [spark.conf]: 'spark.sql.catalog.lake' = '{SPARK_CATALOG}'")
        spark.conf.set("spark.sql.catalog.lake", SPARK_CATALOG)
        Place.of("lake.shop.orders").register(spark)


def test_a_pattern_is_no_folder_of_a_delta_table(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a Delta table's folder") as refused:
        Where.of(f"{tmp_path}/*.parquet", "orders")
    with typed(refused.value) as hint:
        hint.says("set the path to the table's own folder")
        assert Where.of(f"{tmp_path}/orders", "orders").shown.endswith("/orders")


def test_a_schema_of_which_the_catalog_tells_no_place_has_no_tables_by_name(tmp_path: Path) -> None:
    told = pa.table({"info_name": ["Comment"], "info_value": [""]})
    conf = Conf({"spark.sql.catalog.lake": "any"})
    spark: Any = SimpleNamespace(conf=conf, sql=lambda _: SimpleNamespace(toArrow=lambda: told))
    with pytest.raises(UsageError, match="the catalog does not say where schema 'shop' is") as refused:
        schema_folder(spark, "lake.shop.orders")
    with typed(refused.value) as hint:
        hint.says("name the table by its folder")
        assert not Where.of(f"{tmp_path}/orders", "orders").exists()
