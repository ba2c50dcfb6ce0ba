"""A table's marker of the job that fills it: properties of a commit's snapshot, which a tag of ours keeps.

A snapshot expires, with its properties, unless a tag or branch keeps it; so each commit is followed by a tag. The
newest marker among the ancestors of the branch with the job's rows counts; if those have expired, that of the tag.

That branch is the table's own, or the job's until it is cut over. The cutover itself writes no record: the table's
own branch moves to the job's, in one change by the table's catalog, and from then on its ancestors have the marker
of the job's claim.
"""

import re
from typing import TYPE_CHECKING

from backfill_cli.errors import START_OVER, StateConflict
from backfill_cli.lake.iceberg.metadata import Held
from backfill_cli.lake.iceberg.places import Place
from backfill_cli.lake.state import Claim
from backfill_cli.model.checkpoint import Marker

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

MAIN = "main"
PREFIX = "backfill."
_REF = re.compile(r"backfill_(?:tag|branch)_(\d+)")


class Head(Held):
    """A table as its job sees it: `main` is the newest snapshot with the job's rows.

    target: the branch that a commit moves. begun: whether that branch exists; if not, `main` is the snapshot that
    it will be created from.
    """

    def __init__(self, held: Held, target: str = MAIN) -> None:
        super().__init__(held.file, held.told, held.io)
        self.table_main = held.main
        self.target = target
        number = None if target == MAIN else held.refs.get(target)
        self.begun = target == MAIN or number is not None
        self._newest = held.main if number is None else held.snapshot(number)

    @property
    def main(self) -> "Snapshot | None":
        return self._newest

    @property
    def is_live(self) -> bool:
        """Whether queries of the table see the job's rows."""
        return self.target == MAIN


def head_of(held: Held, branch: str | None, claim: Claim | None) -> Head:
    """The table as its job sees it. branch: the job's, None if the job writes to the table's own branch."""
    if branch is None or (claim is not None and _tells(held, claim)):
        return Head(held)
    return Head(held, branch)


def _tells(held: Held, claim: Claim) -> bool:
    """Whether the table's own branch has a marker of this claim."""
    return any(told_by(one).get(f"{PREFIX}claim") == claim.id for one in held.ancestors(held.main))


def told_by(snapshot: "Snapshot | None") -> "dict[str, str]":
    """The properties of a snapshot; empty for None."""
    return {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties


def tag(token: int) -> str:
    """The tag of one runner: a late runner moves only its own."""
    return f"backfill_tag_{token}"


def branch(token: int) -> str:
    """The branch that one runner writes to, before the table's own branch moves to it."""
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
    """The claim's marker; at epoch 0 if the table has none.

    Raises StateConflict if the snapshots have expired that would show whether the last epoch was committed.
    """
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
            f"the table does not show whether epoch {begun.epoch} was committed: its runner died during the "
            "commit, and the snapshots since have expired",
            START_OVER,
        )
    return tagged


def marked_snapshot(held: Head, claim: Claim) -> "Snapshot | None":
    """The newest snapshot with a marker of the claim; that of a tag if those of the branch have expired."""
    for snapshot in held.ancestors(held.main):
        if _of(held, snapshot.snapshot_id, claim) is not None:
            return snapshot
    tags = [number for name, number in held.refs.items() if name.startswith("backfill_tag_")]
    said = [(marker, number) for number in tags if (marker := _of(held, number, claim)) is not None]
    newest = max(said, key=lambda one: _age(one[0]), default=None)
    return None if newest is None else held.snapshot(newest[1])


def _before_branch(held: Head, claim: Claim) -> Marker:
    """The marker at epoch 0. Raises StateConflict if the job's branch existed and is gone."""
    was = marked_snapshot(held, claim)
    if was is not None and (marker := _of(held, was.snapshot_id, claim)) is not None and marker.epoch > 0:
        place = Place.of(claim.place)
        again = place.alter(f"CREATE BRANCH {held.target} AS OF VERSION {was.snapshot_id}")
        raise StateConflict(
            f"branch {held.target!r}, which the job fills, is gone; it was at epoch {marker.epoch}",
            "create it again: " + place.in_spark(again) + "; or " + START_OVER,
        )
    return Marker(0, claim.token, "")


def _newest(held: Held, claim: Claim, kind: str) -> Marker:
    said = [_of(held, number, claim) for name, number in held.refs.items() if name.startswith(kind)]
    return max((one for one in said if one is not None), key=_age, default=Marker(0, claim.token, ""))


def _age(marker: Marker) -> tuple[int, int]:
    return marker.token, marker.epoch


def job_of_refs(held: Held) -> tuple[str, str] | None:
    """The (job, its name for the table) that our refs in the table name; None if there are none."""
    for name, number in held.refs.items():
        if _REF.fullmatch(name):
            told = told_by(held.snapshot(number))
            if PREFIX + "job" in told:
                return told[PREFIX + "job"], told[PREFIX + "table"]
    return None


def refs_before(held: Held, token: int | None) -> list[tuple[str, bool]]:
    """(name, whether it is a tag) of the refs of runners with an older token; of all runners if token is None."""
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
