"""A change feed (`_change_type`, `_commit_version`): versions in order; in one of them what goes, goes first.

A commit touches a row once; an update is its image before and its image after, a key change too. Part files of one
write hold any rows of any of its versions, in no order.
"""

from collections.abc import Iterable, Sequence

from oracle import plain
from oracle.answer import Answer, Refused, Rows
from oracle.readers.kinds import No

GOES = ("delete", "update_preimage")
COMES = ("insert", "update_postimage")
Change = tuple[str, int | None, plain.Row]


def table(key: str, rows: Sequence[plain.Row], files: Iterable[tuple[str, Sequence[Change] | No]]) -> Answer:
    """files: in the order of their names, each the changes that it holds, or why it cannot be read."""
    held = {row[key]: row for row in rows}
    log: list[tuple[int, bool, plain.Row]] = []
    highest, doubts = -1, ""
    for name, changes in files:
        place = (name.rsplit("/", 1)[-1],)
        if isinstance(changes, No):
            return Refused(str(changes), place)
        for kind, version, row in changes:
            if kind not in GOES + COMES or version is None or row[key] is None:
                return Refused(f"{kind} of version {version}, key {row[key]}", place)
            log.append((version, kind in COMES, row))
        versions = [version for _, version, _ in changes if version is not None]
        if versions and min(versions) <= highest:
            doubts = "a version in two files, or files that are not in the versions' order"
        highest = max([highest, *versions])
    for _, comes, row in sorted(log, key=lambda change: change[:2]):
        held.pop(row[key], None)
        if comes:
            held[row[key]] = row
    return Rows(tuple(held.values()), None, doubts)
