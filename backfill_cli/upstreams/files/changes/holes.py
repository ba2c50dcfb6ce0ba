"""Checks names or versions that increase by one according to the config: the job waits for a missing one."""

import re
from collections.abc import Sequence
from itertools import pairwise

from backfill_cli.errors import BadData, Transient
from backfill_cli.model.position import Cursor
from backfill_cli.upstreams.files.changes.change_format import Inspected

_ENDING = re.compile(r"(?:\.[A-Za-z][A-Za-z0-9]*)*$")
_HINT = "wait for it, or restore it; if it never existed, remove upstream.changes.consecutive from the config"


def number_of(name: str) -> tuple[str, int] | None:
    """The text before the last number in a file's name, and that number; an extension (.7z) does not count."""
    stem = _ENDING.sub("", name[-200:])
    found = re.search(r"[0-9]+(?=[^0-9]*$)", stem)
    return (name[: -len(name[-200:])] + stem[: found.start()], int(found[0])) if found else None


def refuse_in_names(table: str, names: Sequence[str]) -> None:
    """Raises Transient if the number in a name does not follow the number in the name before it.

    names: in order; the last one applied, if any, and the pending ones. Raises BadData for one without a number.
    """
    for before, after in pairwise(names):
        one, other = number_of(before), number_of(after)
        if one is None or other is None:
            raise BadData(
                f"table '{table}': {before if one is None else after} has no number, but "
                "upstream.changes.consecutive says that numbers in names increase by one",
                "remove upstream.changes.consecutive from the config, or name the file like the others",
            )
        _refuse(table, "number", one[1], other[1], f"between {before} and {after}", one[0] == other[0])


def refuse_in_versions(table: str, before: Cursor | None, pending: Sequence[Inspected]) -> None:
    """Raises Transient if a file's lowest version does not follow the highest one before it.

    before: the highest version that was applied, or None.
    """
    for found in pending:
        if found.versions is None:
            continue
        lowest, highest = found.versions
        if isinstance(before, int) and isinstance(lowest, int):
            _refuse(table, "version", before, lowest, f"before {found.file.name}", True)
        before = highest


def _refuse(table: str, what: str, before: int, after: int, where: str, same: bool) -> None:
    """same: whether only the number differs; if not, another sequence can begin here, with any number."""
    if not same or after <= before + 1:
        return
    missing = f"{before + 1} is missing" if after == before + 2 else f"{before + 1} to {after - 1} are missing"
    raise Transient(f"table '{table}': {what} {missing} {where}", _HINT)
