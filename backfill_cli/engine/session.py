"""The Spark session of a runner: local or remote, quiet, UTC, with the interpreter that runs us."""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def open_session(master: str, conf: Mapping[str, str]) -> "SparkSession":
    """A session on `master`, our settings below the user's `conf`."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.pop("SPARK_HOME", None)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("backfill")
    for name, value in {**SETTINGS, **conf}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
