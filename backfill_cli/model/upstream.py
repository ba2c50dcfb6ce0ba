"""What an upstream reports, as values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from backfill_cli.model.limit import Kind, Limit
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.split import Split
from backfill_cli.model.units import spell_size


@dataclass(frozen=True, slots=True)
class UpstreamEpoch:
    """A commit of the upstream: never split, applied whole.

    cursors: where each log is once it is applied (one log, or several that share epochs).
    ms: its commit time, or if unknown its arrival, in milliseconds since 1970, never decreasing along the log.
    rows: changes in it, None if only reading can tell. size_bytes: of its files.
    schema: table -> Spark schema as JSON, for tables whose columns differ from those before; otherwise empty.
    """

    cursors: tuple[tuple[str, Cursor], ...]
    ms: int
    rows: int | None
    size_bytes: int
    schema: tuple[tuple[str, str], ...] = ()


_NAMED = 3
"""So many tables are named of those that lack a commit."""


@dataclass(frozen=True, slots=True)
class Incomplete:
    """The newest commit of the upstream, if rows of it have landed for some tables, and more may for others.

    It is not applied before it is known to be whole. column: whose values are the commits. lacking: tables for
    which no row of it has landed. since_ms: as `UpstreamEpoch.ms`, of what has landed.
    """

    column: str
    value: Cursor
    lacking: tuple[str, ...]
    since_ms: int

    @property
    def text(self) -> str:
        """`v = 5 is not applied yet: no row with it has landed for table tiny, nor a later one for any`."""
        more = len(self.lacking) - _NAMED
        named = ", ".join(self.lacking[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        return (
            f"{self.column} = {self.value!r} is not applied yet: no row with it has landed for "
            f"table{'s' * (len(self.lacking) > 1)} {named}, nor a later one for any"
        )

    def limit(self, converging: bool) -> Limit:
        """As what limits a job that has applied all else. converging: the sink may have some of its rows."""
        why = "; until then the sink is not consistent, as the load may have read rows of it" if converging else ""
        return Limit(self.text + why, Kind.WAITING)


@dataclass(frozen=True, slots=True)
class UpstreamView:
    """One observation, made at a barrier.

    identity: what must never change while the job lives (cluster and topic id, table oid, ...), JSON.
    latest: the newest complete position. oldest: the oldest that is still retained, None if no limit is known.
    pending: upstream epochs after the position asked for, in log order.
    archived: by partition, the next offset after what the log's archive holds; None without an archive.
    log_first: when current state is read: only the log may be read at this barrier, because it is long or because
    a table's columns differ from those of its changes so far.
    held_bytes: log that the upstream keeps because of the job; None if it keeps none.
    spool: what was taken of the log and is not applied yet, `pending` refers to it; None if the log is read
    directly.
    oldest_ms: when the oldest pending change was made, if `pending` only has later times of it.
    behind: commits that a reader of the upstream sees may follow `latest`: the log's end was not known.
    waits: for whom reads of the current state wait, and what ends that; only the log is read meanwhile.
    added: how many partitions the pin does not have; None where partitions are not observed.
    incomplete: a commit after `pending` that cannot be applied yet, as more of it may come.
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
    behind: bool = False
    waits: Limit | None = None
    added: int | None = None
    incomplete: Incomplete | None = None


@dataclass(frozen=True, slots=True)
class HeldLog:
    """Log that an upstream keeps for a job, as it is now.

    limit_bytes: what the options allow, enforced by a runner; None for no limit.
    """

    size_bytes: int
    limit_bytes: int | None = None

    @property
    def is_over(self) -> bool:
        return self.limit_bytes is not None and self.size_bytes > self.limit_bytes

    def __str__(self) -> str:
        """A sentence for display."""
        said = f"the upstream keeps {spell_size(self.size_bytes)} of its log for this job"
        if not self.is_over:
            return said
        return f"{said}, more than upstream.max_retained ({spell_size(self.limit_bytes or 0)}) allows"


@dataclass(frozen=True, slots=True)
class SpoolView:
    """What was taken of a log and is not applied yet.

    taken, applied: for display, the positions up to which the log is in the spool, and in the sink once the
    current epoch is. entries: windows, one per barrier. changes: in them, before netting. size_bytes: on disk.
    behind: the log has more than was taken. full: because the spool has no room for it. covers: everything that
    the snapshot's reads saw is at or before `latest`. waits: what the taking waits for; None while it proceeds.
    """

    taken: str
    applied: str
    entries: int
    changes: int
    size_bytes: int
    behind: bool = False
    full: bool = False
    covers: bool = True
    waits: Limit | None = None


@dataclass(frozen=True, slots=True)
class Pin:
    """A pinned snapshot: what to read, and where its change log continues.

    position: S, after which changes apply (a partitioned log: the offsets at which history begins).
    position_ms: upstream time of S, None when unknown.
    complete_at: for a fuzzy snapshot, the position that covers its end; None when it matches S exactly.
    schema: table -> Spark schema as JSON, of the source rows (before the transform).
    identity: as in UpstreamView.
    shown: the position in the system's own notation, for display; empty if that is the text of the cursors.
    """

    position: Position
    position_ms: int | None
    complete_at: Position | None
    splits: tuple[Split, ...]
    schema: Mapping[str, str] = field(default_factory=dict)
    identity: str = "{}"
    shown: str = ""

    def joined(self, more: "Pin") -> "Pin":
        """With the tables of `more`, which this one lacks. What both say of is as this one says it."""
        ends = [one for one in (more.complete_at, self.complete_at) if one is not None]
        times = [one for one in (self.position_ms, more.position_ms) if one is not None]
        identity = _merged(json.loads(self.identity), json.loads(more.identity))
        return replace(
            self,
            position=Position.of({**dict(more.position), **dict(self.position)}),
            position_ms=max(times, default=None),
            complete_at=Position.of({log: at for end in ends for log, at in end}) if ends else None,
            splits=(*self.splits, *more.splits),
            schema={**more.schema, **self.schema},
            identity=json.dumps(identity, sort_keys=True),
        )

    def only(self, table: str) -> "Pin":
        """What is pinned of one of its tables."""
        return reduce(Pin.without, [one for one in self.schema if one != table], self)

    def without(self, table: str) -> "Pin":
        """Without a table that leaves the job."""
        tables = tuple(self.schema)
        return replace(
            self,
            position=self.position.without(table, tables),
            complete_at=None if self.complete_at is None else self.complete_at.without(table, tables),
            splits=tuple(split for split in self.splits if split.table != table),
            schema={name: text for name, text in self.schema.items() if name != table},
            identity=json.dumps(_without(json.loads(self.identity), table), sort_keys=True),
        )


def _merged(ours: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of tables is merged, table by table; what is said of all of them is as `ours` says it."""
    found = dict(more) | dict(ours)
    for name in ours.keys() & more.keys():
        if isinstance(ours[name], dict) and isinstance(more[name], dict):
            found[name] = {**more[name], **ours[name]}
    return found


def _without(identity: Mapping[str, Any], table: str) -> dict[str, Any]:
    return {
        name: {of: one for of, one in told.items() if of != table} if isinstance(told, dict) else told
        for name, told in identity.items()
    }


@dataclass(frozen=True, slots=True)
class SnapshotPin:
    """What a snapshot side pinned: its part of a Pin. identity: its keys must differ from those of the log."""

    splits: tuple[Split, ...]
    schema: Mapping[str, str]
    identity: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LogStart:
    """Where a change log continues after a snapshot: its part of a Pin.

    schema: the snapshot's, with what the log knows about its columns in their metadata.
    """

    position: Position
    position_ms: int | None
    complete_at: Position | None
    schema: Mapping[str, str]
    identity: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PendingStart:
    """mark: part of a name that nobody else can have chosen. config: as stored. pin: identifies the upstream."""

    job: str
    mark: str
    config: str
    pin: Pin
    begun_ms: int
