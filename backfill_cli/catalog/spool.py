"""What the catalog knows of a job's spool; each entry also describes itself on disk."""

from typing import TYPE_CHECKING

from backfill_cli.catalog import checkpoints, jobs
from backfill_cli.catalog.files import DuckDBPyConnection
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.position import Position

if TYPE_CHECKING:
    from backfill_cli.catalog.store import Store
    from backfill_cli.contracts import SpoolEntry


def entries(db: DuckDBPyConnection, job: str) -> tuple["SpoolEntry", ...]:
    from backfill_cli.contracts import SpoolEntry

    found = db.execute("SELECT body FROM spool WHERE job = ? ORDER BY number", [job]).fetchall()
    return tuple(decode(SpoolEntry, body) for (body,) in found)


def holds_any(db: DuckDBPyConnection, job: str) -> bool:
    return db.execute("SELECT 1 FROM spool WHERE job = ? LIMIT 1", [job]).fetchone() is not None


def add(db: DuckDBPyConnection, job: str, entry: "SpoolEntry") -> None:
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


def trim(db: DuckDBPyConnection, job: str, number: int) -> None:
    """The entries up to this number are forgotten: they are in the sink."""
    db.execute("DELETE FROM spool WHERE job = ? AND number <= ?", [job, number])


class ChangeLogs:
    """The change logs of one catalog's jobs."""

    def __init__(self, store: "Store") -> None:
        self._store = store

    def has_been_read(self, job: str) -> bool:
        """Whether any part of it was decoded: applied, promised or taken into a spool."""
        with self._store.reading() as db:
            at_pin = checkpoints.stands_at(db, job, jobs.definition(db, job).pin.position)
            return not at_pin or holds_any(db, job)

    def is_spooled(self, job: str) -> bool:
        """Whether the job's spool has entries."""
        with self._store.reading() as db:
            return holds_any(db, job)

    def acknowledged(self, job: str) -> Position:
        """The position up to which it may be acknowledged: spool or sink have all before it."""
        with self._store.reading() as db:
            spooled = entries(db, job)
            return spooled[-1].window.up_to if spooled else checkpoints.reached(db, job)
