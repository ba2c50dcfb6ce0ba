"""Partitions of a log: offsets by partition, and what one observation says of one before anything is read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from backfill_cli.errors import HistoryGone, Transient
from backfill_cli.model.position import Position
from backfill_cli.model.split import SplitProgress, SplitStatus
from backfill_cli.model.upstream import UpstreamEpoch, UpstreamView

Offsets = Mapping[str, int]
"""partition -> offset"""

STATUSES = (
    SplitStatus.NOT_STARTED,
    SplitStatus.BACKFILLING,
    SplitStatus.AWAITING_LIVE,
    SplitStatus.FINISHED,
)

HISTORY = frozenset({SplitStatus.NOT_STARTED, SplitStatus.BACKFILLING})
"""Backfilling, in the words of the table: history is still to be read."""


def offsets(position: Position | None) -> dict[str, int]:
    return {} if position is None else {partition: int(offset) for partition, offset in position}


def in_order(partition: str) -> tuple[int, str]:
    """Sorts names of partitions as the numbers that they are."""
    return len(partition), partition


def covers(reached: Offsets, epoch: UpstreamEpoch) -> bool:
    return all(reached.get(partition, -1) >= int(end) for partition, end in epoch.cursors)


def spread(wanted: Offsets, rows: int) -> dict[str, int]:
    """`rows` shared out evenly, none getting more than it wants; those who get nothing are left out."""
    shares: dict[str, int] = {}
    left = max(0, rows)
    for n, partition in enumerate(sorted(wanted, key=lambda p: (wanted[p], in_order(p)))):
        shares[partition] = min(wanted[partition], -(-left // (len(wanted) - n)))
        left -= shares[partition]
    return {p: shares[p] for p in sorted(shares, key=in_order) if shares[p] > 0}


def offset_of(progress: SplitProgress) -> int:
    """The next offset of a partition."""
    assert isinstance(progress.cursor, int), "a partition stands at an offset"
    return progress.cursor


def target_of(progress: SplitProgress) -> int:
    return offset_of(progress) if progress.target is None else progress.target


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """One partition as observed. oldest: its log's first offset. latest: next offset at its end. archived: next
    offset after the archive's last, 0 without one."""

    table: str
    partition: str
    oldest: int
    latest: int
    archived: int

    def seen(self, kept: SplitProgress | None, accept_gap: bool) -> SplitProgress:
        """The partition's progress as of this observation: `kept` itself when nothing changed.

        kept: None for a partition that nobody had seen. Raises HistoryGone for offsets that are needed and gone,
        Transient while the log does not reach what it had reached.
        """
        if kept is None:  # new: nothing of it is history
            return SplitProgress(SplitStatus.FINISHED, self.oldest, target=self.oldest)
        if kept.status == SplitStatus.FINISHED:
            self._require(offset_of(kept), offset_of(kept))
            return kept
        # Retention has passed what the log was to deliver: history goes on as far as the archive is by now.
        raised = self.oldest > target_of(kept) and self.archived > target_of(kept)
        if kept.status in HISTORY:
            return self._with_history(replace(kept, target=self.archived) if raised else kept)
        if raised:
            return replace(kept, status=SplitStatus.BACKFILLING, target=self.archived)
        if self.latest < offset_of(kept):  # an archive may be ahead of what readers of committed records see
            return kept
        if self.oldest > offset_of(kept) and not accept_gap:
            raise self._hole(
                offset_of(kept), "add them to the archive, or set upstream.accept_gap = true to go on without them"
            )
        return replace(kept, status=SplitStatus.FINISHED, cursor=max(offset_of(kept), self.oldest))

    def _with_history(self, kept: SplitProgress) -> SplitProgress:
        """What the archive does not hold of the history must be in the log."""
        needed = max(offset_of(kept), self.archived)
        if needed < target_of(kept):
            self._require(needed, target_of(kept))
        return kept

    def _require(self, needed: int, end: int) -> None:
        """The log still holds what comes at `needed`, and reaches `end`."""
        if self.oldest > needed:
            raise self._hole(needed, "raise the topic's retention, then drop the job and start over")
        if self.latest < end:  # a new leader may lag for a moment; one that stays behind has lost records
            raise Transient(
                f"table {self.table!r}: partition {self.partition} ends at offset {self.latest}, "
                f"and it had reached {end}",
                "check the topic's brokers: an unclean leader election may have lost records",
            )

    def _hole(self, needed: int, hint: str) -> HistoryGone:
        return HistoryGone(
            f"table {self.table!r}: partition {self.partition} is needed from offset {needed} on, its log begins "
            f"at {self.oldest}: offsets {needed} to {self.oldest - 1} are gone",
            hint,
        )


def partition_logs(table: str, view: UpstreamView, known: Offsets) -> Iterator[PartitionLog]:
    """Every partition listed, in order. Raises Transient when one of the known ones is not among them."""
    oldest, latest, archived = offsets(view.oldest), offsets(view.latest), offsets(view.archived)
    missing = sorted(known.keys() - latest.keys(), key=in_order)
    if missing:
        raise Transient(
            f"table {table!r}: the topic's metadata lacks partition {', '.join(missing[:10])}"
            f"{' and more' if len(missing) > 10 else ''} of {len(known)} known",
            "partitions cannot be removed from a topic: check its brokers",
        )
    for partition in sorted(latest, key=in_order):
        yield PartitionLog(
            table, partition, oldest.get(partition, 0), latest[partition], archived.get(partition, 0)
        )
