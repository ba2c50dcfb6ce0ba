"""What `backfill init` learns from the data itself, through the connector that reads it."""

import shlex

from backfill_cli import registry
from backfill_cli.contracts import Looked
from backfill_cli.errors import UsageError


def look(upstream: str, path: str | None, changes: str | None) -> Looked | None:
    """What the data shows; None without a path. Raises UsageError if the connector cannot inspect data."""
    if path is None:
        if changes is not None:
            raise UsageError("--changes needs the path of a snapshot", "add --path PATH, where the snapshot is")
        return None
    able = registry.upstream(upstream).look if "+" not in upstream else None
    if able is None:
        raise UsageError(
            f"--path works with files only, not with {upstream}",
            f"backfill init --upstream {shlex.quote(upstream)}",
        )
    return able(path, changes)
