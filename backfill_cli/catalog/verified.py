"""What `verify` found last of each table, shown by `status`; and, of one that has not ended, what was equal."""

from typing import TYPE_CHECKING

from backfill_cli.model.verified import Verified

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from backfill_cli.model.verify import TableVerdict, VerifyReport

EQUAL, DIFFERENT = "equal", "different"


def record(db: "DuckDBPyConnection", report: "VerifyReport", at_ms: int) -> None:
    """What the report says stands in the place of what was known of its tables; the next verify reads all."""
    forget_compared(db, report.job)
    for one in report.tables:
        db.execute("DELETE FROM verified WHERE job = ? AND table_name = ?", [report.job, one.table])
        db.execute(
            "INSERT INTO verified VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
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
            ],
        )


def note_compared(db: "DuckDBPyConnection", job: str, basis: str, equal: "TableVerdict", at_ms: int) -> None:
    """The table is known to be equal on this basis; what was known on another is not known any more."""
    db.execute("DELETE FROM compared WHERE job = ? AND (basis != ? OR table_name = ?)", [job, basis, equal.table])
    told = [job, equal.table, basis, at_ms, equal.rows_upstream, equal.rows_sink]
    db.execute("INSERT INTO compared VALUES (?, ?, ?, ?, ?, ?)", told)


def compared(db: "DuckDBPyConnection", job: str, basis: str) -> tuple[tuple[str, int, int, int], ...]:
    """(table, rows upstream, rows in the sink, when) of each that is known to be equal on this basis."""
    found = db.execute(
        "SELECT table_name, rows_upstream, rows_sink, at_ms FROM compared WHERE job = ? AND basis = ?",
        [job, basis],
    )
    return tuple((name, upstream, sink, at_ms) for name, upstream, sink, at_ms in found.fetchall())


def forget_compared(db: "DuckDBPyConnection", job: str) -> None:
    """A verify of the job reads all of it."""
    db.execute("DELETE FROM compared WHERE job = ?", [job])


def newest(db: "DuckDBPyConnection", job: str) -> tuple[Verified, ...]:
    """The tables of the job's last verify, by name."""
    found = db.execute(
        """SELECT table_name, epoch, at_ms, share, missing, extra, changed, verdict = $2 FROM verified
           WHERE job = $1 AND at_ms = (SELECT max(at_ms) FROM verified WHERE job = $1) ORDER BY table_name""",
        [job, EQUAL],
    ).fetchall()
    return tuple(Verified(*told) for told in found)
