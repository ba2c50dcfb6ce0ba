"""Whether a runner has a job now: on this machine by its lock, on another by watching its lease."""

import math
import time
from collections.abc import Callable

from backfill_cli.catalog import lease
from backfill_cli.catalog.lease import JobLock, Lease
from backfill_cli.catalog.store import Store


class Liveness:
    """Which runners of one catalog are live. watch_s: how long a lease of another machine is watched."""

    def __init__(self, store: Store, now_ms: Callable[[], int], watch_s: float) -> None:
        self._store, self._now_ms, self._watch_s = store, now_ms, watch_s

    def seems_live(self, known: Lease, job: str) -> bool:
        """For displays: as `is_held`, but by the clocks of both machines, without waiting."""
        return known.binds(lease.this_host(), self._now_ms()) or lease.runs_at(self._store.path, job)

    def refuse_live(self, known: Lease, job: str, lock: JobLock | None, dead: Lease | None) -> None:
        """Raise Held while a runner other than `lock`'s holder has the job. dead: see `watched`."""
        ours = lock is not None and lock.held
        if known.elsewhere(dead) if ours else self.is_held(known, job, dead):
            raise lease.held(job, known, self._now_ms())

    def is_held(self, known: Lease, job: str, dead: Lease | None) -> bool:
        """Whether a runner has it. dead: see `watched`."""
        return known.elsewhere(dead) or lease.is_locked(self._store.path, job)

    def watched(self, job: str, within_s: float = math.inf, seen: Lease | None = None) -> Lease | None:
        """The lease of a dead runner on another machine; None if there is none, or if `within_s` was not enough.

        The renewal time is by the other machine's clock, which may be wrong: so a lease that looks expired is
        watched, and a live runner renews it meanwhile. seen: the lease, if the caller just read it.
        """
        if seen is None:
            with self._store.reading() as db:
                seen = lease.read(db, job)
        if not seen.doubtful(lease.this_host(), self._now_ms()):
            return None
        ends = time.monotonic() + min(self._watch_s, within_s)
        while time.monotonic() < ends:
            time.sleep(min(1.0, self._watch_s))
            with self._store.reading() as db:
                if lease.read(db, job) != seen:
                    return None
        return seen if within_s >= self._watch_s else None
