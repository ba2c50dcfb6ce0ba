"""Numbers that count up by one from change file to change file, and one that is missing among them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from backfill_cli.errors import Transient
from backfill_cli.upstreams.files.change_log import Inspected

_ENOUGH = 5
"""So many steps of one must have been seen before another step is a hole."""

_SHARE = 4
"""Steps of one to one other step: where holes are more frequent, they are how the numbers go."""

_NUMBER = re.compile(r"(.*?)([0-9]+)([^0-9]*?(?:\.[A-Za-z][A-Za-z0-9]*)*)", re.DOTALL)
"""What is before the last number of a name, the number, what is after it; digits of an ending (.7z) are none."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """A file and its number (of its name), or its lowest and highest one (of its versions)."""

    file: str
    lowest: int
    highest: int


def of_name(name: str) -> tuple[tuple[str, str], int] | None:
    """What stands around the last number of a file's name, and that number; None where it may be a time.

    A time: eight digits or more that begin with no zero (20260131, seconds since 1970), or two digits behind a
    digit and a separator (01-31, 23:59).
    """
    found = _NUMBER.fullmatch(name)
    if found is None:
        return None
    before, digits, after = found.groups()
    if (len(digits) >= 8 and digits[0] != "0") or (len(digits) == 2 and re.search(r"[0-9][^0-9]$", before)):
        return None
    return (before, after), int(digits)


def numbered(names: Sequence[str]) -> list[Numbered]:
    """The names with their numbers, as far back from the last one as only the number differs."""
    found: list[Numbered] = []
    around = None
    for name in reversed(names):
        one = of_name(name)
        if one is None or (around is not None and one[0] != around):
            break
        around = one[0]
        found.append(Numbered(name, one[1], one[1]))
    return found[::-1]


def versioned(pending: Sequence[Inspected]) -> list[Numbered]:
    """The files with their versions, where these are numbers."""
    told = [(one.file.name, one.versions) for one in pending if one.versions is not None]
    return [Numbered(name, a, b) for name, (a, b) in told if isinstance(a, int) and isinstance(b, int)]


def refuse(table: str, what: str, numbers: Sequence[Numbered], cursor: str | None) -> None:
    """Raises Transient where numbers that count up by one leave some out before a pending file: it may still come.

    what: the number in words. numbers: in the files' order, some up to the cursor too.
    """
    pairs = [(before, after, after.lowest - before.highest) for before, after in pairwise(numbers)]
    steps = [step for *_, step in pairs]
    if steps.count(1) < max(_ENOUGH, _SHARE * sum(step > 1 for step in steps)):
        return
    for before, after, step in pairs:
        if step > 1 and (cursor is None or after.file > cursor):
            first, last = before.highest + 1, after.lowest - 1
            missing = f"{first} is missing" if first == last else f"{first} to {last} are missing"
            raise Transient(
                f"table '{table}': {what} {missing} between {before.file} and {after.file}",
                'put it back; where holes are normal: upstream.changes.holes = "allowed"',
            )
