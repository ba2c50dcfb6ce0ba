"""Where the records of a range come from, as one frame: the log, by the reader that the options name."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backfill_cli.upstreams.kafka import log
from backfill_cli.upstreams.kafka.cluster import Connection
from backfill_cli.upstreams.kafka.options import KafkaOptions
from backfill_cli.upstreams.kafka.tasks import Range, cut

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Records:
    """Raw records, columns log.RECORDS."""

    def __init__(self, options: KafkaOptions, connection: Connection) -> None:
        self._options, self._connection = options, connection

    def frame(self, spark: "SparkSession", ranges: Sequence[Range]) -> "DataFrame":
        """The records of these ranges, none for none."""
        # as many partitions as a shuffle has: the cores in local mode, and what the user set on a cluster
        tasks = cut(ranges, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
        if not tasks:
            return spark.createDataFrame([], log.RECORDS)
        return log.frame(spark, self._connection, self._options.topic, tasks)
