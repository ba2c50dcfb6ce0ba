"""Delta tables, read through their log without Spark: what upstream and sink share, and how options name them."""

import os

from backfill_cli.errors import UsageError, shell

NO_PLACE = (
    'a Delta table is named by its folder, with a /, such as "./orders" in this folder; or by catalog.schema.table'
)
FORGETS = "delta.setTransactionRetentionDuration"
"""The property by which a table forgets transaction numbers, and with them which epoch it is at."""


def is_name(told: str) -> bool:
    """Whether an option names a table in a catalog, by three parts, rather than a path."""
    return "/" not in told and len(told.split(".")) == 3 and all(told.split("."))


def is_table(told: str) -> bool:
    """Whether a local folder is such a table already; another one does not show what it is to be."""
    return os.path.isdir(os.path.join(told, "_delta_log"))


def require_place(told: str) -> None:
    """Raises ValueError for an option that names no table."""
    if "/" not in told and not is_name(told):
        raise ValueError(NO_PLACE)


def require_package() -> None:
    """Raises UsageError where the library is not installed, before a module is loaded that needs it."""
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise UsageError(
            "Delta tables need the package deltalake, which is not installed",
            shell("pip install 'backfill-cli[delta]'"),
        ) from None
