"""Assembles a chain job: its spool, its taker, and the upstream and the stager that its loop works with."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.contracts import JobDefinition, JobStore, ShowingUpstream
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.spool import take
from backfill_cli.engine.spool.folder import Spool
from backfill_cli.engine.spool.limits import TakerSettings
from backfill_cli.engine.spool.stage import SpooledStager
from backfill_cli.engine.spool.taker import Taker
from backfill_cli.engine.spool.upstream import SpooledUpstream
from backfill_cli.model.codec import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backfill_cli.config import JobConfig
    from backfill_cli.contracts import Taken
    from backfill_cli.model.plan import ChangeWindow


def open_spooled(
    job: JobDefinition,
    config: "JobConfig",
    resources: Resources,
    store: JobStore,
    now_ms: Callable[[], int],
    steady_ms: Callable[[], int],
) -> tuple[SpooledUpstream, SpooledStager]:
    """What a loop works with; `SpooledUpstream.take_up` comes next, once the job is recovered.

    The log is that of `resources.upstream`, which is pinned or restored. Raises StateConflict for a spool that
    belongs to another job.
    """
    log = resources.upstream
    shown = log.shown if isinstance(log, ShowingUpstream) else str
    spool = Spool(config.spool.path, job.name, owner(job), shown)
    spool.open()
    resources.rows.restore(job.pin)

    def takes(window: "ChangeWindow", schemas: "Mapping[str, str]", folder: Path) -> "Taken":
        return take.take(resources.spark, resources.upstream, config, window, schemas, folder)

    settings = TakerSettings(
        interval_ms=int(config.barrier.interval_s * 1000),
        max_bytes=config.spool.max_size,
        stops_when_full=config.spool.on_full == "stop",
        retry_limit_ms=int(config.retry.limit_s * 1000),
    )
    taker = Taker(resources.upstream, spool, store, takes, settings, now_ms, steady_ms)
    upstream = SpooledUpstream(resources.rows, resources.upstream, taker, spool)
    return upstream, SpooledStager(lambda: resources.spark, upstream, spool, config)


def owner(job: JobDefinition) -> str:
    """What distinguishes a job from others of its name, even without its catalog: what it copies, from where."""
    told = f"{job.fingerprint}\n{encode(job.pin)}"
    return hashlib.blake2b(told.encode(), digest_size=16).hexdigest()
