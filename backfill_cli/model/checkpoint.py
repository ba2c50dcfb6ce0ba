"""What the catalog and the sink keep of a job between two barriers."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Annotated, Any

from backfill_cli.model.codec import Pairs
from backfill_cli.model.committing import Committing
from backfill_cli.model.deadline import Outlook
from backfill_cli.model.derived import Filling
from backfill_cli.model.headroom import Headroom
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.limit import Limit
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.position import START, Position
from backfill_cli.model.refill import RefillProgress
from backfill_cli.model.split import SplitKey, SplitProgress, SplitStatus, partition_number
from backfill_cli.model.upstream import Incomplete, SpoolView

ANEW = "anew"


@dataclass(frozen=True, slots=True)
class Marker:
    """What a sink's table holds, by its own record. epoch 0: fenced, nothing committed yet.

    Of a derived table, epoch 0: the next commit past the snapshot fills it; with the attempt ANEW it was filled
    before, and any next commit fills it.
    """

    epoch: int
    token: int
    attempt: str

    @property
    def begun(self) -> bool:
        """Whether a derived table has been filled once, so that a table that has its name is the job's."""
        return self.epoch > 0 or self.attempt == ANEW


@dataclass(frozen=True, slots=True)
class Owner:
    """The catalog that owns a job, as recorded in the job's sink.

    catalog: its id, which it keeps wherever it is moved. host, path: where it was when it last resumed the job.
    """

    catalog: str
    host: str
    path: str

    def __str__(self) -> str:
        return f"{self.path} on {self.host}"

    @property
    def option(self) -> str:
        """The option that selects it on a command line on its host."""
        return f"--catalog {shlex.quote(self.path)}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One epoch as the catalog has it: prepared (a promise) or committed.

    state: the strategy's state after it, without the splits, as JSON.
    splits: progress of the splits that this epoch changed (of all splits when loaded).
    plan, staged: what recovery applies again; None once committed.
    phase, position: copied from the state, for display and for what is acknowledged upstream.
    schemas, sink_schemas: table -> Spark schema as JSON, before and after the transform, as of this epoch.
    memory: the upstream's memory of what it applied (`Source.remembered`); empty if it has none.
    taken: the position up to which the log was in the spool (strategy chain); the spool has to reach it.
    quarantined: side table of the sink → number of unreadable rows kept in it, since the job began.
    skipped: records of logs that changed no row, by kind, since the job began.
    written: rows written, by table and phase, since the job began (of an older version: since this one ran it).
    joined: the sink's tables that joined the job at this checkpoint, before any row of them.
    dropping: the sink's tables that left the job at this checkpoint, and are to be dropped, by target, as JSON.
    Those of which the sink still has a marker are not yet.
    """

    epoch: int
    prev_ms: int
    token: int
    attempt: str
    state: str
    phase: Phase
    position: Position
    splits: Annotated[Mapping[SplitKey, SplitProgress], Pairs()] = field(default_factory=dict)
    plan: EpochPlan | None = None
    staged: Staged | None = None
    schemas: Mapping[str, str] = field(default_factory=dict)
    sink_schemas: Mapping[str, str] = field(default_factory=dict)
    memory: str = ""
    taken: Position = START
    quarantined: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    written: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    joined: tuple[str, ...] = ()
    dropping: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far one partition of a log is, for display.

    partition: see model.split.partition_id. table: which it fills; "" as versions before several tables stored it.
    offset: its next one. target: the offset where history ends and the live log begins. lag: offsets between
    `offset` and the log's end, as last observed; None before the first observation.
    """

    partition: str
    state: SplitStatus
    offset: int
    target: int | None
    lag: int | None
    table: str = ""


@dataclass(frozen=True, slots=True)
class TablePartitions:
    """How far the partitions of one table are together, for display.

    live: how many of them have no history left. lag: offsets that they are behind, None before the first
    observation. furthest: the number of the one furthest behind, and how far it is; None if none is behind.
    """

    table: str
    partitions: int
    live: int
    lag: int | None
    furthest: tuple[int, int] | None = None


def by_table(partitions: Sequence[PartitionProgress]) -> tuple[TablePartitions, ...]:
    """What is together said of these, table by table, furthest behind first; empty if all are of one table."""
    of: dict[str, list[PartitionProgress]] = {}
    for one in partitions:
        of.setdefault(one.table, []).append(one)
    found = []
    for table, mine in of.items() if len(of) > 1 else ():
        lags = [(one.lag, -partition_number(one.partition)) for one in mine if one.lag is not None]
        lag, number = max(lags, default=(0, 0))
        live = sum(one.state == SplitStatus.FINISHED for one in mine)
        behind = sum(lag for lag, _ in lags) if lags else None
        found.append(TablePartitions(table, len(mine), live, behind, (-number, lag) if lag else None))
    return tuple(sorted(found, key=lambda one: (-(one.lag or 0), one.table)))


@dataclass(frozen=True, slots=True)
class Written:
    """Rows written to the sink per second, by what it does with them; see EpochRecord."""

    inserted: float
    upserted: float
    deleted: float


@dataclass(frozen=True, slots=True)
class Progress:
    """The numbers for display; none of them affects any decision.

    rows_total: None if metadata does not tell. rows_estimated: whether it can still prove wrong. rows_per_s: of
    the last epochs. lag_ms: how far the sink is behind, None before the log is followed.
    limited_by: what limits the job now, and the command that changes it. share: 0 to 1 of a
    history, by offsets; None if rows and bytes tell. partitions: of a partitioned log, the 64 furthest behind, in
    that order; tables: all of them, table by table, if there are several.
    token: the runner that reports. caught_up_ms: since when, in its run. held_bytes: log that the upstream
    keeps for the job, as last observed; None if it keeps none for it. spool: what was taken of the log
    and is not in the sink yet; None if the log is read directly. looked_ms: when the runner last observed the
    upstream. interval_ms: between two observations. oldest_ms: upstream time of the oldest change that the sink
    lacks. settled_ms: everything that the upstream had then, by the runner's clock, is in the sink.
    changes_per_s, written_per_s: recent rates, None in the snapshot phase. doing: what the runner is doing, and
    since when by its clock; None between two barriers.
    quarantined, skipped, written: see Checkpoint. rows_in_hand: rows of the snapshot that were read and that the
    sink lacks, so far as they are known; changes_in_hand: of the change log, likewise. follows: whether there is a
    log.
    headroom: how long the upstream keeps what is not read yet, as last asked; None if it has not been, or does not
    tell. refill: the comparison that is under way beside the loop. deadline: of the snapshot, until it is read.
    failures: of this run, after each of which it was tried again, by cause; see model.failures.
    partitions_added: see UpstreamView.added. beside: the phase is that of tables which joined later.
    unfilled: derived tables that a later commit fills, by their markers; None: not known. filling: how far those
    are of which some ranges are filled. incomplete: see UpstreamView; it is one of `pending_epochs`. committing:
    how far the commit is that the sink is writing, or was as the run ended; None if it writes none, or at once.
    uncomputed: why those that are not filled wait for other rows of what they read; None where they do not.
    """

    phase: Phase
    epoch: int
    rows_read: int
    rows_total: int | None
    bytes_read: int
    bytes_total: int
    splits: Mapping[str, int]
    pending_epochs: int
    lag_ms: int | None
    rows_per_s: float | None
    eta_s: tuple[float, float] | None
    limited_by: Limit
    not_converging: Limit | None = None
    converging: bool = False
    snapshot_finished_ms: int | None = None
    log_store_finished_ms: int | None = None
    caught_up_ms: int | None = None
    waiting_for: Limit | None = None
    share: float | None = None
    partitions: tuple[PartitionProgress, ...] = ()
    tables: tuple[TablePartitions, ...] = ()
    token: int = 0
    held_bytes: int | None = None
    spool: SpoolView | None = None
    oldest_ms: int | None = None
    settled_ms: int | None = None
    looked_ms: int | None = None
    interval_ms: int = 0
    changes_per_s: float | None = None
    doing: str | None = None
    doing_ms: int | None = None
    quarantined: Mapping[str, int] = field(default_factory=dict)
    written_per_s: Written | None = None
    rows_estimated: bool = False
    rows_in_hand: int = 0
    changes_in_hand: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    written: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    follows: bool = True
    headroom: Headroom | None = None
    refill: RefillProgress | None = None
    deadline: Outlook | None = None
    failures: Mapping[str, int] = field(default_factory=dict)
    partitions_added: int | None = None
    beside: bool = False
    unfilled: tuple[str, ...] | None = None
    filling: Mapping[str, Filling] = field(default_factory=dict)
    incomplete: Incomplete | None = None
    committing: Committing | None = None
    uncomputed: Limit | None = None


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """A line of the ledger: the numbers of one checkpoint, or of a barrier that carried a mutation.

    rows_written is the sum of the last three: rows inserted (of a snapshot, or events); inserted or replaced by
    key, as net changes do not tell which; and deleted by key. These are None for epochs of older versions.
    """

    epoch: int
    prev_ms: int
    phase: Phase
    committed_ms: int
    snapshot_rows: int = 0
    changes_read: int = 0
    rows_written: int = 0
    upstream_epochs: int = 0
    stage_ms: int = 0
    commit_ms: int = 0
    lag_ms: int | None = None
    pending_epochs: int = 0
    mutations: str = ""
    rows_inserted: int | None = 0
    rows_upserted: int | None = 0
    rows_deleted: int | None = 0


@dataclass(frozen=True, slots=True)
class Totals:
    """The whole ledger of a job summed up, or a part of it.

    epochs: all lines, including those that carried only a command. commits: lines without these; among folded
    lines, without any that took a command. stage_ms, commit_ms: how long staging and the sink's commits took.
    rows_inserted, rows_upserted, rows_deleted: None if some of the lines do not tell; see EpochRecord.
    """

    epochs: int = 0
    snapshot_rows: int = 0
    changes_read: int = 0
    rows_written: int = 0
    commits: int = 0
    stage_ms: int = 0
    commit_ms: int = 0
    rows_inserted: int | None = 0
    rows_upserted: int | None = 0
    rows_deleted: int | None = 0

    def since(self, before: "Totals") -> "Totals":
        """What was added since the ledger had the totals `before`."""
        now, then = astuple(self), astuple(before)
        less: list[Any] = [None if None in (a, b) else a - b for a, b in zip(now, then, strict=True)]
        return Totals(*less)


@dataclass(frozen=True, slots=True)
class Recovered:
    """Everything that a new runner starts with. splits of `committed` are complete."""

    control: Control
    committed: Checkpoint
    prepared: Checkpoint | None
    last_epoch: int
