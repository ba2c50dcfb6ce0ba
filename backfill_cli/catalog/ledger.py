"""The ledger: one line per epoch, with numbers for people and plots. Old lines are summed by the hour."""

from dataclasses import astuple, replace

from backfill_cli.duckdb_instance import DuckDBPyConnection
from backfill_cli.model.checkpoint import EpochRecord, Totals
from backfill_cli.model.job import Phase

KEPT = 10_000
# Summing 500 lines at a time keeps the cost out of nearly every barrier.
FOLD_AT = 10_500
HOUR_MS = 3_600_000

_COLUMNS = """epoch, prev_ms, phase, committed_ms, snapshot_rows, changes_read, rows_written, upstream_epochs,
              stage_ms, commit_ms, lag_ms, pending_epochs, mutations, rows_inserted, rows_upserted, rows_deleted"""

_BY_OP = ", ".join(
    f"CASE WHEN count({name}) = count(*) THEN sum({name})::BIGINT END"
    for name in ("rows_inserted", "rows_upserted", "rows_deleted")
)
"""Sums that are known only if every line has them."""


def record(db: DuckDBPyConnection, job: str, line: EpochRecord) -> None:
    """The line is in the ledger. A barrier that took a command and then committed rows has one line."""
    there = db.execute("SELECT mutations FROM ledger WHERE job = ? AND epoch = ?", [job, line.epoch]).fetchone()
    if there is not None:
        db.execute("DELETE FROM ledger WHERE job = ? AND epoch = ?", [job, line.epoch])
        line = replace(line, mutations=line.mutations or there[0])
    values = [job, *astuple(line)]
    db.execute(f"INSERT INTO ledger VALUES ({', '.join('?' * len(values))})", values)
    _fold(db, job)


def newest(db: DuckDBPyConnection, job: str, last: int) -> tuple[EpochRecord, ...]:
    """The newest `last` lines, oldest first."""
    found = db.execute(
        f"""SELECT * FROM (SELECT {_COLUMNS} FROM ledger WHERE job = ? ORDER BY epoch DESC LIMIT ?)
            ORDER BY epoch""",
        [job, last],
    ).fetchall()
    return tuple(EpochRecord(row[0], row[1], Phase(row[2]), *row[3:]) for row in found)


def totals(db: DuckDBPyConnection, job: str) -> Totals:
    """The sums over all lines ever recorded, including those summed by the hour."""
    summed = db.execute(
        f"""SELECT coalesce(sum(epochs), 0)::BIGINT, coalesce(sum(snapshot_rows), 0)::BIGINT,
                  coalesce(sum(changes_read), 0)::BIGINT, coalesce(sum(rows_written), 0)::BIGINT,
                  coalesce(sum(commits), 0)::BIGINT, coalesce(sum(stage_ms), 0)::BIGINT,
                  coalesce(sum(commit_ms), 0)::BIGINT, {_BY_OP}
           FROM (SELECT 1 AS epochs, snapshot_rows, changes_read, rows_written, stage_ms, commit_ms,
                        rows_inserted, rows_upserted, rows_deleted,
                        (mutations IN ('', 'recovered') OR snapshot_rows + changes_read + rows_written > 0)::BIGINT
                        AS commits
                 FROM ledger WHERE job = $job
                 UNION ALL BY NAME
                 SELECT epochs, snapshot_rows, changes_read, rows_written, stage_ms, commit_ms,
                        rows_inserted, rows_upserted, rows_deleted, epochs - commands AS commits
                 FROM ledger_hours WHERE job = $job)""",
        {"job": job},
    ).fetchone()
    assert summed is not None
    return Totals(*summed) if summed[0] else Totals()


def _fold(db: DuckDBPyConnection, job: str) -> None:
    """Sum all but the newest lines by the hour, once there are enough of them."""
    count = db.execute("SELECT count(*) FROM ledger WHERE job = ?", [job]).fetchone()
    assert count is not None
    if count[0] <= FOLD_AT:
        return
    oldest = db.execute(
        "SELECT epoch FROM ledger WHERE job = ? ORDER BY epoch DESC LIMIT 1 OFFSET ?", [job, KEPT - 1]
    ).fetchone()
    assert oldest is not None
    names = {"job": job, "oldest": oldest[0], "hour": HOUR_MS}
    db.execute(
        f"""CREATE TEMPORARY TABLE folded AS
           SELECT $job AS job, hour_ms, sum(epochs), sum(snapshot_rows), sum(changes_read), sum(rows_written),
                  sum(upstream_epochs), sum(stage_ms), sum(commit_ms), max(max_lag_ms), max(max_pending_epochs),
                  sum(commands), {_BY_OP}
           FROM (SELECT committed_ms - committed_ms % $hour AS hour_ms, 1 AS epochs, snapshot_rows, changes_read,
                        rows_written, upstream_epochs, stage_ms, commit_ms, lag_ms AS max_lag_ms,
                        pending_epochs AS max_pending_epochs, (mutations <> '')::BIGINT AS commands,
                        rows_inserted, rows_upserted, rows_deleted
                 FROM ledger WHERE job = $job AND epoch < $oldest
                 UNION ALL BY NAME
                 SELECT * EXCLUDE (job) FROM ledger_hours WHERE job = $job)
           GROUP BY hour_ms""",
        names,
    )
    db.execute("DELETE FROM ledger_hours WHERE job = ?", [job])
    db.execute("INSERT INTO ledger_hours FROM folded")
    db.execute("DELETE FROM ledger WHERE job = ? AND epoch < ?", [job, oldest[0]])
    db.execute("DROP TABLE folded")
