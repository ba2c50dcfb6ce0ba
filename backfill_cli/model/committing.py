"""How far a commit is whose tables have it one after the other, for display."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Committing:
    """epoch: of the commit. has: tables that have it; lacks: those that do not yet, of which the first is being
    written. filling: if that is a derived table which is filled: how many are with it, and how many there are.
    """

    epoch: int
    has: tuple[str, ...]
    lacks: tuple[str, ...]
    filling: tuple[int, int] | None = None

    @staticmethod
    def read(told: Mapping[str, Any]) -> "Committing":
        """What the codec wrote, parsed as JSON."""
        filling = told["filling"]
        return Committing(told["epoch"], tuple(told["has"]), tuple(told["lacks"]), filling and tuple(filling))

    @property
    def said(self) -> str:
        """`4 of 9 tables have it, now per_land`; `filling revenue: 2 of 5 derived tables`."""
        if self.filling is not None and self.lacks:
            at, several = self.filling
            return f"filling {self.lacks[0]}: {at} of {several} derived tables"
        now = f", now {self.lacks[0]}" if self.lacks else ""
        return f"{len(self.has)} of {len(self.has) + len(self.lacks)} tables have it{now}"
