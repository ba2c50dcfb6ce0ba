"""One Python process of our own beside Spark's workers, in local mode: its task waits for no slot of Spark's.

Spark starts a job once a task of those before it has ended, which is seconds while a snapshot is read; a log that
must be taken now cannot wait for that. On a cluster Spark has the machines, and Spark runs the task.
"""

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import TypeVar

from backfill_cli.errors import Transient

Task = TypeVar("Task")
Done = TypeVar("Done")

_LOCK = threading.Lock()
_POOL: list[ProcessPoolExecutor] = []


def run(act: Callable[[Task], Done], task: Task) -> Done:
    """What `act` returns for the task, in the process, which is started with the first one.

    act: a function of a module. Raises what `act` raises; Transient where the process died: another one is
    started with the next task.
    """
    try:
        return _pool().submit(act, task).result()
    except BrokenProcessPool as exc:
        with _LOCK:
            _POOL.clear()
        raise Transient("the process that takes the change log died", "see that nothing ends it") from exc


def _pool() -> ProcessPoolExecutor:
    with _LOCK:
        if not _POOL:
            _POOL.append(ProcessPoolExecutor(1, get_context("spawn"), _begin))
        return _POOL[0]


def _begin() -> None:
    """Runs in the process: it ends with its parent, however that ends; Ctrl-C is the parent's to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    import os

    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
