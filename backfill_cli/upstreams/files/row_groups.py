"""Slices of Parquet files by row group: pyarrow in Spark's Python workers, Arrow batches, never rows.

Spark's own reader finds a slice by `_metadata.row_index`, and reads the whole file for it; this one opens the file
at the row groups that hold the slice. It is a table function over one number a slice and not a Python data source:
planning such a source starts Python processes, which cost more than a slice of 25,000 rows (measured).
`mapInArrow` would do the same, but does not start without pandas.
"""

import sys
import zipimport
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backfill_cli.upstreams.files.slicing import GroupSlice
from backfill_cli.upstreams.formats.edge import raising_in_worker, reading

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
    from pyspark.sql.functions import arrow_udtf
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted, arrow = tuple(slices), to_arrow_schema(schema)

    class Slices:
        def eval(self, numbers: Any) -> Iterator[Any]:
            return _of_numbers(wanted, arrow, numbers.column(0).to_pylist())

    numbers = spark.range(0, len(wanted), 1, len(wanted))
    read: Any = arrow_udtf(Slices, returnType=schema)
    found: DataFrame = read(numbers.asTable())
    return found


def _of_numbers(slices: Sequence[FileSlice], schema: Any, numbers: Sequence[int]) -> Iterator[Any]:
    """Runs in a worker: the rows of the slices whose numbers it is given."""
    for number in numbers:
        one = slices[number]
        with raising_in_worker(), reading(one.path, "parquet"):
            yield from batches(one.fs, one.path, one.slice, schema)
    _forget_zips()


def _forget_zips() -> None:
    """Drop Python's open archives, as it finds them again by itself.

    A reused worker has its import caches invalidated before each task, for which Python reads the whole directory
    of pyspark.zip 16 times: 0.1 s of CPU, ten times what a slice of 25,000 rows costs (measured, Python 3.11).
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]


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
