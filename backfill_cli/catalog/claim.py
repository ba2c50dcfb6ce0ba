"""A runner's hold on a job: the lease in the catalog and the lock file beside it, released together."""

from contextlib import suppress
from types import TracebackType

from backfill_cli.catalog.lease import JobLock
from backfill_cli.catalog.runner import RunnerStore
from backfill_cli.errors import BackfillError


class Claim:
    """A runner's hold on a job, until `with` ends or the process dies.

    token: larger than any before it. store: the job's part of the catalog. lock: the held lock file.
    """

    def __init__(self, store: RunnerStore, token: int, lock: JobLock) -> None:
        self.store = store
        self.token = token
        self.lock = lock

    def __enter__(self) -> "Claim":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # A lease that cannot be released now expires in 30 s; the error that came before matters more.
            with suppress(BackfillError):
                self.store.release()
        finally:
            self.lock.release()
