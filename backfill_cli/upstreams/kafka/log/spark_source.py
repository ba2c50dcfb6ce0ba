"""Ranges of the log by Spark's own Kafka source, if its jars are in the session: as reader.py reads them."""

import json
from collections.abc import Sequence
from itertools import zip_longest

from backfill_cli.contracts import own
from backfill_cli.errors import BackfillError, HistoryGone, UsageError, in_config
from backfill_cli.kafka.messages import GONE_HINT
from backfill_cli.kafka.ranges import Range
from backfill_cli.model.balanced import balanced
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.upstreams.kafka.archive.frames import of_ranges
from backfill_cli.upstreams.kafka.options import TopicOptions


def frame(
    spark: SparkSession, options: TopicOptions, topic: str, ranges: Sequence[Range], cores: int
) -> DataFrame:
    """The records of these ranges of a topic, columns reading.RECORDS.

    Raises UsageError when the session has no such source.
    One read holds one range per partition, so ranges that share a partition are read by several.
    """
    by_partition: dict[int, list[Range]] = {}
    for one in ranges:
        by_partition.setdefault(one.partition, []).append(one)
    layers = [[one for one in layer if one is not None] for layer in zip_longest(*by_partition.values())]
    return balanced(
        lambda a, b: a.unionByName(b), [_layer(spark, options, topic, layer, cores) for layer in layers]
    )


def _layer(
    spark: SparkSession, options: TopicOptions, topic: str, ranges: Sequence[Range], cores: int
) -> DataFrame:
    from pyspark.errors import AnalysisException

    told = {
        "kafka.bootstrap.servers": options.bootstrap_servers,
        "kafka.isolation.level": options.isolation,
        "assign": json.dumps({topic: [one.partition for one in ranges]}),
        "startingOffsets": json.dumps({topic: {str(one.partition): one.after for one in ranges}}),
        "endingOffsets": json.dumps({topic: {str(one.partition): one.up_to for one in ranges}}),
        "failOnDataLoss": "true",
        "minPartitions": str(cores),
    }
    try:
        read = spark.read.format("kafka").options(**told).load()
    except AnalysisException as exc:
        if "kafka" not in str(exc).lower():
            raise
        fault = f'{options.at}.reader = "spark": this Spark has no Kafka source'
        jars = "give its jars: spark.conf.'spark.jars.packages' or 'spark.jars'"
        raise UsageError(fault, in_config(f"{jars}, or leave {options.at}.reader out")) from exc
    rows = read.selectExpr(
        "partition AS kafka_partition",
        "offset AS kafka_offset",
        "timestamp AS kafka_timestamp",
        f"key AS {own.KEY}",
        f"value AS {own.VALUE}",
    )
    return of_ranges(rows, ranges)


def failure(exc: BaseException) -> BackfillError | None:
    """The BackfillError for a failure of Spark's source; None for any other failure."""
    text = str(exc)
    if "Some data may have been lost" in text or "KAFKA_DATA_LOSS" in text or "OffsetOutOfRange" in text:
        return HistoryGone("the log no longer has all offsets of a range that was planned", GONE_HINT)
    return None
