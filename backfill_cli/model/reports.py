"""What `plan`, `doctor` and `config show` find, as values: others create them, the view shows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from backfill_cli.errors import BackfillError, Hint
from backfill_cli.model.headroom import Headroom
from backfill_cli.model.units import spell_count, spell_size


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked.

    said: what was found, for display. fix: what to do or type next; empty if nothing has to be done.
    """

    name: str
    status: Status
    said: str
    fix: Hint = Hint()  # noqa: RUF009


def ok(name: str, said: str) -> Check:
    return Check(name, Status.OK, said)


def warning(name: str, said: str, fix: Hint | str = "") -> Check:
    return Check(name, Status.WARNING, said, Hint.of(fix))


def failed(name: str, said: str, fix: Hint | str) -> Check:
    return Check(name, Status.FAILED, said, Hint.of(fix))


def refused(name: str, error: BackfillError) -> Check:
    """An error as a failed check."""
    return failed(name, error.message, error.hint)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a start would be refused."""

    message: str
    hint: Hint

    def __str__(self) -> str:
        return f"{self.message}. Try: {self.hint}"


@dataclass(frozen=True, slots=True)
class FieldRead:
    """A field that schemas of a registry have, and the column that it is read into, before any transform.

    column, type: None if it is left out. field, written: its name and type in these schemas, as Kafka Connect
    calls it. schemas: their ids, newest first.
    """

    column: str | None
    type: str | None
    field: str
    written: str
    schemas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """One table of the job.

    rows: None if only reading can tell. estimated: whether rows comes from the database's statistics. columns:
    (name, type) in the sink, in order. transformed: whether a transform makes them. left_out: with
    keep = "columns", how many columns of the upstream no derived table uses. fields: of records that name
    their schemas by a registry's ids: what the fields become of the schemas of the oldest and newest records, and
    of the registry's newest. rate: rows per second that are read of it at most, by the config; None: no limit of
    its own.
    """

    name: str
    target: str
    key: tuple[str, ...]
    splits: int
    rows: int | None
    size_bytes: int
    columns: tuple[tuple[str, str], ...] = ()
    estimated: bool = False
    transformed: bool = False
    left_out: int | None = None
    fields: tuple[FieldRead, ...] = ()
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class ReadByDerived:
    """A table that a derived table reads: how a change of its rows reaches rows of the derived table.

    named: as its SELECT calls it. by: columns of it by which its changes reach: those of a join, or of the key.
    """

    table: str
    named: str
    by: tuple[str, ...]


class CostKind(StrEnum):
    """What changed rows of a table cost: groups that are changed by contributions, rows that are computed again,
    rows that a join reaches; or, with refresh = "full", rows of each table that any commit of changes reads."""

    CHANGED = "changed"
    COMPUTED_AGAIN = "computed again"
    REACHED = "reached"
    READ_WHOLE = "read whole"


@dataclass(frozen=True, slots=True)
class PlannedCost:
    """About what so many changed rows of a table cost a derived one, by statistics of a table that exists.

    of: the table whose rows have `by` as their group: the changed one, or that which a join reaches. groups: how
    many are changed; rows: how many are computed again, reached or read; None for what the kind does not count.
    average, largest: rows of a group; None where there are none. text: as in `notes`.
    """

    kind: CostKind
    table: str
    of: str
    by: tuple[str, ...]
    changes: int
    groups: int | None
    rows: int | None
    average: float | None
    largest: int | None
    text: str


@dataclass(frozen=True, slots=True)
class PlannedDerived:
    """One derived table. columns: (name, type) as the sink's engine has them. reads: in the order of its SELECT.

    found_by: columns of the key by which its rows are computed again; empty if it is one row, or refresh says so.
    notes: what to know of it, a sentence each. refresh: "full" if each commit that changes what it reads computes
    all of it; None: what a change reaches. costs: those of `notes` that are numbers.
    """

    name: str
    target: str
    key: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    reads: tuple[ReadByDerived, ...]
    found_by: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refresh: str | None = None
    costs: tuple[PlannedCost, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanReport:
    """What a job would do, according to metadata alone; nothing was written.

    why: the reason for the strategy. position: where the change log continues after the snapshot, for display.
    pending_epochs, pending_bytes: what the change log already holds, None if it was not inspected.
    converging_until: the upstream epoch from which a fuzzy snapshot is consistent, None for an exact one.
    retention: what must stay readable, and for how long. constraints_hold: whether constraints across tables hold
    at every checkpoint after the snapshots; constraints_why: what that rests on. estimate_s: (least, most) seconds
    until the snapshot is read, None if unknown; estimated_by: what that is known by, or why not. refused: why
    start would refuse, each with what to do; warnings: what to check before the start, one sentence each; notes:
    what a start would do. exists: what there is of the job already: the rest is what a new job would do. follows:
    whether there is a change log to follow. side_tables: for rows that cannot be read, where these are
    quarantined; they have no splits.
    running: whether a runner has the job. then: what to type next, if nothing is refused. headroom: how long the
    upstream keeps what a job that begins now has not read; None if that is not asked. guards: what each says.
    deadline: when the snapshot is to be read; None for any time. derived: what is kept beside the tables.
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
    estimated_by: str = ""
    refused: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    exists: tuple[str, ...] = ()
    follows: bool = True
    side_tables: tuple[PlannedTable, ...] = ()
    running: bool = False
    then: Hint = Hint()  # noqa: RUF009
    headroom: Headroom | None = None
    guards: tuple["GuardTold", ...] = ()
    deadline: "PlannedDeadline | None" = None
    derived: tuple[PlannedDerived, ...] = ()

    def spell_amount(self, tables: Sequence[PlannedTable]) -> str:
        """`200,000 rows, 4.0 MB`; of a log read by offsets `at most 21 records`: not each is a row."""
        rows, is_log = [table.rows for table in tables], self.strategy == "source"
        about = "at most " if is_log else "about " if any(table.estimated for table in tables) else ""
        told = about + spell_count(sum(one or 0 for one in rows), "record" if is_log else "row")
        size = "" if is_log else f", {spell_size(sum(table.size_bytes for table in tables))}"
        return f"{'rows unknown until read' if None in rows else told}{size}"


@dataclass(frozen=True, slots=True)
class PlannedDeadline:
    """met: whether the snapshot is read by then, at the rate that is expected; None where that is not known.

    left_s: seconds until then; 0 for a moment that has passed.
    """

    at_ms: int
    left_s: float
    met: bool | None

    @staticmethod
    def of(at_ms: int, estimate_s: tuple[float, float] | None, now_ms: int) -> "PlannedDeadline":
        """estimate_s: (least, most) seconds until the snapshot is read."""
        left_s = max(0, at_ms - now_ms) / 1000
        known = None if estimate_s is None else estimate_s[1] <= left_s
        return PlannedDeadline(at_ms, left_s, False if not left_s else known)


@dataclass(frozen=True, slots=True)
class GuardTold:
    """said: its value and limit now, or why it cannot be asked. fine: whether it would leave the job alone."""

    name: str
    said: str
    fine: bool


class Origin(StrEnum):
    """Where an option's value comes from. UPSTREAM: it knows the value: a primary key, or partition and offset."""

    FILE = "file"
    ENVIRONMENT = "environment"
    SECRET_FILE = "secret file"
    UPSTREAM = "upstream"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Setting:
    """One option of a config.

    path: its place in the file. value: JSON; for a secret, the reference to it. note: for a reference, what it
    names and whether that exists.
    """

    path: str
    value: Any
    origin: Origin
    note: str = ""
