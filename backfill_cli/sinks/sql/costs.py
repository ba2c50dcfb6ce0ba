"""What `plan` says that a commit of many changes costs, by how large the groups of a table are."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from backfill_cli.model.reports import CostKind, PlannedCost

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

    @property
    def average(self) -> float:
        return self.rows / self.groups

    @property
    def largest(self) -> float:
        return max(rows for rows, _ in self.sizes)

    def __str__(self) -> str:
        digits = 0 if self.average >= 10 or self.average == round(self.average) else 1
        return f"{self.average:,.{digits}f} rows; the largest has {self.largest:,.0f}"


def added(table: str, of: str, by: Sequence[str], sizes: Sizes) -> PlannedCost:
    """of: the table of which `by` are columns, of whose rows each changed one has at most one."""
    groups, _ = sizes.of_rows()
    told = f"change about {groups:,} groups of {', '.join(by)}, whose other rows are not read, {sizes.by}"
    return _cost(CostKind.CHANGED, table, of, by, sizes, told, groups=groups)


def again(table: str, of: str, by: Sequence[str], sizes: Sizes) -> PlannedCost:
    """As `added`, of groups that are computed again."""
    _, rows = sizes.of_rows()
    whose = "of its rows" if of == table else f"rows of {of}"
    told = f"compute about {rows:,} {whose} again (groups of {', '.join(by)}: {sizes}), {sizes.by}"
    return _cost(CostKind.COMPUTED_AGAIN, table, of, by, sizes, told, rows=rows)


def joined(table: str, reached: str, by: Sequence[str], sizes: Sizes) -> PlannedCost:
    rows = sizes.of_groups()
    told = f"reach about {rows:,} rows of {reached} (groups of {', '.join(by)}: {sizes}), {sizes.by}"
    return _cost(CostKind.REACHED, table, reached, by, sizes, told, rows=rows)


def read_whole(rows: Mapping[str, int]) -> Iterator[PlannedCost]:
    """Of a table that is refreshed in full. rows: of each table that it reads."""
    text = f"{', '.join(rows)}: about {sum(rows.values()):,} rows, which each such commit reads"
    for table, many in rows.items():
        yield PlannedCost(CostKind.READ_WHOLE, table, table, (), 1, None, many, None, None, text)


def _cost(
    kind: CostKind,
    table: str,
    of: str,
    by: Sequence[str],
    sizes: Sizes,
    told: str,
    groups: int | None = None,
    rows: int | None = None,
) -> PlannedCost:
    text, average = f"{CHANGES:,} changes of {table} {told}", round(sizes.average, 1)
    return PlannedCost(kind, table, of, tuple(by), CHANGES, groups, rows, average, round(sizes.largest), text)
