"""Rows that Spark's Python workers produce as Arrow batches, never one by one: one task per part.

This is a table function over one number per part, not a Python data source: planning such a source starts Python
processes, which cost more than a slice of 25,000 rows (measured). `mapInArrow` would also work, but needs pandas.
"""

import gc
import json
import math
import sys
import zipimport
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from backfill_cli import __version__
from backfill_cli.errors import Fatal
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.failures import SAME_PACKAGE, raising_in_worker
from backfill_cli.spark.row_counts import Count, counted, place

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

PART_ROWS = 500_000  # what is repeated when a task fails
LOG_ROWS = 1_000_000  # of a log in one part: netting several parts together costs another job


def frame(
    spark: SparkSession,
    make: "Callable[[Any], Iterator[pa.RecordBatch]]",
    parts: Sequence[Any],
    schema: "StructType | str",
    of_rows: bool = False,
) -> DataFrame:
    """The batches that `make` yields for each part, one task per part, with the columns of `schema`.

    make: called in a worker, so it must be a module's function, or a `partial` of one. Executors need this package
    and pyarrow. Our own errors pass through Spark as text, which `failures.from_spark` parses. of_rows: they are
    rows of an upstream, and counted: see `row_counts`.
    """
    from pyspark.sql.functions import arrow_udtf

    wanted, counted_at = tuple(parts), place() if of_rows else None

    class Parts:
        def eval(self, numbers: Any) -> Iterator[Any]:
            return _of_numbers(make, wanted, numbers.column(0).to_pylist(), counted_at)

    numbers = spark.range(0, len(wanted), 1, len(wanted))
    made: Any = arrow_udtf(Parts, returnType=schema)
    found: DataFrame = made(numbers.asTable())
    return found


class OfRead(Protocol):
    """What `make` is called with, and which of some reads its rows are of."""

    @property
    def read(self) -> int: ...
    @property
    def what(self) -> Any: ...


P = TypeVar("P", bound=OfRead)


def of_pieces(
    spark: SparkSession,
    make: "Callable[[Any], Iterator[pa.RecordBatch]]",
    parts: Sequence[Sequence[OfRead]],
    schema: str,
    number: str | None = None,
) -> DataFrame:
    """The batches that `make` yields for what each piece holds, one task per part; as `frame`.

    schema: as JSON. number: the name of a further column INT with each row's read, which the batches can have.
    """
    from pyspark.sql.types import StructType

    shape = StructType.fromJson(json.loads(schema))
    add = None if number in shape.names else number
    if add is not None:
        shape = shape.add(add, "integer")
    if not parts:
        return spark.createDataFrame([], shape)
    return frame(spark, partial(_of_part, make, add), parts, shape, of_rows=True)


def _of_part(
    make: "Callable[[Any], Iterator[pa.RecordBatch]]", number: str | None, part: Sequence[OfRead]
) -> "Iterator[pa.RecordBatch]":
    """Runs in a worker."""
    import pyarrow as pa

    for piece in part:
        for batch in make(piece.what):
            if number is None:
                yield batch
            else:
                yield batch.append_column(number, pa.repeat(pa.scalar(piece.read, pa.int32()), batch.num_rows))


def mapped(
    rows: DataFrame, make: "Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]]", schema: "StructType | str"
) -> DataFrame:
    """The batches that `make` yields for each batch of a frame, with the columns of `schema`; as `frame`."""
    from pyspark.sql.functions import arrow_udtf

    class Batches:
        def eval(self, batch: Any) -> Iterator[Any]:
            return _of_batch(make, batch)

    made: Any = arrow_udtf(Batches, returnType=schema)
    found: DataFrame = made(rows.asTable())
    return found


def cores(spark: SparkSession) -> int:
    """The number of shuffle partitions: the cores in local mode, what the user has set on a cluster."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)


def at_once(spark: SparkSession) -> int | None:
    """`cores`; None if the workers lack this package."""
    return cores(spark) if workers_know_us(spark) else None


def packed(pieces: Sequence[tuple[P, int]], cores: int) -> tuple[tuple[P, ...], ...]:
    """The pieces (each with its number of rows) in order, grouped into parts of about one core's share.

    Starting a task costs as much as 10,000 rows. At most PART_ROWS per part, unless a single piece has more.
    """
    return _grouped(pieces, max(1, min(PART_ROWS, math.ceil(sum(rows for _, rows in pieces) / max(1, cores)))))


def of_log(pieces: Sequence[tuple[P, int]], cores: int) -> tuple[tuple[P, ...], ...]:
    """As `packed`, for changes, which each part nets by itself: a window that is not large is one part."""
    return _grouped(pieces, max(LOG_ROWS, math.ceil(sum(rows for _, rows in pieces) / max(1, cores))))


def _grouped(pieces: Sequence[tuple[P, int]], share: int) -> tuple[tuple[P, ...], ...]:
    parts: list[list[P]] = []
    held = 0
    for piece, rows in pieces:
        if not parts or held + rows > share:
            parts.append([])
            held = 0
        parts[-1].append(piece)
        held += rows
    return tuple(map(tuple, parts))


# Finding out costs a Spark job, and the answer does not change during a session.
_KNOWN: WeakKeyDictionary[SparkSession, bool] = WeakKeyDictionary()


def workers_know_us(spark: SparkSession) -> bool:
    """Whether the session's Python workers have this package; checked once. In local mode they always have it.

    Raises Fatal if they have another version of it.
    """
    if spark not in _KNOWN:
        _KNOWN[spark] = is_local(spark) or _one_knows_us(spark)
    return _KNOWN[spark]


def is_local(spark: SparkSession) -> bool:
    """Whether tasks run on this machine, in threads of Spark's own process."""
    from pyspark.sql.utils import is_remote

    return not is_remote() and (spark.conf.get("spark.master", None) or "").startswith("local")


def _one_knows_us(spark: SparkSession) -> bool:
    from pyspark.errors import PySparkException

    try:
        (said,) = frame(spark, _version, (0,), "version STRING").toArrow()["version"].to_pylist()
    except ImportError:
        return False  # the Connect client lacks what it needs to send a function
    except PySparkException as exc:
        if "No module named" in str(exc):
            return False
        raise
    if said != __version__:
        told = f"Spark's executors have backfill-cli {said}, but this is {__version__}"
        raise Fatal(told, SAME_PACKAGE).of("")
    return True


def _version(part: int) -> "Iterator[pa.RecordBatch]":
    """Runs in a worker."""
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"version": [__version__]})


def _of_numbers(
    make: "Callable[[Any], Iterator[pa.RecordBatch]]",
    parts: Sequence[Any],
    numbers: Sequence[int],
    counted_at: str | None = None,
) -> "Iterator[pa.RecordBatch]":
    """Runs in a worker: the batches of the parts with these numbers."""
    for number in numbers:
        with raising_in_worker(), _no_collections():
            yield from counted(make(parts[number]), Count(counted_at, number))
    forget_zips()


def _of_batch(make: "Callable[[Any], Iterator[pa.RecordBatch]]", batch: Any) -> "Iterator[pa.RecordBatch]":
    """Runs in a worker."""
    if batch.num_rows:
        with raising_in_worker(), _no_collections():
            yield from make(batch)
    forget_zips()


@contextmanager
def _no_collections() -> Iterator[None]:
    """Python's cycle collector is off: rows create many objects but no cycles (saves a fifth of Kafka's CPU)."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def forget_zips() -> None:
    """Python's import cache holds no zip archives; Python opens them again when needed.

    A worker's import caches are invalidated before each task, for which Python reads the whole directory of
    pyspark.zip 16 times: 0.1 s of CPU, ten times what a slice of 25,000 rows costs (measured, Python 3.11).
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]
