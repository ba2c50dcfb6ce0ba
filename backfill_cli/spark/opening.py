"""The Spark session of a command: opened once, for whoever first needs it, in a thread of its own.

Java and Spark take seconds to start, in which the command goes on: it lists files, asks databases, takes commands.
One that never needs Spark never starts it.
"""

import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack

from backfill_cli.errors import Transient
from backfill_cli.spark import driver
from backfill_cli.spark.api import SparkSession
from backfill_cli.spark.beside import end_clones

STARTING = "starting Spark"
_ONE_AT_A_TIME = threading.Lock()
"""A process has one session: another is opened once one that nobody waits for any more has been stopped."""

LOOK_S = 0.2
"""How often whoever waits looks whether it is to wait no longer."""


class Opening:
    """opens: opens the session; called again only after a Transient failure.

    A session that this thread has already is used instead, and stays open for its owner. then: called once the
    opening is over, by another thread.
    """

    def __init__(self, opens: Callable[[], SparkSession]) -> None:
        self._opens = opens
        self.then: Callable[[], None] = lambda: None
        self._turn = threading.Lock()
        self._thread: threading.Thread | None = None
        self._session: SparkSession | None = None
        self._error: BaseException | None = None
        self._closed = False
        self._has = threading.local()  # session: whether it is the thread's active one
        self._ours = not _is_there()
        if self._ours:
            driver.forget_ended()  # those of the jobs that this process ran before
        else:
            self._open()

    def begin(self) -> None:
        """The session is being opened from now on, or is open."""
        with self._turn:
            if self._thread is None and not self._is_over:
                # as a daemon it keeps no process from ending, whose Java then ends by itself
                self._thread = threading.Thread(target=self._open, name="spark", daemon=True)
                self._thread.start()

    @property
    def _is_over(self) -> bool:
        return self._session is not None or self._error is not None

    def _open(self) -> None:
        with ExitStack() as opening:
            opening.push(self._failed)
            opening.enter_context(_ONE_AT_A_TIME)
            session = self._opens()
            self._has.session = True
            with self._turn:
                self._session = session
            if self._closed:
                self._stop()
        self.then()

    def _failed(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        """Keeps what ended the opening, in whichever thread: it is raised where the session is needed."""
        self._error = self._error or error
        return True

    def awaited(self) -> str | None:
        """What is being waited for: the session, which is being opened from now on; None once it is open.

        Raises what `opens` raised.
        """
        self.begin()
        return STARTING if self._opened() is None else None

    def get(self, tell: Callable[[str], None]) -> SparkSession:
        """The session, once it is open. Raises what `opens` raised.

        tell: is called if it has to be waited for.
        """
        told = False
        while (session := self._opened()) is None:
            self.begin()
            if not told and not self._is_over:
                tell(STARTING)
                told = True
            if (thread := self._thread) is not None:
                thread.join(LOOK_S)
        if not hasattr(self._has, "session"):
            _make_active(session)
            self._has.session = True
        return session

    def _opened(self) -> SparkSession | None:
        """The session, if it is open. Raises what ended the opening; what may pass is then tried again."""
        with self._turn:
            session, error = self._session, self._error
            if session is None and isinstance(error, Transient):
                self._error = self._thread = None
        if session is None and error is not None:
            raise error
        return session

    def give_up(self, code: int) -> None:
        """Unless the session is open: whoever waits for it, in any thread, gets SystemExit with this code.

        Called by a signal handler: takes no lock.
        """
        if self._session is None:
            self._closed, self._error = True, SystemExit(code)

    def close(self) -> None:
        """A session of ours is stopped; one that is being opened will be, or ends with this process."""
        self._closed = True
        self._stop()

    def _stop(self) -> None:
        with self._turn:
            session, self._session = self._session, None
            self._error = self._error or SystemExit(1)
        if session is not None and self._ours:
            end_clones()
            if driver.ended() is None:
                session.stop()
            else:
                _forget_session()


def _is_there() -> bool:
    """Whether this thread has a session, without loading Spark to find out."""
    if "pyspark.sql" not in sys.modules:
        return False
    from pyspark.sql import SparkSession as Session

    return Session.getActiveSession() is not None


def _forget_session() -> None:
    """PySpark has no session: the next one has a Java of its own, where this one's was killed."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession as Session

    if (context := SparkContext._active_spark_context) is not None:
        context._jsc = None  # which it would call
        context.stop()
    Session._instantiatedSession = None


def _make_active(session: SparkSession) -> None:
    """The session is this thread's active one, whose settings say how expressions are understood."""
    session.createDataFrame([], "none INT")
