"""Which staged row and column a COPY stopped at, as the server's context of its error says it."""

import re
from collections.abc import Sequence


def stopped_at(context: str, tables: Sequence[str], columns: Sequence[str]) -> tuple[int, str] | None:
    """The row, from 0, and the column, `?` where none is named; None for a context that is of no COPY into these.

    context: `COPY orders, line 2, column name`, in the words of the server's language; names stand in it as they
    are, with whatever digits, commas and line ends they have.
    """
    for table in sorted(tables, key=len, reverse=True):
        found = re.search(rf"(?:\A|\n)COPY {re.escape(table)},\D+?(\d+)(?:, \S+ (.+))?", context, re.DOTALL)
        if found is not None:
            rest = found[2] or ""
            named = [name for name in columns if rest == name or rest.startswith((f"{name}:", f"{name}\n"))]
            return int(found[1]) - 1, max(named, key=len, default="?")
    return None
