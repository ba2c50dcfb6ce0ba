"""What `backfill plan` says: a dry run as a value. The engine fills it, the view shows it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """One table of the job.

    rows: None when only reading tells. estimated: whether rows is what the database's statistics say. columns:
    (name, type) in the sink, in order.
    """

    name: str
    target: str
    key: tuple[str, ...]
    splits: int
    rows: int | None
    size_bytes: int
    columns: tuple[tuple[str, str], ...] = ()
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class PlanReport:
    """What a job would do, read from metadata alone; nothing was written.

    why: for the strategy chosen. position: where the change log goes on after the snapshot, for people.
    pending_epochs, pending_bytes: of the change log already there, None where it was not asked. converging_until:
    the upstream epoch from which a fuzzy snapshot is consistent, None for an exact one. retention: what must stay
    readable, and how long. constraints_hold: whether constraints across tables hold at every checkpoint past the
    snapshots; constraints_why says on what that rests. estimate_s: (least, most) seconds until caught up, None
    when nothing tells. refused: what start would refuse, each with a way on; warnings: what should be looked at
    before the start, each one sentence; notes: what a start would do. follows:
    whether there is a change log to follow.
    """

    job: str
    strategy: str
    why: str
    tables: tuple[PlannedTable, ...]
    position: str
    pending_epochs: int | None = 0
    pending_bytes: int = 0
    converging_until: str | None = None
    retention: str = ""
    constraints_hold: bool = True
    constraints_why: str = ""
    estimate_s: tuple[float, float] | None = None
    refused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    follows: bool = True
