"""Delta tables and the names that a catalog has for them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import sink_epochs
from hint_typed import typed
from sink_contract import Epochs, a_table, rows
from sink_epochs import schema_json

from backfill_cli.contracts import Swap, TableSpec
from backfill_cli.errors import Fatal, StateConflict, UsageError
from backfill_cli.lake.delta import edge
from backfill_cli.model.checkpoint import Marker
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.sinks.delta import DeltaOptions, connector, tables
from backfill_cli.sinks.delta.sink import DeltaSink
from backfill_cli.sinks.delta.tables import OF_A_MERGE
from backfill_cli.upstreams.delta import connector as upstreams
from backfill_cli.upstreams.delta.upstream import DeltaUpstream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"


def test_the_statements_of_a_cut_over_are_what_makes_the_name_a_view(
    spark: "SparkSession", tmp_path: Path
) -> None:
    sink = connector.open(DeltaOptions(table=f"{tmp_path}/a `lake`/{{table}}"))
    assert sink.extras.statements is not None
    sink.use(lambda: spark)
    epochs = Epochs(tmp_path / "staging")
    sink.prepare("orders", epochs.tables, False)
    sink.fence("orders", 1)
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    rename, view = sink.extras.statements([Swap(a_table(), "people_orders")], 20)
    assert rename.startswith("ALTER TABLE people_orders RENAME TO people_orders_before_20;")
    spark.sql(view.rstrip(";"))
    try:
        assert spark.table("people_orders").toArrow().to_pylist() == rows((1, "a"))
    finally:
        spark.sql("DROP VIEW people_orders")


@pytest.fixture
def schema(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Spark's own catalog, in memory here, for the length of the test."""
    monkeypatch.setattr(edge, "IMPLEMENTATION", "spark.backfill.of-this-test")
    spark.conf.set("spark.backfill.of-this-test", "hive")
    spark.sql(f"CREATE SCHEMA named LOCATION '{tmp_path}/house'")
    yield "spark_catalog.named"
    spark.sql("DROP SCHEMA named CASCADE")


def by_name(spark: "SparkSession", table: str) -> DeltaSink:
    sink = connector.open(DeltaOptions(table=table))
    assert isinstance(sink, DeltaSink)
    sink.use(lambda: spark)
    return sink


def followed(spark: "SparkSession", table: str) -> DeltaUpstream:
    upstream = upstreams.open(upstreams.options.model_validate({"table": table}), [TableSpec("orders", ("id",))])
    assert isinstance(upstream, DeltaUpstream)
    upstream.use(lambda: spark)
    return upstream


def test_a_table_of_a_catalog_is_made_filled_followed_and_dropped_by_its_name(
    spark: "SparkSession", tmp_path: Path, schema: str
) -> None:
    sink, epochs = by_name(spark, f"{schema}.{{table}}"), Epochs(tmp_path / "staging")
    assert (sink.owner("orders"), sink.committed("orders")) == (None, {})
    sink.prepare("orders", epochs.tables, False)
    sink.fence("orders", 1)
    sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))
    spark.sql("ALTER TABLE named.orders SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")

    upstream = followed(spark, f"{schema}.orders")
    pin = upstream.pin()
    upstream.restore(pin)
    scan = upstream.scan(spark, "orders", [SnapshotRead(one.table, one.id) for one in pin.splits])
    assert sorted(scan.select("id").toArrow().column("id").to_pylist()) == [1, 2]
    by_name(spark, f"{schema}.{{table}}").commit(epochs.next(upserts=rows((2, "B")), deletes=[1]))
    moved = upstream.observe(pin.position, True).latest
    changes = upstream.changes(spark, "orders", pin.position, moved, pin.schema["orders"])
    assert sorted(changes.select("_backfill_op", "id").toArrow().to_pylist(), key=str) == [
        {"_backfill_op": "D", "id": 1},
        {"_backfill_op": "D", "id": 2},
        {"_backfill_op": "U", "id": 2},
    ]
    assert spark.table("named.orders").toArrow().to_pylist() == rows((2, "B"))
    assert (tmp_path / "house" / "_backfill_state" / "orders").is_dir()
    assert upstream.extras.places() == {"orders": sink.places(epochs.tables)["orders"]}, "it is the same table"
    by_folder = by_name(spark, f"{tmp_path}/house/{{table}}")
    assert by_folder.committed("orders") == {"orders": Marker(20, 1, "a20")}

    again = by_name(spark, f"{schema}.{{table}}")
    view = again.statements([Swap(a_table(), "v")], 20)[1]
    assert view == "CREATE OR REPLACE VIEW v AS SELECT * FROM `spark_catalog`.`named`.`orders`;"
    again.drop(epochs.tables)
    assert again.committed("orders") == {"orders": Marker(20, 1, "a20")}
    assert spark.sql("SHOW TABLES IN named").count() == 0
    assert not (tmp_path / "house" / "orders").exists()


def test_a_name_that_is_given_to_another_table_is_told_on_both_sides(
    spark: "SparkSession", tmp_path: Path, schema: str
) -> None:
    def given(folder: str) -> None:
        spark.sql("DROP TABLE IF EXISTS named.orders")
        spark.sql(
            f"CREATE TABLE named.orders (id BIGINT, name STRING) USING delta LOCATION '{tmp_path}/{folder}' {FEED}"
        )

    given("one")
    sink, epochs = by_name(spark, f"{schema}.orders"), Epochs(tmp_path / "staging")
    sink.prepare("orders", epochs.tables, False)
    sink.fence("orders", 1)
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    assert spark.table("named.orders").count() == 1
    pin = followed(spark, f"{schema}.orders").pin()
    given("two")
    second = epochs.next(upserts=rows((2, "b")))
    with pytest.raises(StateConflict, match="is now the catalog's location of table 'orders'") as moved:
        by_name(spark, f"{schema}.orders").commit(second)
    with pytest.raises(StateConflict, match="now has a table that the job did not fill") as others:
        by_name(spark, f"{schema}.orders").drop(epochs.tables)
    assert [(tmp_path / folder / "_delta_log").is_dir() for folder in ("one", "two")] == [True, True]
    upstream = followed(spark, f"{schema}.orders")
    upstream.restore(pin)
    with pytest.raises(Fatal, match="the table was replaced"):
        upstream.observe(pin.position, True)
    given("one")
    with typed(moved.value) as hint:
        hint.says("let the name refer to that table again")
        by_name(spark, f"{schema}.orders").commit(second)
    with typed(others.value) as hint:
        hint.says("restore the job's table there")
        by_name(spark, f"{schema}.orders").drop(epochs.tables)
    assert not spark.catalog.tableExists("named.orders")


def test_a_catalog_that_ends_with_the_session_and_what_is_no_delta_table_are_refused(
    spark: "SparkSession", tmp_path: Path, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.sql("CREATE TABLE named.plain (id BIGINT) USING parquet")
    spark.sql(f"CREATE TABLE named.there (id BIGINT) USING delta {FEED}")
    with pytest.raises(UsageError, match="its format is parquet") as plain:
        followed(spark, f"{schema}.plain").pin()
    with typed(plain.value) as hint:
        hint.says("name a Delta table")
        followed(spark, f"{schema}.there").pin()
    with pytest.raises(
        UsageError, match=r"this Delta table does not exist; tables: spark_catalog\.named\.plain"
    ) as none:
        followed(spark, f"{schema}.none").pin()
    with typed(none.value) as hint:
        hint.says("correct upstream.table")
        followed(spark, f"{schema}.there").pin()
    with pytest.raises(UsageError, match="defines no catalog 'elsewhere'") as undefined:
        by_name(spark, "elsewhere.a.b").owner("orders")
    with typed(undefined.value) as hint:
        hint.says("correct the catalog's name")
        assert by_name(spark, f"{schema}.b").owner("orders") is None
    with pytest.raises(UsageError, match="the catalog has no schema 'nowhere'") as schemaless:
        by_name(spark, "spark_catalog.nowhere.b").owner("orders")
    with typed(schemaless.value) as hint:
        (statement,) = hint.statements()
        spark.sql(f"{statement} LOCATION '{tmp_path}/nowhere'")
        assert by_name(spark, "spark_catalog.nowhere.b").owner("orders") is None
        spark.sql("DROP SCHEMA nowhere")
    spark.conf.set("spark.sql.catalog.wrong", "no.such.Catalog")
    with pytest.raises(Fatal, match=r"table wrong\.a\.b: its catalog refuses: ") as refused:
        by_name(spark, "wrong.a.b").owner("orders")
    spark.conf.unset("spark.sql.catalog.wrong")
    with typed(refused.value) as hint:
        hint.says("correct what [spark.conf] says of it ('spark.sql.catalog.wrong' and its properties)")
        hint.says("or name the table by its folder")
        assert by_name(spark, f"{tmp_path}/b").owner("orders") is None
    monkeypatch.undo()
    with pytest.raises(UsageError, match="is lost when the session ends") as lost:
        by_name(spark, f"{schema}.b").owner("orders")
    with typed(lost.value) as hint:
        hint.says("set [spark.conf] 'spark.sql.catalogImplementation' = 'hive'")
        monkeypatch.setattr(edge, "IMPLEMENTATION", "spark.backfill.of-this-test")
        assert by_name(spark, f"{schema}.b").owner("orders") is None


@pytest.mark.parametrize("name", [*OF_A_MERGE, "_Row_Id_"])
def test_a_name_of_deltas_merge_is_refused_with_the_transform_that_renames_it(
    spark: "SparkSession", tmp_path: Path, name: str
) -> None:
    """Each was filled, and failed at the first commit of changes, and at each after it."""
    table = f"delta.`{tmp_path}/plain`"
    spark.sql(f"CREATE TABLE {table} (id INT, `{name}` STRING) USING delta")
    spark.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    source = f"(SELECT 'U' AS op, 1 AS id, 'b' AS `{name}`)"
    update = f"WHEN MATCHED AND s.op = 'U' THEN UPDATE SET t.`{name}` = s.`{name}`"
    with pytest.raises(Exception, match=rf"(?i)`?{name}`?.* (is ambiguous|missing)"):
        spark.sql(f"MERGE INTO {table} AS t USING {source} AS s ON t.id = s.id {update}")

    sink = by_name(spark, f"{tmp_path}/{{table}}")
    taken = a_table(schema=schema_json(**{"id": "long", name: "string"}))
    with pytest.raises(UsageError, match=f"cannot be called '{name}', which Delta uses") as refused:
        sink.check("job", [taken], False)
    renamed = name.strip("_")
    with typed(refused.value) as hint:
        hint.says(f'rename it in the transform: select = ["{name} AS {renamed}", …]')
        sink.check("job", [replace(taken, schema=schema_json(**{"id": "long", renamed: "string"}))], False)
    with pytest.raises(UsageError, match=f"cannot be called '{name}'") as refused:
        sink.check("job", [replace(taken, derived=True)], False)
    with typed(refused.value) as hint:
        hint.says(f"name it otherwise in derived.sql: {name} AS {renamed}")
        sink.check(
            "job", [replace(taken, derived=True, schema=schema_json(**{"id": "long", renamed: "string"}))], False
        )
    sink.check("job", [replace(taken, key=())], False)


def test_a_job_that_was_filled_with_such_a_name_starts_over_with_the_transform(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version took it: its job ran as long as nothing changed. Another transform is refused to it."""
    sink = by_name(spark, f"{tmp_path}/{{table}}")
    taken = a_table(schema=schema_json(id="long", _row_id_="string"))
    epochs = Epochs(tmp_path / "staging", "job", tables=(taken,))
    with monkeypatch.context() as before:
        before.setattr(tables, "OF_A_MERGE", ())
        before.setattr(sink_epochs, "ROW", pa.schema({"id": pa.int64(), "_row_id_": pa.string()}))
        sink.prepare("job", [taken], False)
        sink.commit(epochs.next(inserts=[{"id": 1, "_row_id_": "a"}]))
    held = spark.read.format("delta").load(f"{tmp_path}/orders").select("id", "_row_id_")
    assert held.toArrow().to_pylist() == [{"id": 1, "_row_id_": "a"}]
    with pytest.raises(UsageError, match="cannot be called '_row_id_'") as refused:
        sink.prepare("job", [taken], True)
    with typed(refused.value.naming("job", with_rows=True)) as hint:
        hint.says('rename it in the transform: select = ["_row_id_ AS row_id", …]; if the job has already begun')
        assert hint.commands() == [["drop", "job", "--with-rows", "--confirm", "job"]]
        sink.drop([taken])
        sink.forget("job")
        sink.prepare("job", [replace(taken, schema=schema_json(id="long", row_id="string"))], False)
