"""A job that is caught up, as its runner reports it."""

from backfill_cli.model.checkpoint import Progress
from backfill_cli.model.job import Phase
from backfill_cli.model.limit import Limit

NOW = Progress(
    Phase.UPSTREAM,
    7,
    0,
    None,
    0,
    0,
    {},
    0,
    0,
    None,
    None,
    Limit("nothing"),
    caught_up_ms=5,
    token=1,
    settled_ms=10**15,
)
"""What the first runner of a job says that is caught up."""
