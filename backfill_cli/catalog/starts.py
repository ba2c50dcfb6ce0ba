"""Jobs that are being created, or whose start was killed: what people see meanwhile, what it holds upstream."""

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from backfill_cli.catalog.job_rows import JobRow
from backfill_cli.catalog.lease import LEASE_MS, Lease, this_host
from backfill_cli.catalog.store import Store
from backfill_cli.duckdb_instance import DuckDBPyConnection
from backfill_cli.errors import BackfillError, Held, Hint, NoSuchJob, command, shell
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.job import Control, JobState, Phase
from backfill_cli.model.limit import Limit
from backfill_cli.model.units import spell_moment
from backfill_cli.model.upstream import PendingStart, Pin

_COLUMNS = "job, owner, host, pid, begun_ms, renewed_ms, doing, config, config_file, why"


@dataclass(frozen=True, slots=True)
class Starter:
    """A process that creates a job, or did. config: as stored. config_file: where it was read from.

    doing, why: what it does or waits for, in words and as JSON.
    """

    job: str
    owner: str
    host: str
    pid: int
    begun_ms: int
    renewed_ms: int
    doing: str
    config: str
    config_file: str
    why: str | None

    @property
    def lease(self) -> Lease:
        """As if the process had claimed the job."""
        return Lease(0, self.owner, self.host, self.pid, self.begun_ms, self.renewed_ms)

    def row(self, live: bool) -> JobRow:
        """As a job that people see. live: whether the process is alive."""
        return JobRow(
            name=self.job,
            state=JobState.STARTING,
            why=Limit.stored(self.doing, self.why),
            phase=Phase.SNAPSHOT,
            epoch=0,
            control=Control(),
            progress=None,
            strategy="",
            until="",
            created_ms=self.begun_ms,
            caught_up_ms=None,
            lease=self.lease,
            live=live,
            config_file=self.config_file,
            created=False,
        )

    def refusal(self, live: bool, now_ms: int) -> BackfillError:
        """What a command that needs the job says. live: whether some process has the job's lock.

        The process of the row is named as one to end only if it is the one that has the lock, not a killed start.
        """
        whose = f"pid {self.pid} on {self.host}, since {spell_moment(self.begun_ms)}"
        if live:
            is_holder = self.host == this_host() and self.lease.is_there and now_ms - self.renewed_ms < LEASE_MS
            end = "; or end the start: " + shell(f"kill {self.pid}") if is_holder else ""
            return Held(
                f"job {self.job!r} is being created ({whose}; {self.doing}), and takes no command before that",
                "wait until it runs: " + command(f"status {self.job}") + end,
            )
        return NoSuchJob(
            f"job {self.job!r} does not exist: its start ({whose}) died before the job was created",
            "start it again: "
            + self.again
            + "; or forget that start: "
            + command(f"drop {self.job} --confirm {self.job}"),
        )

    @property
    def is_this_process(self) -> bool:
        """Whether this process is the start."""
        return (self.host, self.pid) == (this_host(), os.getpid())

    @property
    def again(self) -> Hint:
        """The command that starts it."""
        return command(f"start --config {shlex.quote(self.config_file or 'FILE')}")


class Starters:
    """The starts of one catalog. Only the holder of the job's lock (`lock_job`) writes its row."""

    def __init__(self, store: Store, now_ms: Callable[[], int]) -> None:
        self._store, self._now_ms = store, now_ms

    def begin(self, job: str, owner: str, doing: str, config: str, config_file: str) -> None:
        """This process is seen to create the job. Its row replaces that of a killed start."""
        now_ms = self._now_ms()
        ours = Starter(job, owner, this_host(), os.getpid(), now_ms, now_ms, doing, config, config_file, None)
        with self._store.writing(create=True) as db:
            put(db, ours)

    def of(self, job: str) -> Starter | None:
        """The start of this job that is in progress or was killed; None if there is none."""
        if not self._store.exists():
            return None
        with self._store.reading() as db:
            return of(db, job)

    def tell(self, job: str, doing: Limit | str) -> None:
        """What the start is doing now."""
        with self._store.writing() as db:
            db.execute(
                "UPDATE starters SET doing = ?, why = ?, renewed_ms = ? WHERE job = ?",
                [*Limit.of(doing).columns, self._now_ms(), job],
            )

    def renew(self, job: str) -> None:
        """The start is still alive."""
        with self._store.writing() as db:
            db.execute("UPDATE starters SET renewed_ms = ? WHERE job = ?", [self._now_ms(), job])

    def end(self, job: str) -> None:
        """The start is forgotten."""
        with self._store.writing() as db:
            end(db, job)


def every(db: DuckDBPyConnection) -> tuple[Starter, ...]:
    """All, oldest first."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM starters ORDER BY begun_ms, job").fetchall()
    return tuple(Starter(*row) for row in rows)


def of(db: DuckDBPyConnection, job: str) -> Starter | None:
    return next((one for one in every(db) if one.job == job), None)


def put(db: DuckDBPyConnection, starter: Starter) -> None:
    """The row of its job, in place of an earlier one."""
    end(db, starter.job)
    row = [getattr(starter, name) for name in _COLUMNS.split(", ")]
    db.execute(f"INSERT INTO starters ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def end(db: DuckDBPyConnection, job: str) -> None:
    db.execute("DELETE FROM starters WHERE job = ?", [job])


class Starts:
    """The starts of one catalog that are in progress or were interrupted. `lock_job` keeps them apart."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def begin(self, begun: PendingStart) -> None:
        """The start is recorded, in place of an earlier one of its job."""
        self._store.create()
        with self._store.writing() as db:
            end_pending(db, begun.job)
            row = [begun.job, begun.mark, begun.config, encode(begun.pin), begun.begun_ms]
            db.execute("INSERT INTO starts VALUES (?, ?, ?, ?, ?)", row)

    def of(self, job: str) -> PendingStart | None:
        """The start of this job; None if there is none to clean up."""
        if not self._store.exists():
            return None
        with self._store.reading() as db:
            return next((one for one in every_pending(db) if one.job == job), None)

    def look(self) -> tuple[PendingStart, ...]:
        """All, oldest first; the file is never upgraded. Raises UsageError for a file of another version."""
        with self._store.looking() as db:
            return every_pending(db)

    def end(self, job: str) -> None:
        """The start is forgotten: nothing of it is left upstream, or the job owns what it holds."""
        with self._store.writing() as db:
            end_pending(db, job)


def every_pending(db: DuckDBPyConnection) -> tuple[PendingStart, ...]:
    """All, oldest first."""
    rows = db.execute("SELECT job, mark, config, pin, begun_ms FROM starts ORDER BY begun_ms, job").fetchall()
    return tuple(PendingStart(job, mark, config, decode(Pin, pin), ms) for job, mark, config, pin, ms in rows)


def end_pending(db: DuckDBPyConnection, job: str) -> None:
    db.execute("DELETE FROM starts WHERE job = ?", [job])
