"""A cut over: the name that people query becomes a view of the table that a job fills, once every gate is open."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Found(StrEnum):
    """What there is under the name that people query."""

    NOTHING = "not there"
    TABLE = "a table"
    VIEW = "a view"
    OURS = "a view of the job's table"
    """Or the table itself, once it is at the job's branch: `Live.made` says which."""


@dataclass(frozen=True, slots=True)
class Live:
    """A name that people query, as the sink has it.

    kept: the name under which what was there before is kept, once it is cut over; None where nothing was.
    since_ms, until_ms: when it was cut over, and until when that may be reversed. depends: what would go on to use
    what is there now, under whatever name, and so be left behind. moved: what others did to it that a cut over
    would lose, or of one that is cut over its reversal, and the way on; None for nothing. made: what it is once
    cut over, if no view.
    """

    found: Found
    kept: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    depends: tuple[str, ...] = ()
    moved: tuple[str, str] | None = None
    made: str | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """What must hold before a cut over. fix: the commands that open it; empty where it is open."""

    name: str
    open: bool
    said: str
    fix: str = ""


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

    by_hand: statements for people to run where their names are; the sink has none, and `names` is empty then.
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
    def is_cut_over(self) -> bool:
        return bool(self.names) and all(name.now.found is Found.OURS for name in self.names)


def kept_name(live: str, epoch: int) -> str:
    """What was under a name goes on under this one."""
    return f"{live}_before_{epoch}"


Lives = Mapping[str, Live]
"""By the job's name for the table."""
