"""What other writers committed to a table that a job cuts over, so that none of it is lost silently.

A commit is the job's if its last snapshot has the job's marker.
"""

from typing import TYPE_CHECKING

from backfill_cli.errors import START_OVER
from backfill_cli.lake.iceberg.places import Place
from backfill_cli.lake.state import Claim, Cut
from backfill_cli.sinks.iceberg.heads import PREFIX, Head, told_by

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot


def moved(place: Place, held: Head) -> tuple[str, str] | None:
    """What others committed to the table's own branch since the job's was created, and how to undo it.

    (message, hint) of an error; None if they committed nothing.
    """
    own = {one.snapshot_id for one in held.ancestors(held.main)}
    theirs: list[Snapshot] = []
    for one in held.ancestors(held.table_main):
        if one.snapshot_id in own:
            break
        theirs.append(one)
    if not theirs:
        return None
    base = theirs[-1].parent_snapshot_id
    call = place.call("rollback_to_snapshot", f"snapshot_id => {base}")
    back = f"if their rows are not needed: {place.in_spark}{call}; else "
    return (
        f"{place}: others committed {len(theirs)} snapshot(s) to it since the job's branch {held.target!r} was "
        f"created from it, the newest is {theirs[0].snapshot_id}",
        f"{back if base is not None else ''}{START_OVER}, while nobody else writes to it",
    )


def written_since(job: str, claim: Claim, held: Head, cut: Cut) -> tuple[str, str] | None:
    """What was committed without the job's marker since the table was cut over, and what to do about it.

    (message, hint) of an error; None if there is nothing. Compactions do not count, as they change no row. A
    commit of the job that took several snapshots does count: only the last of them has the marker.
    """
    place, epoch = Place.of(claim.place), int(cut.kept.rsplit("_", 1)[1])
    back = place.in_spark + place.call("set_current_snapshot", f"ref => '{cut.kept}'")
    by_hand = (
        f"leave it cut over; or if that is not needed, forget the job and go back by hand: backfill drop {job} "
        f"--confirm {job}; {back}"
    )
    theirs: list[Snapshot] = []
    for one in held.ancestors(held.main):
        told = told_by(one)
        if told.get(f"{PREFIX}claim") != claim.id:
            if one.summary is None or one.summary.operation.value != "replace":
                theirs.append(one)
        elif int(told[f"{PREFIX}epoch"]) <= epoch:
            break
    else:
        return (
            f"{place}: the snapshots since it was cut over have expired: whether others wrote to it is unknown",
            by_hand,
        )
    if not theirs:
        return None
    return (
        f"{place}: others committed {len(theirs)} snapshot(s) to it since it was cut over, the newest is "
        f"{theirs[0].snapshot_id}: the table would lose them",
        by_hand,
    )


def left_by(held: Head, kept: str) -> int | None:
    """The snapshot that the table was at before it was set back to this tag; None if unknown."""
    at = [entry.snapshot_id for entry in held.told.snapshot_log]
    back = held.refs.get(kept)
    last = max((index for index, number in enumerate(at) if number == back), default=0)
    return at[last - 1] if last else None
