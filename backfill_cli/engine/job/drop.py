"""A job forgotten: in catalog and sink, or in the sink alone when its catalog is lost. The sink's rows stay.

Checked first, then done in an order that the same command can repeat: what names the job goes last.
"""

import shutil
import time
from pathlib import Path

from backfill_cli.catalog import Catalog
from backfill_cli.catalog.person import user
from backfill_cli.config import JobConfig, from_stored
from backfill_cli.contracts import JobDefinition, SavedJob
from backfill_cli.engine.job.ownership import require_lost
from backfill_cli.errors import NoSuchJob, UsageError
from backfill_cli.failpoint import hit
from backfill_cli.model.codec import decode


def drop(name: str, catalog: Catalog) -> None:
    """Nothing of the job is left in catalog, sink and staging but the sink's rows.

    Markers in a sink that another catalog took over, and the staging, are that catalog's and stay. Raises Held
    while a runner has the job, here or elsewhere.
    """
    with catalog.lock_job(name) as lock:
        config = from_stored(catalog.definition(name).config)
        sink = config.open_sink()
        held, ours = sink.owner(name), catalog.identity()
        # Claimed, so that no runner elsewhere takes the job up between the check and the end.
        with catalog.claim(name, user(), time.time_ns() // 1_000_000, lock):
            hit("drop-claimed")
            if held is None or held == ours or (ours is not None and held.catalog == ours.catalog):
                sink.forget(name)
                hit("drop-forgotten")
                _remove_staging(config.job.staging, name)
                hit("drop-unstaged")
            catalog.drop(name, lock)


def drop_from_sink(name: str, catalog: Catalog, config: JobConfig) -> None:
    """Nothing of a job whose catalog is lost is left in the sink of `config`, and in staging, but its rows.

    Raises NoSuchJob when the sink holds nothing of it, Held while its catalog or a runner of it is there,
    UsageError when `catalog` has it.
    """
    with catalog.lock_job(name):
        if name in {row.name for row in catalog.jobs()}:
            raise UsageError(
                f"catalog {catalog.path} has job {name!r}: --sink is for jobs whose catalog is lost",
                f"backfill drop {name} --confirm {name}",
            )
        sink = config.open_sink()
        if not sink.committed(name):
            raise NoSuchJob(
                f"the sink of this config holds nothing of job {name!r}", "check the job's name and [sink]"
            )
        require_lost(name, catalog, sink)
        _remove_staging(_staging(sink.saved(name), config), name)
        hit("drop-unstaged")
        sink.forget(name)


def _staging(saved: SavedJob | None, config: JobConfig) -> str:
    """Where the job staged its rows: as it was saved, else as this config says."""
    if saved is None:
        return config.job.staging
    return from_stored(decode(JobDefinition, saved.definition).config).job.staging


def _remove_staging(staging: str, name: str) -> None:
    shutil.rmtree(Path(staging) / name, ignore_errors=True)
