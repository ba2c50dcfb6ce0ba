"""Whether a row has exactly the columns that it should have."""

from collections.abc import Collection, Iterable

IN_ROW, IN_BLOCK = "in its row", "in its schema block"


def new_column(names: Iterable[str], columns: Collection[str], others: Collection[str], where: str) -> str | None:
    """The fault of a name that is neither a column nor one of `others`; None without one."""
    more = next((name for name in names if name not in columns and name not in others), None)
    return None if more is None else f"column '{more}' is new {where}"


def lacking_column(names: Collection[str], required: Iterable[str], where: str = IN_ROW) -> str | None:
    """The fault of a required column that is not among the names; None without one."""
    less = next((name for name in sorted(required) if name not in names), None)
    return None if less is None else f"column '{less}' is not {where}"
