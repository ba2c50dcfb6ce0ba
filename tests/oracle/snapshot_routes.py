"""The ways of a snapshot's rows: Parquet, JSON lines and CSV.

`covers` of these names `(format, way)` as the product's own code tells them apart, see test_routes.py.
"""

from typing import TYPE_CHECKING

from oracle.jobs import loaded, whole
from oracle.routes import Batch, route

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRANSFORM = {"select": ["*", "upper(concat('x', id)) AS more"], "where": "id >= 0"}
"""Takes every row, and cannot be done without Spark."""


@route("text by Spark", "json", "csv", covers=("json", "csv"), refusals=60)
def text_by_spark(batch: Batch, spark: "SparkSession") -> None:
    loaded(batch.config, spark, whole)
