"""The command that starts a job over, in the hints of errors that do not know the job."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from backfill_cli.catalog import Catalog
from backfill_cli.errors import BackfillError, NoSuchJob


@contextmanager
def start_over_named(job: str, catalog: Catalog) -> Iterator[None]:
    """An error that only starting over corrects has the command for it in its hint, if there is a job to drop."""
    try:
        yield
    except BackfillError as error:
        with suppress(BackfillError):  # the catalog cannot be read: the hint is the one without a command
            if error.hint.starts_over:
                try:
                    error.naming(job, catalog.definition(job).has_tables_to_itself)
                except NoSuchJob:
                    error.without_job()
        raise
