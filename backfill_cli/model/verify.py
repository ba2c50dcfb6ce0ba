"""What `verify` found: upstream and sink at one checkpoint, table by table."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DifferentRange:
    """A range of keys whose hashes differ.

    name: for people ("id 0 to 999", "part 3 of 64 by hash"). columns: those whose hashes differ, the key's
    included when rows are missing or too many.
    """

    name: str
    rows_upstream: int
    rows_sink: int
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DifferentRow:
    """One value that differs, as text.

    column: None when the whole row does: it is missing on a side, or there twice.
    upstream, sink: None for NULL; for a whole row how many there are ("0 rows", "2 rows").
    """

    key: tuple[tuple[str, str | None], ...]
    column: str | None
    upstream: str | None
    sink: str | None


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """ranges: how many ranges were compared (1 when the first hash over all rows settled it).

    missing: rows that the sink lacks. extra: rows that it has and the upstream has not, further copies of one
    included. changed: keys that are there once on both sides, with other values. rows: the first that differ, at
    most as many as were asked for.
    """

    table: str
    target: str
    equal: bool
    rows_upstream: int
    rows_sink: int
    ranges: int = 1
    different: tuple[DifferentRange, ...] = ()
    rows: tuple[DifferentRow, ...] = ()
    missing: int = 0
    extra: int = 0
    changed: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """What of a job is compared. tables: names; none for all. sample: share of the keys, None for all of them."""

    tables: tuple[str, ...] = ()
    sample: float | None = None


EVERYTHING = Asked()


@dataclass(frozen=True, slots=True)
class TableFix:
    """Rows of one table that a fix writes anew, because they are missing or have other values, and removes."""

    table: str
    target: str
    inserted: int
    replaced: int
    removed: int


@dataclass(frozen=True, slots=True)
class Fix:
    """What makes the sink equal to its upstream. epoch: that it was committed as; None: nothing was changed."""

    tables: tuple[TableFix, ...]
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """How far a verify is, for people.

    doing: what it does now. share: 0 to 1 of all that was planned, left_s: the least seconds until then; None
    while nothing tells. alone: a step that nobody had planned, of which the share is: it began at 0 again.
    """

    job: str
    doing: str
    share: float | None = None
    left_s: float | None = None
    alone: bool = False


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """epoch: the checkpoint that both sides were taken at. seconds: wall time, session start left out.

    converging: a fuzzy load whose end is not reached yet, so that a difference may still pass.
    independent: DuckDB read the upstream, not our readers.
    not_compared: by table, how many keys changed upstream since the checkpoint, and so could not be.
    sample: the share of the keys that was compared, None for all. left_out: tables that were not asked for.
    fixable: whether `verify --fix` may repair it, live: whether a runner has the job. fix: what `--fix` did, or,
    not confirmed, would do. recalled: by table, when it was compared, ms, by a verify that did not end.
    """

    job: str
    epoch: int
    tables: tuple[TableVerdict, ...]
    seconds: float
    converging: bool = False
    independent: bool = False
    not_compared: Mapping[str, int] = field(default_factory=dict)
    sample: float | None = None
    left_out: tuple[str, ...] = ()
    fixable: bool = False
    live: bool = False
    fix: Fix | None = None
    recalled: Mapping[str, int] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        return all(table.equal for table in self.tables)
