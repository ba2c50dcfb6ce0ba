"""A job's commits and commands, from the ledger: as a table and as JSON."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from backfill_cli.model.checkpoint import EpochRecord
from backfill_cli.model.units import spell_duration, spell_moment
from backfill_cli.view.console import answer, answer_json, interactive, say
from backfill_cli.view.model import SCHEMA, JobView, spell_verified

HEAD = (
    "TIME (UTC)",
    "EPOCH",
    "PHASE",
    "ROWS",
    "CHANGES",
    "WRITTEN",
    "INSERTED",
    "UPSERTED",
    "DELETED",
    "STAGE",
    "COMMIT",
    "LAG",
    "PENDING",
    "COMMAND",
)
SPARED = ("INSERTED", "UPSERTED", "DELETED", "WRITTEN", "EPOCH", "PENDING", "STAGE", "COMMIT")
"""Left out in this order where a terminal is too narrow for the table."""


def show_history(view: JobView, records: Sequence[EpochRecord], as_json: bool) -> None:
    """Print the epochs to stdout, oldest first, and what the last verify found."""
    job, found = view.name, view.verified
    if as_json:
        epochs = [asdict(one) for one in records]
        verified = None if found is None else asdict(found)
        answer_json({"schema": SCHEMA, "job": job, "epochs": epochs, "verified": verified})
    elif records:
        said = "" if found is None else f"\nverified: {spell_verified(found)}"
        width = shutil.get_terminal_size().columns if interactive(sys.stdout) else None
        answer(history_table(records, width) + said)
    else:
        say(f"job {job}: no epoch committed and no command taken yet")


def history_table(records: Sequence[EpochRecord], width: int | None = None) -> str:
    """A line per epoch, columns aligned, numbers right-aligned. width: of the terminal it has to fit, if possible;
    a last line names the columns that were left out."""
    rows = [HEAD, *(history_row(one) for one in records)]
    widest = {name: max(len(row[at]) for row in rows) for at, name in enumerate(HEAD)}
    left_out: list[str] = []
    for name in SPARED:
        if width is None or sum(widest.values()) + 2 * (len(widest) - 1) <= width:
            break
        left_out.append(name)
        del widest[name]
    lines = [_aligned(dict(zip(HEAD, row, strict=True)), widest) for row in rows]
    if left_out:
        lines.append(f"left out, the terminal is too narrow: {', '.join(left_out)}")
    return "\n".join(lines)


def _aligned(row: Mapping[str, str], widest: Mapping[str, int]) -> str:
    cells = (
        row[name].ljust(width) if name in ("TIME (UTC)", "PHASE", "COMMAND") else row[name].rjust(width)
        for name, width in widest.items()
    )
    return "  ".join(cells).rstrip()


def history_row(record: EpochRecord) -> tuple[str, ...]:
    return (
        spell_moment(record.committed_ms).removesuffix(" UTC"),
        str(record.epoch),
        record.phase.value,
        f"{record.snapshot_rows:,}",
        f"{record.changes_read:,}",
        f"{record.rows_written:,}",
        *(
            "-" if rows is None else f"{rows:,}"
            for rows in (record.rows_inserted, record.rows_upserted, record.rows_deleted)
        ),
        spell_duration(record.stage_ms / 1000),
        spell_duration(record.commit_ms / 1000),
        "-" if record.lag_ms is None else spell_duration(record.lag_ms / 1000),
        f"{record.pending_epochs:,}",
        record.mutations or "-",
    )
