"""One Python process of our own beside Spark's workers, in local mode: its task does not wait for a slot in Spark.

Spark starts a job only when a task of earlier jobs has ended, which takes seconds while a snapshot is read; a log
that must be taken now cannot wait for that. On a cluster Spark has more machines, and runs the task itself.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, TypeVar

from backfill_cli.errors import RETRIED, Transient
from backfill_cli.spark.failures import MARK, from_spark, raising_in_worker
from backfill_cli.spark.interruption import ended_by

Task = TypeVar("Task")
Done = TypeVar("Done")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Worker:
    """The process and our end of its pipe."""

    def __init__(self) -> None:
        spawn = get_context("spawn")
        self._ours, theirs = spawn.Pipe()
        with _signals_blocked():  # until it has left our process group: only we handle Ctrl-C
            self._process = spawn.Process(target=_serve, args=(theirs,), name="taking", daemon=True)
            self._process.start()
        theirs.close()

    def asked(self, act: Callable[[Any], Any], task: Any) -> tuple[Any, str | None]:
        """(result, failure as text or None). Raises EOFError or OSError if the process died."""
        self._ours.send((act, task))
        answer: tuple[Any, str | None] = self._ours.recv()
        return answer

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def end(self) -> None:
        self.kill()
        self._ours.close()


_TURN = threading.Lock()
_WORKERS: list[_Worker] = []


def run(act: Callable[[Task], Done], task: Task) -> Done:
    """What `act` returns for the task, run in the process, which the first task starts; one task at a time.

    act: a module's function. Raises our own errors as `act` raised them, RuntimeError for others, and Transient if
    the process died; the next task then starts another one. An interrupt ends the process and its task, and so
    does an `interruptible` block that is unwanted.
    """
    with _TURN:
        if _WORKERS and not _WORKERS[0].is_alive:
            _WORKERS.pop().end()
        if not _WORKERS:
            _WORKERS.append(_Worker())
        try:
            with ended_by(_WORKERS[0].kill):
                answer, failed = _WORKERS[0].asked(act, task)
        except (EOFError, OSError) as exc:
            _WORKERS.pop().end()
            died = "the process that reads the change log was killed, or ran out of memory"
            raise Transient(died, RETRIED) from exc
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
    """Runs in the process: serves one task after another until the parent ends, in whatever way."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with ThreadPoolExecutor(1) as turn:  # its futures catch any exception
        while True:
            try:
                act, task = pipe.recv()
            except EOFError:
                return
            done = turn.submit(_done, act, task)
            failure = done.exception()
            pipe.send_bytes(done.result() if failure is None else _pickled((None, _told(failure))))


def _done(act: Callable[[Any], Any], task: Any) -> bytes:
    """The answer, pickled here, so that a result that cannot be pickled is a failure of the task."""
    with raising_in_worker():
        return _pickled((act(task), None))


def _pickled(answer: tuple[Any, str | None]) -> bytes:
    return bytes(ForkingPickler.dumps(answer))


def _told(failure: BaseException) -> str:
    """The failure as text, in the form it has through Spark: not every exception can be unpickled."""
    return str(failure) if MARK in str(failure) else f"{type(failure).__name__}: {failure}"


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
