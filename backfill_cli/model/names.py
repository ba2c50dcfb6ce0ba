"""The order of names that hold numbers: 999 comes before 1000, however many digits they have.

The order is total, no two names are equal in it, and where all numbers have the same width it is that of texts.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

_WORD = re.compile(r"[0-9A-Za-z]+")
_PARTS = re.compile(r"([A-Za-z]*)(0*)(.*)", re.DOTALL)
_FRACTION = re.compile(r"[0-9]\.")


def by_numbers(name: str) -> tuple[str, str]:
    """What a name is ordered by.

    Of words (letters and digits, of ASCII), from the first digit on and without leading zeros, the shorter one
    comes first: 9 before 10, and 09ff before 0a00, as numbers of any base. A word after a digit and a point is a
    fraction, and stays a text. Names that differ only in zeros are ordered as texts.
    """
    return _WORD.sub(_sortable, name), name


def _sortable(word: re.Match[str]) -> str:
    """A text that is ordered as the word is: before its digits stands how many there are."""
    letters, zeros, rest = _PARTS.fullmatch(word[0]).groups()  # type: ignore[union-attr]
    at = word.start()
    if not zeros + rest or _FRACTION.fullmatch(word.string, max(at - 2, 0), at):
        return word[0]
    nines, left = divmod(len(rest), 9)
    return f"{letters}{'9' * nines}{left}{rest}"


def unlike_text(names: Sequence[str]) -> tuple[str, str] | None:
    """The first two neighbours that are in another order as texts; None if there are none. names: in order."""
    return next(((one, other) for one, other in pairwise(names) if one > other), None)


def in_order(names: Iterable[str]) -> list[str]:
    """The names in the order of their numbers."""
    return sorted(names, key=by_numbers)
