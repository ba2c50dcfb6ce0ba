"""Slices of Parquet files by row group, as a Spark data source written in Python: Arrow batches, never rows.

Spark's own reader finds a slice by `_metadata.row_index`, and reads the whole file for it; this one opens the file
at the row groups that hold the slice.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from backfill_cli.upstreams.files.slicing import GroupSlice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType

NAME = "backfill_row_groups"
_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A slice of one file. uri: where pyarrow finds it: a local path, or a URI."""

    uri: str
    slice: GroupSlice


def frame(spark: "SparkSession", slices: Sequence[FileSlice], schema: "StructType") -> "DataFrame":
    """The rows of the slices, one task each, columns as in `schema`."""
    spark.dataSource.register(_source())
    wanted = json.dumps([[s.uri, asdict(s.slice)] for s in slices])
    return spark.read.format(NAME).schema(schema).option("slices", wanted).load()


def batches(uri: str, part: GroupSlice, schema: Any) -> Iterator[Any]:
    """Arrow batches of a slice with the types of `schema` (pyarrow.Schema), in row order.

    Raises pyarrow's error where a value does not fit its type exactly.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import fs as pafs

    system, path = pafs.FileSystem.from_uri(uri) if "://" in uri else (pafs.LocalFileSystem(), uri)
    with system.open_input_file(path) as source:
        reader = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
        groups = range(part.first_group, part.last_group + 1)
        names = schema.names
        begin = part.start
        for batch in reader.iter_batches(_BATCH_ROWS, row_groups=list(groups), columns=names):
            low, high = max(part.after - begin, 0), min(part.up_to - begin, batch.num_rows)
            begin += batch.num_rows
            if low < high:
                table = pa.Table.from_batches([batch.slice(low, high - low)]).select(names).cast(schema)
                yield from table.to_batches()
            if begin >= part.up_to:
                return


def _source() -> "type[DataSource]":
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.types import StructType

    class Slice(InputPartition):
        def __init__(self, uri: str, part: dict[str, int]) -> None:
            super().__init__((uri, part))
            self.uri, self.part = uri, part

    class SliceReader(DataSourceReader):
        def __init__(self, wanted: str, schema: StructType) -> None:
            self.wanted, self.schema = wanted, schema

        def partitions(self) -> Sequence[InputPartition]:
            return [Slice(uri, part) for uri, part in json.loads(self.wanted)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            from pyspark.sql.pandas.types import to_arrow_schema

            assert isinstance(partition, Slice)
            yield from batches(partition.uri, GroupSlice(**partition.part), to_arrow_schema(self.schema))

    class RowGroups(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def reader(self, schema: StructType) -> DataSourceReader:
            return SliceReader(self.options["slices"], schema)

    return RowGroups
