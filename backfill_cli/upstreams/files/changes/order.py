"""Change files are applied in the order of their names; numbers or versions that contradict it are refused.

If the config says that they increase by one, the job waits for a missing one.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from backfill_cli.errors import BadData, Transient, in_config
from backfill_cli.model.position import Cursor
from backfill_cli.upstreams.files.changes.change_format import Inspected

_WORDS = re.compile(r"[0-9A-Za-z]+|[^0-9A-Za-z]+")
_DIGITS = re.compile(r"[0-9]+")


def refuse_unpadded(table: str, waiting: Sequence[str]) -> None:
    """Raises BadData naming two files if the one with the greater number comes first."""
    for one, other in pairwise(waiting):
        if _counts_down(one, other):
            raise BadData(
                f"table '{table}': '{one}' comes before '{other}', because names are ordered as text and their "
                "numbers have no leading zeros",
                "rename them so that all numbers have the same number of digits, like 09 and 10",
            )


def refuse_older_versions(table: str, pending: Sequence[Inspected], before: Cursor | None) -> None:
    """Raises BadData naming a file whose versions do not come after those before. before: the last one applied."""
    for found in pending:
        if found.versions is None:
            continue
        lowest, highest = found.versions
        if before is not None and not _after(lowest, before):
            raise BadData(
                f"table '{table}': {found.file.path} holds version {lowest}, but an earlier file holds version "
                f"{before}: they would be applied in the wrong order",
                "write each version into one file, and name the files in the order of their versions "
                "(Spark: coalesce(1))",
            )
        before = highest


def _after(a: Cursor, b: Cursor) -> bool:
    return a > b if isinstance(a, int) and isinstance(b, int) else str(a) > str(b)


def _counts_down(one: str, other: str) -> bool:
    """Whether two names first differ in a number that is smaller and has fewer digits in the second name.

    The words that hold it must be equal apart from digits: random words (UUIDs) have the same length, or are not.
    """
    words = zip(_WORDS.findall(one), _WORDS.findall(other), strict=False)
    a, b = next(((a, b) for a, b in words if a != b), ("", ""))
    if len(a) == len(b) or _DIGITS.sub("0", a) != _DIGITS.sub("0", b):
        return False
    numbers = zip(_DIGITS.findall(a), _DIGITS.findall(b), strict=True)
    m, n = next(((m, n) for m, n in numbers if m != n), ("", ""))
    return not m.startswith("0") and len(n) < len(m) and int(n) < int(m)


_ENDING = re.compile(r"(?:\.[A-Za-z][A-Za-z0-9]*)*$")
_HINT = in_config(
    "wait for it, or restore it; if it never existed, remove upstream.changes.consecutive from the config"
)


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
                in_config("remove upstream.changes.consecutive from the config, or name the file like the others"),
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
