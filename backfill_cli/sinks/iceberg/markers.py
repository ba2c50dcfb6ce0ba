"""A table's marker of the job that fills it: properties of a commit's snapshot, which a tag of ours keeps.

A snapshot expires, with its properties, unless a tag or branch keeps it; so each commit is followed by a tag. The
newest marker among the ancestors of the branch with the job's rows counts; if those have expired, that of the tag.

That branch is the table's own, or the job's until it is cut over. The cutover itself writes no record: the table's
own branch moves to the job's, in one change by the table's catalog, and from then on its ancestors have the marker
of the job's claim.
"""

import re

from pyiceberg.table.snapshots import Snapshot

from backfill_cli.errors import START_OVER, StateConflict
from backfill_cli.lake.iceberg.metadata import Held, summary_of
from backfill_cli.lake.iceberg.places import Place
from backfill_cli.lake.state import Claim
from backfill_cli.model.checkpoint import Marker

MAIN = "main"
PREFIX = "backfill."
PART = f"{PREFIX}part"
"""The property of the snapshots of a commit before its last, which has the marker: the job's name."""
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
    def main(self) -> Snapshot | None:
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
    return any(summary_of(one).get(f"{PREFIX}claim") == claim.id for one in held.ancestors(held.main))


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


def is_of(snapshot: Snapshot, job: str) -> bool:
    """Whether the job wrote this snapshot: a whole commit, or a part of one."""
    told = summary_of(snapshot)
    return job in (told.get(f"{PREFIX}job"), told.get(PART))


def marker_of(held: Head, claim: Claim) -> Marker:
    """The claim's marker; at epoch 0 if the table has none.

    Raises StateConflict if the snapshots have expired that would show whether the last epoch was committed, and if
    the job's branch existed and is gone.
    """
    none = Marker(0, claim.token, "")
    if not held.begun:
        marker, snapshot = _marked(held, claim) or (none, None)
        if marker.epoch > 0 and snapshot is not None:
            place = Place.of(claim.place)
            again = place.alter(f"CREATE BRANCH {held.target} AS OF VERSION {snapshot.snapshot_id}")
            raise StateConflict(
                f"branch {held.target!r}, which the job fills, is gone; it was at commit {marker.epoch}",
                "create it again: " + place.in_spark(again) + "; or " + START_OVER,
            )
        return none
    if (found := _in_branch(held, claim)) is not None:
        return found[0]
    if held.reaches_start(held.main):
        return none
    tagged, _ = _in_refs(held, claim, "backfill_tag_") or (none, None)
    begun, _ = _in_refs(held, claim, "backfill_branch_") or (none, None)
    if _age(begun) > _age(tagged):
        raise StateConflict(
            f"the table does not show whether commit {begun.epoch} was made: its runner ended "
            "meanwhile, and the snapshots since have expired",
            START_OVER,
        )
    return tagged


def marked_snapshot(held: Head, claim: Claim) -> Snapshot | None:
    """The newest snapshot with a marker of the claim; that of a tag if those of the branch have expired."""
    found = _marked(held, claim)
    return None if found is None else found[1]


def _marked(held: Head, claim: Claim) -> tuple[Marker, Snapshot] | None:
    return _in_branch(held, claim) or _in_refs(held, claim, "backfill_tag_")


def _in_branch(held: Head, claim: Claim) -> tuple[Marker, Snapshot] | None:
    """The newest marker of the claim in the branch with the job's rows, and its snapshot."""
    found = ((_of(one, claim), one) for one in held.ancestors(held.main))
    return next(((marker, one) for marker, one in found if marker is not None), None)


def _in_refs(held: Held, claim: Claim, kind: str) -> tuple[Marker, Snapshot] | None:
    """The newest marker of the claim in our tags or branches, and its snapshot."""
    snapshots = (held.snapshot(number) for name, number in held.refs.items() if name.startswith(kind))
    found = ((_of(one, claim), one) for one in snapshots if one is not None)
    return max(
        ((marker, one) for marker, one in found if marker is not None), key=lambda one: _age(one[0]), default=None
    )


def _age(marker: Marker) -> tuple[int, int]:
    return marker.token, marker.epoch


def job_of_refs(held: Held) -> tuple[str, str] | None:
    """The (job, its name for the table) that our refs in the table name; None if there are none."""
    for name, number in held.refs.items():
        if _REF.fullmatch(name):
            told = summary_of(held.snapshot(number))
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


def _of(snapshot: Snapshot, claim: Claim) -> Marker | None:
    told = summary_of(snapshot)
    if told.get(PREFIX + "claim") != claim.id:
        return None
    return Marker(int(told[PREFIX + "epoch"]), int(told[PREFIX + "token"]), told[PREFIX + "attempt"])
