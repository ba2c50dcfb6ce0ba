"""A job's life as it was, from its ledger, its commands and its runners: phases, pauses, gaps, events, rates, lag.

Times are milliseconds since 1970. A clock may have been set back: nothing here relies on an order of times.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from backfill_cli.catalog import Run, Taken
from backfill_cli.model.checkpoint import EpochRecord
from backfill_cli.model.job import Control, Phase, Verb, apply_command
from backfill_cli.view.journal import spell_command
from backfill_cli.view.model import JobView


@dataclass(frozen=True, slots=True)
class Span:
    """Something that lasted from `begin_ms` to `end_ms`. A phase, or in what state the job was."""

    what: str
    begin_ms: int
    end_ms: int

    def shared_ms(self, other: "Span") -> int:
        return max(0, min(self.end_ms, other.end_ms) - max(self.begin_ms, other.begin_ms))


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. by: who gave the command; empty if it was none."""

    at_ms: int
    what: str
    by: str = ""


def phase_spans(
    records: Sequence[EpochRecord],
    now: Phase,
    finished_ms: Mapping[Phase, int | None],
    begin_ms: int,
    until_ms: int,
) -> tuple[Span, ...]:
    """The phases from `begin_ms` to `until_ms`, without a gap.

    An epoch tells in which phase it was read; an idle barrier, which leaves no line, can end a phase, too. A line
    of a command alone tells nothing: what was promised before it may be committed later, by the next runner.
    now: the phase that the job is in. finished_ms: the barrier that ended a phase.
    """
    spans: list[Span] = []
    read = [one for one in records if one.snapshot_rows or one.changes_read or one.rows_written]
    runs = [(phase, [one.committed_ms for one in run]) for phase, run in groupby(read, key=lambda one: one.phase)]
    for (phase, committed), (_, following) in pairwise([*runs, (now, [until_ms])]):
        finished = finished_ms.get(phase)
        if phase != now and finished is not None:
            end_ms = min(following[0], max(committed[-1], finished))
        else:
            end_ms = following[0]
        spans.append(Span(phase, begin_ms, max(begin_ms, end_ms)))
        begin_ms = spans[-1].end_ms
    if spans and spans[-1].what == now:
        last = spans.pop()
        begin_ms = last.begin_ms
    return (*spans, Span(now, begin_ms, max(begin_ms, until_ms)))


PAUSED, STOPPED, DEAD = "paused", "no runner", "no runner: it died"


def pauses(taken: Sequence[Taken], until_ms: int) -> tuple[Span, ...]:
    """When the job was paused: from the barrier that took the pause to the one that took the resume."""
    spans, since_ms, control = [], None, Control()
    for one in taken:
        control = apply_command(control, one.command, one.epoch)
        if control.paused:
            since_ms = one.epoch if since_ms is None else since_ms
        elif since_ms is not None:
            spans.append(Span(PAUSED, since_ms, max(since_ms, one.epoch)))
            since_ms = None
    if since_ms is not None:
        spans.append(Span(PAUSED, since_ms, max(since_ms, until_ms)))
    return tuple(spans)


def gaps(runs: Sequence[Run]) -> tuple[Span, ...]:
    """When no runner had the job, between two that had."""
    return tuple(
        Span(DEAD if before.died else STOPPED, before.ended_ms, max(before.ended_ms, after.claimed_ms))
        for before, after in pairwise(runs)
        if before.ended_ms is not None
    )


def events(taken: Sequence[Taken], runs: Sequence[Run], records: Sequence[EpochRecord]) -> tuple[Event, ...]:
    """The commands as barriers took them, runners that came and went, and what else the ledger names; by time."""
    verbs = {*Verb, *(one.command.said for one in taken)}
    found = [Event(one.epoch, spell_command(one.command), one.command.by) for one in taken]
    found += [Event(one.claimed_ms, "runner started") for one in runs]
    found += [
        Event(one.ended_ms, "runner died" if one.died else "runner ended")
        for one in runs
        if one.ended_ms is not None
    ]
    found += [
        Event(one.committed_ms, what)
        for one in records
        for what in one.mutations.split(", ")
        if what and what not in verbs
    ]
    return tuple(sorted(found, key=lambda one: one.at_ms))


def landmarks(view: JobView) -> tuple[Event, ...]:
    """What has no line in the ledger: when the job had caught up, and when it was verified."""
    found = [] if view.caught_up_ms is None else [Event(view.caught_up_ms, "caught up")]
    if view.verified is not None:
        found.append(Event(view.verified.at_ms, f"verified: {'equal' if view.verified.equal else 'different'}"))
    return tuple(found)


def lag_line(records: Sequence[EpochRecord], now: tuple[int, float] | None) -> list[tuple[int, float]]:
    """The lag over time as corners of a line: (time, seconds). now: the time, and the lag now.

    A commit's lag is the age of the oldest change that it applied. So it had grown from 0 since that change came,
    and the commit before left as much as that change's age then, unless older ones were pending still.
    """
    told = [(one.committed_ms, one.lag_ms / 1000) for one in records if one.lag_ms is not None]
    told += [] if now is None else [now]
    line: list[tuple[int, float]] = []
    for at_ms, lag_s in told:
        since_ms = at_ms - round(lag_s * 1000)
        if line:
            before_ms, before_s = line[-1]
            left_s = max(0, before_ms - since_ms) / 1000
            line += [(before_ms, left_s)] if left_s < before_s else []
            line += [(since_ms, 0.0)] if since_ms > before_ms else []
        line.append((at_ms, lag_s))
    return line


def thinned(
    line: Sequence[tuple[int, float]], begin_ms: int, until_ms: int, points: int
) -> list[tuple[int, float]]:
    """At most three corners in each of `points` equal times: the first, the highest and the last."""
    width_ms = max(1, -(-(until_ms - begin_ms + 1) // points))
    kept: list[tuple[int, float]] = []
    for _, run in groupby(line, key=lambda one: (one[0] - begin_ms) // width_ms):
        corners = list(run)
        top = max(range(len(corners)), key=lambda at: corners[at][1])
        kept += [corners[at] for at in sorted({0, top, len(corners) - 1})]
    return kept


@dataclass(frozen=True, slots=True)
class Bin:
    """Epochs that share a point on the time axis. rates: per second of the bin."""

    begin_ms: int
    end_ms: int
    rows_per_s: float
    changes_per_s: float
    inserted_per_s: float
    upserted_per_s: float
    deleted_per_s: float
    stage_s: float
    commit_s: float


NEAR_MS = 10_000
"""Between two commits: a limited rate, or a long interval, reads in a burst what is meant for all of the time."""


def began_ms(record: EpochRecord) -> int:
    """Since when it was read: its barrier, or its staging; at least a second before it was committed."""
    took_ms = max(1_000, record.stage_ms + record.commit_ms)
    return min(record.epoch, record.committed_ms - took_ms)


def spread(
    records: Sequence[EpochRecord], begin_ms: int, width_ms: float, cells: int
) -> Iterator[tuple[EpochRecord, list[tuple[int, float]]]]:
    """Each commit with the cells that it was read in, and its share in each: even from when it was begun, or from
    the commit before it if that is not long ago, until it was made.

    records: oldest first, but a clock may have been set back. cells: of `width_ms` each, from `begin_ms` on; what
    was read outside of them is left out.
    """
    before = None
    for one in records:
        to, since = one.committed_ms - begin_ms, began_ms(one) - begin_ms
        if before is not None and 0 <= to - before <= NEAR_MS:
            since = min(since, before)
        before = to
        first, last = max(0, int(since // width_ms)), min(cells - 1, int(to // width_ms))
        part = []
        for cell in range(first, last + 1):
            shared_ms = min(to, (cell + 1) * width_ms) - max(since, cell * width_ms)
            if shared_ms > 0:
                part.append((cell, shared_ms / (to - since)))
        yield one, part


def binned(records: Sequence[EpochRecord], points: int, begin_ms: int, until_ms: int) -> tuple[Bin, ...]:
    """The epochs in at most `points` spans of equal length, of a second or more; without one, rates are 0.

    They cover all epochs, and the time from `begin_ms` to `until_ms`.
    """
    if not records:
        return ()
    first = min(begin_ms, *map(began_ms, records))
    last = max(until_ms, *(record.committed_ms for record in records))
    span_ms = max(1_000, -(-(last - first + 1) // points))
    count = (last - first) // span_ms + 1
    held: dict[int, list[EpochRecord]] = {}
    read: dict[int, list[tuple[EpochRecord, float]]] = {}
    for record, part in spread(records, first, span_ms, count):
        held.setdefault((record.committed_ms - first) // span_ms, []).append(record)
        for n, share in part:
            read.setdefault(n, []).append((record, share))
    return tuple(_bin(first + n * span_ms, span_ms, held.get(n, []), read.get(n, [])) for n in range(count))


def _bin(
    from_ms: int, span_ms: int, records: Sequence[EpochRecord], read: Sequence[tuple[EpochRecord, float]]
) -> Bin:
    """records: committed in it. read: with the share that was read in it."""

    def per_s(rows: Callable[[EpochRecord], int | None]) -> float:
        """None: an epoch of an older version, which does not tell."""
        return sum((rows(record) or 0) * share for record, share in read) * 1000 / span_ms

    return Bin(
        begin_ms=from_ms,
        end_ms=from_ms + span_ms,
        rows_per_s=per_s(lambda record: record.snapshot_rows),
        changes_per_s=per_s(lambda record: record.changes_read),
        inserted_per_s=per_s(lambda record: record.rows_inserted),
        upserted_per_s=per_s(lambda record: record.rows_upserted),
        deleted_per_s=per_s(lambda record: record.rows_deleted),
        stage_s=max((record.stage_ms for record in records), default=0) / 1000,
        commit_s=max((record.commit_ms for record in records), default=0) / 1000,
    )
