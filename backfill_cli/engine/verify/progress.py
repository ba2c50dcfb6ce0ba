"""How far a `verify` has come: what it is doing, how much of the work is done, and when it may end."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from backfill_cli.model.limit import Limit
from backfill_cli.model.verify import VerifyProgress

TICK_S = 0.5
LEAST_SHARE = 0.01  # under this an ETA is a guess
RECENT_S = 10.0
SPREAD = 0.1  # no ETA is more accurate than this


@dataclass
class Work:
    """Passes over tables, each weighted by the table's rows. share: how much of the current pass is done.

    alone: the current pass was not planned, and is counted separately.
    """

    began_s: float
    total: float = 0.0
    done: float = 0.0
    now: float = 0.0
    share: float = 0.0
    alone: bool = False
    _recent: deque[tuple[float, float]] = field(default_factory=deque)

    def expect(self, left: float) -> None:
        """This much is left after the passes that are done: what was expected before does not count any more."""
        self.total = self.done + left

    def begin(self, weight: float, alone: bool = False) -> None:
        self.now, self.share, self.alone = weight, 0.0, alone

    def at(self, share: float) -> None:
        """This share of the pass is done; it never decreases."""
        self.share = max(self.share, min(share, 1.0))

    def end(self) -> None:
        """The pass is done."""
        self.done += 0.0 if self.alone else self.now
        self.leave()

    def leave(self) -> None:
        """No pass is under way; if one was, it failed."""
        self.now, self.share, self.alone = 0.0, 0.0, False

    @property
    def reached(self) -> float:
        return self.done + (0.0 if self.alone else self.now * self.share)

    def told(self, now_s: float) -> tuple[float | None, float | None]:
        """(share of all work, least seconds left), at the faster of two rates: overall, and recent.

        For a pass that is counted separately, its own share and no time.
        """
        if self.alone:
            return self.share, None
        if not self.total:
            return None, None
        while self._recent and now_s - self._recent[0][0] > RECENT_S:
            self._recent.popleft()
        since_s, from_ = self._recent[0] if self._recent else (self.began_s, 0.0)
        self._recent.append((now_s, self.reached))
        share = self.reached / self.total
        if share < LEAST_SHARE or now_s <= self.began_s:
            return share, None
        rates = [self.reached / (now_s - self.began_s)]
        if now_s > since_s and self.reached > from_:
            rates.append((self.reached - from_) / (now_s - since_s))
        return share, (self.total - self.reached) / max(rates) * (1 - SPREAD)


class Steps:
    """Reports each step when it begins, and its progress every half second while the `with` block lasts.

    tell: also called from another thread. counts: measures how much of a pass is done, once available.
    attempt: which one the steps are of.
    """

    def __init__(self, job: str, tell: Callable[[VerifyProgress], None], now_s: Callable[[], float]) -> None:
        self._tell, self._now_s = tell, now_s
        self._said = VerifyProgress(job, "")
        self._work = Work(now_s())
        self._weight = 1.0
        self._turn = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="progress", daemon=True)
        self.counts: TaskCounts | None = None
        self.attempt = 1

    def holds(self, what: str) -> None:
        """Reports what is held up from now until the end; nothing if it is empty."""
        if what:
            with self._turn:
                self._said = replace(self._said, holds=what)
            self._say()

    def doing(self, what: Limit | str) -> None:
        """A step of unknown duration begins, or a wait."""
        with self._turn:
            self._said = replace(self._said, doing=str(what))
        self._say()

    def expect(self, weights: Sequence[float]) -> None:
        """Announces one pass over each table; a retry announces those that are left."""
        with self._turn:
            self._work.expect(sum(weights))

    def table(self, weight: float) -> None:
        """What follows concerns a table of this weight."""
        self._weight = weight

    @contextmanager
    def work(self, doing: str, further: bool = False) -> Iterator[None]:
        """A pass over the current table. further: one that was not announced, and is reported separately."""
        with self._turn:
            self._work.begin(self._weight, further)
            if self.counts is not None:
                self.counts.begin()
        self.doing(doing)
        try:
            yield
            with self._turn:
                self._work.end()
        finally:
            with self._turn:
                self._work.leave()

    def _say(self) -> None:
        with self._turn:
            reached = self.counts.reached() if self.counts is not None and self._work.now else None
            if reached is not None:
                self._work.at(reached)
            share, left_s = self._work.told(self._now_s())
            said = replace(self._said, share=share, left_s=left_s, alone=self._work.alone)
        if said.doing:
            self._tell(said)

    def _go_on(self) -> None:
        while not self._over.wait(TICK_S):
            self._say()

    def __enter__(self) -> "Steps":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


Stages = dict[object, tuple[int, int]]
"""Stage -> (number of its tasks that are done, number of its tasks)."""


class TaskCounts:
    """The tasks of the stages that ran since `begin`. Can be read from another thread."""

    def __init__(self, spark: SparkSession) -> None:
        self._stages: Stages = {}
        self._look: Callable[[], None] = lambda: None
        if is_remote():
            spark.registerProgressHandler(self._heard)
        else:
            tracker = SparkContext.getOrCreate().statusTracker()
            self._look = lambda: self._see(tracker)

    def begin(self) -> None:
        self._stages = {}

    def reached(self) -> float | None:
        """The share of tasks done, 0 to 1, in the stages that have begun; None if none has."""
        self._look()
        told = list(self._stages.values())
        every = sum(tasks for _, tasks in told)
        return sum(done for done, _ in told) / every if every else None

    def _see(self, tracker: Any) -> None:
        """Updates the counts. Spark lists the active stages; one that is no longer listed has ended."""
        active = tracker.getActiveStageIds()
        ended = {stage: (tasks, tasks) for stage, (_, tasks) in self._stages.items() if stage not in active}
        found = {stage: tracker.getStageInfo(stage) for stage in active}
        told = {s: (info.numCompletedTasks, info.numTasks) for s, info in found.items() if info is not None}
        self._stages = {**self._stages, **ended, **told}

    def _heard(
        self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        """Called by the Spark Connect client, with these argument names."""
        told: Stages = {
            (operation_id, one.stage_id): (one.num_completed_tasks, one.num_tasks) for one in stages or ()
        }
        self._stages = {**self._stages, **told}
