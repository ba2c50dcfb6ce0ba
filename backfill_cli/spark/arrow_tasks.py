"""Rows that Spark's Python workers make as Arrow batches, never one by one: one task per part.

A table function over one number per part and not a Python data source: planning such a source starts Python
processes, which cost more than a slice of 25,000 rows (measured). `mapInArrow` would do the same, but does not
start without pandas.
"""

import gc
import math
import sys
import zipimport
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from backfill_cli import __version__
from backfill_cli.contracts import Piece
from backfill_cli.errors import Fatal
from backfill_cli.spark.failures import SAME_PACKAGE, raising_in_worker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

PART_ROWS = 500_000  # what is made again when a task fails


def frame(
    spark: "SparkSession",
    make: "Callable[[Any], Iterator[pa.RecordBatch]]",
    parts: Sequence[Any],
    schema: "StructType | str",
) -> "DataFrame":
    """What `make` gives of each part, one task each, columns as in `schema`.

    make: called in a worker, so a function of a module, or a `partial` of one. Executors need this package and
    pyarrow. What it raises of ours passes through Spark as text that `edge.from_spark` takes apart.
    """
    from pyspark.sql.functions import arrow_udtf

    wanted = tuple(parts)

    class Parts:
        def eval(self, numbers: Any) -> Iterator[Any]:
            return _of_numbers(make, wanted, numbers.column(0).to_pylist())

    numbers = spark.range(0, len(wanted), 1, len(wanted))
    made: Any = arrow_udtf(Parts, returnType=schema)
    found: DataFrame = made(numbers.asTable())
    return found


def cores(spark: "SparkSession") -> int:
    """As many as a shuffle has partitions: the cores in local mode, and what the user set on a cluster."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)


def packed(pieces: Sequence[tuple[Piece, int]], cores: int) -> tuple[tuple[Piece, ...], ...]:
    """The pieces, each with its rows, as parts of about a core's share: a task costs what 10,000 rows do.

    In order; at most PART_ROWS a part, unless one piece alone has more.
    """
    share = max(1, min(PART_ROWS, math.ceil(sum(rows for _, rows in pieces) / max(1, cores))))
    parts: list[list[Piece]] = []
    held = 0
    for piece, rows in pieces:
        if not parts or held + rows > share:
            parts.append([])
            held = 0
        parts[-1].append(piece)
        held += rows
    return tuple(map(tuple, parts))


# Asking costs a Spark job, and what a session's workers have stays the same.
_KNOWN: "WeakKeyDictionary[SparkSession, bool]" = WeakKeyDictionary()


def workers_know_us(spark: "SparkSession") -> bool:
    """Whether the session's Python workers have this package; asked once, in local mode they are our own.

    Raises Fatal where they have another version of it.
    """
    if spark not in _KNOWN:
        _KNOWN[spark] = is_local(spark) or _one_knows_us(spark)
    return _KNOWN[spark]


def is_local(spark: "SparkSession") -> bool:
    """Whether tasks run on this machine, in threads of Spark's own process."""
    from pyspark.sql.utils import is_remote

    return not is_remote() and (spark.conf.get("spark.master", None) or "").startswith("local")


def _one_knows_us(spark: "SparkSession") -> bool:
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
        raise Fatal(f"Spark's executors have backfill-cli {said}, and this is {__version__}", SAME_PACKAGE)
    return True


def _version(part: int) -> "Iterator[pa.RecordBatch]":
    """Runs in a worker."""
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"version": [__version__]})


def _of_numbers(
    make: "Callable[[Any], Iterator[pa.RecordBatch]]", parts: Sequence[Any], numbers: Sequence[int]
) -> "Iterator[pa.RecordBatch]":
    """Runs in a worker: the batches of the parts whose numbers it is given."""
    for number in numbers:
        with raising_in_worker(), _no_collections():
            yield from make(parts[number])
    forget_zips()


@contextmanager
def _no_collections() -> Iterator[None]:
    """Python looks for no cycles: rows on their way are many new objects and no cycle (a fifth of Kafka's CPU)."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def forget_zips() -> None:
    """Drop Python's open archives, as it finds them again by itself.

    A worker has its import caches invalidated before each task, for which Python reads the whole directory
    of pyspark.zip 16 times: 0.1 s of CPU, ten times what a slice of 25,000 rows costs (measured, Python 3.11).
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]
