"""What a table's marker means for a commit: to be applied, a repeat, or refused. The same for every sink."""

from backfill_cli.contracts.sink import EpochCommit
from backfill_cli.errors import RESTORE, START_OVER, Held, StateConflict, command
from backfill_cli.model.checkpoint import Marker


def is_due(commit: EpochCommit, table: str, marker: Marker | None, holder: str) -> bool:
    """Whether the epoch still has to be applied to this table; false for a repeat of the same attempt.

    holder: what holds the tables, for messages ("file"). Raises Held for an older token, StateConflict when the
    marker is not at the preceding epoch, or is missing: the job was dropped, or the holder replaced.
    """
    if marker is None:
        raise gone(commit, table, holder)
    if (marker.epoch, marker.attempt) == (commit.epoch, commit.attempt):
        return False
    refuse_old_token(commit.job, table, commit.token, marker)
    if marker.epoch != commit.prev_epoch or marker.epoch >= commit.epoch:
        raise _restored(commit, table, marker, holder)
    return True


def refuse_old_token(job: str, table: str, token: int, marker: Marker) -> None:
    """Raises Held for a runner whose token is older than the marker's."""
    if marker.token > token:
        raise Held(
            f"another runner took job {job!r} over: table {table!r} has token {marker.token}, ours is {token}",
            command(f"status {job}"),
        )


def gone(commit: EpochCommit, table: str, holder: str) -> StateConflict:
    """The error for a table that has no marker although the job continues."""
    return StateConflict(
        f"job {commit.job!r}: the sink holds no marker of table {table!r}, but the catalog is at epoch "
        f"{commit.prev_epoch}: the job was dropped from the sink, or its {holder} was deleted or replaced",
        RESTORE,
    )


def _restored(commit: EpochCommit, table: str, marker: Marker, holder: str) -> StateConflict:
    if marker.epoch == commit.epoch:
        what = f"holds epoch {marker.epoch} from another attempt ({marker.attempt}, not {commit.attempt})"
    else:
        side = "the sink" if marker.epoch < commit.prev_epoch else "the catalog"
        what = (
            f"is at epoch {marker.epoch}, the catalog goes from {commit.prev_epoch} to {commit.epoch}: {side} was "
            f"restored from an older copy, or its {holder} was replaced"
        )
    return StateConflict(
        f"job {commit.job!r}: table {table!r} of the sink {what}",
        "continue from what the sink holds: "
        + command(f"resume {commit.job} --from-sink job.toml")
        + "; or "
        + START_OVER,
    )
