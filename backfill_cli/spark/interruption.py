"""Spark's jobs end early once nobody wants their result. Other threads' jobs are not touched: a commit goes on."""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from backfill_cli.errors import BackfillError, Interrupted
from backfill_cli.spark.api import SparkSession

LOOK_S = 0.1  # of the second in which a command acts; a look is one stat of a file


@contextmanager
def interruptible(spark: SparkSession, unwanted: Callable[[], bool]) -> Iterator[None]:
    """The Spark jobs that this thread starts in the block are cancelled while `unwanted` says so.

    unwanted: asked by another thread, all the time. Raises Interrupted if the block failed after that, with
    whatever; a block that was completed all the same has its result.
    """
    tag = f"backfill-{uuid.uuid4().hex[:12]}"
    add, remove, cancel = _tagging(spark)
    over, cut = threading.Event(), threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_S):
            with suppress(BackfillError):  # the catalog could not be read: the next look may
                if unwanted():
                    cut.set()
                    with suppress(Exception):  # of a Spark that has ended: the block fails by itself
                        cancel(tag)  # again at each look: the block may be between two jobs

    add(tag)
    watching = threading.Thread(target=watch, name="interruption", daemon=True)
    watching.start()
    try:
        yield
    except Exception as exc:
        if cut.is_set():
            raise Interrupted from exc
        raise
    finally:
        over.set()
        watching.join()
        with suppress(Exception):  # as above
            remove(tag)


Tagging = Callable[[str], object]


def _tagging(spark: SparkSession) -> tuple[Tagging, Tagging, Tagging]:
    """What adds a tag to this thread's jobs, what removes it, and what cancels jobs that have it.

    A session's own tags, which Spark Connect has, are known only to the thread that added them where Spark runs in
    this machine's Java.
    """
    from pyspark import SparkContext
    from pyspark.sql.utils import is_remote

    if is_remote():
        return spark.addTag, spark.removeTag, spark.interruptTag
    context = SparkContext.getOrCreate()
    return context.addJobTag, context.removeJobTag, context.cancelJobsWithTag
