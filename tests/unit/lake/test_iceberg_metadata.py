"""The metadata of an Iceberg table in a folder, looked at again."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from backfill_cli.contracts import SinkTable, TableSpec
from backfill_cli.errors import UsageError
from backfill_cli.lake.iceberg.metadata import Look
from backfill_cli.lake.iceberg.places import SPARK_CATALOG, Place
from backfill_cli.model.schema import field, schema_text
from backfill_cli.sinks.iceberg import IcebergSinkOptions
from backfill_cli.sinks.iceberg.sink import IcebergSink
from backfill_cli.spark.beside import CATALOG
from backfill_cli.upstreams.iceberg.log import IcebergSourceTable


def write(table: Path, version: int) -> str:
    """A new table's metadata as this version of the folder; its id."""
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    told = new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, str(table))
    folder = table / "metadata"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"v{version}.metadata.json").write_text(told.model_dump_json())
    (folder / "version-hint.text").write_text(str(version))
    return f"iceberg:{told.table_uuid}"


def no_settings() -> Any:
    raise AssertionError("a table in a folder has no catalog")


def identity(look: Look) -> str | None:
    held = look.now()
    return None if held is None else held.identity


@pytest.mark.parametrize("versions", [(3, 3), (3, 2), (3, 4)])
def test_a_table_that_is_dropped_and_recreated_is_another_one(tmp_path: Path, versions: tuple[int, int]) -> None:
    look = Look(Place.of(str(tmp_path / "t")), no_settings)
    assert identity(look) is None
    first = write(tmp_path / "t", versions[0])
    assert identity(look) == first
    shutil.rmtree(tmp_path / "t")
    second = write(tmp_path / "t", versions[1])
    assert identity(look) == second
    shutil.rmtree(tmp_path / "t")
    assert identity(look) is None
    assert identity(look) is None


def of_a_catalog(table: Path, commits: int = 2) -> None:
    """Metadata files under the names that pyiceberg's own catalogs, SqlCatalog among them, give them."""
    provider = load_location_provider(str(table), {})
    for version in range(commits):
        write(table, version + 1)
        named = Path(provider.new_table_metadata_file_location(version))
        (table / "metadata" / f"v{version + 1}.metadata.json").rename(named)
    (table / "metadata" / "version-hint.text").unlink()


def test_a_table_of_another_catalog_is_no_folder_s_table(tmp_path: Path) -> None:
    of_a_catalog(tmp_path / "t")
    with pytest.raises(UsageError, match=r"an Iceberg table that a catalog manages.* files like 00001-") as raised:
        Look(Place.of(str(tmp_path / "t")), no_settings).now()
    assert "name it as catalog.schema.table, with its catalog in [spark.conf]" in str(raised.value.hint)


def test_a_sink_makes_no_table_in_the_folder_of_another_catalog_s(tmp_path: Path) -> None:
    of_a_catalog(tmp_path / "t")
    before = sorted(tmp_path.rglob("*"))
    sink = IcebergSink(IcebergSinkOptions(table=f"{tmp_path}/{{table}}"))
    sink.use(no_settings)
    schema = schema_text({"id": field("id", "long")})
    for act in (sink.check, sink.prepare):
        with pytest.raises(UsageError, match="an Iceberg table that a catalog manages"):
            act("j", [SinkTable("t", "t", ("id",), schema)], False)
    assert sorted(tmp_path.rglob("*")) == before


def test_unchanged_metadata_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = Look(Place.of(str(tmp_path / "t")), no_settings)
    first = write(tmp_path / "t", 1)
    held = look.now()
    monkeypatch.setattr(Look, "_parsed", None)
    assert look.now() is held
    assert held is not None
    assert held.identity == first


def test_a_name_that_a_catalog_does_not_have_is_told_with_those_that_it_has_nearest_first(tmp_path: Path) -> None:
    for name in ("customers", "orders", "order_lines", "no_table"):
        (tmp_path / "shop" / name / ("data" if name == "no_table" else "metadata")).mkdir(parents=True)
    at, shop = f"{CATALOG}lake", tmp_path / "shop"
    settings = {at: SPARK_CATALOG, f"{at}.type": "hadoop", f"{at}.warehouse": str(tmp_path)}
    for text, said in (
        ("lake.shop.ordres", "; did you mean lake.shop.orders or lake.shop.order_lines?"),
        ("lake.nowhere.orders", ""),
        (f"{tmp_path}/shop/ordres", f"; did you mean {shop}/orders or {shop}/order_lines?"),
        (f"{tmp_path}/nowhere/ordres", ""),
    ):
        table = IcebergSourceTable(TableSpec("t", ("id",)), text, lambda: settings)
        with pytest.raises(UsageError) as caught:
            table.now()
        assert caught.value.message == f"{text}: this Iceberg table does not exist{said}"


def test_a_catalog_that_the_config_defines_without_a_type_is_not_said_to_be_undefined() -> None:
    table = IcebergSourceTable(
        TableSpec("t", ("id",)), "lake.shop.orders", lambda: {f"{CATALOG}lake": SPARK_CATALOG}
    )
    with pytest.raises(UsageError, match="its catalog is of type 'nothing'"):
        table.now()


def test_a_catalog_that_the_config_does_not_define_is_told_with_those_that_it_does() -> None:
    settings = {f"{CATALOG}{name}": SPARK_CATALOG for name in ("mart", "lake", "backfill_0a", "spark_catalog")}
    for known, said in ((settings, "; did you mean lake?"), ({}, "")):
        table = IcebergSourceTable(TableSpec("t", ("id",)), "lak.shop.orders", lambda known=known: known)
        with pytest.raises(UsageError) as caught:
            table.now()
        assert caught.value.message == f"[spark.conf] defines no catalog 'lak'{said}"
