"""What a table says of the job that fills it: properties of the snapshot of a commit, held by a tag of ours.

A snapshot expires, and with it what it says, unless a tag or branch holds it: each commit is followed by a tag.
The newest marker among the ancestors of the table's own branch counts; the tag where those have expired.
"""

import re

from backfill_cli.errors import StateConflict
from backfill_cli.formats.iceberg.metadata import Held
from backfill_cli.formats.lake.state import Claim
from backfill_cli.model.checkpoint import Marker
from backfill_cli.sinks.iceberg.heads import PREFIX, Head, told_by

_REF = re.compile(r"backfill_(?:tag|branch)_(\d+)")


def tag(token: int) -> str:
    """The tag of one runner: a late one moves its own alone."""
    return f"backfill_tag_{token}"


def branch(token: int) -> str:
    """What one runner writes to before the table's own branch has it."""
    return f"backfill_branch_{token}"


def properties(job: str, table: str, claim: Claim, marker: Marker) -> dict[str, str]:
    told = {
        "job": job,
        "table": table,
        "claim": claim.id,
        "epoch": str(marker.epoch),
        "token": str(marker.token),
        "attempt": marker.attempt,
    }
    return {PREFIX + name: value for name, value in told.items()}


def marker_of(held: Head, claim: Claim) -> Marker:
    """The claim's marker; at epoch 0 where the table says nothing of it."""
    if not held.begun:
        return _before_branch(held, claim)
    for snapshot in held.ancestors(held.main):
        if (found := _of(held, snapshot.snapshot_id, claim)) is not None:
            return found
    if held.reaches_start(held.main):
        return Marker(0, claim.token, "")
    tagged = _newest(held, claim, "backfill_tag_")
    begun = _newest(held, claim, "backfill_branch_")
    if _age(begun) > _age(tagged):
        raise StateConflict(
            f"the table says that epoch {begun.epoch} was about to be committed, and no longer whether it was: "
            "its runner died there, and the snapshots since have expired",
            "restore the table to a snapshot from before that; or drop the job and start over",
        )
    return tagged


def _before_branch(held: Head, claim: Claim) -> Marker:
    """Raises StateConflict where the job's branch was there, and is gone."""
    if (epoch := _newest(held, claim, "backfill_tag_").epoch) > 0:
        raise StateConflict(
            f"branch {held.target!r}, which the job fills, is gone, though it was at epoch {epoch}",
            "create it again at the tag that keeps it, backfill_tag_…; or drop the job and start over",
        )
    return Marker(0, claim.token, "")


def _newest(held: Held, claim: Claim, kind: str) -> Marker:
    said = [_of(held, number, claim) for name, number in held.refs.items() if name.startswith(kind)]
    return max((one for one in said if one is not None), key=_age, default=Marker(0, claim.token, ""))


def _age(marker: Marker) -> tuple[int, int]:
    return marker.token, marker.epoch


def job_of_refs(held: Held) -> tuple[str, str] | None:
    """(job, its claim's id) that refs of ours in the table speak of; None without any."""
    for name, number in held.refs.items():
        if _REF.fullmatch(name):
            told = told_by(held.snapshot(number))
            if PREFIX + "job" in told:
                return told[PREFIX + "job"], told[PREFIX + "claim"]
    return None


def refs_before(held: Held, token: int | None) -> list[tuple[str, bool]]:
    """(name, whether it is a tag) of the refs of runners before this token, of all runners without one."""
    found = ((name, _REF.fullmatch(name)) for name in held.refs)
    return [
        (name, "_tag_" in name)
        for name, match in found
        if match is not None and (token is None or int(match[1]) < token)
    ]


def _of(held: Held, number: int, claim: Claim) -> Marker | None:
    told = told_by(held.snapshot(number))
    if told.get(PREFIX + "claim") != claim.id:
        return None
    return Marker(int(told[PREFIX + "epoch"]), int(told[PREFIX + "token"]), told[PREFIX + "attempt"])
