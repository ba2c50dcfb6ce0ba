"""The catalog as commands and the engine use it. Every method is short: lock, open, one transaction, close."""

import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_cli.catalog import checkpoints, inbox, job_rows, jobs, lease, ledger, refills, starts, verified
from backfill_cli.catalog.checkpoints import ChangeLogs
from backfill_cli.catalog.job_rows import JobRow
from backfill_cli.catalog.jobs import check_name
from backfill_cli.catalog.lease import JobLock, Liveness
from backfill_cli.catalog.runner import Claim, RunnerStore
from backfill_cli.catalog.starts import Starter, Starters
from backfill_cli.catalog.store import Store, left_behind
from backfill_cli.duckdb_instance import DuckDBPyConnection
from backfill_cli.errors import Held, NoSuchJob, UsageError, command
from backfill_cli.model.change import Change
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Owner, Totals
from backfill_cli.model.job import REDEFINES, Command, Control, Verb
from backfill_cli.model.limit import Limit
from backfill_cli.model.refill import Extent

if TYPE_CHECKING:
    from backfill_cli.contracts import JobDefinition


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


SHOWN_REFILLS = 3
"""Of those that have ended, with those that are pending."""


class Catalog:
    """The jobs of one catalog file.

    path: created with the first job. now_ms: physical time. wait_s: how long to wait for other processes. watch_s:
    how long, by our clock, a lease of another machine must stay unchanged before its runner counts as dead; None:
    the length of a lease.
    """

    def __init__(
        self,
        path: Path,
        now_ms: Callable[[], int] = wall_clock_ms,
        wait_s: float = 30.0,
        watch_s: float | None = None,
    ) -> None:
        self._store = Store(path, wait_s)
        self._now_ms = now_ms
        self._liveness = Liveness(self._store, now_ms, lease.LEASE_MS / 1000 if watch_s is None else watch_s)

    @property
    def path(self) -> Path:
        return self._store.path

    @property
    def starts(self) -> starts.Starts:
        return starts.Starts(self._store)

    @property
    def starters(self) -> Starters:
        return Starters(self._store, self._now_ms)

    @property
    def change_logs(self) -> ChangeLogs:
        return ChangeLogs(self._store)

    @property
    def verified(self) -> verified.Verifies:
        return verified.Verifies(self._store, self._now_ms)

    @property
    def refills(self) -> refills.Refills:
        return refills.Refills(self._store)

    def identity(self) -> Owner | None:
        """What a sink stores of this catalog beside the markers of its jobs; None if there is no file yet."""
        if not self._store.exists():
            return None
        with self._store.reading() as db:
            found = db.execute("SELECT id FROM catalog_identity").fetchone()
        assert found is not None
        return Owner(found[0], lease.this_host(), str(self.path))

    def made(self) -> Owner:
        """The identity of this catalog, whose file now exists; a new one is empty."""
        self._store.create()
        identity = self.identity()
        assert identity is not None
        return identity

    def create_job(self, definition: "JobDefinition", control: Control, checkpoint: Checkpoint) -> None:
        """The job exists, its checkpoint committed. Raises UsageError if the name is taken or not valid."""
        check_name(definition.name)
        self._store.create()
        with self._store.writing() as db:
            jobs.create(db, definition, control, self._now_ms())
            checkpoints.start_from(db, definition.name, checkpoint)
            starts.end(db, definition.name)

    def rebuild(
        self,
        definition: "JobDefinition",
        checkpoint: Checkpoint,
        control: Control,
        token: int,
        lock: JobLock | None = None,
    ) -> None:
        """The job is as its sink describes it, whatever the catalog had; the next claim's token is above `token`.

        lock: from `lock_job`, if already held. Raises Held while another runner has the job.
        """
        job = check_name(definition.name)
        self._store.create()
        dead = self._liveness.watched(job)
        with self._store.writing() as db:
            self._liveness.refuse_live(lease.read(db, job), job, lock, dead)
            jobs.forget(db, job)
            jobs.create(db, definition, control, self._now_ms())
            checkpoints.start_from(db, job, checkpoint)
            refills.ask_again(db, definition, checkpoint.epoch, self._now_ms())
            lease.write(db, job, lease.Lease(max(token, lease.read(db, job).token)))

    def definition(self, job: str) -> "JobDefinition":
        check_name(job)
        with self._store.reading() as db:
            return jobs.definition(db, job)

    def sink_schemas(self, job: str) -> Mapping[str, str]:
        """The columns that the job's tables have in the sink by now: table -> Spark schema as JSON."""
        with self._store.reading() as db:
            return checkpoints.reached(db, check_name(job)).sink_schemas

    def jobs(self) -> tuple[JobRow, ...]:
        """All jobs, oldest first; empty if there is no catalog."""
        if not self._store.exists():
            return ()
        with self._store.reading() as db:
            return self._rows(db)

    def listed(self) -> tuple[JobRow, ...]:
        """As `jobs`, and those that are being created, or whose start was killed before they were."""
        if not self._store.exists():
            return ()
        with self._store.reading() as db:
            return self._listed(db)

    def look(self) -> tuple[JobRow, ...]:
        """As `jobs`, but the file is never upgraded. Raises UsageError for a file of another version."""
        if not self._store.exists():
            return ()
        with self._store.looking() as db:
            return self._rows(db)

    def names(self) -> tuple[str, ...]:
        """The jobs' names, oldest first; the file is never upgraded. Raises as `look` does."""
        if not self._store.exists():
            return ()
        with self._store.looking() as db:
            return jobs.names(db)

    def sections(self, job: str) -> Mapping[str, dict[str, Any]]:
        """What a job's config says of each table; empty if there is no such job. Raises as `look` does."""
        if not self._store.exists():
            return {}
        with self._store.looking() as db:
            return jobs.sections(db, job)

    def _rows(self, db: DuckDBPyConnection) -> tuple[JobRow, ...]:
        return tuple(
            replace(
                row,
                live=self._liveness.seems_live(row.lease, row.name),
                waiting=inbox.waiting(db, row.name),
                refused=inbox.refused_last(db, row.name),
                verified=verified.newest(db, row.name),
                refills=refills.newest(db, row.name, SHOWN_REFILLS),
                dropping=checkpoints.dropping(db, row.name),
            )
            for row in job_rows.rows(db)
        )

    def _listed(self, db: DuckDBPyConnection) -> tuple[JobRow, ...]:
        rows = self._rows(db)
        made = {row.name for row in rows}
        return (*rows, *(one.row(self._starts_now(one)) for one in starts.every(db) if one.job not in made))

    def _starts_now(self, starter: Starter) -> bool:
        """Whether the process of a start is alive. The catalog's lock is held."""
        return self._liveness.seems_live(starter.lease, starter.job)

    def _require(self, db: DuckDBPyConnection, job: str) -> None:
        """The job exists. Raises NoSuchJob, Held for one that is being created."""
        if job in jobs.names(db):
            return
        starter = starts.of(db, job)
        raise (
            jobs.no_such_job(db, job)
            if starter is None
            else starter.refusal(self._starts_now(starter), self._now_ms())
        )

    def epoch(self, job: str) -> int:
        """The job's last committed epoch, 0 for none. Raises NoSuchJob."""
        with self._store.reading() as db:
            return jobs.standing(db, check_name(job)).epoch

    def listed_job(self, name: str) -> JobRow:
        """As `job` for a name, also one that is being created, or whose start was killed before it was."""
        check_name(name)
        with self._store.reading() as db:
            return _named(name, self._listed(db))

    def job(self, name: str | None) -> JobRow:
        """The job of this name; without a name, the only job that has not ended.

        Raises NoSuchJob listing the known names, nearest first; UsageError if several jobs have not ended; Held
        for one that is being created.
        """
        if name is not None:
            check_name(name)
            with self._store.reading() as db:
                self._require(db, name)
                return next(row for row in self._rows(db) if row.name == name)
        known = self.jobs()
        active = [row.name for row in known if not row.ended]
        if len(active) > 1:
            raise UsageError(
                f"several jobs are active: {', '.join(active)}", f"name one of them, for example: {active[0]}"
            )
        if not active:
            ended = ", ".join(f"{row.name} ({row.state})" for row in known) or "none"
            raise NoSuchJob(f"no job is active in {self.path}; known jobs: {ended}", "name the job")
        return next(row for row in known if row.name == active[0])

    def post(
        self,
        job: str,
        verb: Verb,
        rate: float | None,
        by: str,
        now_ms: int,
        seen: lease.Lease | None = None,
        guard: str = "",
        lifts: str = "",
        payload: str = "",
    ) -> int:
        """The command is in the job's inbox or, without a live runner, has been applied. Returns its id.

        seen: the job's lease, if the caller just read it; this saves opening the file once. guard, lifts, payload:
        see Command. Raises Held for a command that redefines the job while one waits that it cannot follow; a
        `set` takes the place of one.
        """

        def add(db: DuckDBPyConnection, held: bool) -> Command:
            if verb in REDEFINES:
                self._give_way(db, job, Command(0, verb, by, now_ms, payload=payload), held)
            return inbox.add(db, job, verb, rate, by, now_ms, guard, lifts, payload)

        return self._posted(job, now_ms, seen, add).id

    def refill(
        self, job: str, table: str, extent: Extent, by: str, now_ms: int, seen: lease.Lease | None = None
    ) -> tuple[int, int]:
        """The refill is recorded, and the command for it is in the inbox, as by `post`. Returns the ids of both.

        Raises UsageError while another refill of the table is pending.
        """

        def add(db: DuckDBPyConnection, _held: bool) -> Command:
            refills.require_none(db, job, table)
            refill = refills.record(db, job, table, extent, by, now_ms)
            return inbox.add(db, job, Verb.REFILL, None, by, now_ms, payload=str(refill))

        command = self._posted(job, now_ms, seen, add)
        return int(command.payload), command.id

    def put_back(
        self, job: str, table: str, by: str, now_ms: int, seen: lease.Lease | None = None
    ) -> tuple[int, int]:
        """As `refill`, of all of a table that is set aside, which a run puts back first."""

        def add(db: DuckDBPyConnection, held: bool) -> Command:
            refills.require_none(db, job, table)
            self._give_way(db, job, Command(0, Verb.PUT_BACK, by, now_ms), held)
            refill = refills.record(db, job, table, Extent(), by, now_ms)
            change = Change("", table=table, refill=refill, mark=uuid.uuid4().hex[:12])
            return inbox.add(db, job, Verb.PUT_BACK, None, by, now_ms, payload=change.stored)

        command = self._posted(job, now_ms, seen, add)
        refill = Change.read(command.payload).refill
        assert refill is not None
        return refill, command.id

    def _posted(
        self, job: str, now_ms: int, seen: lease.Lease | None, add: Callable[[DuckDBPyConnection, bool], Command]
    ) -> Command:
        """add: puts the command into the inbox; is told whether a live runner has the job, and would take it."""
        check_name(job)
        dead = self._liveness.watched(job, seen=seen)
        with self._store.writing() as db:
            self._require(db, job)
            held = self._liveness.is_held(lease.read(db, job), job, dead)
            command = add(db, held)
            if not held:
                inbox.apply(db, job, now_ms)
        inbox.touch(self.path)
        return command

    def _give_way(self, db: DuckDBPyConnection, job: str, asked: Command, held: bool) -> None:
        """No other command waits to redefine the job, or such as it can follow. Raises Held.

        held: whether a live runner has the job. Tables, and derived ones, join and leave one after the other, by
        one run; so tables are put back.
        """
        waiting, verb = inbox.redefining(db, job), asked.verb
        if verb is not Verb.SET:
            after = (Verb.PUT_BACK,) if verb is Verb.PUT_BACK else (Verb.SET, Verb.ADD, Verb.REMOVE)
            if others := [one for one in waiting if one.verb not in after]:
                raise waits_first(job, others[0], held)
            return
        if others := [one for one in waiting if one.verb is not verb]:
            raise waits_first(job, others[0], held)
        for first in waiting:
            inbox.take(db, job, (first,), jobs.standing(db, job).epoch, asked.at_ms)
            inbox.refuse(db, job, first, Limit("a later set took its place"))

    def refusal(self, job: str, command_id: int) -> Limit | None:
        """Why a command that was taken has changed nothing; None if it has."""
        with self._store.reading() as db:
            return inbox.refusal(db, check_name(job), command_id)

    def ask(self) -> None:
        """Runners report on their jobs at their next barrier; an idle one would wait for its next heartbeat."""
        if self._store.exists():
            inbox.touch(self.path)

    def settle(self, job: str, now_ms: int, within_s: float) -> None:
        """The commands waiting in the job's inbox have been applied, unless a live runner can take them.

        within_s: limit on finding out whether a runner on another machine is live; beyond it nothing is applied.
        """
        check_name(job)
        dead = self._liveness.watched(job, within_s)
        with self._store.writing() as db:
            if not self._liveness.is_held(lease.read(db, job), job, dead):
                inbox.apply(db, job, now_ms)

    def taken(self, job: str, command_id: int) -> int | None:
        """The epoch of the barrier that took the command; None while the command waits."""
        check_name(job)
        with self._store.reading() as db:
            return inbox.taken(db, job, command_id)

    def redefined(self, job: str) -> tuple[Command, ...]:
        """The taken commands that have changed what the job is, oldest first, as far as they are kept."""
        with self._store.reading() as db:
            return inbox.redefined(db, job)

    def ledger(self, job: str, last: int) -> tuple[EpochRecord, ...]:
        """The newest `last` epochs, oldest first."""
        check_name(job)
        with self._store.reading() as db:
            return ledger.newest(db, job, last)

    def runs(self, job: str) -> tuple[lease.Run, ...]:
        """The runners that had the job, oldest first."""
        check_name(job)
        with self._store.reading() as db:
            return lease.runs(db, job)

    def totals(self, job: str) -> Totals:
        """The job's totals over its whole life."""
        check_name(job)
        with self._store.reading() as db:
            return ledger.totals(db, job)

    def close_look(
        self, job: str, at_most: int, last: int
    ) -> tuple[JobRow, tuple[job_rows.SplitGroup, ...], tuple[EpochRecord, ...], tuple[inbox.Taken, ...]]:
        """One job at one moment, also one that is being created: its row, the progress of its tables (of a single
        table: of up to `at_most` groups of its splits), its newest `last` epochs, oldest first, and the commands
        that these took.

        Raises NoSuchJob.
        """
        check_name(job)
        with self._store.reading() as db:
            row = _named(job, self._listed(db))
            newest = ledger.newest(db, job, last)
            taken = inbox.taken_after(db, job, newest[0].epoch - 1) if newest else ()
            return row, job_rows.split_groups(db, job, at_most), newest, taken

    def splits(self, job: str) -> tuple[job_rows.SplitRow, ...]:
        """How far each split of a job is."""
        check_name(job)
        with self._store.reading() as db:
            return job_rows.split_rows(db, job)

    def news(self, job: str, after: int) -> tuple[JobRow, Totals, tuple[inbox.Taken, ...]]:
        """One job at one moment: its row, the totals of its ledger, and the commands that were taken after epoch
        `after`. Raises NoSuchJob."""
        check_name(job)
        with self._store.reading() as db:
            return _named(job, self._rows(db)), ledger.totals(db, job), inbox.taken_after(db, job, after)

    def lock_job(self, job: str) -> JobLock:
        """While the lock is held, nobody else can run or create the job. Raises Held. Use `with`."""
        check_name(job)
        folders = self._store.make_folder()
        with self._store.locked("lock"):
            lock = JobLock(self.path, job, folders, new=not self.path.exists())
            if lock.take():
                return lock
        starter = self.starters.of(job)
        known = {row.name: row.lease for row in self.jobs()}
        if starter is not None and job not in known:
            raise starter.refusal(live=True, now_ms=self._now_ms())
        raise lease.held(job, known.get(job, lease.Lease()), self._now_ms())

    def left_behind(self) -> dict[str, bool]:
        """See store.left_behind."""
        return left_behind(self._store)

    def leave_nothing(self, lock: JobLock, before: Starter | None = None) -> None:
        """Of a job that was never created nothing is left: no row, no lock file, no catalog made for it.

        before: the killed start whose row the job's start had replaced; it is put back.
        """
        if self.path.exists():
            with self._store.writing() as db:
                if lock.job in jobs.names(db):
                    return
                row = starts.of(db, lock.job)
                if row is not None and row.is_this_process:
                    starts.end(db, lock.job)
                    if before is not None:
                        starts.put(db, before)
            if lock.new:
                self._store.remove(_unused)
        with self._store.locked("lock"):
            lock.remove()
        if not self.path.exists():
            self._store.remove_locks()
            for folder in reversed(lock.folders):
                with suppress(OSError):  # somebody else uses it by now
                    folder.rmdir()

    def claim(self, job: str, owner: str, now_ms: int, lock: JobLock | None = None) -> Claim:
        """This process may run the job. lock: from `lock_job`, if already held; the claim releases it.

        Raises Held naming the holder, NoSuchJob. A stop requested of an earlier runner is cleared.
        """
        check_name(job)
        taken = lock or JobLock(self.path, job)
        try:
            dead = self._liveness.watched(job)
            with self._store.writing() as db:
                jobs.standing(db, job)
                if not taken.held and not taken.take():
                    raise lease.held(job, lease.read(db, job), now_ms)
                token = lease.claim(db, job, owner, now_ms, dead)
                inbox.forget_stops(db, job, now_ms)
        except BaseException:
            if lock is None:
                taken.release()
            raise
        return Claim(RunnerStore(self._store, job, token, self._now_ms), token, taken)

    def drop(self, job: str, lock: JobLock | None = None) -> None:
        """The catalog has nothing of the job any more. Raises Held while a runner other than `lock`'s has it."""
        check_name(job)
        dead = self._liveness.watched(job)
        with self._store.writing() as db:
            jobs.standing(db, job)
            self._liveness.refuse_live(lease.read(db, job), job, lock, dead)
            jobs.forget(db, job)
            starts.end_pending(db, job)
            starts.end(db, job)


def _named(job: str, rows: tuple[JobRow, ...]) -> JobRow:
    """The job's row. Raises NoSuchJob."""
    found = {row.name: row for row in rows}
    if job not in found:
        raise jobs.unknown(job, tuple(found))
    return found[job]


def _unused(db: DuckDBPyConnection) -> bool:
    """Whether the catalog has never had a job, and none is being created."""
    row = db.execute("SELECT (SELECT count(*) FROM leases) + (SELECT count(*) FROM jobs)").fetchone()
    assert row is not None
    return row[0] == 0 and not starts.every_pending(db) and not starts.every(db)


def waits_first(job: str, first: Command, live: bool) -> Held:
    """The error for a command that cannot follow this one, which waits. live: whether a runner has the job."""
    by = f"status {job}" if live else f"resume {job} --detach"
    return Held(
        f"job {job!r}: {first.said} waits, requested by {first.by}, and changes what the job is",
        "a run takes it first: " + command(by) + "; then try again",
    )
