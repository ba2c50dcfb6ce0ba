"""One Python process of our own beside Spark's workers, in local mode: its task waits for no slot of Spark's.

Spark starts a job once a task of those before it has ended, which is seconds while a snapshot is read; a log that
must be taken now cannot wait for that. On a cluster Spark has the machines, and Spark runs the task.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from backfill_cli.errors import Transient
from backfill_cli.spark.failures import MARK, from_spark, raising_in_worker

Task = TypeVar("Task")
Done = TypeVar("Done")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Worker:
    """The process and our end of its pipe."""

    def __init__(self) -> None:
        spawn = get_context("spawn")
        self._ours, theirs = spawn.Pipe()
        with _signals_blocked():  # until it is out of our process group: Ctrl-C is ours to answer
            self._process = spawn.Process(target=_serve, args=(theirs,), name="taking", daemon=True)
            self._process.start()
        theirs.close()

    def asked(self, act: Callable[[Any], Any], task: Any) -> tuple[Any, str | None]:
        """What came of it, and how it failed. Raises EOFError or OSError where the process died."""
        self._ours.send((act, task))
        answer: tuple[Any, str | None] = self._ours.recv()
        return answer

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._ours.close()


_TURN = threading.Lock()
_WORKERS: list[_Worker] = []


def run(act: Callable[[Task], Done], task: Task) -> Done:
    """What `act` returns for the task, in the process, which is started with the first one; one task at a time.

    act: a function of a module. Raises what `act` raises, RuntimeError for what is not ours; Transient where the
    process died: another one is started with the next task. An interrupt ends the task with the process.
    """
    with _TURN:
        if not _WORKERS:
            _WORKERS.append(_Worker())
        try:
            answer, failed = _WORKERS[0].asked(act, task)
        except (EOFError, OSError) as exc:
            _WORKERS.pop().end()
            raise Transient("the process that takes the change log died", "see that nothing ends it") from exc
        except BaseException:
            _WORKERS.pop().end()
            raise
    if failed is not None:
        failure = RuntimeError(failed)
        raise from_spark(failure) or failure
    result: Done = answer
    return result


@contextmanager
def _signals_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection) -> None:
    """Runs in the process: one task after another until the parent ends, however it does."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with ThreadPoolExecutor(1) as turn:  # its future holds the failure, whatever it is
        while True:
            try:
                act, task = pipe.recv()
            except EOFError:
                return
            done = turn.submit(_done, act, task)
            failure = done.exception()
            pipe.send((done.result(), None) if failure is None else (None, _told(failure)))


def _done(act: Callable[[Any], Any], task: Any) -> Any:
    with raising_in_worker():
        return act(task)


def _told(failure: BaseException) -> str:
    """As text, as it comes through Spark: an exception need not come back from being pickled."""
    return str(failure) if MARK in str(failure) else f"{type(failure).__name__}: {failure}"


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
