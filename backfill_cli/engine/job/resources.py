"""What a command uses outside this process: Spark, upstream and sink, each opened when first needed."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import Protocol, TypeVar

import tenacity

from backfill_cli.config import JobConfig
from backfill_cli.contracts import Sink, Source
from backfill_cli.errors import Transient
from backfill_cli.model.limit import Kind, Limit
from backfill_cli.model.pace import FIRST_WAIT_MS, LONGEST_WAIT_MS
from backfill_cli.spark import driver
from backfill_cli.spark.api import SparkSession
from backfill_cli.spark.opening import STARTING, Opening
from backfill_cli.spark.session import session_for

Answer = TypeVar("Answer")


def patiently(
    act: Callable[[], Answer],
    limit_s: float,
    tell: Callable[[Limit | str], None],
    failed: Callable[[Transient], None] = lambda _error: None,
) -> Answer:
    """What `act` returns; transient failures are retried with backoff, up to a limit.

    tell, failed: receive each.
    """

    def waits(attempt: tenacity.RetryCallState) -> None:
        error = attempt.outcome.exception() if attempt.outcome else None
        if isinstance(error, Transient):
            failed(error)
            tell(replace(Limit.cause(error), kind=Kind.WAITING))

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(lambda exc: isinstance(exc, Transient) and driver.ended() is None),
        wait=tenacity.wait_exponential(FIRST_WAIT_MS / 1000, max=LONGEST_WAIT_MS / 1000),
        stop=tenacity.stop_after_delay(limit_s),
        before_sleep=waits,
        reraise=True,
    )
    return retrying(act)


CHECKING = "checking the job"


class Watcher(Protocol):
    """Follows a run, for display. Called from the run's own thread; must return at once and raise nothing."""

    def progressed(self) -> None:
        """The catalog has news about the job."""
        ...

    def tell(self, doing: Limit | str) -> None:
        """What the run does or waits for before its first barrier."""
        ...

    def stopping(self) -> None:
        """A first signal came: the epoch in hand is being committed. Called by a signal handler: takes no lock."""
        ...

    def leave(self) -> None:
        """The process ends at once: restores the terminal."""
        ...


class NoWatcher:
    """Ignores everything."""

    def progressed(self) -> None: ...
    def tell(self, doing: Limit | str) -> None: ...
    def stopping(self) -> None: ...
    def leave(self) -> None: ...


class Resources:
    """Spark, upstream and sink of one command; closed at the end of `with`.

    tell: receives what is being opened or waited for. waits: whether failures that may pass are waited for, up to
    `retry.limit`; as a rule, if somebody is told. failed: receives each of them. opening: of a Spark session that
    somebody else closes.
    """

    def __init__(
        self,
        config: JobConfig,
        tell: Callable[[Limit | str], None] | None = None,
        waits: bool | None = None,
        opening: Opening | None = None,
    ) -> None:
        self.config = config
        self._open = ExitStack()
        self.tell = tell or (lambda _doing: None)
        self.failed: Callable[[Transient], None] = lambda _error: None
        self.patience_s = config.retry.limit_s if (tell is not None if waits is None else waits) else 0.0
        self.opening = opening or Opening(lambda: session_for(config))
        self._starting = False
        if opening is None:
            self._open.callback(self.opening.close)

    def begin_spark(self) -> None:
        """Spark is starting from now on, if it has not started."""
        if self.opening.awaited() is not None:
            self.tell(STARTING)
            self._starting = True

    @property
    def spark(self) -> SparkSession:
        """The session; the first call opens it, or waits for what `opening` has begun."""
        session = self.with_retries(lambda: self.opening.get(self.tell))
        if self._starting:  # what goes on with it can take minutes: checks of derived tables, a recovery's commit
            self._starting = False
            self.tell(CHECKING)
        return session

    @cached_property
    def upstream(self) -> Source:
        return self._opened()

    @cached_property
    def rows(self) -> Source:
        """The same upstream opened a second time, for a snapshot that is read beside its log (strategy chain)."""
        return self._opened()

    def _opened(self) -> Source:
        upstream = self.config.open_upstream()
        upstream.use(lambda: self.spark)
        return self._open.enter_context(closing(upstream))

    @cached_property
    def sink(self) -> Sink:
        sink = self.config.open_sink()
        sink.use(lambda: self.spark)
        return sink

    def with_retries(self, act: Callable[[], Answer]) -> Answer:
        """What `act` returns; transient failures are retried with backoff, up to `retry.limit`."""
        return patiently(act, self.patience_s, self.tell, self.failed)

    def __enter__(self) -> "Resources":
        self._open.enter_context(driver.explained(driver.AGAIN))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, exc, trace)
