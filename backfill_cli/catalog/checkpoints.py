"""The promised and the committed epoch of each job, and how far its splits are.

While an epoch is only prepared, the splits that it changes are kept in its own row: the table of splits has the
committed state. Marking the epoch committed writes those splits and no others.

And what the catalog knows of a job's spool; each entry also describes itself on disk.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from backfill_cli.catalog import jobs
from backfill_cli.catalog.store import Store
from backfill_cli.duckdb_instance import DuckDBPyConnection
from backfill_cli.errors import StateConflict, command
from backfill_cli.model.checkpoint import Checkpoint, Recovered
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.plan import EpochPlan
from backfill_cli.model.position import Position, cursor_of, cursor_text
from backfill_cli.model.split import SplitKey, SplitProgress, SplitStatus

if TYPE_CHECKING:
    from backfill_cli.contracts import SpoolEntry

COMMITTED, PREPARED = "committed", "prepared"
_NOT_STARTED = SplitProgress()


def recover(db: DuckDBPyConnection, job: str) -> Recovered:
    """Everything that a runner starts with."""
    standing = jobs.standing(db, job)
    committed = _read(db, job, COMMITTED)
    if committed is None:
        raise StateConflict(
            f"job {job!r} has no committed checkpoint", command(f"resume {job} --from-sink job.toml")
        )
    return Recovered(
        control=standing.control,
        committed=replace(committed, splits=_all_splits(db, job)),
        prepared=_read(db, job, PREPARED),
        last_epoch=standing.last_epoch,
    )


def start_from(db: DuckDBPyConnection, job: str, checkpoint: Checkpoint) -> None:
    """A new job's first checkpoint is committed; splits that it does not name have not started."""
    started = {key: progress for key, progress in checkpoint.splits.items() if progress != _NOT_STARTED}
    _promise(db, job, checkpoint.epoch)
    _commit(db, job, replace(checkpoint, splits=started))


def recommit(db: DuckDBPyConnection, job: str, checkpoint: Checkpoint) -> None:
    """What is committed, with all its splits, is known of these tables only."""
    db.execute("DELETE FROM checkpoints WHERE job = ? AND kind = ?", [job, COMMITTED])
    db.execute("DELETE FROM split_progress WHERE job = ?", [job])
    started = {key: progress for key, progress in checkpoint.splits.items() if progress != _NOT_STARTED}
    _commit(db, job, replace(checkpoint, splits=started))


def prepare(db: DuckDBPyConnection, job: str, checkpoint: Checkpoint) -> None:
    """The epoch is promised: its number never had rows, and no other is promised. A repeat changes nothing."""
    standing = jobs.standing(db, job)
    epoch = checkpoint.epoch
    open_promise = _read(db, job, PREPARED)
    if open_promise is not None and (open_promise.epoch, open_promise.attempt) == (epoch, checkpoint.attempt):
        return
    if open_promise is not None:
        raise _conflict(job, f"commit {open_promise.epoch} is not finished, so commit {epoch} cannot begin")
    if epoch <= standing.promised_epoch or epoch < standing.last_epoch:
        newest = max(standing.promised_epoch, standing.last_epoch)
        raise _conflict(job, f"commit {epoch} is not after commit {newest}, the newest one")
    _write(db, job, PREPARED, checkpoint)
    _promise(db, job, epoch)


def drop_promise(db: DuckDBPyConnection, job: str) -> None:
    """No epoch is prepared; `prepare_again` follows."""
    db.execute("DELETE FROM checkpoints WHERE job = ? AND kind = ?", [job, PREPARED])


def prepare_again(db: DuckDBPyConnection, job: str, checkpoint: Checkpoint) -> None:
    """The epoch is promised, for fewer tables than before if it was promised already."""
    _write(db, job, PREPARED, checkpoint)
    db.execute(
        "UPDATE jobs SET promised_epoch = $1, last_epoch = greatest(last_epoch, $1) WHERE name = $2",
        [checkpoint.epoch, job],
    )


def _promise(db: DuckDBPyConnection, job: str, epoch: int) -> None:
    db.execute("UPDATE jobs SET promised_epoch = $1, last_epoch = $1 WHERE name = $2", [epoch, job])


def stands_at(db: DuckDBPyConnection, job: str, position: Position) -> bool:
    """Whether neither the committed epoch nor a prepared one has moved on from this position in the change log."""
    found = (_read(db, job, kind) for kind in (COMMITTED, PREPARED))
    return all(one is None or one.position == position for one in found)


def reached(db: DuckDBPyConnection, job: str) -> Checkpoint:
    """Up to its position the change log may be acknowledged: the promised epoch's, if there is one."""
    newest = _read(db, job, PREPARED) or _read(db, job, COMMITTED)
    assert newest is not None
    return newest


def mark(db: DuckDBPyConnection, job: str, epoch: int) -> EpochPlan | None:
    """The prepared epoch is marked committed: the sink holds it. Returns its plan; a repeat changes nothing.

    Raises StateConflict if another epoch is prepared, or none.
    """
    if jobs.standing(db, job).epoch == epoch:
        return None
    prepared = _read(db, job, PREPARED)
    if prepared is None or prepared.epoch != epoch:
        there = "none" if prepared is None else str(prepared.epoch)
        raise _conflict(job, f"commit {epoch} cannot be finished: the one begun is {there}")
    db.execute("DELETE FROM checkpoints WHERE job = ?", [job])
    _commit(db, job, prepared)
    return prepared.plan


def drop_prepared(db: DuckDBPyConnection, job: str, epoch: int) -> None:
    """The promise is withdrawn; its number stays used."""
    prepared = _read(db, job, PREPARED)
    if prepared is None or prepared.epoch != epoch:
        raise _conflict(job, f"commit {epoch} was not begun and cannot be undone")
    db.execute("DELETE FROM checkpoints WHERE job = ? AND kind = ?", [job, PREPARED])


def _conflict(job: str, what: str) -> StateConflict:
    return StateConflict(f"job {job!r}: {what}", "see what the catalog holds: " + command(f"status {job}"))


def _commit(db: DuckDBPyConnection, job: str, checkpoint: Checkpoint) -> None:
    _write(db, job, COMMITTED, replace(checkpoint, splits={}, plan=None, staged=None))
    _write_splits(db, job, checkpoint.splits)
    db.execute("UPDATE jobs SET phase = ?, epoch = ? WHERE name = ?", [checkpoint.phase, checkpoint.epoch, job])


def _write(db: DuckDBPyConnection, job: str, kind: str, checkpoint: Checkpoint) -> None:
    db.execute(
        "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            job,
            kind,
            checkpoint.epoch,
            checkpoint.phase,
            checkpoint.token,
            checkpoint.attempt,
            encode(checkpoint.position),
            encode(checkpoint),
        ],
    )


def dropping(db: DuckDBPyConnection, job: str) -> tuple[str, ...]:
    """The tables that left the job with their rows, and perhaps are not dropped yet."""
    keys = "json_keys(body::JSON -> 'dropping')"
    row = db.execute(f"SELECT {keys} FROM checkpoints WHERE job = ? AND kind = 'committed'", [job]).fetchone()
    return tuple((row and row[0]) or ())


def _read(db: DuckDBPyConnection, job: str, kind: str) -> Checkpoint | None:
    row = db.execute("SELECT body FROM checkpoints WHERE job = ? AND kind = ?", [job, kind]).fetchone()
    return None if row is None else decode(Checkpoint, row[0])


def _write_splits(db: DuckDBPyConnection, job: str, splits: Mapping[SplitKey, SplitProgress]) -> None:
    if not splits:
        return
    keys = {"job": job, "tables": [table for table, _ in splits], "ids": [split for _, split in splits]}
    db.execute(
        """DELETE FROM split_progress
           USING (SELECT unnest($tables) AS table_name, unnest($ids) AS split_id) AS moved
           WHERE job = $job AND split_progress.table_name = moved.table_name
             AND split_progress.split_id = moved.split_id""",
        keys,
    )
    db.execute(
        """INSERT INTO split_progress SELECT $job, unnest($tables), unnest($ids), unnest($statuses),
           unnest($cursors::VARCHAR[]), unnest($rows), unnest($epochs), unnest($targets::BIGINT[])""",
        keys
        | {
            "statuses": [progress.status.value for progress in splits.values()],
            "cursors": [cursor_text(progress.cursor) for progress in splits.values()],
            "rows": [progress.rows for progress in splits.values()],
            "epochs": [progress.epoch for progress in splits.values()],
            "targets": [progress.target for progress in splits.values()],
        },
    )


def _all_splits(db: DuckDBPyConnection, job: str) -> dict[SplitKey, SplitProgress]:
    """Every split of the pin in order, including those not started; then partitions added after the pin."""
    found = db.execute(
        """SELECT table_name, split_id, status, "cursor", rows_read, epoch, target
           FROM splits FULL JOIN split_progress USING (job, table_name, split_id)
           WHERE job = ? ORDER BY ordinal NULLS LAST, table_name, length(split_id), split_id""",
        [job],
    ).fetchall()
    statuses = {status.value: status for status in SplitStatus}
    return {
        (table, split): _NOT_STARTED if status is None else SplitProgress(statuses[status], cursor_of(at), *moved)
        for table, split, status, at, *moved in found
    }


def spooled(db: DuckDBPyConnection, job: str) -> tuple["SpoolEntry", ...]:
    from backfill_cli.contracts import SpoolEntry

    found = db.execute("SELECT body FROM spool WHERE job = ? ORDER BY number", [job]).fetchall()
    return tuple(decode(SpoolEntry, body) for (body,) in found)


def holds_any(db: DuckDBPyConnection, job: str) -> bool:
    return db.execute("SELECT 1 FROM spool WHERE job = ? LIMIT 1", [job]).fetchone() is not None


def spool(db: DuckDBPyConnection, job: str, entry: "SpoolEntry") -> None:
    """The entry is recorded; a repeat changes nothing."""
    db.execute("DELETE FROM spool WHERE job = ? AND number = ?", [job, entry.number])
    db.execute(
        "INSERT INTO spool VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            job,
            entry.number,
            entry.attempt,
            entry.due_ms,
            entry.taken_ms,
            entry.changes,
            entry.size_bytes,
            encode(entry.window.up_to),
            encode(entry),
        ],
    )


class ChangeLogs:
    """The change logs of one catalog's jobs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def has_been_read(self, job: str) -> bool:
        """Whether any part of it was decoded: applied, promised or taken into a spool."""
        with self._store.reading() as db:
            at_pin = stands_at(db, job, jobs.definition(db, job).pin.position)
            return not at_pin or holds_any(db, job)

    def is_spooled(self, job: str) -> bool:
        """Whether the job's spool has entries."""
        with self._store.reading() as db:
            return holds_any(db, job)

    def acknowledged(self, job: str) -> Position:
        """The position up to which it may be acknowledged: spool or sink have all before it."""
        with self._store.reading() as db:
            entries = spooled(db, job)
            return entries[-1].window.up_to if entries else reached(db, job).position

    def memory(self, job: str) -> str:
        """What the upstream remembered at the newest checkpoint: see `Source.remembered`."""
        with self._store.reading() as db:
            return reached(db, job).memory
