"""What the last `verify` found for each table, shown by `status`; and what an unfinished one found equal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_cli.catalog import jobs
from backfill_cli.catalog.store import Store
from backfill_cli.duckdb_instance import DuckDBPyConnection

if TYPE_CHECKING:
    from backfill_cli.model.verify import TableVerdict, VerifyReport

EQUAL, DIFFERENT, NONE = "equal", "different", "none"


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verify found last in one table. epoch: the checkpoint, 0 where none has compared it; share: of the
    keys; None: all.

    not_compared: how many keys changed upstream since the checkpoint and could not be compared. rows: of the sink
    that were compared; None for a verify of an older version.
    """

    table: str
    epoch: int
    at_ms: int
    share: float | None
    missing: int
    extra: int
    changed: int
    equal: bool
    not_compared: int = 0
    rows: int | None = None


class Verifies:
    """The results of `verify` for one catalog's jobs, finished and unfinished."""

    def __init__(self, store: Store, now_ms: Callable[[], int]) -> None:
        self._store, self._now_ms = store, now_ms

    def note(self, report: "VerifyReport") -> None:
        """It replaces what was recorded of the tables that it compared; the next verify reads everything.

        Of those that it left out, what was found before stays; nothing does of tables that are not the job's now.
        """
        at_ms = self._now_ms()
        with self._store.writing() as db:
            jobs.standing(db, report.job)
            _forget_equal(db, report.job)
            others = [*report.left_out, *report.aside]
            stays = "list_contains(?, table_name)"
            db.execute(f"DELETE FROM verified WHERE job = ? AND NOT {stays}", [report.job, others])
            for table in others:
                db.execute(
                    """INSERT INTO verified SELECT $1, $2, 0, 0, NULL, 0, 0, 0, $3, 0, NULL
                       WHERE NOT EXISTS (FROM verified WHERE job = $1 AND table_name = $2)""",
                    [report.job, table, NONE],
                )
            for one in report.tables:
                if not one.filled:
                    continue
                db.execute(
                    "INSERT INTO verified VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    [
                        report.job,
                        one.table,
                        report.epoch,
                        at_ms,
                        report.sample,
                        one.missing,
                        one.extra,
                        one.changed,
                        EQUAL if one.equal else DIFFERENT,
                        report.not_compared.get(one.table, 0),
                        one.rows_sink,
                    ],
                )

    def note_equal(self, job: str, basis: str, equal: "TableVerdict") -> None:
        """An unfinished verify found a table equal: recorded for this basis only, until a verify ends."""
        with self._store.writing() as db:
            jobs.standing(db, job)
            db.execute(
                "DELETE FROM compared WHERE job = ? AND (basis != ? OR table_name = ?)", [job, basis, equal.table]
            )
            told = [job, equal.table, basis, self._now_ms(), equal.rows_upstream, equal.rows_sink]
            db.execute("INSERT INTO compared VALUES (?, ?, ?, ?, ?, ?)", told)

    def equal(self, job: str, basis: str) -> tuple[tuple[str, int, int, int], ...]:
        """What `note_equal` recorded for this basis: (table, rows upstream, rows in the sink, when in ms)."""
        with self._store.reading() as db:
            found = db.execute(
                "SELECT table_name, rows_upstream, rows_sink, at_ms FROM compared WHERE job = ? AND basis = ?",
                [job, basis],
            ).fetchall()
        return tuple((name, upstream, sink, at_ms) for name, upstream, sink, at_ms in found)

    def forget_equal(self, job: str) -> None:
        """The job's next verify reads every table."""
        with self._store.writing() as db:
            _forget_equal(db, job)


def leave(db: DuckDBPyConnection, job: str, names: Sequence[str]) -> None:
    """Nothing is told of what was found in a table that is none of these, the job's."""
    db.execute("DELETE FROM verified WHERE job = ? AND NOT list_contains(?, table_name)", [job, names])


def _forget_equal(db: DuckDBPyConnection, job: str) -> None:
    db.execute("DELETE FROM compared WHERE job = ?", [job])


def newest(db: DuckDBPyConnection, job: str) -> tuple[Verified, ...]:
    """What was found last in each table of the job, as of its last verify; by name."""
    found = db.execute(
        """SELECT table_name, epoch, at_ms, share, missing, extra, changed, verdict = $2, not_compared, "rows"
           FROM verified WHERE job = $1 ORDER BY table_name""",
        [job, EQUAL],
    ).fetchall()
    return tuple(Verified(*told) for told in found)
