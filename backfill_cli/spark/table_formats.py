"""What a Spark session needs to read and write tables of a lake: jars for this Spark, extensions, settings.

Connectors name the formats that they need (`UpstreamConnector.formats`). Spark downloads the jars from Maven
repositories; without a network the user names them in `spark.jars`.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

from backfill_cli.errors import UsageError, in_config, shell
from backfill_cli.spark.object_store import Store

S3 = "s3"
JARS, PACKAGES, EXCLUDES = "spark.jars", "spark.jars.packages", "spark.jars.excludes"
EXTENSIONS = "spark.sql.extensions"


@dataclass(frozen=True, slots=True)
class TableFormat:
    """packages: Spark's minor version -> Maven coordinates of the one jar that brings everything, or of several.

    jar: how the name of that jar's file begins. settings: of the session; the user's take precedence.
    """

    jar: str
    packages: Mapping[str, str]
    extension: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)


FORMATS = {
    "delta": TableFormat(
        jar="delta-spark",
        packages={"4.1": "io.delta:delta-spark_4.1_2.13:4.4.0"},
        extension="io.delta.sql.DeltaSparkSessionExtension",
        settings={
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # Read versions and feeds older than the table's retention as long as their files exist; if VACUUM has
            # removed one, the read fails. Delta would refuse them all, even of a table that was idle for a week.
            "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
            # Tasks that read a table's log: the default of 50 took seconds for a table of a few files.
            "spark.databricks.delta.snapshotPartitions": "8",
        },
    ),
    "iceberg": TableFormat(
        jar="iceberg-spark-runtime",
        packages={"4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"},
        extension="org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    ),
    # Hadoop's S3A, in the version of Spark's Hadoop. Its `bundle` of the AWS SDK has 600 MB, these parts 15 MB.
    S3: TableFormat(
        jar="hadoop-aws",
        packages={
            "4.1": ",".join(
                (
                    "org.apache.hadoop:hadoop-aws:3.4.2",
                    *(f"software.amazon.awssdk:{part}:2.57.8" for part in ("s3", "s3-transfer-manager", "sts")),
                    "software.amazon.awssdk:apache-client:2.57.8",
                )
            )
        },
    ),
}

GROUPS = tuple(
    {
        f"{one.split(':')[0]}_"
        for needed in FORMATS.values()
        for told in needed.packages.values()
        for one in told.split(",")
    }
)
"""How the files begin that Spark makes of what it downloads for these."""

IN_SPARK = (
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.datatype:*",
    "com.google.code.findbugs:*",
    "commons-codec:*",
    "commons-logging:*",
    "io.netty:*",
    "io.unitycatalog:*",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.hadoop:hadoop-common",
    "org.apache.httpcomponents:*",
    "org.apache.logging.log4j:*",
    "org.apache.parquet:*",
    "org.apache.spark:*",
    "org.roaringbitmap:*",
    "org.scala-lang:*",
    "org.slf4j:*",
    "software.amazon.awssdk:bundle",
)
"""What Spark already has, or what tables by path and in Spark's own catalogs do not need: 63 MB of downloads, and
classes that Spark has in other versions."""


def session_settings(formats: Sequence[str], conf: Mapping[str, str]) -> dict[str, str]:
    """`conf` with what a new session needs in addition for these formats; `conf` itself without formats.

    Raises UsageError if no jar of a format is known for this Spark and the user's `spark.jars` has none.
    """
    settings = dict(conf)
    for name in dict.fromkeys(formats):
        needed = FORMATS[name]
        settings = {**needed.settings, **(Store.of(os.environ).for_spark() if name == S3 else {}), **settings}
        if needed.extension:
            settings[EXTENSIONS] = _joined(settings.get(EXTENSIONS, ""), needed.extension)
        if needed.jar not in settings.get(JARS, "") + settings.get(PACKAGES, ""):
            settings[PACKAGES] = _joined(settings.get(PACKAGES, ""), _package(name, needed))
            settings[EXCLUDES] = _joined(conf.get(EXCLUDES, ""), *IN_SPARK)
    return settings


def _package(name: str, needed: TableFormat) -> str:
    spark = version("pyspark")
    minor = ".".join(spark.split(".")[:2])
    if minor not in needed.packages:
        known = ", ".join(sorted(needed.packages))
        raise UsageError(
            f"{name} tables: no {needed.jar} jar is known for pyspark {spark}, only for {known}",
            in_config(
                shell(f"pip install 'pyspark=={known.split(', ')[-1]}.*'")
                + f", or name suitable jars in [spark.conf] {JARS!r}"
            ),
        )
    return needed.packages[minor]


def _joined(told: str, *more: str) -> str:
    """A comma-separated list with these in it, each once."""
    return ",".join(dict.fromkeys([*filter(None, told.split(",")), *more]))
