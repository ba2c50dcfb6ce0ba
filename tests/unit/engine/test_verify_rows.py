"""`verify` compares with all rows of the upstream, or says that it could not read them."""

from typing import TYPE_CHECKING

import pytest
from stage_world import SCHEMAS, Upstream, config, letter

from backfill_cli.config import JobConfig
from backfill_cli.contracts import SinkTable
from backfill_cli.engine.verify.expected import Expected
from backfill_cli.errors import Fatal
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Phase
from backfill_cli.model.position import START
from backfill_cli.model.split import SplitProgress, SplitStatus
from backfill_cli.model.upstream import Pin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["config"]

TABLE = SinkTable("orders", "orders", ("id",), SCHEMAS["orders"])
TWO_ROWS = {("orders", "0"): SplitProgress(SplitStatus.CONSUMING, letter(2), 2)}
AT = Checkpoint(5, 4, 1, "a", "{}", Phase.SNAPSHOT, START, TWO_ROWS, schemas=SCHEMAS)
LOST = r"table 'orders': metadata states 2 rows in '0', but 1 were read"


def test_rows_that_the_source_loses_are_no_difference(spark: "SparkSession", config: JobConfig) -> None:
    """`verify --fix` would delete them in the sink."""
    upstream = Upstream()
    expected = Expected(spark, upstream, config, Pin(START, None, None, ()))
    assert expected(TABLE, AT).toArrow().num_rows == 2
    upstream.rows["orders"] = [[(1, 10)]]
    with pytest.raises(Fatal, match=LOST):
        expected(TABLE, AT)
