"""Errors about changes to change files that are not allowed, each with the commands that undo them."""

import json
import shlex
from collections.abc import Mapping

from backfill_cli.errors import START_OVER, Fatal, HistoryGone
from backfill_cli.formats.listing import File, touched
from backfill_cli.spark.names import plain
from backfill_cli.upstreams.files.changes.consumed import Fault

NAME_IT_LATER = (
    "if its changes are wanted and not in the sink, rename it so that it sorts after that one; otherwise remove it"
)


def declared(columns: Mapping[str, str]) -> str:
    """The option that declares these columns, as in the config file. columns: Spark DDL of each type."""
    ddl = ", ".join(f"{plain(name)} {kind}" for name, kind in columns.items())
    return f"upstream.changes.columns = {json.dumps(ddl, ensure_ascii=False)}"


def changed(table: str, fault: Fault, cursor: str) -> Fatal:
    file, was = fault.file, fault.was
    if was is None:
        return late(table, file, cursor, NAME_IT_LATER)
    grown = file.size > was[1]
    restore = touched(file.path, was[2])
    if was[1] != file.size:
        what = f"changed from {was[1]} to {file.size} bytes after it was read"
        hint = (
            f"restore the file as it was, with its time: {restore}; "
            "land changes as separate files with later names"
        )
        if grown:
            hint = (
                "land the added part as a separate file with a later name, and restore this one: truncate -s "
                f"{was[1]} {shlex.quote(file.path)} && {restore}"
            )
    else:
        what = "was rewritten after it was read (its modification time changed)"
        hint = f"if its content is the same, restore its time: {restore}"
    if not file.inode:  # the time of an object cannot be restored
        hint = (
            f"land {'the added part' if grown else 'what it adds'} as a separate file with a later name, and "
            "remove this one: the job does not need applied files, but verify does"
        )
    return Fatal(f"table '{table}': {file.path} {what}", hint)


def late(table: str, file: File, cursor: str, hint: str) -> Fatal:
    return Fatal(f"table '{table}': {file.path} came late: the job is already at '{cursor}'", hint)


def renamed(table: str, file: File, was: str) -> Fatal:
    return Fatal(
        f"table '{table}': {file.path} is '{was}', which was already applied, under another name: "
        f"it has the same inode, size and time, and '{was}' is gone",
        f"if it holds other changes: touch {shlex.quote(file.path)}; if not, rename it back to '{was}'",
    )


def gone_unread(table: str, path: str) -> HistoryGone:
    return HistoryGone(
        f"table '{table}': change file {path} is gone and was not read yet",
        f"put it back, or {START_OVER}",
    )
