"""What an upstream says of itself: values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.split import Split
from backfill_cli.model.units import spell_size


@dataclass(frozen=True, slots=True)
class UpstreamEpoch:
    """A commit of the upstream: never split, applied whole.

    cursors: where each log stands once it is applied (one log, or several that share epochs).
    ms: its commit time, else its arrival, milliseconds since 1970, never decreasing along the log.
    rows: changes in it, None when only reading tells. size_bytes: of its files.
    schema: table -> Spark schema as JSON, for the tables whose columns differ from those before; else empty.
    """

    cursors: tuple[tuple[str, Cursor], ...]
    ms: int
    rows: int | None
    size_bytes: int
    schema: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class UpstreamView:
    """One observation, taken at a barrier.

    identity: what must never change while the job lives (cluster and topic id, table oid, ...), JSON.
    latest: the newest complete position. oldest: the oldest that is still retained, None for no limit known.
    pending: upstream epochs after the position asked for, in log order.
    archived: by partition, the next offset after what the archive of the log holds; None without an archive.
    log_first: of an upstream that is read as it is now: no state may be read at this barrier, only the log: it is
    long, or a table's columns are no longer those that its changes so far had.
    held_bytes: of log that the job makes the upstream keep; None where it does not.
    spool: what of the log was taken and is not applied yet, `pending` is of it; None where it is read directly.
    oldest_ms: when the oldest change that is pending was made, where `pending` has only later times of it.
    """

    identity: str
    latest: Position
    pending: tuple[UpstreamEpoch, ...] = ()
    oldest: Position | None = None
    archived: Position | None = None
    log_first: bool = False
    held_bytes: int | None = None
    spool: "SpoolView | None" = None
    oldest_ms: int | None = None


@dataclass(frozen=True, slots=True)
class HeldLog:
    """Log that an upstream keeps for a job, as it is now.

    limit_bytes: what the options allow, which a runner sees to; None for no limit. bounded: whether the upstream
    itself keeps no more than some size, whoever runs.
    """

    size_bytes: int
    limit_bytes: int | None = None
    bounded: bool = False

    @property
    def is_over(self) -> bool:
        return self.limit_bytes is not None and self.size_bytes > self.limit_bytes

    def __str__(self) -> str:
        """A sentence for people."""
        said = f"the upstream keeps {spell_size(self.size_bytes)} of its log for this job"
        if not self.is_over:
            return said
        return f"{said}, more than upstream.max_retained ({spell_size(self.limit_bytes or 0)}) allows"


@dataclass(frozen=True, slots=True)
class SpoolView:
    """What was taken of a log and is not applied yet.

    taken, applied: the positions up to which the log is in the spool, and in the sink once the epoch in hand is,
    for people. entries: windows, each of one barrier. changes: in them, before netting. size_bytes: on disk.
    behind: the log has more than was taken. full: because the spool has no room for it. covers: all that the
    snapshot's reads saw is at or before `latest`. waits: what taking waits for; None while it goes on.
    """

    taken: str
    applied: str
    entries: int
    changes: int
    size_bytes: int
    behind: bool = False
    full: bool = False
    covers: bool = True
    waits: str | None = None


@dataclass(frozen=True, slots=True)
class Pin:
    """A snapshot held still: what to read, and where its change log goes on.

    position: S, after which changes apply (a partitioned log: the offsets that history begins at).
    position_ms: upstream time of S, None when unknown.
    complete_at: for a fuzzy snapshot the position that covers its end; None when it matches S exactly.
    schema: table -> Spark schema as JSON, of the source rows (before the transform).
    identity: as in UpstreamView.
    shown: the position as the system itself writes it, for people; empty where that is the cursors' own text.
    """

    position: Position
    position_ms: int | None
    complete_at: Position | None
    splits: tuple[Split, ...]
    schema: Mapping[str, str] = field(default_factory=dict)
    identity: str = "{}"
    shown: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotPin:
    """What a snapshot side held still: its part of a Pin. identity: names of its own, told apart from a log's."""

    splits: tuple[Split, ...]
    schema: Mapping[str, str]
    identity: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LogStart:
    """Where a change log goes on after a snapshot: its part of a Pin.

    schema: the snapshot's, with what the log tells of its columns in their metadata.
    """

    position: Position
    position_ms: int | None
    complete_at: Position | None
    schema: Mapping[str, str]
    identity: Mapping[str, Any]
