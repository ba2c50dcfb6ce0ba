"""Change files are applied in the order of their names; numbers or versions that tell of another are refused."""

import re
from collections.abc import Sequence
from itertools import pairwise

from backfill_cli.errors import BadData
from backfill_cli.model.position import Cursor
from backfill_cli.upstreams.files.changes.change_format import Inspected

_WORDS = re.compile(r"[0-9A-Za-z]+|[^0-9A-Za-z]+")
_DIGITS = re.compile(r"[0-9]+")


def refuse_unpadded(table: str, waiting: Sequence[str]) -> None:
    """Raises BadData naming two files of which the greater number comes first."""
    for one, other in pairwise(waiting):
        if _counts_down(one, other):
            raise BadData(
                f"table '{table}': '{one}' comes before '{other}', for names are ordered as text: their numbers "
                "have no zeros in front",
                "rename them so that all numbers have as many digits, like 09 and 10",
            )


def refuse_older_versions(table: str, pending: Sequence[Inspected], before: Cursor | None) -> None:
    """Raises BadData naming a file with a version that a file before it passed. before: the last one applied."""
    for found in pending:
        if found.versions is None:
            continue
        lowest, highest = found.versions
        if before is not None and not _after(lowest, before):
            raise BadData(
                f"table '{table}': {found.file.path} holds version {lowest}, and a file before it version "
                f"{before}: they would be applied in the wrong order",
                "write each version into one file, and name the files in the order of their versions "
                "(Spark: coalesce(1))",
            )
        before = highest


def _after(a: Cursor, b: Cursor) -> bool:
    return a > b if isinstance(a, int) and isinstance(b, int) else str(a) > str(b)


def _counts_down(one: str, other: str) -> bool:
    """Whether two names differ first in a number that has fewer digits in the latter and is smaller there.

    In words that are otherwise alike, but for their digits: random ones (UUIDs) are of one length, or not alike.
    """
    words = zip(_WORDS.findall(one), _WORDS.findall(other), strict=False)
    a, b = next(((a, b) for a, b in words if a != b), ("", ""))
    if len(a) == len(b) or _DIGITS.sub("0", a) != _DIGITS.sub("0", b):
        return False
    numbers = zip(_DIGITS.findall(a), _DIGITS.findall(b), strict=True)
    m, n = next(((m, n) for m, n in numbers if m != n), ("", ""))
    return not m.startswith("0") and len(n) < len(m) and int(n) < int(m)
