"""Rows that are made in Spark's Python workers are written there: Parquet files by the task that made them.

Taking them into the JVM for it to write cost ten times the CPU of writing them (measured: 1.3 and 0.1 µs a row of
100 bytes). Each attempt of a task has a file of its own; what a task returns, its file's name and rows, counts, so
files of losing attempts are ignored.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import ArrowTasks, BatchedUpstream, Upstream
from backfill_cli.engine.staged_files import folder_made
from backfill_cli.model.plan import SnapshotRead, StagedFile
from backfill_cli.upstreams.formats import arrow_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_GROUP_ROWS = 250_000
_GROUP_BYTES = 64 << 20
"""A row group is what a task holds in memory; larger ones load no faster."""


@dataclass(frozen=True, slots=True)
class Written:
    """files: in the order of the parts. rows: by read (index)."""

    files: tuple[StagedFile, ...]
    rows: dict[int, int]


def made_in_workers(
    upstream: Upstream, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]
) -> ArrowTasks | None:
    """See contracts.BatchedUpstream; None for an upstream that is none, and where workers could not make them."""
    if not isinstance(upstream, BatchedUpstream) or not _workers_know_us(spark):
        return None
    return upstream.batches(spark, table, reads)


@lru_cache(maxsize=1)
def _workers_know_us(spark: "SparkSession") -> bool:
    """Whether Python workers have this package and pyarrow: local ones are ours, elsewhere one is asked."""
    from pyspark.errors import PySparkException

    if (spark.conf.get("spark.master", None) or "").startswith("local"):
        return True
    try:
        return bool(arrow_tasks.frame(spark, _known, (0,), "known BOOLEAN").toArrow().num_rows)
    except (PySparkException, ImportError):
        return False


def _known(part: int) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"known": [True]})


def frame(spark: "SparkSession", tasks: ArrowTasks) -> "DataFrame":
    """The rows for Spark to go on with."""
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(json.loads(tasks.schema))
    if not tasks.parts:
        return spark.createDataFrame([], schema)
    return arrow_tasks.frame(spark, tasks.make, tasks.parts, schema)


def write(spark: "SparkSession", tasks: ArrowTasks, path: Path, folder: Path) -> Written:
    """The rows are files in the new folder `path`, named from the attempt's `folder` on.

    Raises Transient when the folder cannot be made; a failure of Spark passes through.
    """
    folder_made(path)
    if not tasks.parts:
        return Written((), {})
    parts = tuple(enumerate(tasks.parts))
    done = arrow_tasks.frame(
        spark, partial(_write, tasks.make, str(path)), parts, "part INT, name STRING, rows BIGINT"
    )
    files, rows = [], dict.fromkeys(tasks.reads, 0)
    # sorted here: Spark would make all parts twice, once to learn where to cut the order
    for part in sorted(done.toArrow().to_pylist(), key=itemgetter("part")):
        file = path / part["name"]
        files.append(StagedFile(str(file.relative_to(folder)), file.stat().st_size))
        rows[tasks.reads[part["part"]]] += part["rows"]
    return Written(tuple(files), rows)


def _write(
    make: "Callable[[Any], Iterator[pa.RecordBatch]]", path: str, part: tuple[int, Any]
) -> "Iterator[pa.RecordBatch]":
    """Runs in a worker: one file of the part's rows, none where it has none; `part, name, rows` of it."""
    import pyarrow as pa

    number, what = part
    batches = make(what)
    first = next(batches, None)
    if first is None:
        return
    name, rows = f"part-{number}-{uuid.uuid4().hex}.parquet", 0
    with _writer(f"{path}/{name}", first.schema) as writer:
        for group in _groups(first, batches):
            writer.write_table(group, row_group_size=_GROUP_ROWS)
            rows += group.num_rows
    yield pa.RecordBatch.from_pylist(
        [{"part": number, "name": name, "rows": rows}],
        pa.schema([("part", pa.int32()), ("name", pa.string()), ("rows", pa.int64())]),
    )


def _groups(first: "pa.RecordBatch", more: "Iterator[pa.RecordBatch]") -> "Iterator[pa.Table]":
    import pyarrow as pa

    held, rows, size = [first], first.num_rows, first.nbytes
    for batch in more:
        if rows + batch.num_rows > _GROUP_ROWS or size + batch.nbytes > _GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    yield pa.Table.from_batches(held)


def _writer(path: str, schema: "pa.Schema") -> Any:
    """What Parquet keeps as whole numbers is written as differences, all else by a dictionary while short."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def is_whole(kind: "pa.DataType") -> bool:
        small = pa.types.is_decimal(kind) and kind.precision <= 18
        return bool(small or pa.types.is_integer(kind) or pa.types.is_timestamp(kind))

    whole = [field.name for field in schema if is_whole(field.type)]
    return pq.ParquetWriter(
        path,
        schema,
        compression="lz4",
        use_dictionary=[field.name for field in schema if field.name not in whole],
        column_encoding=dict.fromkeys(whole, "DELTA_BINARY_PACKED"),
        store_decimal_as_integer=True,
    )
