"""Counts how many of a session's tasks are done, by Spark's own counts, in this process or over Spark Connect."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Stages = dict[object, tuple[int, int]]
"""Stage -> (number of its tasks that are done, number of its tasks)."""


class TaskCounts:
    """The tasks of the stages that ran since `begin`. Can be read from another thread."""

    def __init__(self, spark: "SparkSession") -> None:
        from pyspark.sql.utils import is_remote

        self._stages: Stages = {}
        self._look: Callable[[], None] = lambda: None
        if is_remote():
            spark.registerProgressHandler(self._heard)
        else:
            from pyspark import SparkContext

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
