"""What must not have happened to change files, named: with each the commands that put it right."""

from backfill_cli.errors import Fatal, HistoryGone
from backfill_cli.formats.listing import File
from backfill_cli.upstreams.files.changes.consumed import Entry, Fault

NAME_IT_LATER = "give it a name after that one, if its changes are not in the sink"


def changed(table: str, fault: Fault, cursor: str) -> Fatal:
    file, was = fault.file, fault.was
    if was is None:
        return late(table, file, cursor, NAME_IT_LATER)
    if was[1] != file.size:
        return Fatal(
            f"table '{table}': {file.path} changed from {was[1]} to {file.size} bytes after it was read",
            f"land what was added as a file of its own, with a later name, and put this one back: truncate -s "
            f"{was[1]} '{file.path}' && touch -d @{_stamp(was)} '{file.path}'"
            if file.size > was[1]
            else "put the file back as it was; land changes as files of their own, with later names",
        )
    return Fatal(
        f"table '{table}': {file.path} was written again after it was read (its time changed)",
        f"if it holds what it held, give it its time back: touch -d @{_stamp(was)} '{file.path}'",
    )


def late(table: str, file: File, cursor: str, hint: str) -> Fatal:
    return Fatal(f"table '{table}': {file.path} came late: the job is at '{cursor}' already", hint)


def renamed(table: str, file: File, was: str) -> Fatal:
    return Fatal(
        f"table '{table}': {file.path} is '{was}', which was applied already, under another name: "
        "the same inode, size and time, and that name is gone",
        f"if it holds other changes: touch '{file.path}'; if not, rename it back to '{was}'",
    )


def gone_unread(table: str, path: str) -> HistoryGone:
    return HistoryGone(
        f"table '{table}': change file {path} is gone and was not read yet",
        "put it back, or drop the job and start over",
    )


def _stamp(entry: Entry) -> str:
    """Its time, as `touch -d @` takes it."""
    return f"{entry[2] // 10**9}.{entry[2] % 10**9:09d}"
