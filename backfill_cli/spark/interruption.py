"""What a thread computes ends early once nobody wants it. Other threads are not touched: a commit goes on."""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from backfill_cli.errors import BackfillError, Interrupted
from backfill_cli.spark.api import SparkSession

LOOK_S = 0.1  # of the second in which a command acts; a look is one stat of a file

Ending = Callable[[], object]


class _Endings(threading.local):
    """What ends the work of a thread that is no job of Spark's. lock: held while it does, and while it changes."""

    def __init__(self) -> None:
        self.there: list[Ending] = []
        self.lock = threading.Lock()


_OURS = _Endings()


@contextmanager
def ended_by(end: Ending) -> Iterator[None]:
    """In the block, `end` is called, once or more, if this thread is in an `interruptible` block that is unwanted.

    It is called by another thread, and never after the block.
    """
    there, lock = _OURS.there, _OURS.lock
    with lock:
        there.append(end)
    try:
        yield
    finally:
        with lock:
            there.remove(end)


@contextmanager
def interruptible(spark: SparkSession, unwanted: Callable[[], bool]) -> Iterator[None]:
    """What this thread does in the block ends while `unwanted` says so: Spark's jobs, and what is `ended_by`.

    unwanted: asked by another thread, all the time. Raises Interrupted if the block failed after that, with
    whatever; a block that was completed all the same has its result.
    """
    tag = f"backfill-{uuid.uuid4().hex[:12]}"
    add, remove, cancel = _tagging(spark)
    over, cut = threading.Event(), threading.Event()
    there, lock = _OURS.there, _OURS.lock

    def watch() -> None:
        while not over.wait(LOOK_S):
            with suppress(BackfillError):  # the catalog could not be read: the next look may
                if unwanted():
                    cut.set()
                    with suppress(Exception):  # of a Spark that has ended: the block fails by itself
                        cancel(tag)  # again at each look: the block may be between two jobs
                    with lock:
                        for end in there:
                            end()

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
