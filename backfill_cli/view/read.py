"""The read models of a catalog's jobs, read in short looks at it."""

from backfill_cli.catalog import Catalog, JobRow
from backfill_cli.view.model import JobView, job_view

LEDGER = 60  # epochs that the lag's curve spans
GROUPS = 6  # bars of one table's files


def read_jobs(catalog: Catalog, name: str | None) -> list[JobView]:
    """One job in full, or all of them, oldest first. Raises NoSuchJob for a name that is not there."""
    if name is not None:
        return [read_job(catalog, catalog.job(name))]
    rows = catalog.jobs()
    if len(rows) == 1:
        return [read_job(catalog, rows[0])]
    return [job_view(row) for row in rows]


def read_job(catalog: Catalog, row: JobRow) -> JobView:
    """One job with its groups of splits and its last epochs."""
    return job_view(row, catalog.split_groups(row.name, GROUPS), catalog.ledger(row.name, LEDGER))
