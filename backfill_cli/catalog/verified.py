"""What `verify` found last of each table: written when it has ended, shown by `status`."""

from typing import TYPE_CHECKING

from backfill_cli.model.verify import Verified, VerifyReport

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

EQUAL, DIFFERENT = "equal", "different"


def record(db: "DuckDBPyConnection", report: VerifyReport, at_ms: int) -> None:
    """What the report says stands in the place of what was known of its tables."""
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


def newest(db: "DuckDBPyConnection", job: str) -> tuple[Verified, ...]:
    """The tables of the job's last verify, by name."""
    found = db.execute(
        """SELECT table_name, epoch, at_ms, share, missing, extra, changed, verdict = $2 FROM verified
           WHERE job = $1 AND at_ms = (SELECT max(at_ms) FROM verified WHERE job = $1) ORDER BY table_name""",
        [job, EQUAL],
    ).fetchall()
    return tuple(Verified(*told) for told in found)
