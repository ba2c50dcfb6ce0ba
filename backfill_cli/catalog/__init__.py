"""The catalog: what the program knows of its jobs, in one small DuckDB file that users can query."""

from backfill_cli.catalog.catalog import Catalog, waits_first, wall_clock_ms
from backfill_cli.catalog.inbox import Refused, Taken
from backfill_cli.catalog.job_rows import JobRow, SplitGroup, SplitRow
from backfill_cli.catalog.lease import JobLock, Lease, Run
from backfill_cli.catalog.runner import Claim

__all__ = [
    "Catalog",
    "Claim",
    "JobLock",
    "JobRow",
    "Lease",
    "Refused",
    "Run",
    "SplitGroup",
    "SplitRow",
    "Taken",
    "waits_first",
    "wall_clock_ms",
]
