"""`init --from` a lake table: what its log or its metadata say of it, without Spark."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tomli
from deltalake import write_deltalake
from hint_typed import typed
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField, StringType

from backfill_cli.config.draft import Asked, drafted
from backfill_cli.config.template import template
from backfill_cli.contracts import Looked, Named
from backfill_cli.errors import UsageError
from backfill_cli.lake.iceberg.places import SPARK_CATALOG
from backfill_cli.upstreams.delta import connector as delta
from backfill_cli.upstreams.iceberg import connector as iceberg

FEED = {"delta.enableChangeDataFeed": "true"}


def look(connector: Any, text: str, **named: Any) -> Looked:
    looked: Looked = connector.look(Named(text, text, **named))
    return looked


def write_delta(folder: Path, rows: int = 3, **properties: str) -> str:
    held = pa.table({"id": list(range(rows)), "note": ["x"] * rows})
    write_deltalake(str(folder), held, configuration={**FEED, **properties})
    return str(folder)


def write_iceberg(folder: Path, version: str = "2", identifies: list[int] | None = None, **properties: str) -> str:
    fields = (NestedField(1, "id", LongType(), required=True), NestedField(2, "note", StringType()))
    schema = Schema(*fields, identifier_field_ids=identifies or [])
    given = {"format-version": version, **properties}
    told = new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, str(folder), given)
    (folder / "metadata").mkdir(parents=True)
    (folder / "metadata" / "v1.metadata.json").write_text(told.model_dump_json())
    (folder / "metadata" / "version-hint.text").write_text("1")
    return str(folder)


def test_a_delta_table_says_its_columns_and_asks_for_its_key(tmp_path: Path) -> None:
    path = write_delta(tmp_path / "My Orders")
    looked = look(delta, path)
    (table,) = looked.tables
    assert (table.name, table.key.value) == ("my_orders", None)
    assert table.key.why.endswith("the table names none; columns: id, note")
    assert {name: one.value for name, one in looked.options.items()} == {"table": path}
    (said,) = looked.said
    assert said.startswith(f"Delta table {path}: version 0, 3 rows, ")
    assert said.endswith("2 columns, change data feed on")
    keyed = look(delta, path, key=("id",))
    assert keyed.tables[0].key.value == ["id"]
    assert len(keyed.said) == 1


def test_a_delta_table_without_a_feed_is_said_to_be_refused(tmp_path: Path) -> None:
    path = write_delta(tmp_path / "t", **{"delta.enableChangeDataFeed": "false"})
    first, second = look(delta, path, key=("id",)).said
    assert first.endswith("change data feed off")
    assert second.startswith("start refuses this yet; plan shows what to do: ")
    assert second.endswith("changes after it cannot be followed")


def test_several_delta_tables_of_one_place(tmp_path: Path) -> None:
    for name in ("orders", "lines"):
        write_delta(tmp_path / name)
    place = f"{tmp_path}/{{table}}"
    with pytest.raises(UsageError, match="it holds several tables, and none is named") as refused:
        look(delta, place)
    with typed(refused.value) as hint:
        assert "--table" in hint.options()
        looked = look(delta, place, tables=("orders", "lines"))
    assert [table.name for table in looked.tables] == ["orders", "lines"]
    assert len(looked.said) == 2


def test_a_delta_table_of_a_catalog_is_not_looked_up() -> None:
    looked = look(delta, "main.sales.orders", key=("id",))
    assert looked.tables[0].name == "orders"
    assert looked.said == ("main.sales.orders: a table of a catalog, which start looks up",)


def test_a_folder_without_a_delta_table_has_its_neighbours_named(tmp_path: Path) -> None:
    write_delta(tmp_path / "orders")
    with pytest.raises(UsageError, match="no Delta table; did you mean orders") as refused:
        look(delta, str(tmp_path / "order"))
    with typed(refused.value) as hint:
        hint.says("name the folder that holds _delta_log")
        look(delta, str(tmp_path / "orders"))


def test_an_iceberg_table_is_keyed_by_its_identifier_fields(tmp_path: Path) -> None:
    path = write_iceberg(tmp_path / "orders", identifies=[1])
    looked = look(iceberg, path)
    (table,) = looked.tables
    assert (table.name, table.key.value) == ("orders", ["id"])
    assert table.key.why == "the table's identifier fields"
    assert [*looked.said] == [f"Iceberg table {path}: format version 2, no rows yet, 2 columns, 0 snapshots"]
    assert looked.conf == {}
    assert look(iceberg, write_iceberg(tmp_path / "other")).tables[0].key.value is None


@pytest.mark.parametrize(
    ("version", "properties", "why"),
    [("1", {}, "its snapshots have no order"), ("2", {"write.delete.mode": "merge-on-read"}, "is merge-on-read")],
)
def test_an_iceberg_table_that_cannot_be_followed_is_said_to_be_refused(
    tmp_path: Path, version: str, properties: dict[str, str], why: str
) -> None:
    looked = look(iceberg, write_iceberg(tmp_path / "t", version, **properties), key=("id",))
    assert why in looked.said[1]


def test_an_iceberg_table_of_a_catalog_is_found_by_properties_that_become_the_config_s(tmp_path: Path) -> None:
    write_iceberg(tmp_path / "db" / "orders", identifies=[1])
    looked = look(iceberg, f"lake.db.orders?type=hadoop&warehouse={tmp_path}")
    at = "spark.sql.catalog.lake"
    assert {name: one.value for name, one in looked.conf.items()} == {
        at: SPARK_CATALOG,
        f"{at}.type": "hadoop",
        f"{at}.warehouse": str(tmp_path),
    }
    assert looked.options["table"].value == "lake.db.orders"
    assert looked.tables[0].name == "orders"
    asked = Asked(f"iceberg:lake.db.orders?type=hadoop&warehouse={tmp_path}", to="w.duckdb")
    config = tomli.loads(template(drafted(asked, tmp_path / "elsewhere")))
    assert config["upstream"] == {"type": "iceberg", "table": "lake.db.orders"}
    assert config["spark"]["conf"] == {name: one.value for name, one in looked.conf.items()}
    with pytest.raises(UsageError, match="defines no catalog 'lake'") as refused:
        look(iceberg, "lake.db.orders")
    with typed(refused.value) as hint:
        hint.says("--from 'iceberg:CATALOG.SCHEMA.TABLE?type=rest&uri=http://HOST:8181'")


def test_a_folder_without_an_iceberg_table_has_its_neighbours_named(tmp_path: Path) -> None:
    write_iceberg(tmp_path / "orders")
    with pytest.raises(UsageError, match=r"this Iceberg table does not exist; did you mean .*orders") as refused:
        look(iceberg, str(tmp_path / "order"))
    with typed(refused.value) as hint:
        hint.says("name the table's folder: --from lake/orders")
        look(iceberg, str(tmp_path / "orders"))


def test_each_claims_its_own_folders(tmp_path: Path) -> None:
    of_delta, of_iceberg = write_delta(tmp_path / "d"), write_iceberg(tmp_path / "[i]")
    (tmp_path / "files" / "metadata").mkdir(parents=True)
    claimed = [
        (delta.claims(text), iceberg.claims(text))
        for text in (of_delta, of_iceberg, str(tmp_path / "files"), str(tmp_path / "none"), "", "\0")
    ]
    assert claimed == [(True, False), (False, True), *[(False, False)] * 4]


def test_the_key_must_be_of_the_table_s_columns(tmp_path: Path) -> None:
    for connector, path in ((delta, write_delta(tmp_path / "d")), (iceberg, write_iceberg(tmp_path / "i"))):
        with pytest.raises(UsageError, match="--key: column 'ix' does not exist; columns: id, note") as refused:
            look(connector, path, key=("ix",))
        with typed(refused.value) as hint:
            look(connector, path, key=(hint.options()["--key"],))
