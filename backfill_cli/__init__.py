"""Fill a derived table from an upstream that keeps changing, then follow it, in control all the way.

From Python: `Job`, and the errors that it raises, in `errors`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backfill_cli.api.job import Job

__version__ = "0.1.0"
__all__ = ["Job", "__version__"]


def __getattr__(name: str) -> Any:
    """`Job` is imported when it is used: every command imports this module."""
    if name != "Job":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from backfill_cli.api.job import Job

    return Job
