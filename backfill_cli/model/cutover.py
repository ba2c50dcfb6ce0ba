"""A cutover: the name that people query becomes a view of the table that a job fills, once every gate is open."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from backfill_cli.errors import Hint


class Found(StrEnum):
    """What exists under the name that people query."""

    NOTHING = "nothing"
    TABLE = "table"
    VIEW = "view"
    OURS = "ours"
    """A view of the job's table, or the table itself once it is switched to the job's branch: `Live.made` says."""


@dataclass(frozen=True, slots=True)
class Live:
    """A name that people query, as the sink has it.

    kept: the name under which the previous object is kept after the cutover; None if there was none.
    since_ms, until_ms: when it was cut over, and until when that can be reversed. depends: objects that would go
    on using the present object, under whatever name, and so be left behind, or that keep it from being renamed.
    moved: a change by others that a cutover (or, after one, its reversal) would lose, and how to continue; None if
    there is none. made: what it is after the cutover, if not a view.
    """

    found: Found
    kept: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    depends: tuple[str, ...] = ()
    moved: tuple[str, Hint] | None = None
    made: str | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """A condition for a cutover. fix: the commands that open it, or check what an open one leaves unchecked."""

    name: str
    open: bool
    said: str
    fix: Hint = Hint()  # noqa: RUF009


@dataclass(frozen=True, slots=True)
class LiveName:
    """A table of the job, and the name that people query."""

    table: str
    target: str
    live: str
    now: Live


@dataclass(frozen=True, slots=True)
class CutoverReport:
    """epoch: the job's last checkpoint. changed: whether this command changed what the names are.

    by_hand: statements to run by hand where the names are defined; then the sink has no names, and `names` is
    empty.
    """

    job: str
    epoch: int
    names: tuple[LiveName, ...]
    gates: tuple[Gate, ...]
    changed: bool = False
    reversed: bool = False
    by_hand: tuple[str, ...] = ()

    @property
    def open(self) -> bool:
        return all(gate.open for gate in self.gates)

    @property
    def cut_over(self) -> bool:
        return bool(self.names) and all(name.now.found is Found.OURS for name in self.names)


def kept_name(live: str, epoch: int) -> str:
    """The name under which the previous object of a name is kept."""
    return f"{live}_before_{epoch}"


Lives = Mapping[str, Live]
"""Keyed by the job's name for the table."""
