"""Slices of Parquet files by row group: pyarrow in Spark's Python workers.

Spark's own reader finds a slice by `_metadata.row_index`, and reads the whole file for it; this one opens the file
at the row groups that hold the slice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from backfill_cli.upstreams.files.slicing import GroupSlice
from backfill_cli.upstreams.formats import arrow_tasks
from backfill_cli.upstreams.formats.edge import reading

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A slice of one file; path: as the file system knows it."""

    fs: "FileSystem"
    path: str
    slice: GroupSlice


def frame(spark: "SparkSession", slices: Sequence[FileSlice], schema: "StructType") -> "DataFrame":
    """The rows of the slices, one task each, columns as in `schema`. Executors need this package and pyarrow."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return arrow_tasks.frame(spark, partial(_of_slice, schema=to_arrow_schema(schema)), slices, schema)


def _of_slice(one: FileSlice, schema: Any) -> Iterator[Any]:
    """Runs in a worker."""
    with reading(one.path, "parquet"):
        yield from batches(one.fs, one.path, one.slice, schema)


def batches(fs: "FileSystem", path: str, part: GroupSlice, schema: Any) -> Iterator[Any]:
    """Arrow batches of a slice with the types of `schema` (pyarrow.Schema), in row order.

    Raises pyarrow's error for a file that is gone or broken, and where a value does not fit its type exactly.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with fs.open_input_file(path) as source:
        reader = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
        groups = list(range(part.first_group, part.last_group + 1))
        begin = part.start
        for batch in reader.iter_batches(_BATCH_ROWS, row_groups=groups, columns=schema.names):
            low, high = max(part.after - begin, 0), min(part.up_to - begin, batch.num_rows)
            begin += batch.num_rows
            if low < high:
                table = pa.Table.from_batches([batch.slice(low, high - low)]).select(schema.names).cast(schema)
                yield from table.to_batches()
            if begin >= part.up_to:
                return
