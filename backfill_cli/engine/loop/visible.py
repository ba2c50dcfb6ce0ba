"""A start that is seen from its first second, before there is a job, Spark or a sink."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from backfill_cli.catalog.lease import user
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.loop.process import Heartbeat, Wake
from backfill_cli.errors import BackfillError, Transient
from backfill_cli.model.limit import Limit

if TYPE_CHECKING:
    from backfill_cli.catalog import Catalog
    from backfill_cli.catalog.lease import JobLock
    from backfill_cli.catalog.starts import Starter
    from backfill_cli.config import JobConfig

FIRST = "its config and sink are being checked"
"""What a start does until it says what it does."""


@contextmanager
def visible(
    config: "JobConfig", catalog: "Catalog", lock: "JobLock", resources: Resources, wake: Wake
) -> Iterator[None]:
    """`status` shows the start, and what it does or waits for; an error that ends it has left no trace of it."""
    name, told = config.job.name, resources.tell
    before: Starter | None = None

    def begin() -> None:
        lock.new = lock.new or not catalog.path.exists()  # another start may have removed the one that it had made
        catalog.starters.begin(name, user(), FIRST, config.stored(), config.file)

    def tell(doing: Limit | str) -> None:
        with suppress(Transient):  # for display only: it must not end what it reports
            catalog.starters.tell(name, doing)
        told(doing)

    resources.tell = tell
    limit_ms = int(config.retry.limit_s * 1000)
    try:
        before = resources.patiently(lambda: catalog.starters.of(name))
        resources.patiently(begin)
        with Heartbeat(name, lambda: catalog.starters.renew(name), limit_ms, wake):
            yield
    except BaseException:  # Ctrl-C, too
        with suppress(BackfillError):
            catalog.leave_nothing(lock, before)
        raise
    finally:
        resources.tell = told
