"""Who acts: the name that the catalog records with a command and a lease, for people."""

import getpass
import os

from backfill_cli.catalog.lease import this_host


def user() -> str:
    """The user's name; `uid 1000` if the user has none, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def actor() -> str:
    """`user@host`."""
    return f"{user()}@{this_host()}"
