"""What others committed to a table that a job cuts over: nothing of theirs goes without a word.

A commit of the job is several snapshots, of which the last says its marker, and at what the commit began.
"""

from typing import TYPE_CHECKING

from backfill_cli.formats.iceberg.places import Place
from backfill_cli.formats.lake.state import Claim, Cut
from backfill_cli.sinks.iceberg.heads import FROM, PREFIX, Head, told_by

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot


def moved(place: Place, held: Head) -> tuple[str, str] | None:
    """What was committed to the table's own branch since the job's was made, and how that is undone."""
    own = {one.snapshot_id for one in held.ancestors(held.main)}
    theirs: list[Snapshot] = []
    for one in held.ancestors(held.table_main):
        if one.snapshot_id in own:
            break
        theirs.append(one)
    if not theirs:
        return None
    base = theirs[-1].parent_snapshot_id
    back = f"if what they wrote may go: {place.call('rollback_to_snapshot', f'snapshot_id => {base}')}; else "
    return (
        f"{place}: others committed {len(theirs)} snapshots to it since the job's branch {held.target!r} was made "
        f"from it, the newest is {theirs[0].snapshot_id}",
        f"{back if base is not None else ''}drop the job and start over, while nobody writes to it",
    )


def written_since(job: str, claim: Claim, held: Head, cut: Cut) -> tuple[str, str] | None:
    """What others committed to a table since it was cut over, and the way on. A compaction changes no row."""
    theirs: list[Snapshot] = []
    at_their_end, began = None, None
    for one in held.ancestors(held.main):
        if one.snapshot_id == held.refs.get(cut.kept):
            break
        told = told_by(one)
        if told.get(f"{PREFIX}claim") == claim.id:
            began = told.get(FROM, str(one.parent_snapshot_id))
            at_their_end = at_their_end or one.snapshot_id
        elif began is None or str(one.snapshot_id) == began:
            began = None
            if one.summary is None or one.summary.operation.value != "replace":
                theirs.append(one)
    if not theirs:
        return None
    place = Place.of(claim.place)
    return (
        f"{place}: others committed {len(theirs)} snapshots to it since it was cut over, the newest is "
        f"{theirs[0].snapshot_id}: they would go off the table",
        f"leave it cut over; or if what they wrote may go, forget the job and go back by hand: backfill drop {job} "
        f"--confirm {job}; {place.call('set_current_snapshot', f"ref => '{cut.kept}'")}",
    )


def left_by(held: Head, kept: str) -> int | None:
    """The snapshot that the table was at before it was put back to this tag."""
    at = [entry.snapshot_id for entry in held.told.snapshot_log]
    back = held.refs.get(kept)
    last = max((index for index, number in enumerate(at) if number == back), default=0)
    return at[last - 1] if last else None
