"""What happens to a job while it is run, as lines: for its log, and for a run that is not on a terminal.

It gets observations of the catalog from time to time; what is new since the last one becomes an entry, once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from backfill_cli.catalog import Catalog, Taken
from backfill_cli.errors import BackfillError, Hint, NoSuchJob, StoppedEarly, command
from backfill_cli.model.checkpoint import Totals
from backfill_cli.model.job import Command, JobState, Phase, Verb
from backfill_cli.model.limit import Kind, Limit
from backfill_cli.model.refill import PENDING, RefillState
from backfill_cli.model.units import spell_duration, spell_number, spell_so_far
from backfill_cli.model.upstream import Incomplete
from backfill_cli.view.answers import document
from backfill_cli.view.console import shown
from backfill_cli.view.lines import spell_progress
from backfill_cli.view.model import (
    ENDED,
    Dead,
    JobView,
    job_view,
    look_at,
    spell_aside,
    spell_deadline,
    spell_headroom,
    spell_quarantined,
    spell_refill,
)

EVERY_S = 10.0
LAG_EVERY_S = 10.0
"""How often the lag is compared with a limit while nothing else is to be reported."""


class Weight(StrEnum):
    """How much an entry matters. END: the closing lines of a run."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    END = "end"


@dataclass(frozen=True, slots=True)
class Event:
    """An event that hooks are run at. name: as in `hooks.on`. hint: what to do about it."""

    name: str
    view: JobView
    reason: str
    hint: Hint = Hint()  # noqa: RUF009


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that happened: one line of text, several, or none.

    brief: the text beside the error that ends the process, where that is printed in full; empty if it is the same.
    """

    text: str
    weight: Weight = Weight.INFO
    event: Event | None = None
    brief: str = ""


@dataclass(frozen=True, slots=True)
class Known:
    """What has been reported of a job already.

    epoch: commands up to this one. quarantined: see Progress; None until a runner reports it. token: that of its
    last runner.
    """

    totals: Totals
    epoch: int
    quarantined: Mapping[str, int] | None
    token: int


@dataclass(frozen=True, slots=True)
class News:
    """One observation of a job.

    taken: commands that barriers took after what is known, in their order. token: that of the newest runner.
    caught_up: whether that runner has caught up. told: whether a runner has reported its progress.
    """

    view: JobView
    totals: Totals
    taken: Sequence[Taken]
    token: int
    caught_up: bool
    told: bool

    @property
    def known(self) -> Known:
        epoch = max((self.view.epoch, *(one.epoch for one in self.taken)))
        return Known(self.totals, epoch, self.view.quarantined, self.token)


NOTHING = Known(Totals(), 0, {}, 0)
REBUILT = Known(Totals(), 0, None, 0)
"""NOTHING: a job that does not exist. REBUILT: a catalog is being rebuilt; the sink knows what was quarantined."""


def look(catalog: Catalog, job: str, after: int, now_ms: int) -> News:
    """The job now, and the commands taken after that epoch. Raises NoSuchJob."""
    row, totals, taken = catalog.news(job, after)
    caught_up = row.reported is not None and row.reported.caught_up_ms is not None
    view = job_view(row, now_ms=now_ms)
    return News(view, totals, taken, row.lease.token, caught_up, row.progress is not None)


def known_before(catalog: Catalog, job: str) -> Known:
    """What is known when a run begins; NOTHING for a job that does not exist."""
    try:
        return look(catalog, job, 0, 0).known
    except NoSuchJob:
        return NOTHING


class Journal:
    """Turns observations into entries. every_s: between two lines of progress. now_s: a monotonic clock.

    max_lag_s: the lag over which a job is lagging; None if nobody is to be told. min_headroom_s: likewise, the
    headroom below which it is low.
    before: what was known when the run began. known: what has been reported by now.
    """

    def __init__(
        self,
        before: Known,
        every_s: float,
        now_s: Callable[[], float],
        max_lag_s: float | None = None,
        min_headroom_s: float | None = None,
    ) -> None:
        self.before = self.known = before
        self._token_before = before.token
        self._state = ""
        self._caught_up = False
        self._finished: frozenset[tuple[str, int]] = frozenset()
        self._ended: frozenset[int] | None = None  # refills
        self._aside: frozenset[tuple[str, int]] | None = None
        self._every_s = every_s
        self._now_s = now_s
        self._max_lag_s = max_lag_s
        self._lagging = False
        self._min_headroom_s, self._is_low = min_headroom_s, False
        self._is_late = self._has_deadline = False
        self._seen: tuple[str, str] | None = None
        self._begins = ""
        self._busy = False
        self._incomplete: Incomplete | None = None
        self._told_incomplete: Incomplete | None = None
        self._told_s = 0.0
        self._told = before.totals
        self._doing: Limit | None = None
        self._doing_s = self._doing_told_s = 0.0
        self._waits_for: Limit | None = None
        self._waits_told_s = 0.0

    def doing(self, what: Limit) -> Iterator[Entry]:
        """What a run is doing or waiting for before its first barrier."""
        if what != self._doing:
            self._doing_s = self._doing_told_s = self._now_s()
            yield Entry(str(what), Weight.WARNING if what.kind is Kind.WAITING else Weight.INFO)
        self._doing = what

    def still(self) -> Iterator[Entry]:
        """Every `every_s`, for how long a run has been doing that, until it has progress to report."""
        now_s = self._now_s()
        if self._doing is None or self._seen is not None or now_s - self._doing_told_s < self._every_s:
            return
        self._doing_told_s = now_s
        yield Entry(spell_so_far(self._doing.said, now_s - self._doing_s))

    def look(self, news: News) -> Iterator[Entry]:
        """What is new: commands, waits, quarantined rows, then the progress of the job."""
        for taken in news.taken:
            yield Entry(spell_taken(taken))
        yield from self._waits(news.view)
        yield from self._quarantines(news)
        yield from self._refills(news.view)
        yield from self._sets_aside(news)
        now = news.known
        self.known = replace(now, epoch=max(now.epoch, self.known.epoch), quarantined=self.known.quarantined)
        yield from self._progress(news.view)
        if self._is_ours(news):
            yield from self._turns(news)

    def ended(self, news: News | None, error: Exception | None) -> Iterator[Entry]:
        """How the run ended. news: the last observation, None if there is no job. error: what ended the run."""
        said, hint = ("", Hint()) if error is None else _said(error)
        brief = "" if error is None or isinstance(error, StoppedEarly) else "failed"
        text = f"{brief}: {said}" if brief else said
        event = None
        if news is not None and self._is_ours(news) and news.view.state in ENDED:
            event = Event(news.view.state, news.view, said or news.view.reason, hint)
        yield Entry(str(Limit(text, hint=hint)), Weight.ERROR, event, brief)

    def _quarantines(self, news: News) -> Iterator[Entry]:
        """Rows quarantined since the last observation."""
        known, now = self.known.quarantined, news.view.quarantined
        if not news.told:
            return
        self.known = replace(self.known, quarantined=now)
        if known is None:
            self.before = replace(self.before, quarantined=now)
            return
        more = {table: rows - known.get(table, 0) for table, rows in now.items() if rows > known.get(table, 0)}
        if more:
            said = f"quarantined, because they could not be read: {spell_quarantined(more)}"
            said += "" if more == now else f"; {spell_quarantined(now)} since the job began"
            yield Entry(
                said,
                Weight.WARNING,
                Event("quarantined", news.view, said, "look at them: " + look_at(now)),
            )

    def _refills(self, view: JobView) -> Iterator[Entry]:
        """Refills that have ended since the last observation."""
        known, now = self._ended, frozenset(one.id for one in view.refills if one.state not in PENDING)
        self._ended = now if known is None else known | now
        for one in view.refills:
            if known is not None and one.id in now - known:
                weight = Weight.WARNING if one.state is RefillState.FAILED else Weight.INFO
                yield Entry(f"refill of {spell_refill(one)}", weight)

    def _sets_aside(self, news: News) -> Iterator[Entry]:
        """Tables that were set aside since the last observation; before the first one, by an earlier run."""
        now = frozenset((one.table, one.since_ms) for one in news.view.aside if one.refill is None)
        known, self._aside = self._aside, now
        for one in news.view.aside:
            if (one.table, one.since_ms) not in now - (known or frozenset()):
                continue
            if known is None and one.since_ms < (news.view.runner.claimed_ms or 0):
                continue
            said = spell_aside(replace(one, error=replace(one.error, hint=Hint())))
            event = Event("set-aside", news.view, said, one.error.hint)
            yield Entry(f"set aside: {spell_aside(one)}", Weight.WARNING, event)

    def _is_ours(self, news: News) -> bool:
        """Whether this run has claimed the job: what an earlier runner did is not news."""
        return news.token > self._token_before

    def _turns(self, news: News) -> Iterator[Entry]:
        """Events of a running job, for hooks; the log lines already report most of them."""
        view, before = news.view, self._state
        self._state = view.state
        if view.state == "paused" != before:
            yield Entry("", event=Event("paused", view, view.reason, command(f"resume {view.name}")))
        if before == "paused" and view.state == "running":
            yield Entry("", event=Event("resumed", view, view.reason))
        yield from self._finishes(view)
        if news.caught_up and not self._caught_up:
            self._caught_up = True
            newest = "" if view.incomplete is None else f"; {view.incomplete.text}"
            yield Entry(f"caught up with its upstream{newest}", event=Event("caught-up", view, "caught up"))
        yield from self._lags(view)
        yield from self._runs_low(view)
        yield from self._runs_late(view)

    def _finishes(self, view: JobView) -> Iterator[Entry]:
        """What of a job this run has finished, once; the line of the next phase already reports it."""
        ended = (
            ("snapshot-read", view.snapshot_finished_ms, "the sink has the snapshot"),
            (
                "log-applied",
                view.log_store_finished_ms,
                "the sink has what the log had when the snapshot was read",
            ),
        )
        for name, at_ms, said in ended:
            if (
                at_ms is not None
                and at_ms >= (view.runner.claimed_ms or 0)
                and (name, at_ms) not in self._finished
            ):
                self._finished |= {(name, at_ms)}
                yield Entry("", event=Event(name, view, said))

    def _lags(self, view: JobView) -> Iterator[Entry]:
        """Tells once that the lag passed its limit; again after it was within it."""
        if self._max_lag_s is None or view.lag_s is None or not _looked(view):
            return
        before, self._lagging = self._lagging, view.lag_s > self._max_lag_s
        if self._lagging and not before:
            said = f"lag {spell_duration(view.lag_s)}, more than {spell_duration(self._max_lag_s)}"
            yield Entry(f"lagging: {said}", Weight.WARNING, Event("lagging", view, said, view.limited_by.hint))

    def _runs_late(self, view: JobView) -> Iterator[Entry]:
        """Tells once that the snapshot's deadline cannot be met; again after it could be."""
        told = view.deadline
        self._has_deadline = told is not None
        if told is not None and not _looked(view):
            return
        before, self._is_late = self._is_late, told is not None and told.late
        if told is not None and self._is_late and not before:
            said, hint = spell_deadline(told), Hint() if told.cause is None else told.cause.hint
            yield Entry(f"deadline at risk: {said}", Weight.WARNING, Event("deadline-at-risk", view, said, hint))

    def _runs_low(self, view: JobView) -> Iterator[Entry]:
        """Tells once that the headroom fell below its limit; again after it was not."""
        told, least_s = view.headroom, self._min_headroom_s
        if least_s is None or told is None or told.left_s is None or not _looked(view):
            return
        before, self._is_low = self._is_low, told.left_s < least_s
        if self._is_low and not before:
            said = f"{spell_headroom(told)}; less than {spell_duration(least_s)}"
            yield Entry(f"low headroom: {said}", Weight.WARNING, Event("low-headroom", view, said, told.hint))

    @property
    def _watches(self) -> bool:
        """Whether a limit can be passed while nothing happens."""
        return self._max_lag_s is not None or self._min_headroom_s is not None or self._has_deadline

    def due_in_s(self) -> float | None:
        """Seconds until a line of progress is due; None if there is nothing new to report."""
        if self._doing is not None and self._seen is None:
            return max(0.0, self._doing_told_s + self._every_s - self._now_s())
        told = self.known.totals == self._told and self._incomplete == self._told_incomplete
        if self._seen is None or (told and not self._busy):
            return LAG_EVERY_S if self._watches else None
        due_s = max(0.0, self._told_s + self._every_s - self._now_s())
        return min(due_s, LAG_EVERY_S) if self._watches else due_s

    def _progress(self, view: JobView) -> Iterator[Entry]:
        """A line at each change of state or phase, at what has to end first, and one every `every_s`."""
        seen, begins = (view.state, view.phase), view.limited_by.text if view.limited_by.kind is Kind.NOW else ""
        self._busy, self._incomplete = view.doing is not None, view.incomplete
        same = seen == self._seen and begins in ("", self._begins)
        now_s = self._now_s()
        if view.state == "starting" or (same and now_s - self._told_s < self._every_s):
            return
        since = self.known.totals.since(self._told)
        line = spell_progress(view, since, why=view.state != "failed")  # `ended` reports why
        self._seen, self._begins, self._told_s, self._told = seen, begins, now_s, self.known.totals
        self._told_incomplete = view.incomplete
        yield Entry(line, Weight.WARNING if view.state == "paused" else Weight.INFO)

    def _waits(self, view: JobView) -> Iterator[Entry]:
        """What the loop waits for: a line when a wait begins, when its cause changes, and when it ends."""
        waiting = view.waiting_for if view.runner.alive and view.state not in ENDED else None
        now_s = self._now_s()
        if waiting is None:
            if self._waits_for is not None:
                yield Entry("continues: the wait is over")
            self._waits_for = None
        elif self._waits_for is None or (
            waiting != self._waits_for and now_s - self._waits_told_s >= self._every_s
        ):
            self._waits_for, self._waits_told_s = waiting, now_s
            yield Entry(f"waiting: {waiting}", Weight.WARNING)


def _looked(view: JobView) -> bool:
    """Whether its numbers are those of this runner."""
    return view.as_of_ms is not None and view.as_of_ms >= (view.runner.claimed_ms or 0)


def _said(error: Exception) -> tuple[str, Hint]:
    """What ended a run, and how to continue."""
    if isinstance(error, BackfillError):
        return error.message, error.hint
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[-1]}", Hint()


@dataclass(frozen=True, slots=True)
class EventTold:
    """What a hook reads on its stdin. event: as in `hooks.on`. time: UTC."""

    job: str
    event: str
    time: str
    epoch: int
    phase: Phase
    state: JobState | Dead
    lag_s: float | None
    reason: str
    hint: Hint
    quarantined: Mapping[str, int]
    headroom_s: float | None = None


def event_json(event: Event, now_ms: int) -> dict[str, object]:
    view, time = event.view, spell_instant(now_ms)
    numbers = (view.epoch, view.phase, view.state, view.lag_s)
    left_s = None if view.headroom is None else view.headroom.left_s
    return document(
        EventTold(view.name, event.name, time, *numbers, event.reason, event.hint, view.quarantined, left_s)
    )


def spell_command(command: Command) -> str:
    """`throttle to 500 rows/s`."""
    rate = ""
    if command.verb is Verb.HOLD:
        rate = "" if command.rate is None else f" to {spell_number(command.rate)} rows/s"
    if command.verb is Verb.THROTTLE:
        rate = " to no limit" if command.rate is None else f" to {spell_number(command.rate)} rows/s"
    return f"{command.said}{rate}"


def spell_taken(taken: Taken) -> str:
    """`throttle to 500 rows/s by me@box, at commit 1795249844808`."""
    return f"{spell_command(taken.command)} by {taken.command.by}, at commit {taken.epoch}"


def stamped(job: str, text: str, now_ms: int) -> str:
    """The lines of the log: `2026-11-21T04:40:12.345Z orders: …`."""
    return "\n".join(f"{spell_instant(now_ms)} {job}: {shown(line)}" for line in text.splitlines())


def spell_instant(now_ms: int) -> str:
    """`2026-11-21T04:40:12.345Z`."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
