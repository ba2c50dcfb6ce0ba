"""Delta tables and the names that a catalog has for them."""

from pathlib import Path
from typing import TYPE_CHECKING

from sink_contract import Epochs, a_table, rows

from backfill_cli.contracts.cutover import NamelessSink, Swap
from backfill_cli.sinks.delta import connector
from backfill_cli.sinks.delta.options import DeltaOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_statements_of_a_cut_over_are_what_makes_the_name_a_view(
    spark: "SparkSession", tmp_path: Path
) -> None:
    sink = connector.open(DeltaOptions(table=f"{tmp_path}/a `lake`/{{table}}"))
    assert isinstance(sink, NamelessSink)
    sink.use(lambda: spark)  # type: ignore[attr-defined]
    epochs = Epochs(tmp_path / "staging")
    sink.prepare("orders", epochs.tables, False)
    sink.fence("orders", 1)
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    rename, view = sink.statements([Swap(a_table(), "people_orders")], 20)
    assert rename.startswith("ALTER TABLE people_orders RENAME TO people_orders_before_20;")
    spark.sql(view.rstrip(";"))
    try:
        assert spark.table("people_orders").toArrow().to_pylist() == rows((1, "a"))
    finally:
        spark.sql("DROP VIEW people_orders")
