"""The known names in an error about an unknown one, those that may be meant first."""

from collections.abc import Sequence
from difflib import get_close_matches

LISTED = 10


def nearest_first(name: str, names: Sequence[str]) -> list[str]:
    """`names`, those most similar to `name` first."""
    near = get_close_matches(name, names, n=len(names) or 1, cutoff=0.5)
    return near + [other for other in names if other not in near]


def spell_known(name: str, names: Sequence[str], which: str = "known tables") -> str:
    """`; known tables: orders, customers`, nearest first, the others counted; nothing if there are none."""
    if not names:
        return ""
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return f"; {which}: {', '.join(nearest_first(name, names)[:LISTED])}{more}"
