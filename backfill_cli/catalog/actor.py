"""Who acts: what the catalog notes beside a command and a lease, for people."""

import getpass
import os

from backfill_cli.catalog.lease import this_host


def user() -> str:
    """The user's name. A container may give its user none: then `uid 1000`."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def actor() -> str:
    """`user@host`."""
    return f"{user()}@{this_host()}"
