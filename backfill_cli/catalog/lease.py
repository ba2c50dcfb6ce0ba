"""One runner per job: a lock file shows it on this machine, a lease row to other machines; tokens only grow.

A runner of this machine is live while it holds the lock; one of another machine, while it renews its lease.
"""

import math
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from backfill_cli.duckdb_instance import DuckDBPyConnection
from backfill_cli.errors import Held, command
from backfill_cli.model.units import spell_duration, spell_moment

if TYPE_CHECKING:
    from backfill_cli.catalog.store import Store

# A runner renews every 10 s: it can miss three renewals before another machine considers it dead.
LEASE_MS = 30_000

RUNS_KEPT = 1_000


@dataclass(frozen=True, slots=True)
class Lease:
    """Who runs, or ran, a job. owner, host, pid and times are None once it is released."""

    token: int = 0
    owner: str | None = None
    host: str | None = None
    pid: int | None = None
    claimed_ms: int | None = None
    renewed_ms: int | None = None

    @property
    def is_there(self) -> bool:
        """Whether its process is alive, as far as is known: one on another machine is taken for alive."""
        if self.pid is None or self.host != this_host():
            return self.pid is not None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def binds(self, host: str, now_ms: int) -> bool:
        """Whether a runner on another machine holds it, provided that the clocks of both machines agree.

        On `host` itself the lock file decides, not the clock.
        """
        return self.host not in (None, host) and abs(now_ms - (self.renewed_ms or 0)) < LEASE_MS

    def elsewhere(self, dead: "Lease | None") -> bool:
        """Whether a runner on another machine has it. dead: the lease of a runner known to be dead."""
        return self != dead and self.host not in (None, this_host())

    def doubtful(self, host: str, now_ms: int) -> bool:
        """Whether the lease of a runner on another machine has expired, or its clock just differs."""
        return self.host not in (None, host) and not self.binds(host, now_ms)


@dataclass(frozen=True, slots=True)
class Run:
    """A runner that had the job. ended_ms: when it released the job, None while it has not; of one that died, when
    it was last seen."""

    claimed_ms: int
    ended_ms: int | None
    died: bool


class JobLock:
    """The lock file `<catalog>.<job>.runner`: free as soon as its holder dies, however it dies.

    Taken and tested only while the catalog's own lock is held, so that a mere test never looks like a runner.
    folders: those that were created for it, outermost first. new: whether there was no catalog before.
    """

    def __init__(self, catalog: Path, job: str, folders: Sequence[Path] = (), new: bool = False) -> None:
        self.folders, self.new = folders, new

        # Not local to a thread: a runner may end in another thread than it began in.
        self._lock = FileLock(f"{catalog}.{job}.runner", mode=0o600, thread_local=False)
        self.job = job

    @property
    def held(self) -> bool:
        """Whether this object holds it."""
        return self._lock.is_locked

    def take(self) -> bool:
        """Take the lock if it is free. Returns whether it was."""
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return False
        return True

    def release(self) -> None:
        self._lock.release()

    def remove(self) -> None:
        """The lock is released and its file is gone. Only while the catalog's own lock is held, as for taking it:
        so nobody is between opening the file and locking it.
        """
        if self.held:
            Path(self._lock.lock_file).unlink(missing_ok=True)
            self.release()

    def __enter__(self) -> "JobLock":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def runs_at(catalog: Path, job: str) -> bool:
    """Whether a process on this machine runs the job; the catalog's own file may be gone. Creates no file."""
    return Path(f"{catalog}.{job}.runner").exists() and is_locked(catalog, job)


def is_locked(catalog: Path, job: str) -> bool:
    """Whether a process on this machine runs the job. The catalog's lock must be held."""
    probe = JobLock(catalog, job)
    free = probe.take()
    probe.release()
    return not free


def this_host() -> str:
    return socket.gethostname()


def read(db: DuckDBPyConnection, job: str) -> Lease:
    """The job's lease; token 0 if it was never claimed."""
    row = db.execute(
        "SELECT token, owner, host, pid, claimed_ms, renewed_ms FROM leases WHERE job = ?", [job]
    ).fetchone()
    return Lease() if row is None else Lease(*row)


def write(db: DuckDBPyConnection, job: str, lease: Lease) -> None:
    db.execute("DELETE FROM leases WHERE job = ?", [job])
    db.execute(
        "INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?, ?)",
        [job, lease.token, lease.owner, lease.host, lease.pid, lease.claimed_ms, lease.renewed_ms],
    )


def claim(db: DuckDBPyConnection, job: str, owner: str, now_ms: int, dead: Lease | None) -> int:
    """The lease belongs to this process, with a new token. Raises Held while a runner on another machine has it.

    dead: the lease of a runner that was watched long enough to be considered dead; it no longer counts.
    """
    before = read(db, job)
    if before.elsewhere(dead):
        raise held(job, before, now_ms)
    if before.pid is not None:
        _end_run(db, job, before.token, before.renewed_ms, died=True)
    now = Lease(before.token + 1, owner, this_host(), os.getpid(), now_ms, now_ms)
    write(db, job, now)
    db.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, NULL, false)", [job, now.token, now.host, now.pid, now_ms])
    db.execute("DELETE FROM runs WHERE job = ? AND token <= ?", [job, now.token - RUNS_KEPT])
    return now.token


def release(db: DuckDBPyConnection, job: str, token: int, now_ms: int) -> None:
    """The job has no runner; unchanged if another one has claimed it since."""
    if read(db, job).token == token:
        write(db, job, Lease(token))
        _end_run(db, job, token, now_ms, died=False)


def _end_run(db: DuckDBPyConnection, job: str, token: int, ended_ms: int | None, died: bool) -> None:
    db.execute("UPDATE runs SET ended_ms = ?, died = ? WHERE job = ? AND token = ?", [ended_ms, died, job, token])


def runs(db: DuckDBPyConnection, job: str) -> tuple[Run, ...]:
    """The runners that had the job, oldest first."""
    db.execute("SELECT claimed_ms, ended_ms, died FROM runs WHERE job = ? ORDER BY token", [job])
    return tuple(Run(*row) for row in db.fetchall())


def check(db: DuckDBPyConnection, job: str, token: int) -> Lease:
    """The lease, if it is still this runner's. Raises Held if another one has claimed the job since."""
    lease = read(db, job)
    if lease.token != token:
        raise Held(
            f"job {job!r} was taken over by another runner: {_holder(lease)}",
            command(f"status {job}"),
        )
    return lease


def held(job: str, lease: Lease, now_ms: int) -> Held:
    """The error that names who has the job."""
    if not lease.is_there:  # the lock is held by the next runner, before its claim
        return Held(
            f"job {job!r} is held by a process that this catalog does not know: it is just starting, or "
            "runs with a catalog that was here before",
            command("status"),
        )
    renewed_s = max(0, now_ms - (lease.renewed_ms or 0)) / 1000
    hint = command(f"status {job}") + ", or end that runner: " + command(f"stop {job} --wait")
    if lease.host != this_host():
        hint += f" (if that runner died: try again {LEASE_MS // 1000} s after its last renewal)"
    return Held(f"job {job!r} is held by {_holder(lease)}, last seen {spell_duration(renewed_s)} ago", hint)


def _holder(lease: Lease) -> str:
    if lease.host is None:
        return "released since"
    return f"{lease.owner} on {lease.host}, pid {lease.pid}, since {spell_moment(lease.claimed_ms)}"


class Liveness:
    """Which runners of one catalog are live. watch_s: how long a lease of another machine is watched."""

    def __init__(self, store: "Store", now_ms: Callable[[], int], watch_s: float) -> None:
        self._store, self._now_ms, self._watch_s = store, now_ms, watch_s

    def seems_live(self, known: Lease, job: str) -> bool:
        """For displays: as `is_held`, but by the clocks of both machines, without waiting."""
        return known.binds(this_host(), self._now_ms()) or runs_at(self._store.path, job)

    def refuse_live(self, known: Lease, job: str, lock: JobLock | None, dead: Lease | None) -> None:
        """Raise Held while a runner other than `lock`'s holder has the job. dead: see `watched`."""
        ours = lock is not None and lock.held
        if known.elsewhere(dead) if ours else self.is_held(known, job, dead):
            raise held(job, known, self._now_ms())

    def is_held(self, known: Lease, job: str, dead: Lease | None) -> bool:
        """Whether a runner has it. dead: see `watched`."""
        return known.elsewhere(dead) or is_locked(self._store.path, job)

    def watched(self, job: str, within_s: float = math.inf, seen: Lease | None = None) -> Lease | None:
        """The lease of a dead runner on another machine; None if there is none, or if `within_s` was not enough.

        The renewal time is by the other machine's clock, which may be wrong: so a lease that looks expired is
        watched, and a live runner renews it meanwhile. seen: the lease, if the caller just read it.
        """
        if seen is None:
            with self._store.reading() as db:
                seen = read(db, job)
        if not seen.doubtful(this_host(), self._now_ms()):
            return None
        ends = time.monotonic() + min(self._watch_s, within_s)
        while time.monotonic() < ends:
            time.sleep(min(1.0, self._watch_s))
            with self._store.reading() as db:
                if read(db, job) != seen:
                    return None
        return seen if within_s >= self._watch_s else None


def user() -> str:
    """The user's name; `uid 1000` if the user has none, as in some containers."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def actor() -> str:
    """`user@host`."""
    return f"{user()}@{this_host()}"
