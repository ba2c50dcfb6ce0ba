"""The read models of a catalog's jobs, each read in one short transaction."""

import time

from backfill_cli.catalog import Catalog
from backfill_cli.errors import NoSuchJob
from backfill_cli.view.model import JobView, job_view

LEDGER = 120  # epochs that the lag's curve spans
GROUPS = 6  # bars of one table's files


def read_jobs(catalog: Catalog, name: str | None) -> list[JobView]:
    """One job in full, or all of them, oldest first. Raises NoSuchJob for an unknown name."""
    now_ms = time.time_ns() // 1_000_000
    if name is not None:
        return [job_view(*catalog.close_look(name, GROUPS, LEDGER), now_ms=now_ms)]
    return [job_view(row, now_ms=now_ms) for row in catalog.listed()]


def watched_jobs(catalog: Catalog, name: str | None) -> list[JobView]:
    """As `read_jobs`, but a single job is read in full."""
    if name is not None:
        return read_jobs(catalog, name)
    try:
        views = read_jobs(catalog, None)
        return read_jobs(catalog, views[0].name) if len(views) == 1 else views
    except NoSuchJob:  # dropped, or the catalog was moved away, between two reads
        return []
