"""Properties of the tables that the Iceberg sink creates, which Iceberg first reads when it writes."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hint_typed import typed
from sink_contract import Epochs

from backfill_cli.errors import Fatal
from backfill_cli.sinks.iceberg import IcebergSinkOptions, connector
from backfill_cli.sinks.iceberg.sink import IcebergSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("name", "value"), [("write.parquet.compression-codec", "zstdd"), ("write.target-file-size-bytes", "abc")]
)
def test_one_that_iceberg_refuses_is_named_with_where_it_is_set(
    name: str, value: str, tmp_path: Path, spark: "SparkSession"
) -> None:
    sink = connector.open(IcebergSinkOptions(table=f"{tmp_path}/lake/{{table}}", properties={name: value}))
    assert isinstance(sink, IcebergSink)
    sink.use(lambda: spark)
    epochs = Epochs(tmp_path / "staging")
    with pytest.raises(Fatal) as refused:
        sink.prepare("orders", epochs.tables, into_existing=False)
    assert f'(sink.properties has "{name}" = "{value}")' in refused.value.message
    with typed(refused.value) as hint:
        hint.says("correct sink.properties in the config, then drop the job and start over")
        again = connector.open(IcebergSinkOptions(table=f"{tmp_path}/again/{{table}}"))
        assert isinstance(again, IcebergSink)
        again.use(lambda: spark)
        again.prepare("orders", epochs.tables, into_existing=False)
