"""What an error says to somebody who compares, rather than to a run."""

from collections.abc import Iterator
from contextlib import contextmanager

from backfill_cli.errors import HistoryGone


@contextmanager
def history_named(job: str) -> Iterator[None]:
    """Reports an upstream that no longer has what a comparison needs as such, not as a fault in the sink's rows.

    Replaces an error whose hint, meant for a run, would be to start over: the sink's rows may still be right.
    """
    try:
        yield
    except HistoryGone as gone:
        keep = "" if gone.starts_over or not gone.hint else f"{gone.hint}; "
        raise HistoryGone(
            f"job {job!r} cannot be verified: {gone.message}",
            f"{keep}its tables are unchanged, and may still be right; to see the job: backfill status {job}",
        ) from gone
