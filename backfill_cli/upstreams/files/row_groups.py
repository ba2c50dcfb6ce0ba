"""Slices of Parquet files by row group: pyarrow in Spark's Python workers.

Spark's own reader finds a slice by `_metadata.row_index`, and reads the whole file for it; this one opens the file
at the row groups that hold the slice.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import ArrowTasks
from backfill_cli.upstreams.files.slicing import GroupSlice
from backfill_cli.upstreams.formats import arrow_tasks, schemas
from backfill_cli.upstreams.formats.edge import reading
from backfill_cli.upstreams.formats.frames import struct_type
from backfill_cli.upstreams.formats.schemas import Columns

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
    return arrow_tasks.frame(spark, _made_with(schema), slices, schema)


def arrow_tasks_of(slices: Sequence[FileSlice], reads: Sequence[int], columns: Columns) -> ArrowTasks:
    """The same rows for whoever runs the tasks. reads: which of the plan's reads each slice belongs to."""
    return ArrowTasks(_made_with(struct_type(columns)), tuple(slices), tuple(reads), schemas.to_json(columns))


def _made_with(schema: "StructType") -> Callable[[FileSlice], Iterator[Any]]:
    from pyspark.sql.pandas.types import to_arrow_schema

    return partial(_of_slice, schema=to_arrow_schema(schema))


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
