"""A refill: a table, or a part of it, is read again and made equal while the job goes on."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from shlex import quote

from backfill_cli.errors import command
from backfill_cli.model.limit import Limit
from backfill_cli.model.position import Position


class RefillState(StrEnum):
    """waiting: for the job's snapshot, an earlier refill, a runner. comparing: both sides are read. applying: rows
    of it are being committed."""

    WAITING = "waiting"
    COMPARING = "comparing"
    APPLYING = "applying"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


PENDING = (RefillState.WAITING, RefillState.COMPARING, RefillState.APPLYING)


@dataclass(frozen=True, slots=True)
class Extent:
    """Which rows are read again. Those of the whole table if nothing is set.

    where: SQL over the table's columns as the sink has them. first, last: bounds of the first key column, both
    inclusive, as text; None for an open end.
    """

    where: str = ""
    first: str | None = None
    last: str | None = None

    @property
    def whole(self) -> bool:
        return self == Extent()

    @property
    def keys(self) -> str:
        """`1000..2000`; empty without bounds."""
        bounds = (self.first, self.last) != (None, None)
        return f"{self.first or ''}..{self.last or ''}" if bounds else ""

    def __str__(self) -> str:
        """`, keys 1000..2000, where created_at >= '2026-06-01'`; empty for the whole table."""
        keys = f", keys {self.keys}" if self.keys else ""
        return f"{keys}, where {self.where}" if self.where else keys


@dataclass(frozen=True, slots=True)
class Refill:
    """One refill as the catalog has it.

    since: the barrier that took it. began_ms: when its last comparison began. epoch: the last that applied rows of
    it. inserted, replaced, removed: rows so far. why: it waits, or failed.
    """

    id: int
    table: str
    extent: Extent
    by: str
    asked_ms: int
    state: RefillState = RefillState.WAITING
    since: int | None = None
    began_ms: int | None = None
    ended_ms: int | None = None
    epoch: int | None = None
    inserted: int = 0
    replaced: int = 0
    removed: int = 0
    why: Limit = field(default=Limit(""))

    @property
    def pending(self) -> bool:
        return self.state in PENDING

    def lacking(self, job: str) -> Limit | None:
        """What its end leaves, unless it is done: see `EpochCommit.filling`. None: what was there before."""
        if self.since is None or not self.extent.whole:
            return None
        text = "updates of rows that the sink lacked may have been skipped meanwhile: such rows are missing still"
        return Limit(text, hint=command(f"refill {job} --table {quote(self.table)}"), to="have all rows")

    def given_up(self, job: str, state: RefillState, now_ms: int, why: Limit) -> "Refill":
        """It has failed, or is cancelled, and says what that leaves."""
        left = self.lacking(job)
        if left is not None:
            first = replace(why.hint, retried=False)
            hint = first + "; then " + left.hint if first else left.hint
            why = Limit(f"{why.text}; {left.text}", hint=hint, to=left.to)
        return replace(self, state=state, ended_ms=now_ms, why=why)

    def __str__(self) -> str:
        """`public.orders, keys 1000..2000`."""
        return f"{self.table}{self.extent}"


@dataclass(frozen=True, slots=True)
class RefillProgress:
    """How far a comparison is, for display. share: 0 to 1, left_s: least seconds; None if not known."""

    refill: int
    doing: str
    share: float | None = None
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class RefillPart:
    """What an epoch applies of a refill. last: whether nothing of the refill is left after it."""

    refill: int
    inserted: int
    replaced: int
    removed: int
    last: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """What a comparison found, durable in its folder until it is applied.

    epoch: the checkpoint at which both sides were compared. up_to: how far the log has to be applied before this
    may be; None: it may be at once. schema: the table's in the sink, as Spark's JSON. files: paths relative to the
    folder, `(own.OP 'U'|'D', row…)`, unique by key. compared: rows of the sink. why: nothing was, nor needs to be.
    """

    epoch: int
    schema: str
    up_to: Position | None = None
    files: tuple[str, ...] = ()
    inserted: int = 0
    replaced: int = 0
    removed: int = 0
    compared: int = 0
    why: str = ""

    @property
    def rows(self) -> int:
        return self.inserted + self.replaced + self.removed
