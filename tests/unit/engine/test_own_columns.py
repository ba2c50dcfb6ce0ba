"""An item of `select` that names another one's alias: a new job is refused, one of an older version goes on."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hint_typed import typed
from stage_world import SCHEMAS, WINDOW, Upstream, config, held, read, struct

from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig, load
from backfill_cli.config.sections import Transform
from backfill_cli.contracts import JobDefinition
from backfill_cli.engine.job.checks import _Noting, require_again, require_all
from backfill_cli.engine.staging.stage import SparkStager
from backfill_cli.errors import BadData, UsageError
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.plan import ChangeWindow, EpochPlan
from backfill_cli.model.position import START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["config"]

SELECT = ["id", "v * 2 AS dbl", "dbl + 1 AS more"]
JOB = f"""
[job]
name = "orders"
staging = "HERE/staging"
[upstream]
type = "files"
snapshot = {{ path = "HERE/orders", format = "parquet" }}
[[tables]]
name = "orders"
key = ["id"]
[transform]
select = {SELECT}
[sink]
type = "duckdb"
path = "HERE/sink.duckdb"
"""


def stager(spark: "SparkSession", config: JobConfig, upstream: Upstream, select: list[str]) -> SparkStager:
    orders = config.tables[0].model_copy(update={"transform": Transform(select=select)})
    return SparkStager(lambda: spark, upstream, replace(config, tables=(orders,)))  # type: ignore[arg-type]


def test_plan_and_start_refuse_a_new_job_and_plan_accepts_one_that_exists(
    spark: "SparkSession", tmp_path: Path
) -> None:
    (tmp_path / "orders").mkdir()
    pq.write_table(pa.table({"id": [1], "v": [1]}), tmp_path / "orders" / "1.parquet")
    (tmp_path / "job.toml").write_text(JOB.replace("HERE", str(tmp_path)))
    config, catalog = load(tmp_path / "job.toml"), Catalog(str(tmp_path / "catalog.duckdb"))
    upstream = config.open_upstream()
    resources: Any = SimpleNamespace(
        upstream=upstream, rows=upstream, sink=config.open_sink(), spark=spark, with_retries=lambda act: act()
    )
    noting = _Noting(config, catalog, lambda _doing: None)
    with pytest.raises(UsageError, match=r"does not fit .*`dbl` cannot be resolved"):
        require_all(config, catalog, resources, False, noting)
    pin = upstream.pin()
    definition = JobDefinition("orders", config.stored(), "{}", pin, "forever", "snapshot", ())
    begun = Checkpoint(0, 0, 0, "", "{}", Phase.SNAPSHOT, pin.position, {}, schemas=pin.schema)
    catalog.create_job(definition, Control(), begun)
    found = require_again(config, catalog, resources, noting)
    assert (noting.refused, [table.name for table in found.tables]) == ([], ["orders"])


def test_an_older_job_reads_its_snapshot_on_and_its_first_change_is_refused_by_name(
    spark: "SparkSession", config: JobConfig
) -> None:
    upstream = Upstream()
    older = stager(spark, config, upstream, SELECT)
    staged = older.stage(EpochPlan(reads=(read("orders", 0, 0, 2),)), 7, SCHEMAS).staged
    assert held(older, staged, staged.tables["orders"].inserts) == [(1, 20, 21), (2, 40, 41)]
    with pytest.raises(UsageError, match=r"does not fit .*`dbl` cannot be resolved") as refused:
        older.stage(EpochPlan(window=WINDOW), 7, SCHEMAS)
    with typed(refused.value.naming("shop", True)) as hint:
        hint.says("correct [transform]; then backfill drop shop --with-rows --confirm shop")
        again = stager(spark, config, upstream, ["id", "v * 2 AS dbl", "v * 2 + 1 AS more"])
        staged = again.stage(EpochPlan(window=WINDOW), 7, SCHEMAS).staged
        assert held(again, staged, staged.tables["orders"].changes)[-1] == ("U", 1, 24, 25)


@pytest.mark.parametrize("changes", [[], [("U", 1, 1, 1, 2, 3)]])
def test_an_added_column_does_not_take_the_place_of_what_an_older_jobs_transform_makes(
    spark: "SparkSession", config: JobConfig, changes: list[Any]
) -> None:
    upstream = Upstream()
    upstream.log["orders"] = changes
    wider = struct(id="long", v="integer", Dbl="integer")
    window = ChangeWindow(START, WINDOW.up_to, 5, 6, 1, (("orders", wider),))
    with pytest.raises(
        BadData, match=r"column 'Dbl' was added upstream: in 'dbl \+ 1 AS more', that name"
    ) as refused:
        stager(spark, config, upstream, SELECT).stage(EpochPlan(window=window), 7, SCHEMAS)
    assert upstream.asked == []
    with typed(refused.value.naming("shop", True)) as hint:
        hint.says("write that expression out, without the name of another one; then backfill drop shop")
        again = stager(spark, config, upstream, ["id", "v * 2 AS dbl", "v * 2 + 1 AS more"])
        again.stage(EpochPlan(window=window), 7, SCHEMAS)
    upstream.asked.clear()
    begun_with_it = stager(spark, config, upstream, SELECT)  # the name always meant the column
    begun_with_it.stage(EpochPlan(window=WINDOW), 7, {**SCHEMAS, "orders": wider})
