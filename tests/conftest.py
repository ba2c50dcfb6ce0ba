"""One Spark session a process, shared by all tests that need one."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    from backfill_cli.engine.session import open_session

    session = open_session("local[2]", {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g"})
    yield session
    session.stop()
