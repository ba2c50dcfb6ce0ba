"""The catalog as one runner uses it: `contracts.JobStore`, each method one transaction that checks the lease."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING

from backfill_cli.catalog import checkpoints, inbox, jobs, lease, ledger, refills, verified
from backfill_cli.catalog.lease import JobLock
from backfill_cli.catalog.store import Store
from backfill_cli.duckdb_instance import DuckDBPyConnection
from backfill_cli.errors import BackfillError
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Progress, Recovered
from backfill_cli.model.job import Command, Control, JobState, Verb
from backfill_cli.model.limit import Limit
from backfill_cli.model.refill import Refill

if TYPE_CHECKING:
    from backfill_cli.contracts import JobDefinition, SinkTable, SpoolEntry
    from backfill_cli.model.aside import Aside


class RunnerStore:
    """One job's part of the catalog, for the runner that holds its lease. Safe to use from several threads."""

    def __init__(self, store: Store, job: str, token: int, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = now_ms
        self._job = job
        self._token = token
        self._mutex = Lock()
        self._stamp: inbox.Stamp = None
        self._waiting: tuple[Command, ...] | None = None
        self._asked = False

    def load(self) -> Recovered:
        with self._mutex, self._store.reading() as db:
            lease.check(db, self._job, self._token)
            return checkpoints.recover(db, self._job)

    def commands(self) -> tuple[Command, ...]:
        """Opens the file only if the wake file's stamp has changed since the last call."""
        with self._mutex:
            now = inbox.stamp(self._store.path)
            if self._waiting is None or now != self._stamp:
                with self._store.reading() as db:
                    self._waiting = inbox.waiting(db, self._job)
                self._stamp, self._asked = now, True
            return self._waiting

    def asked(self) -> bool:
        asked, self._asked = self._asked, False
        return asked

    def take(self, commands: Sequence[Command], control: Control, state: JobState, record: EpochRecord) -> None:
        with self._ours() as db:
            inbox.take(db, self._job, commands, record.epoch, record.committed_ms)
            jobs.set_control(db, self._job, control)
            held = control.pausing if state == JobState.PAUSED else None
            jobs.become(db, self._job, state, "" if held is None else held.by)
            jobs.use_epoch(db, self._job, record.epoch)
            ledger.record(db, self._job, record)

    def prepare(self, checkpoint: Checkpoint, committed: EpochRecord | None, progress: Progress | None) -> None:
        with self._ours() as db:
            if committed is not None:
                self._mark(db, committed)
            checkpoints.prepare(db, self._job, checkpoint)
            if progress is not None:
                jobs.set_progress(db, self._job, progress)

    def mark(self, committed: EpochRecord, progress: Progress | None) -> None:
        with self._ours() as db:
            self._mark(db, committed)
            if progress is not None:
                jobs.set_progress(db, self._job, progress)

    def unprepare(self, epoch: int) -> None:
        with self._ours() as db:
            checkpoints.drop_prepared(db, self._job, epoch)

    def heartbeat(self, now_ms: int, progress: Progress | None) -> None:
        with self._ours() as db:
            ours = lease.read(db, self._job)
            lease.write(db, self._job, replace(ours, renewed_ms=now_ms))
            if progress is not None:
                jobs.set_progress(db, self._job, progress)

    def redefine(
        self,
        config: str,
        until: str,
        file: str,
        aside: Sequence["Aside"] | None = None,
        started_ms: int | None = None,
        asked: Sequence[Command] = (),
    ) -> tuple[Command, ...]:
        """Later runs use this config and end at `until`. file: the one it was read from. aside: None: as it is.

        started_ms: when a start gave it; None for a resume. What a `set` waits to give is older then, and refused.
        asked: what the first barrier is to take of it, such as a rate; a later start, for which the config has not
        changed, finds it in the inbox. Returns those that were refused.
        """
        with self._ours() as db:
            older = () if started_ms is None else self._give_way(db, started_ms)
            db.execute(
                "UPDATE jobs SET config = ?, until = ?, config_file = ? WHERE name = ?",
                [config, until, file or None, self._job],
            )
            if aside is not None:
                jobs.set_aside(db, self._job, aside)
            for one in asked:
                inbox.add(db, self._job, one.verb, one.rate, one.by, one.at_ms, payload=one.payload)
        return older

    def _give_way(self, db: DuckDBPyConnection, now_ms: int) -> tuple[Command, ...]:
        """No `set` waits any more. Returns those that did."""
        older = tuple(one for one in inbox.redefining(db, self._job) if one.verb is Verb.SET)
        for one in older:
            inbox.take(db, self._job, (one,), jobs.standing(db, self._job).epoch, now_ms)
            inbox.refuse(db, self._job, one, Limit("a later start took its place"))
        return older

    def redefined(
        self,
        command: Command,
        record: EpochRecord,
        before: "JobDefinition",
        after: "JobDefinition",
        control: Control,
        committed: Checkpoint | None = None,
        promise: Checkpoint | None = None,
    ) -> None:
        """The command is taken, and the job has its new definition, and that control.

        committed: what is committed, with all splits, where the job has other tables; None: as it was. promise:
        the next epoch, prepared.
        """
        with self._ours() as db:
            inbox.take(db, self._job, (command,), record.epoch, record.committed_ms)
            jobs.redefine(db, before, after)
            mine = [*(table.name for table in after.tables), *(one.table for one in after.aside)]
            refills.leave(db, self._job, mine, record.committed_ms)
            verified.leave(db, self._job, [*mine, *(one.name for one in after.derived)])
            jobs.set_control(db, self._job, control)
            if committed is not None:
                checkpoints.recommit(db, self._job, committed)
            jobs.use_epoch(db, self._job, record.epoch)
            if promise is not None:
                checkpoints.prepare(db, self._job, promise)
            ledger.record(db, self._job, record)

    def set_aside(
        self,
        record: EpochRecord,
        before: "JobDefinition",
        after: "JobDefinition",
        committed: Checkpoint,
        promise: Checkpoint | None,
    ) -> None:
        """The job goes on as `after`, without a table. committed: with all splits. promise: the prepared epoch,
        which may have been prepared with that table; None for none."""
        with self._ours() as db:
            jobs.redefine(db, before, after)
            refills.fail(db, self._job, [one.name for one in after.tables], after.aside, record.committed_ms)
            checkpoints.recommit(db, self._job, committed)
            checkpoints.drop_promise(db, self._job)
            jobs.use_epoch(db, self._job, record.epoch)
            if promise is not None:
                checkpoints.prepare_again(db, self._job, promise)
            ledger.record(db, self._job, record)

    def refused(self, command: Command, record: EpochRecord, why: Limit) -> None:
        """The command is taken, and has changed nothing."""
        with self._ours() as db:
            inbox.take(db, self._job, (command,), record.epoch, record.committed_ms)
            inbox.refuse(db, self._job, command, why)
            refills.refused(db, self._job, command, why, record.committed_ms)
            jobs.use_epoch(db, self._job, record.epoch)
            ledger.record(db, self._job, record)

    def widen(self, tables: Sequence["SinkTable"]) -> None:
        """The job writes these tables from now on."""
        with self._ours() as db:
            db.execute("UPDATE jobs SET sink_tables = ? WHERE name = ?", [jobs.spell_tables(tables), self._job])

    def become(self, state: JobState, reason: Limit | str) -> None:
        with self._ours() as db:
            jobs.become(db, self._job, state, reason)

    def spooled(self) -> tuple["SpoolEntry", ...]:
        with self._mutex, self._store.reading() as db:
            return checkpoints.spooled(db, self._job)

    def spool(self, entry: "SpoolEntry") -> None:
        with self._ours() as db:
            checkpoints.spool(db, self._job, entry)

    def trim(self, number: int) -> None:
        with self._ours() as db:
            db.execute("DELETE FROM spool WHERE job = ? AND number <= ?", [self._job, number])

    def refills(self) -> tuple[Refill, ...]:
        with self._mutex, self._store.reading() as db:
            return tuple(one for one in refills.pending(db, self._job) if one.since is not None)

    def note_refill(self, refill: Refill) -> None:
        with self._ours() as db:
            refills.note(db, self._job, refill)

    def release(self) -> None:
        """The lease is released; unchanged if another runner has claimed the job since."""
        with self._mutex, self._store.writing() as db:
            lease.release(db, self._job, self._token, self._now_ms())

    def _mark(self, db: DuckDBPyConnection, committed: EpochRecord) -> None:
        plan = checkpoints.mark(db, self._job, committed.epoch)
        if plan is not None and plan.refill is not None:
            refills.applied(db, self._job, plan.refill, committed.epoch, committed.committed_ms)
        ledger.record(db, self._job, committed)

    @contextmanager
    def _ours(self) -> Iterator[DuckDBPyConnection]:
        """A transaction under our lease. It reads the inbox, too: a poster may die before it touches the file."""
        with self._mutex:
            with self._store.writing() as db:
                lease.check(db, self._job, self._token)
                yield db
                waiting = inbox.waiting(db, self._job)
            self._waiting = waiting


class Claim:
    """A runner's hold on a job, until `with` ends or the process dies.

    token: larger than any before it. store: the job's part of the catalog. lock: the held lock file.
    """

    def __init__(self, store: RunnerStore, token: int, lock: JobLock) -> None:
        self.store = store
        self.token = token
        self.lock = lock

    def __enter__(self) -> "Claim":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            # A lease that cannot be released now expires in 30 s; the error that came before matters more.
            with suppress(BackfillError):
                self.store.release()
        finally:
            self.lock.release()
