"""`backfill init --path`: guesses a job's options and key from its files."""

import re
from dataclasses import replace
from pathlib import PurePosixPath

from backfill_cli.contracts import Looked, Told
from backfill_cli.upstreams.files.looking import changes, sample, seen, snapshot
from backfill_cli.upstreams.files.looking.snapshot import Snapshot

_GENERIC = {"snapshot", "snapshots", "export", "full", "initial", "load", "data", "parquet", "csv", "json"}
"""Folder names that describe the contents and do not name the table."""
_LISTED = 10


def look(path: str, changes_path: str | None) -> Looked:
    """The options and key guessed from the files at these paths. Raises UsageError for a path without files."""
    table = table_of(path)
    found = sample.folder(path)
    with sample.opened(path) as db:
        held = snapshot.look(db, path, found)
        options = {f"snapshot.{name}": told for name, told in held.options.items()}
        if changes_path is not None:
            log = changes.look(db, changes_path, sample.folder(changes_path), held, table)
            binary = "decimals" in log.options and log.options["decimals"].value == "double"
            if (log.columns or binary) and "snapshot.schema" in options:
                both = {
                    n: replace(one.with_more(log.columns[n]) if n in log.columns else one, binary=binary)
                    for n, one in held.columns.items()
                }
                typed = snapshot.typed_by(held, both, found).options["schema"]
                options["snapshot.schema"] = replace(typed, why=typed.why.replace(":", ", and from changes:", 1))
            options |= {f"changes.{name}": told for name, told in log.options.items()}
    kind = options.get("changes.format")
    return Looked(table, _key(held, table), options, old_keys=kind is None or kind.value != "dms")


def _key(held: Snapshot, table: str) -> Told:
    name, able = seen.key_of(held.columns, table)
    rows = max((one.rows for one in held.columns.values()), default=0)
    if not held.named or not held.columns:
        return Told(None, "the columns that identify a row")
    listed = ", ".join(able[:_LISTED])
    if name is not None:
        more = f"; also: {', '.join(one for one in able[:_LISTED] if one != name)}" if len(able) > 1 else ""
        return Told([name], f"unique and not NULL in the {rows:,} rows read{more}")
    if able:
        return Told(None, f"the columns that identify a row; unique in the {rows:,} rows read: {listed}")
    return Told(None, f"the columns that identify a row: no single column is unique in the {rows:,} rows read")


def table_of(path: str) -> str:
    """A name for the table: the folder's, or the file's up to the first dot or digit."""
    parts = [
        part for part in PurePosixPath(path.partition("://")[2] or path).parts if not re.search(r"[*?\[]", part)
    ]
    for part in reversed(parts):
        stem = re.split(r"[.]|[-_]?[0-9]", part)[0] if "." in part.strip(".") else part
        name = re.sub(r"[^a-z0-9_]+", "_", stem.lower()).strip("_")
        if name and name not in _GENERIC and not name[0].isdigit():
            return name
    return "rows"
