"""What pyiceberg cannot look up: refused with the way on, which is then taken. Without Spark."""

from pathlib import Path

import pytest
from hint_typed import typed
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField, TimeType
from rest_catalog import running

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import BadData, ConfigError, Fatal, Transient, UsageError
from backfill_cli.lake.iceberg import metadata
from backfill_cli.lake.iceberg.metadata import Look
from backfill_cli.lake.iceberg.places import SPARK_CATALOG, Place
from backfill_cli.lake.iceberg.types import columns, wanted
from backfill_cli.model.schema import field, schema_text
from backfill_cli.upstreams.iceberg import connector

AT = "spark.sql.catalog.lake"


def named(table: str, **properties: str) -> Look:
    """A table of a catalog with these properties."""
    settings = {AT: SPARK_CATALOG, **{f"{AT}.{name}": value for name, value in properties.items()}}
    return Look(Place.of(f"lake.shop.{table}"), lambda: settings)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The metadata of a table in a folder."""
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    made = new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, str(tmp_path / "t"))
    (tmp_path / "t" / "metadata").mkdir(parents=True)
    (tmp_path / "t" / "metadata" / "version-hint.text").write_text("1")
    written = tmp_path / "t" / "metadata" / "v1.metadata.json"
    written.write_text(made.model_dump_json())
    return written


def in_folder(file: Path) -> Look:
    return Look(Place.of(str(file.parents[1])), dict)


def test_a_table_of_another_catalog_is_registered_in_one_that_spark_knows(file: Path, tmp_path: Path) -> None:
    newest = file.rename(file.with_name("00001-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee.metadata.json"))
    file.with_name("version-hint.text").unlink()
    with pytest.raises(UsageError, match="an Iceberg table that a catalog manages") as refused:
        in_folder(file).now()
    with typed(refused.value) as hint, running(tmp_path) as uri:
        (statement,) = hint.statements()
        assert "register_table(table => 'SCHEMA.TABLE', metadata_file => 'NEWEST')" in statement
        load_catalog("lake", type="rest", uri=uri).register_table("shop.orders", f"file://{newest}")
        assert (found := named("orders", type="rest", uri=uri).now()) is not None
        assert found.file == f"file://{newest}"


def test_a_catalog_without_a_type_that_can_be_looked_up_is_given_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="its catalog is of type 'nothing'") as refused:
        named("orders").now()
    with typed(refused.value) as hint:
        hint.says("set [spark.conf] 'spark.sql.catalog.lake.type'")
        assert named("orders", type="hadoop", warehouse=str(tmp_path)).now() is None


def test_a_catalog_that_does_not_answer_or_refuses_is_started_and_given_its_token(tmp_path: Path) -> None:
    with running(tmp_path) as uri:
        pass
    with pytest.raises(Transient, match="its catalog does not answer") as silent:
        named("orders", type="rest", uri=uri).now()
    with running(tmp_path, int(uri.rpartition(":")[2]), token="right") as again:
        assert again == uri
        with pytest.raises(Fatal, match=r"its catalog refuses: .*wrong token") as refused:
            named("orders", type="rest", uri=uri, token="wrong").now()
        with typed(refused.value) as hint:
            hint.says("'spark.sql.catalog.lake.token'")
            assert named("orders", type="rest", uri=uri, token="right").now() is None
        with typed(silent.value) as hint:
            hint.says("start it, or correct [spark.conf] 'spark.sql.catalog.lake.uri'")
            assert named("orders", type="rest", uri=uri, token="right").now() is None


@pytest.mark.parametrize(
    ("damage", "said", "way_on"),
    [
        (lambda text: text.replace('"long"', '"wings"'), "a column of type wings", "or change its type"),
        (lambda text: text[:40], "is damaged", "restore that file from a copy of the table"),
    ],
)
def test_metadata_that_cannot_be_read_is_put_right(file: Path, damage: object, said: str, way_on: str) -> None:
    whole = file.read_text()
    assert callable(damage)
    file.write_text(damage(whole))
    with pytest.raises(Fatal, match=said) as refused:
        in_folder(file).now()
    with typed(refused.value) as hint:
        hint.says(way_on)
        file.write_text(whole)
        assert in_folder(file).now() is not None


def test_a_file_that_this_user_cannot_read_is_made_readable(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(file))  # to root nothing is denied

    with monkeypatch.context() as patch:
        patch.setattr(metadata.Look, "_parsed", denied)
        with pytest.raises(Fatal, match="Permission denied") as refused:
            in_folder(file).now()
    with typed(refused.value) as hint:
        hint.says("give this user the right to read it")
        assert in_folder(file).now() is not None


def test_a_type_that_one_side_cannot_hold_is_changed_or_made_text() -> None:
    with pytest.raises(BadData, match="Spark cannot read Iceberg's type time exactly") as refused:
        columns("t", Schema(NestedField(1, "at", TimeType())))
    with typed(refused.value) as hint:
        hint.says("or change its type")
        assert columns("t", Schema(NestedField(1, "at", LongType())))
    inner = {"type": "struct", "fields": [{**field("d", "void"), "nullable": True}]}
    with pytest.raises(BadData, match=r"column 'a b\.d': Iceberg has no exact counterpart") as refused:
        wanted("t", schema_text({"a b": field("a b", inner)}))
    with typed(refused.value) as hint:
        assert hint.settings() == {"select": ["CAST(`a b` AS STRING) AS `a b`"]}
        assert wanted("t", schema_text({"a b": field("a b", "string")}))


def test_several_tables_of_an_upstream_have_a_place_for_their_names(tmp_path: Path) -> None:
    both = [TableSpec("a", ("id",)), TableSpec("b", ("id",))]
    with pytest.raises(ConfigError, match=r"has no \{table\}, but the job has 2 tables") as refused:
        connector.open(connector.options.model_validate({"table": f"{tmp_path}/t"}), both)
    with typed(refused.value) as hint:
        hint.says('use {table} in it, for example "lake/{table}"')
        connector.open(connector.options.model_validate({"table": f"{tmp_path}/{{table}}"}), both)
