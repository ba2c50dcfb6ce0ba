"""The lag that `status` shows, against the lag measured from outside: control.py and kafka.py run it.

From outside, the lag is the age of the oldest batch that has arrived and is not committed. The job is live, then
behind (paused while batches arrive), then dead (its runner killed while they arrive).
"""

import math
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from measure import JOB, Figure, Job, percentile

from backfill_cli.catalog import Catalog
from backfill_cli.model.checkpoint import EpochRecord

EVERY_S = 0.25


@dataclass
class Shown:
    """Batches that arrived, and what was shown meanwhile; times in seconds since 1970.

    put: makes a batch arrive. interval_s: the job's barrier.interval.
    """

    job: Job
    put: Callable[[], None]
    interval_s: float
    arrived: list[float] = field(default_factory=list)
    looks: list[tuple[str, float, float]] = field(default_factory=list)

    def measure(self, process: "subprocess.Popen[bytes]", seconds: float) -> None:
        """Ends the runner. The first fifth of `seconds` is not looked at: it meets a cold JVM."""
        self._during("", seconds / 5)
        self._during("live", seconds)
        self.job.run("pause", JOB, "--wait")
        self._during("behind", seconds)
        self.job.run("resume", JOB)
        self.job.run("wait", JOB, "--for", "caught-up", "--timeout", "2m")
        process.kill()
        process.wait()
        self._during("dead", seconds / 3)

    def _during(self, state: str, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            self.put()
            self.arrived.append(time.time())
            time.sleep(EVERY_S)
            lag_s = self.job.status()["lag_s"]
            if state and lag_s is not None:
                self.looks.append((state, time.time(), lag_s))

    def figures(self, batches: Callable[[EpochRecord], float]) -> list[Figure]:
        """batches: how many of them a committed epoch had."""
        done, committed = 0.0, []
        for line in sorted(Catalog(self.job.catalog).ledger(JOB, 10_000), key=lambda line: line.epoch):
            done += batches(line)
            committed += [line.committed_ms / 1000] * (round(done) - len(committed))
        committed += [math.inf] * (len(self.arrived) - len(committed))
        return [self._figure(state, committed) for state in ("live", "behind", "dead")]

    def _figure(self, state: str, committed: Sequence[float]) -> Figure:
        off, most = [], 0.0
        for _, at, shown in (look for look in self.looks if look[0] == state):
            lacking = [a for a, c in zip(self.arrived, committed, strict=True) if a <= at < c]
            lag_s = at - min(lacking, default=at)
            most = max(most, lag_s)
            off.append(max(0.0, abs(shown - lag_s) - 0.05 * lag_s))
        worst, most_off = percentile(off, 0.95), self.interval_s + EVERY_S  # batches are that far apart
        goal = f"≤ {most_off:g}, beyond 5 %"
        note = f"{len(off)} looks, lag up to {most:.1f} s"
        return Figure(f"lag shown - lag, {state}, p95", worst, "s", goal, worst <= most_off, tuple(off), note)
