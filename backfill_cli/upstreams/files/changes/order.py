"""Change files are applied in the order of their names; numbers or versions that contradict it are refused."""

import re
from collections.abc import Sequence
from itertools import pairwise

from backfill_cli.errors import BadData
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
