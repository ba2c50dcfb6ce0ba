"""A job's commits and commands, from the ledger: as a table and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict

from backfill_cli.catalog.moments import spell_moment
from backfill_cli.model.checkpoint import EpochRecord
from backfill_cli.model.units import spell_duration
from backfill_cli.view.console import answer, answer_json, say
from backfill_cli.view.model import SCHEMA, JobView, spell_verified

HEAD = (
    "TIME (UTC)",
    "EPOCH",
    "PHASE",
    "ROWS",
    "CHANGES",
    "WRITTEN",
    "STAGE",
    "COMMIT",
    "LAG",
    "PENDING",
    "COMMAND",
)


def show_history(view: JobView, records: Sequence[EpochRecord], as_json: bool) -> None:
    """Print the epochs to stdout, oldest first, and what the last verify found."""
    job, found = view.name, view.verified
    if as_json:
        epochs = [asdict(one) for one in records]
        verified = None if found is None else asdict(found)
        answer_json({"schema": SCHEMA, "job": job, "epochs": epochs, "verified": verified})
    elif records:
        said = "" if found is None else f"\nverified: {spell_verified(found)}"
        answer(history_table(records) + said)
    else:
        say(f"job {job}: no epoch committed and no command taken yet")


def history_table(records: Sequence[EpochRecord]) -> str:
    """A line per epoch, columns aligned, numbers right-aligned."""
    rows = [HEAD, *(history_row(one) for one in records)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in (0, 2, 10) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def history_row(record: EpochRecord) -> tuple[str, ...]:
    return (
        spell_moment(record.committed_ms).removesuffix(" UTC"),
        str(record.epoch),
        record.phase.value,
        f"{record.snapshot_rows:,}",
        f"{record.changes_read:,}",
        f"{record.rows_written:,}",
        spell_duration(record.stage_ms / 1000),
        spell_duration(record.commit_ms / 1000),
        "-" if record.lag_ms is None else spell_duration(record.lag_ms / 1000),
        f"{record.pending_epochs:,}",
        record.mutations or "-",
    )
