"""Finds the staged row and column at which a COPY stopped, from the context of the server's error."""

import re
from collections.abc import Sequence


def stopped_at(context: str, tables: Sequence[str], columns: Sequence[str]) -> tuple[int, str] | None:
    """The row, from 0, and the column, `?` if none is named; None if this is not the context of such a COPY.

    context: `COPY orders, line 2, column name`, in the server's language; names appear in it unquoted, with any
    digits, commas and line ends that they contain.
    """
    for table in sorted(tables, key=len, reverse=True):
        found = re.search(rf"(?:\A|\n)COPY {re.escape(table)},\D+?(\d+)(?:, \S+ (.+))?", context, re.DOTALL)
        if found is not None:
            rest = found[2] or ""
            named = [name for name in columns if rest == name or rest.startswith((f"{name}:", f"{name}\n"))]
            return int(found[1]) - 1, max(named, key=len, default="?")
    return None
