"""The result of `verify`: upstream and sink compared at one checkpoint, table by table."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from backfill_cli.model.refill import Extent


@dataclass(frozen=True, slots=True)
class DifferentRange:
    """A range of keys whose hashes differ.

    name: for display ("id 0 to 999", "part 3 of 64 by hash"). columns: those that differ in rows that both sides
    have once; none if rows are only missing or superfluous.
    """

    name: str
    rows_upstream: int
    rows_sink: int
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DifferentRow:
    """One value that differs, as text.

    column: None when the whole row differs: it is missing on one side, or a duplicate.
    upstream, sink: None for NULL; for a whole row, the number of rows ("0 rows", "2 rows").
    """

    key: tuple[tuple[str, str | None], ...]
    column: str | None
    upstream: str | None
    sink: str | None


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """ranges: how many ranges were compared (1 when the hash over all rows was enough).

    missing: rows that the sink lacks. extra: rows that only the sink has, including further copies of a row.
    changed: keys that occur once on both sides, with different values. rows: the first differences, at most as
    many as were requested. derived: whether it is a derived table, which is compared with its SELECT over the
    sink's tables: what is said of the upstream is said of that. filled: whether it has been; if not, it is empty.
    gone: somebody has dropped its table, so that it differs, also where its SELECT has no row.
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
    derived: bool = False
    filled: bool = True
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """Which part of a job is compared. tables: names; empty for all. sample: share of the keys, None for all.

    part: of the one table.
    """

    tables: tuple[str, ...] = ()
    sample: float | None = None
    part: Extent = Extent()  # noqa: RUF009


EVERYTHING = Asked()


@dataclass(frozen=True, slots=True)
class TableFix:
    """How many rows of a table a fix inserts (missing), replaces (different values) and removes (extra).

    gone: somebody has dropped it; it is a derived table, and filled anew.
    """

    table: str
    target: str
    inserted: int
    replaced: int
    removed: int
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Fix:
    """What makes the sink equal to its upstream. epoch: the one that committed it; None: nothing was changed."""

    tables: tuple[TableFix, ...]
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """How far a verify has come, for display.

    doing: what it is doing now. share: 0 to 1 of all planned work, left_s: the least number of seconds until it is
    done; None while unknown. alone: an unplanned step, to which the share refers: it began at 0 again.
    holds: what others wait for until it has ended; empty if nobody does.
    """

    job: str
    doing: str
    share: float | None = None
    left_s: float | None = None
    alone: bool = False
    holds: str = ""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """epoch: the checkpoint at which both sides were compared. seconds: wall time without the session's start; of
    a fix, from its first comparison to the end of its last.

    converging: the end of a fuzzy load is not reached yet, so a difference may still go away.
    independent: DuckDB read the upstream, not our readers.
    not_compared: by table, how many keys changed upstream since the checkpoint and could not be compared.
    sample: the share of the keys that was compared, None for all. left_out: tables that were not requested.
    fixable: whether `verify --fix` can repair it. live: whether a runner has the job. fix: what `--fix` did, or
    would do once confirmed. recalled: by table, when (ms) an earlier, unfinished verify compared it.
    aside: tables that are set aside or being put back, and were not compared. keys: `1000..2000`, those of the one
    table that were compared; empty for all.
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
    aside: tuple[str, ...] = ()
    keys: str = ""

    @property
    def equal(self) -> bool:
        return all(table.equal for table in self.tables)


def to_fix(report: VerifyReport) -> tuple[str, ...]:
    """The tables of which a fix is asked: all that were compared, or derived ones if these alone differ; empty for
    the whole job."""
    wrong = [table for table in report.tables if not table.equal]
    if wrong and all(table.derived for table in wrong):
        return tuple(table.table for table in wrong)
    return tuple(table.table for table in report.tables) if report.left_out else ()
