"""Partitions of a log: offsets by partition, and what one observation says of a partition before it is read."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from backfill_cli.errors import START_OVER, Hint, HistoryGone, Transient, in_config
from backfill_cli.model.position import Position
from backfill_cli.model.split import SplitProgress, SplitStatus, partition_number
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
"""The state that docs/design.md calls backfilling: there is history left to read."""


def offsets(position: Position | None) -> dict[str, int]:
    return {} if position is None else {partition: int(offset) for partition, offset in position}


def in_order(partition: str) -> tuple[str, int, str]:
    """Sort key that puts the partitions of each table in numeric order."""
    table, _, number = partition.rpartition("/")
    return table, len(number), number


def covers(reached: Offsets, epoch: UpstreamEpoch) -> bool:
    return all(reached.get(partition, -1) >= int(end) for partition, end in epoch.cursors)


def spread(wanted: Offsets, rows: int) -> dict[str, int]:
    """`rows` divided evenly, at most what each partition wants; partitions that get nothing are left out."""
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
    """One partition as observed. oldest: first offset of its log. latest: next offset at its end. archived: next
    offset after the archive's last, 0 without an archive."""

    table: str
    partition: str
    oldest: int
    latest: int
    archived: int

    def seen(self, kept: SplitProgress | None, accept_gap: bool) -> SplitProgress:
        """The partition's progress after this observation: `kept` itself when nothing changed.

        kept: None for a partition that was not known before. Raises HistoryGone when offsets that are needed are
        gone, Transient while the log ends before a position that was reached earlier.
        """
        if kept is None:  # a new partition: all of it is live
            return SplitProgress(SplitStatus.FINISHED, self.oldest, target=self.oldest)
        if kept.status == SplitStatus.FINISHED:
            self._require(offset_of(kept), offset_of(kept))
            return kept
        # Retention removed what the log was to deliver: history continues as far as the archive reaches now.
        raised = self.oldest > target_of(kept) and self.archived > target_of(kept)
        if kept.status in HISTORY:
            return self._with_history(replace(kept, target=self.archived) if raised else kept)
        if raised:
            return replace(kept, status=SplitStatus.BACKFILLING, target=self.archived)
        if self.latest < offset_of(kept):  # an archive may be ahead of what readers of committed records see
            return kept
        if self.oldest > offset_of(kept) and not accept_gap:
            raise self._hole(
                offset_of(kept),
                in_config("add them to the archive, or set upstream.accept_gap = true to skip them"),
            )
        return replace(kept, status=SplitStatus.FINISHED, cursor=max(offset_of(kept), self.oldest))

    def _with_history(self, kept: SplitProgress) -> SplitProgress:
        """Whatever history the archive does not hold must be in the log."""
        needed = max(offset_of(kept), self.archived)
        if needed < target_of(kept):
            self._require(needed, target_of(kept))
        return kept

    def _require(self, needed: int, end: int) -> None:
        """Checks that the log still holds `needed` and reaches `end`."""
        if self.oldest > needed:
            raise self._hole(needed, "raise the topic's retention, then " + START_OVER)
        if self.latest < end:  # a new leader may lag for a moment; one that stays behind has lost records
            raise Transient(
                f"{self._spelled} ends at offset {self.latest}, but had reached {end} before",
                "check the topic's brokers: an unclean leader election may have lost records",
            )

    def _hole(self, needed: int, hint: Hint | str) -> HistoryGone:
        return HistoryGone(
            f"{self._spelled} is needed from offset {needed}, its log begins at {self.oldest}: offsets {needed} "
            f"to {self.oldest - 1} are gone",
            hint,
        ).of(self.table)

    @property
    def _spelled(self) -> str:
        return f"table {self.table!r}: partition {partition_number(self.partition)}"


def partition_logs(table_of: Callable[[str], str], view: UpstreamView, known: Offsets) -> Iterator[PartitionLog]:
    """Every partition listed, in order. Raises Transient when a known one is missing. table_of: whose it is."""
    oldest, latest, archived = offsets(view.oldest), offsets(view.latest), offsets(view.archived)
    lacking = sorted(known.keys() - latest.keys(), key=in_order)
    if lacking:
        table = table_of(lacking[0])
        missing = [str(partition_number(one)) for one in lacking if table_of(one) == table]
        of = [one for one in known if table_of(one) == table]
        raise Transient(
            f"table {table!r}: the topic's metadata lacks partition {', '.join(missing[:10])}"
            f"{' and more' if len(missing) > 10 else ''} of {len(of)} known partitions",
            "partitions cannot be removed from a topic: check its brokers",
        )
    for partition in sorted(latest, key=in_order):
        yield PartitionLog(
            table_of(partition), partition, oldest.get(partition, 0), latest[partition], archived.get(partition, 0)
        )
