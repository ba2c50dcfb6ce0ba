"""Starts that hold something upstream before their jobs are in the catalog, recorded in case they are killed."""

from typing import TYPE_CHECKING

from backfill_cli.model.begun import Begun
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.upstream import Pin

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from backfill_cli.catalog.store import Store


class Starts:
    """The starts of one catalog that are in progress or were interrupted. `lock_job` keeps them apart."""

    def __init__(self, store: "Store") -> None:
        self._store = store

    def begin(self, begun: Begun) -> None:
        """The start is recorded, in place of an earlier one of its job."""
        self._store.create()
        with self._store.writing() as db:
            end(db, begun.job)
            row = [begun.job, begun.mark, begun.config, encode(begun.pin), begun.begun_ms]
            db.execute("INSERT INTO starts VALUES (?, ?, ?, ?, ?)", row)

    def of(self, job: str) -> Begun | None:
        """The start of this job; None if there is none to clean up."""
        if not self._store.exists():
            return None
        with self._store.reading() as db:
            return next((one for one in every(db) if one.job == job), None)

    def look(self) -> tuple[Begun, ...]:
        """All, oldest first; the file is never upgraded. Raises UsageError for a file of another version."""
        with self._store.looking() as db:
            return every(db)

    def end(self, job: str) -> None:
        """The start is forgotten: nothing of it is left upstream, or the job owns what it holds."""
        with self._store.writing() as db:
            end(db, job)


def every(db: "DuckDBPyConnection") -> tuple[Begun, ...]:
    """All, oldest first."""
    rows = db.execute("SELECT job, mark, config, pin, begun_ms FROM starts ORDER BY begun_ms, job").fetchall()
    return tuple(Begun(job, mark, config, decode(Pin, pin), ms) for job, mark, config, pin, ms in rows)


def end(db: "DuckDBPyConnection", job: str) -> None:
    db.execute("DELETE FROM starts WHERE job = ?", [job])
