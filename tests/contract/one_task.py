"""Sessions whose queries see some rows each: planned once, and run by one task."""

from typing import TYPE_CHECKING, TypeVar

from backfill_cli.lake.sink import LakeSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "1"}
"""Plans that are not made again after each shuffle: a seventh of the CPU. Those are in jobs of real commands."""

Of = TypeVar("Of", bound=LakeSink)


def in_one_task(sink: Of) -> Of:
    """The sink, whose sessions are so."""
    for session in (sink._spark, sink.derives.spark):
        plan_once(session)
    return sink


def plan_once(session: "SparkSession") -> None:
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
