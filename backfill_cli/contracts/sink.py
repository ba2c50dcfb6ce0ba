"""Where rows go: what the engine and `verify` ask of a sink, and how a sink plugs in.

What a sink can do is data (`capabilities`); what only some can do beside commits is optional (`extras`). A method
that is not abstract has a default that is right for a sink without it.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts.domain import Domain
from backfill_cli.contracts.gauge import Gauge
from backfill_cli.contracts.options import Named
from backfill_cli.contracts.source import Contract
from backfill_cli.model.checkpoint import Checkpoint, Marker, Owner
from backfill_cli.model.committing import Committing
from backfill_cli.model.cutover import Lives
from backfill_cli.model.derived import Derived, Filling
from backfill_cli.model.digest import Digest, DigestSpec, KeyRanges
from backfill_cli.model.plan import Staged
from backfill_cli.model.reports import PlannedDerived
from backfill_cli.model.verify import DifferentRow

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class SinkTable:
    """A job's table as its sink sees it.

    target: as named in the config ("schema.name" or a name). key: sink columns. schema: Spark schema as JSON,
    after the transform; a column's metadata can carry {"logical": "uuid"|"json"}.
    plain_inserts: snapshot rows are inserted; otherwise (an existing table) they are first deleted by key.
    side: one of our own tables beside the job's, named `_backfill_…`: it holds rows that could not be read.
    place: where all rows come from a log, which can begin after a row's insert: the columns that hold partition
    and offset of a row's newest record, if the table has them as they are. None where a snapshot has all rows.
    derived: a derived table: columns of its key can be NULL; one without a key has one row.
    """

    name: str
    target: str
    key: tuple[str, ...]
    schema: str
    plain_inserts: bool = True
    side: bool = False
    place: tuple[str, ...] | None = None
    derived: bool = False


def derived_table(derived: Derived) -> SinkTable:
    """A derived table as far as its place is concerned: without columns."""
    return SinkTable(derived.name, derived.target, derived.key, "{}", derived=True)


@dataclass(frozen=True, slots=True)
class SavedJob:
    """What a sink keeps beside its marker so that a lost catalog can be rebuilt from it.

    definition: config (references, never secrets), fingerprint and pin as JSON; written when it changes.
    checkpoint: the committed one, with all its splits when read.
    """

    definition: str
    checkpoint: Checkpoint


def _untold(at: Committing) -> None:
    """Nobody asks how far a commit is."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class EpochCommit:
    """One epoch for a sink: applied completely, once, with its marker.

    folder: where the staged files are (the attempt's folder); `staged` names those that count.
    unique: tables whose keys are now complete and must be checked for duplicates in the same transaction.
    saved: what to keep beside the marker (changed splits only).
    only: tables that recovery has still to apply, None for all.
    converging: a change that leaves columns unchanged is skipped if its row does not exist: see EpochPlan.
    filling: tables of which that is so while a refill of all their rows is pending; it brings them.
    derived: the job's derived tables. One that holds the rows of its SELECT holds them after the commit, too; one
    that does not yet is filled from the first commit past the snapshot on. fill_rows: about how many rows of the
    largest table that it reads a commit may fill it from, where a sink does so range by range; 0: none now; None:
    from all. aside: tables that are set aside, which these may read: their rows stay.
    tell: receives how far the commit is, where tables have it one after the other. holds: whether derived tables
    that such a commit has not begun to fill are left to a later one.
    """

    job: str
    epoch: int
    prev_epoch: int
    token: int
    attempt: str
    tables: tuple[SinkTable, ...]
    folder: str
    staged: Staged
    unique: tuple[str, ...]
    saved: SavedJob
    only: frozenset[str] | None = None
    converging: bool = False
    filling: frozenset[str] = frozenset()
    derived: tuple[Derived, ...] = ()
    aside: tuple[SinkTable, ...] = ()
    fill_rows: int | None = None
    tell: Callable[[Committing], None] = field(default=_untold, compare=False, repr=False)
    holds: Callable[[], bool] = field(default=_never, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """A task of a worker gets it without its last fields: those call this process."""
        return EpochCommit, tuple(getattr(self, one.name) for one in fields(self) if one.compare)

    def may_lack(self, table: SinkTable) -> bool:
        """Whether a row that a change updates in part can be missing: such a change is skipped."""
        return self.converging or table.name in self.filling

    def restores(self, table: str) -> bool:
        """Whether what the table held may not be what the commits before this one wrote: a refill puts it right
        (`verify --fix` and a table that is put back do it by one, too), or all of it goes.
        """
        staged, plan = self.staged.tables.get(table), self.saved.checkpoint.plan
        return staged is not None and (staged.truncated or (plan is not None and plan.refill is not None))


# -- what some sinks can do ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Survey:
    """What a sink reports about a table without reading much of it.

    low, high: bounds of the word of the first key column (see model/digest.py); None without such a column or
    rows.
    few: string columns with so few distinct values that the sink can hash them from a list.
    """

    low: int | None
    high: int | None
    few: frozenset[str]


@dataclass(frozen=True, slots=True)
class ComparedDerived:
    """A derived table beside its SELECT. rows: of the SELECT; held: of the table. missing, extra, changed: by key.

    different: the first of these. filled: whether it has been; if not, the next commit past the
    snapshot fills it, or begins to. compared: whether it could be; not one that has no rows yet, or of which some
    ranges are filled, and not one that reads a table which is not there. gone: its table is not there, although it
    was filled: somebody has dropped it.
    """

    rows: int = 0
    held: int = 0
    missing: int = 0
    extra: int = 0
    changed: int = 0
    different: tuple[DifferentRow, ...] = ()
    filled: bool = True
    compared: bool = True
    gone: bool = False


class Derives(Contract):
    """Keeps derived tables: see `EpochCommit.derived`. tables: all that they can read, also those set aside.

    Each method raises UsageError for a SELECT that cannot be kept, naming the derived table and the piece of it.

    took_ms: by derived table, how long the last commit took to keep or fill it; replaced as a whole.
    """

    took_ms: Mapping[str, int] = MappingProxyType({})

    @abstractmethod
    def reads(self, derived: Sequence[Derived], tables: Sequence[SinkTable]) -> Mapping[str, tuple[str, ...]]:
        """By derived table, the names of the tables that it reads, in the order of its SELECT."""

    @abstractmethod
    def check(
        self,
        job: str,
        derived: Sequence[Derived],
        tables: Sequence[SinkTable],
        lives: Mapping[str, str],
        into: Collection[str] = (),
    ) -> tuple[PlannedDerived, ...]:
        """What `plan` tells of each. Raises what `prepare` would; creates nothing. The tables need not exist.

        lives: by table, the name that people query, which is no derived table's. into: as of `prepare`.
        """

    @abstractmethod
    def prepare(
        self,
        job: str,
        derived: Sequence[Derived],
        tables: Sequence[SinkTable],
        into: Collection[str] = (),
    ) -> None:
        """Each derived table has a marker, and whatever would refuse its table is raised; called once the job's
        tables exist. The table itself is created by the commit that fills it, so that nobody sees an empty one.
        One that was filled and does not exist is filled anew by the next commit.

        Raises as `Sink.prepare`. A table with rows that are not the job's is refused, whatever the job's own are.
        into: derived tables whose table may exist with other rows and columns: the next commit, in whatever phase,
        replaces them, as of one that is to be renewed.
        """

    @abstractmethod
    def renew(self, job: str, derived: Sequence[Derived]) -> None:
        """The next commit fills these anew, in whatever phase; until then they hold what they held.

        Their SELECT, and the columns of its result, may be others by then than those that they hold. One that was
        never filled stays so.
        """

    def filling(self, job: str) -> Mapping[str, Filling]:
        """Those of which some ranges are filled, and others are not yet: how far each is."""
        return {}

    def rehearse(
        self,
        job: str,
        derived: Sequence[Derived],
        tables: Sequence[SinkTable],
        names: Collection[str],
        into: Collection[str] = (),
    ) -> None:
        """Those called `names` could be filled now, and those that read them: nothing of that stays.

        derived: all of them. into: as of `prepare`. Raises BadData for rows, UsageError for what depends on a
        table that would be replaced. By default nothing is tried.
        """


class SinkCopy(Contract):
    """A sink's tables at one checkpoint: no commit changes what it reads, and it blocks no commit."""

    @abstractmethod
    def saved(self) -> SavedJob | None:
        """As `Sink.saved`, for this copy: the checkpoint that its rows are at."""

    def blocks(self) -> str:
        """Whom it keeps waiting, where it is the sink itself; for display, empty if nobody."""
        return ""

    def mark(self) -> str | None:
        """A mark that changes with every write to the sink, by anyone; None if the sink has no such mark.

        Two copies with the same mark hold the same rows, so what was compared with one need not be compared again.
        """
        return None

    def compare(
        self, derived: Derived, others: Sequence[Derived], tables: Sequence[SinkTable], named: int
    ) -> ComparedDerived:
        """A derived table beside its SELECT over this copy; floating-point numbers are compared to 12 digits.

        others: all derived tables, and tables: what it can read. named: at most so many differing keys are named.
        """
        raise NotImplementedError

    @abstractmethod
    def survey(self, table: SinkTable) -> Survey: ...

    @abstractmethod
    def digest(self, table: SinkTable, spec: DigestSpec, ranges: KeyRanges | None) -> Mapping[int, Digest]:
        """By range number (0 without ranges): row count, and hashes for the key and each other column.

        The formula is that of model/digest.py, so the result equals what Spark computes for the upstream. Can be
        called from another thread than the other methods.
        """

    @abstractmethod
    def frame(
        self,
        spark: "SparkSession",
        table: SinkTable,
        columns: Sequence[str],
        only: tuple[DigestSpec, KeyRanges, Sequence[int]] | None,
    ) -> "DataFrame":
        """These columns of the table's rows, in the types of its Spark schema; `only`: in some ranges.

        If the spec has a sample, rows outside it can be left out.
        """


Copied = Callable[[str, bool, Path], AbstractContextManager[SinkCopy]]
"""f(job, live, folder): the sink as it is between two commits. live: a runner has the job and must not be held up.

folder: an empty folder, shared with Spark, for files that have to be written; the caller removes it.
"""


@dataclass(frozen=True, slots=True)
class Swap:
    """live: the name that people query, as in the config: `schema.name`, or a name."""

    table: SinkTable
    live: str


class Cutover(Contract):
    """Gives the job's tables the names that people query, for `backfill cutover`.

    In a sink with views, which it creates and renames in one transaction, or one whose tables have branches.
    in_place: people query the table itself and the job fills a branch of it; tables are cut over one after the
    other, each atomically. The caller then holds the job exclusively and has fenced the sink.
    """

    in_place: bool = False

    @abstractmethod
    def live(self, job: str, swaps: Sequence[Swap]) -> Lives:
        """What these names are now. Changes nothing. Raises UsageError for a name that cannot be used."""

    @abstractmethod
    def cut_over(self, job: str, swaps: Sequence[Swap], epoch: int, now_ms: int, until_ms: int) -> None:
        """Each name is a view of its job's table, all switched atomically; what was there is kept under another.

        A name that already is such a view stays. The job keeps writing into its table, and the view gets new
        columns.
        Raises UsageError naming what cannot be renamed or created, Transient while another session locks it; in
        both cases nothing has changed.
        """

    @abstractmethod
    def reverse(self, job: str, swaps: Sequence[Swap]) -> None:
        """Each name is what it was before `cut_over`, all switched atomically. Raises what `cut_over` does."""


@dataclass(frozen=True, slots=True)
class SinkCapabilities:
    """transactional: whether all tables of an epoch commit in one transaction.

    partial: whether it accepts changes that leave columns unchanged, and truncates: see StagedTable.
    logical_types: those of {"uuid", "json"} in a column's metadata that get a type of the sink's own, where others
    keep text; for display.
    """

    transactional: bool
    partial: bool
    logical_types: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StatePlace:
    """Where a sink keeps the state of a job. what: as messages name it. at: the option that decides it."""

    what: str
    at: str
    place: str


@dataclass(frozen=True, slots=True)
class SinkExtras:
    """What some sinks can do beside commits.

    copied: so that `verify` can read its rows.
    cutover: see Cutover.
    statements: f(swaps, epoch), where the sink cannot switch a name atomically and the names that people query are
    in a catalog that they maintain: what to run there, in this order, once every gate of a cutover is open.
    clock_ms: the current time by the system's own clock, in milliseconds since 1970, which `doctor` compares with
    this machine's. Raises what any call that connects raises.
    state: f(job), where the job's state could be a table of its upstream: it is written to with each commit, too.
    warnings: what `plan` adds about these tables, a sentence each.
    beside: as of `Extras` of a source. derives: see Derives.
    """

    copied: Copied | None = None
    cutover: Cutover | None = None
    statements: Callable[[Sequence[Swap], int], Sequence[str]] | None = None
    state: Callable[[str], StatePlace] | None = None
    warnings: Callable[[Sequence[SinkTable]], Sequence[str]] = lambda _tables: ()
    clock_ms: Callable[[], int] | None = None
    beside: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    derives: Derives | None = None


# -- sinks --------------------------------------------------------------------------------------------------------


class Sink(Contract):
    """Where rows go. Opened briefly, never held open between commits."""

    capabilities: SinkCapabilities
    extras = SinkExtras()

    def use(self, session: "Callable[[], SparkSession]") -> None:
        """Receives the function that returns the run's Spark session, starting it on first use. Called first.

        For tables that live in Spark: `commit` calls it in its own thread, while the next epoch is staged in
        the same session.
        """

    def places(self, tables: Sequence[SinkTable]) -> Mapping[str, frozenset[str]]:
        """Where each table's rows are or will be, in the terms of `Extras.places`, however it is spelled.

        For sinks whose tables could be the same as an upstream's.
        """
        return {}

    def check(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        """Raises what `prepare` would raise; changes and creates nothing. Called by `plan`, and before a start."""

    @abstractmethod
    def prepare(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        """Create the job's tables, or add new columns; changes nothing when nothing is missing.

        Raises SinkInUse for a table that has rows and does not belong to this job (unless into_existing), Held for
        a table of another job, BadData for a column whose type differs.
        """

    @abstractmethod
    def owner(self, job: str) -> Owner | None:
        """The catalog that owns the job; None when the sink has no marker of the job, or none that names an owner.

        Called before anything is changed for a job: if another catalog owns the job, the command is refused and
        that catalog's runner is not fenced.
        """

    @abstractmethod
    def own(self, job: str, owner: Owner, instead_of: Owner | None) -> None:
        """Make `owner` the job's owner. Called once the markers exist, and when a catalog is rebuilt.

        instead_of: what the method `owner` returned. Raises Held when another catalog has become the owner since.
        """

    @abstractmethod
    def fence(self, job: str, token: int) -> None:
        """Write the token into every marker, after waiting for commits in flight; older tokens are then refused.

        Raises Held when a marker's token is newer.
        """

    @abstractmethod
    def committed(self, job: str) -> Mapping[str, Marker]:
        """Each table's marker; tables without a marker are absent."""

    def knows(self, job: str) -> bool:
        """Whether there is anything of the job that `forget` removes; of one whose start was refused, too."""
        return bool(self.committed(job))

    @abstractmethod
    def commit(self, commit: EpochCommit) -> None:
        """Apply one epoch and its markers atomically, once. Repeating the same (epoch, attempt) changes nothing.

        Raises Held for an older token, StateConflict for an epoch that is not greater, BadData for duplicate keys,
        Transient while another process holds the sink (naming it) or the disk is full.
        """

    @abstractmethod
    def saved(self, job: str) -> SavedJob | None:
        """What `commit` kept; None when this sink has no record of the job."""

    @abstractmethod
    def drop(self, tables: Sequence[SinkTable]) -> None:
        """Drop these tables with their rows; a missing table is no error. The job's markers stay.

        Raises UsageError when something else depends on one of them; then none was dropped.
        """

    def leave(self, job: str, tables: Sequence[str]) -> None:
        """Remove the markers of these of the job's tables; the data stays. Can be repeated.

        By default they stay until the job is forgotten, and no other job can have the tables before.
        """

    @abstractmethod
    def forget(self, job: str) -> None:
        """Remove the job's markers, owner and side rows; the data stays. Later commits are refused."""


@dataclass(frozen=True, slots=True)
class SinkConnector:
    """How a sink plugs in: an entry in the group `backfill.sinks` names one of these. Fields as for upstreams.

    place: the option that says where tables go, which `init --to` fills in; placed: all options that a place says,
    where these are several. claims: whether a place is of this kind, by its form or by what lies there. look: what
    there is to say of the place that these options name, in at most two lines; secrets are resolved; raises
    UsageError for a server that does not answer. domain: what the types of a sink with these options hold. gauge:
    asks a query for one number, within some seconds, for guards; None: it has no SQL for that. dialect: sqlglot's
    name of the SQL in which derived tables are written; None: it keeps none.
    """

    options: type["BaseModel"]
    open: Callable[[Any], Sink]
    fingerprint: Callable[[Any], Mapping[str, Any]]
    formats: tuple[str, ...] = ()
    place: str | None = None
    placed: Callable[[Named], Mapping[str, Any]] | None = None
    claims: Callable[[str], bool] = lambda _text: False
    look: Callable[[Any], Sequence[str]] | None = None
    domain: Callable[[Any], Domain] = lambda _options: Domain()
    gauge: Callable[[Any, str, float], Gauge] | None = None
    dialect: str | None = None
