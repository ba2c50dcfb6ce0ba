"""What `plan` says that a commit of many changes costs, by how large the groups of a table are."""

from collections.abc import Sequence
from dataclasses import dataclass

CHANGES = 1_000
"""Changed rows that costs are told of."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """sizes: (rows of a group, how many such groups), at least one. by: what tells it, for a message."""

    sizes: Sequence[tuple[float, float]]
    by: str

    @property
    def rows(self) -> float:
        return sum(rows * groups for rows, groups in self.sizes)

    @property
    def groups(self) -> float:
        return sum(groups for _, groups in self.sizes)

    def of_rows(self) -> tuple[int, int]:
        """About how many groups CHANGES of the rows themselves are in, and how many rows these groups have.

        Each row is as likely to change as another.
        """
        rest = 1 - min(1.0, CHANGES / self.rows)
        reached = [(rows, groups * (1 - rest**rows)) for rows, groups in self.sizes]
        return round(sum(groups for _, groups in reached)), round(sum(rows * groups for rows, groups in reached))

    def of_groups(self) -> int:
        """About how many rows so many of the groups have."""
        return round(min(1.0, CHANGES / self.groups) * self.rows)

    def __str__(self) -> str:
        average, most = self.rows / self.groups, max(rows for rows, _ in self.sizes)
        digits = 0 if average >= 10 or average == round(average) else 1
        return f"{average:,.{digits}f} rows; the largest has {most:,.0f}"


def added(table: str, by: str, sizes: Sizes) -> str:
    groups, _ = sizes.of_rows()
    return (
        f"{CHANGES:,} changes of {table} change about {groups:,} groups of {by}, whose other rows are not read, "
        f"{sizes.by}"
    )


def again(table: str, by: str, sizes: Sizes) -> str:
    _, rows = sizes.of_rows()
    told = f"{CHANGES:,} changes of {table} compute about {rows:,} of its rows again"
    return f"{told} (groups of {by}: {sizes}), {sizes.by}"


def joined(table: str, reached: str, by: str, sizes: Sizes) -> str:
    return (
        f"{CHANGES:,} changes of {table} reach about {sizes.of_groups():,} rows of {reached} (groups of {by}: "
        f"{sizes}), {sizes.by}"
    )
